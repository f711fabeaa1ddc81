"""One step: loss, gradient, schedule, groups, what is frozen."""

import math
from itertools import pairwise

import pytest
import torch
from torch.nn.functional import log_softmax, normalize

from centerclip.distributed import Processes
from centerclip.errors import RecipeError
from centerclip.training.loop import choose_precision
from centerclip.training.loss import compute_gradients, contrastive_loss
from centerclip.training.optimizer import PARTS, freeze, lr_factor, make_optimizer
from centerclip.training.recipe import TrainSettings

from ..model.tiny import center_clip, videos

ALONE = Processes(0, 1, torch.device("cpu"))


def batch_of(pairs, frames=4, first=0):
    rgb = videos(first + pairs, frames)[first:]
    mask = torch.ones(pairs, frames, dtype=torch.bool)
    mask[0, 2:] = False
    captions = [f"a caption of {number}" + " and more" * (number % 3) for number in range(first, first + pairs)]
    return {"rgb": rgb, "mask": mask, "captions": captions}


def gradients_of(model):
    return {name: each.grad.clone() for name, each in model.named_parameters() if each.grad is not None}


def close(one, other):
    """Equal but for rounding, which is as large as the largest numbers make it."""
    return bool((one - other).abs().max() <= 1e-4 * other.abs().max() + 1e-6)


def model_for(setting="B2-2,8", rule="renormalise"):
    model = center_clip(setting, frames=4, similarity_rule=rule)
    model.backbone.logit_scale.data.fill_(1.5)
    return model.train()


def test_loss_is_the_mean_of_both_directions():
    torch.manual_seed(0)
    video, text = normalize(torch.randn(5, 8), dim=1), normalize(torch.randn(5, 8), dim=1)
    scale = torch.tensor(2.0)
    logits = math.exp(2.0) * video @ text.T
    by_hand = -sum(log_softmax(logits, 1)[i, i] + log_softmax(logits, 0)[i, i] for i in range(5)) / 10
    assert torch.allclose(contrastive_loss(video, text, scale), by_hand)


@pytest.mark.parametrize("rule", ["mean", "renormalise"])
def test_gradient_is_that_of_plain_backpropagation(rule):
    from centerclip.model.vectors import video_vectors

    model, batch = model_for(rule=rule), batch_of(6)
    loss = compute_gradients(model, batch, ALONE)
    ours = gradients_of(model)
    model.zero_grad()
    out = model(batch["rgb"], batch["mask"], **model.tokenize(batch["captions"]))
    vectors = video_vectors(out["segments"], out["segment_mask"], rule=rule)
    plain = contrastive_loss(vectors, out["text"], out["logit_scale"])
    plain.backward()
    assert torch.allclose(loss, plain)
    theirs = gradients_of(model)
    assert ours.keys() == theirs.keys()
    assert all(close(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("micro", [1, 2, 4, 5])
def test_micro_batches_give_the_gradient_of_the_big_batch(micro):
    """And not that of smaller contrastive batches: the trap of plain accumulation."""
    model, batch = model_for(), batch_of(6)
    loss = compute_gradients(model, batch, ALONE)
    whole = gradients_of(model)
    assert torch.allclose(compute_gradients(model, batch, ALONE, micro_batch=micro), loss)
    parts = gradients_of(model)
    for name, gradient in whole.items():
        assert close(parts[name], gradient), name
    small = compute_gradients(model, {key: value[:2] for key, value in batch.items()}, ALONE)
    assert not torch.allclose(small, loss, rtol=0.1)


def test_both_passes_draw_the_same_tokens():
    """Token sampling is random in training: the second pass must see what the first saw."""
    model, batch = model_for("sampling:B2-2,4"), batch_of(4)
    compute_gradients(model, batch, ALONE, micro_batch=2, seed=(1, 7))
    first = gradients_of(model)
    compute_gradients(model, batch, ALONE, micro_batch=2, seed=(1, 7))
    again = gradients_of(model)
    compute_gradients(model, batch, ALONE, micro_batch=2, seed=(1, 8))
    other = gradients_of(model)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


def test_gradient_checkpointing_changes_nothing_but_memory():
    model, batch = model_for(), batch_of(4)
    compute_gradients(model, batch, ALONE)
    plain = gradients_of(model)
    model.gradient_checkpointing()
    compute_gradients(model, batch, ALONE)
    assert all(close(plain[name], each) for name, each in gradients_of(model).items())


def test_schedule_rises_then_falls_to_nothing():
    rates = [lr_factor(step, 100, warmup=0.1) for step in range(100)]
    assert rates[:10] == pytest.approx([(step + 1) / 11 for step in range(10)])
    assert rates[10] == 1.0
    assert rates[55] == pytest.approx(0.5)
    assert all(a > b for a, b in pairwise(rates[10:]))
    assert 0 < rates[-1] < 0.001
    assert lr_factor(0, 1, warmup=0.0) == 1.0


def test_biases_do_not_decay_and_frozen_parts_stay_out():
    model = model_for()
    freeze(model, tuple(PARTS))
    frozen = {name for name, each in model.named_parameters() if not each.requires_grad}
    inner = {name.removeprefix("backbone.") for name in frozen}
    assert inner == {
        "vision_model.embeddings.class_embedding", "vision_model.embeddings.patch_embedding.weight",
        "vision_model.embeddings.position_embedding.weight", "text_model.embeddings.token_embedding.weight",
        "text_model.embeddings.position_embedding.weight", "vision_model.pre_layrnorm.weight",
        "vision_model.pre_layrnorm.bias",
    }  # fmt: skip
    decayed, plain = make_optimizer(model, TrainSettings()).param_groups
    names = {id(each): name for name, each in model.named_parameters()}
    assert decayed["weight_decay"] == 0.2
    assert not any(names[id(each)].endswith("bias") for each in decayed["params"])
    assert plain["weight_decay"] == 0.0
    assert all(names[id(each)].endswith("bias") for each in plain["params"])
    in_groups = {names[id(each)] for group in (decayed, plain) for each in group["params"]}
    assert in_groups == set(dict(model.named_parameters())) - frozen


def test_freezing_what_is_not_there_is_an_error():
    model = model_for()
    del model.backbone.vision_model.pre_layrnorm
    with pytest.raises(RecipeError, match="has no pre-norm"):
        freeze(model, ("pre-norm",))


def test_precision_follows_the_hardware():
    assert choose_precision("auto", torch.device("cpu")) == torch.float32
    assert choose_precision("bfloat16", torch.device("cpu")) == torch.bfloat16
