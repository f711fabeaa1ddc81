"""What the authors' own code returns for a tiny CLIP, setting by setting, and ours under ``protocol="published"``.

``golden/published.npz`` holds the weights under OpenAI's names (12 blocks of width 64, 16 patches), pixels, token ids,
and the results of the authors' code, with distances computed exactly. To keep it small, half-precision arrays are
stored as two planes of bytes, the token embedding has only the rows that the sentences use, and the two largest
gradients have every 12th and every 4th row.
"""

from pathlib import Path

import numpy as np
import pytest
import torch

from centerclip import CenterCLIP
from centerclip.model.backbone import Backbone
from centerclip.model.checkpoints import to_clip
from centerclip.model.preprocess import Preprocess
from centerclip.model.vectors import video_vectors
from centerclip.training.step import contrastive_loss

SETTINGS = [
    "none", "B6-4,8", "B6-3,8", "B4-6,12 B8-3,8", "pooling:B6-4,16", "sampling:B6-4,8", "token-shift", "temporal-shift",
    "masked none", "masked B6-4,8",
]  # fmt: skip
VOCABULARY = 49408
TOLERANCE = 1e-6


@pytest.fixture(scope="module")
def golden():
    with np.load(Path(__file__).with_name("golden") / "published.npz") as file:
        return {name: torch.from_numpy(file[name]) for name in file.files}


@pytest.fixture(scope="module")
def model(golden):
    weights = {name.removeprefix("weights/"): half(golden[name]) for name in golden if name.startswith("weights/")}
    embedding = torch.zeros(VOCABULARY, 64)
    embedding[golden["used_tokens"]] = weights["token_embedding.weight"]
    clip = to_clip({**weights, "token_embedding.weight": embedding}, Path("published.npz"))
    backbone = Backbone(clip, tokenizer=None, preprocess=Preprocess(size=64))
    return CenterCLIP(backbone, frames=12, similarity_rule="renormalise", protocol="published")


def half(planes):
    """float32 ``[...]`` from the planes ``[2, ...]``, which hold the low and the high bytes of float16 values."""
    low, high = planes.numpy().astype(np.uint16)
    return torch.from_numpy(np.asarray(low | high << 8).view(np.float16)).float()


def pixels_and_mask(golden, padded):
    """Pixels ``[4, 12, 3, 64, 64]`` and mask ``[4, 12]``; padding repeats the last real frame."""
    pixels = half(golden["pixels"])
    if not padded:
        return pixels, None
    mask = golden["frame_mask"]
    frames = torch.arange(12).minimum(mask.sum(dim=1, keepdim=True) - 1)
    return pixels[torch.arange(4)[:, None], frames], mask


def assert_close(value, expected):
    assert value.shape == expected.shape
    assert (value - expected).abs().max() <= TOLERANCE


@torch.no_grad()
@pytest.mark.parametrize("name", SETTINGS)
def test_vectors_masks_ids_and_similarities(name, golden, model):
    model.eval().set_clustering(name.removeprefix("masked "))
    pixels, mask = pixels_and_mask(golden, padded=name.startswith("masked"))
    with model.attachment.record() as kept:
        out = model(pixels, mask, golden["input_ids"], golden["attention_mask"])
    assert_close(out["segments"], golden[f"{name}/segments"])
    assert_close(out["text"], golden["text"])
    vectors = video_vectors(out["segments"], out["segment_mask"], rule=model.rule)
    assert_close(out["text"] @ vectors.T, golden[f"{name}/similarity"])
    if model.clustering.stages:  # without them the authors' code has the mask of the frames
        assert torch.equal(out["segment_mask"], golden[f"{name}/segment_mask"])
    expected_ids = [golden[key] for key in sorted(golden) if key.startswith(f"{name}/ids")]
    assert len(expected_ids) == (len(model.clustering.stages) if model.clustering.method == "kmedoids" else 0)
    for tokens, ids in zip(kept, expected_ids, strict=False):
        assert torch.equal(tokens.ids, ids.long())


@pytest.mark.parametrize("name", ["none", "B6-4,8"])
def test_loss_and_gradients_of_a_training_step(name, golden, model):
    model.train().set_clustering(name)
    model.zero_grad()
    out = model(half(golden["pixels"]), None, golden["input_ids"], golden["attention_mask"])
    vectors = video_vectors(out["segments"], out["segment_mask"], rule=model.rule)
    loss = contrastive_loss(vectors, out["text"], out["logit_scale"])
    loss.backward()
    clip = model.backbone
    blocks = clip.vision_model.encoder.layers
    gradients = {
        "logit_scale": clip.logit_scale.grad,
        "text_projection": clip.text_projection.weight.grad.T,
        "visual.proj": clip.visual_projection.weight.grad.T,
        "visual.transformer.resblocks.0.attn.in_proj_weight": torch.cat(
            [blocks[0].self_attn.get_submodule(f"{letter}_proj").weight.grad for letter in "qkv"]
        )[::12],
        "visual.transformer.resblocks.8.mlp.c_proj.weight": clip.vision_model.encoder.layers[8].mlp.fc2.weight.grad[
            ::4
        ],
        "transformer.resblocks.5.ln_1.weight": clip.text_model.encoder.layers[5].layer_norm1.weight.grad,
    }
    assert {key.split("/grad/")[1] for key in golden if key.startswith(f"{name} train/grad/")} == gradients.keys()
    assert_close(loss.detach(), golden[f"{name} train/loss"])
    for key, gradient in gradients.items():
        assert_close(gradient, golden[f"{name} train/grad/{key}"])
