"""attach() on vision models of many kinds: what it changes, and that detach() undoes it."""

import pytest
import torch
from transformers import (
    CLIPVisionConfig,
    CLIPVisionModel,
    Dinov2Config,
    Dinov2Model,
    Dinov2WithRegistersConfig,
    Dinov2WithRegistersModel,
    SiglipVisionConfig,
    SiglipVisionModel,
    ViTConfig,
    ViTModel,
)

import centerclip
from centerclip.cluster import SettingError, centers, temporal_shift, token_shift
from centerclip.model import ModelError
from centerclip.model.attachment import token_layout, transformer_blocks

SIZES = {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 2, "image_size": 32, "patch_size": 8}
MODELS = {
    "clip": (CLIPVisionModel, CLIPVisionConfig(**SIZES, intermediate_size=64), 1),
    "vit": (ViTModel, ViTConfig(**SIZES, intermediate_size=64), 1),
    "dinov2": (Dinov2Model, Dinov2Config(**SIZES), 1),
    "dinov2 with registers": (Dinov2WithRegistersModel, Dinov2WithRegistersConfig(**SIZES, num_register_tokens=4), 5),
    "siglip": (SiglipVisionModel, SiglipVisionConfig(**SIZES, intermediate_size=64), 0),
}


@pytest.fixture(params=MODELS.values(), ids=MODELS.keys())
def vision(request):
    kind, config, prefix = request.param
    torch.manual_seed(0)
    return kind(config).eval(), prefix


def pixels(videos=2, frames=6):
    return torch.rand(videos * frames, 3, 32, 32, generator=torch.Generator().manual_seed(1))


@torch.no_grad()
def test_one_row_a_segment_and_back(vision):
    model, prefix = vision
    kind = type(model)
    before = model(pixels()).pooler_output
    assert token_layout(model) == (16, prefix)
    assert len(transformer_blocks(model)) == 4
    centerclip.attach(model, "B2-3,10", frames=6)
    assert type(model) is kind
    out = model(pixels())
    assert out.pooler_output.shape == (6, before.shape[1])
    assert out.last_hidden_state.shape[:2] == (6, prefix + 10)
    centerclip.detach(model)
    assert torch.equal(model(pixels()).pooler_output, before)
    centerclip.detach(model)


@torch.no_grad()
def test_equals_running_the_rest_of_the_blocks_by_hand(vision):
    model, prefix = vision
    hidden = model(pixels(), output_hidden_states=True).hidden_states[2]
    kept = centers(hidden, frames=6, segments=3, k=10, prefix=prefix).tokens
    for block in transformer_blocks(model)[2:]:
        out = block(kept, attention_mask=None)
        kept = out[0] if isinstance(out, tuple) else out
    centerclip.attach(model, "B2-3,10", frames=6)
    found = model(pixels()).last_hidden_state
    norm = getattr(model, "layernorm", None) or (model.post_layernorm if prefix == 0 else torch.nn.Identity())
    assert torch.allclose(found, norm(kept), atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("setting", ["token-shift", "temporal-shift", "sampling:B2-3,10", "pooling:B2-3,16"])
def test_baselines_attach_too(vision, setting):
    model, prefix = vision
    before = model(pixels()).pooler_output
    centerclip.attach(model, setting, frames=6)
    after = model(pixels()).pooler_output
    assert len(after) == (6 if "-3," in setting else 12)
    if len(after) == 12 and (prefix, setting) != (0, "token-shift"):
        assert not torch.allclose(before, after)
    centerclip.detach(model)
    assert torch.equal(model(pixels()).pooler_output, before)


@torch.no_grad()
@pytest.mark.parametrize(
    ("setting", "shift", "times"), [("token-shift", token_shift, 2), ("temporal-shift", temporal_shift, 1)]
)
def test_shifts_move_the_residual_stream(vision, setting, shift, times):
    """Where attention and MLPs add nothing, the residual is all there is."""
    model, prefix = vision
    blocks = transformer_blocks(model)
    for parameter in blocks.parameters():
        parameter.zero_()
    states = []
    blocks[0].register_forward_pre_hook(lambda _, inputs: states.append(inputs[0].clone()))
    blocks[-1].register_forward_hook(lambda _, _inputs, output: states.append(output))
    centerclip.attach(model, setting, frames=6)
    model(pixels())
    expected, found = states
    for _ in range(times * len(blocks)):
        expected = shift(expected, frames=6, prefix=prefix)
    assert torch.equal(found, expected)


def test_a_setting_that_does_not_fit_leaves_the_model_alone(vision):
    model, _ = vision
    with pytest.raises(SettingError, match="4 blocks"):
        centerclip.attach(model, "B6-3,10", frames=6)
    centerclip.attach(model, "B2-3,10", frames=6)


def test_models_without_blocks_are_refused():
    with pytest.raises(ModelError, match="no list of transformer blocks"):
        centerclip.attach(torch.nn.Linear(3, 3), "B2-3,10", frames=6)


def test_a_broken_batch_is_named(vision):
    model, _ = vision
    centerclip.attach(model, "B2-3,10", frames=6)
    with pytest.raises(centerclip.cluster.ClusterError, match="not a whole number of videos of 6 frames"):
        model(pixels()[:7])
