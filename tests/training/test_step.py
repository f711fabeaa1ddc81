"""One step: loss, gradient, schedule, groups, what is frozen."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch.nn.functional import log_softmax, normalize

from centerclip.distributed import Processes
from centerclip.errors import RecipeError
from centerclip.model.temporal import TemporalTransformer
from centerclip.model.vectors import video_vectors
from centerclip.training.loop import better, choose_precision
from centerclip.training.recipe import TrainSettings
from centerclip.training.step import (
    PARTS,
    BertAdam,
    compute_gradients,
    contrastive_loss,
    divide_gradients,
    freeze,
    lr_factor,
    make_optimizer,
)

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


def test_precision_follows_the_hardware_and_the_protocol(monkeypatch):
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    for protocol in ("published", "clean"):
        assert choose_precision("auto", cpu, protocol) == torch.float32
        assert choose_precision("bfloat16", gpu, protocol) == torch.bfloat16
    assert choose_precision("auto", gpu, "published") == torch.float16
    assert choose_precision("auto", gpu, "clean") == torch.bfloat16


def test_the_best_epoch():
    def metrics(r1, mean_rank):
        return {"t2v": {"R1": r1, "MnR": mean_rank}}

    first = metrics(40.0, 10.0)
    for protocol in ("published", "clean"):
        assert better(metrics(41.0, 12.0), first, protocol)
        assert not better(metrics(39.9, 1.0), first, protocol)
    assert better(metrics(40.0, 11.0), first, "published")  # the later of equal ones
    assert not better(metrics(40.0, 11.0), first, "clean")
    assert better(metrics(40.0, 9.0), first, "clean")


@pytest.mark.parametrize("gpus", [2, 3])
def test_divided_gradients_are_those_of_the_authors_code_on_several_gpus(gpus):
    """Theirs: each GPU has the global loss, whose gradient reaches its own pairs only; then DDP takes the mean."""
    model, batch = model_for(), batch_of(6)
    theirs = {}
    for rank in range(gpus):
        model.zero_grad()
        out = model(batch["rgb"], batch["mask"], **model.tokenize(batch["captions"]))
        vectors = video_vectors(out["segments"], out["segment_mask"], rule=model.rule)
        own = (torch.arange(6) * gpus // 6 == rank)[:, None]
        gathered = [torch.where(own, each, each.detach()) for each in (vectors, out["text"])]
        contrastive_loss(*gathered, out["logit_scale"]).backward()
        for name, gradient in gradients_of(model).items():
            theirs[name] = theirs.get(name, 0) + gradient / gpus
    compute_gradients(model, batch, ALONE)
    whole = gradients_of(model)
    divide_gradients(model, gpus)
    ours = gradients_of(model)
    assert ours.keys() == theirs.keys()
    assert all(close(ours[name], theirs[name]) for name in ours)
    for name in ours:
        divisor = 1 if name.endswith("logit_scale") else gpus
        assert torch.equal(ours[name], whole[name] / divisor)


def test_squares_are_neither_resized_nor_cropped_again():
    """A model that resizes to 36 and crops 32 gets squares of 32 from the loader."""
    plain, resizing = model_for(), model_for()
    resizing.preprocess = replace(resizing.preprocess, short_side=resizing.preprocess.size + 4)
    losses = [compute_gradients(model, batch_of(4), ALONE) for model in (plain, resizing)]
    assert torch.equal(*losses)


def test_bertadam_by_hand():
    weight, frozen = torch.nn.Parameter(torch.tensor([1.0, -2.0])), torch.nn.Parameter(torch.ones(1))
    optimizer = BertAdam([{"params": [weight, frozen], "lr": 0.1, "weight_decay": 0.2}])
    weight.grad = torch.tensor([0.5, -0.25])
    optimizer.step()
    # m = 0.1 g, v = 0.02 g^2: m / (sqrt(v) + 1e-6) = +-0.7071 but for eps, and 0.2 p on top
    first = [0.1 * g / (math.sqrt(0.02 * g * g) + 1e-6) for g in (0.5, -0.25)]
    expected = [p - 0.1 * (u + 0.2 * p) for p, u in zip((1.0, -2.0), first, strict=True)]
    assert weight.tolist() == pytest.approx(expected, rel=1e-6)
    weight.grad = torch.tensor([-1.0, 0.0])
    optimizer.step()
    means, squares = (0.9 * 0.05 - 0.1, 0.9 * -0.025), (0.98 * 0.005 + 0.02, 0.98 * 0.00125)
    updates = [m / (math.sqrt(v) + 1e-6) for m, v in zip(means, squares, strict=True)]
    expected = [p - 0.1 * (u + 0.2 * p) for p, u in zip(expected, updates, strict=True)]
    assert weight.tolist() == pytest.approx(expected, rel=1e-6)
    assert frozen.item() == 1.0  # no gradient, no decay


def test_clip4clips_schedule():
    rates = [lr_factor(step, 100, warmup=0.1, optimizer="bertadam") for step in range(100)]
    assert rates[:10] == pytest.approx([step / 10 for step in range(10)])
    assert rates[10] == pytest.approx(0.5 * (1 + math.cos(math.pi * 0.1)))
    assert rates[50] == pytest.approx(0.5)
    assert all(a > b for a, b in pairwise(rates[10:]))


def test_the_temporal_head_has_its_own_rate_in_either_optimizer():
    model = model_for()
    model.temporal = TemporalTransformer(model.width)
    for optimizer, kind in (("adamw", torch.optim.AdamW), ("bertadam", BertAdam)):
        made = make_optimizer(model, TrainSettings(lr=1e-7, optimizer=optimizer))
        assert type(made) is kind
        head = {id(each) for each in model.temporal.parameters()}
        rates = {group["lr"]: {id(each) in head for each in group["params"]} for group in made.param_groups}
        assert rates == {1e-7: {False}, 1e-4: {True}}
