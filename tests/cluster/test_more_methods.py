"""Methods beyond the paper: each against a slow and obvious form, then inside models."""

import copy
import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    CLIPVisionConfig,
    CLIPVisionModel,
    Dinov2WithRegistersConfig,
    Dinov2WithRegistersModel,
    SiglipVisionConfig,
    SiglipVisionModel,
    ViTConfig,
    ViTModel,
)

import centerclip
from centerclip.cluster import (
    ClusterError,
    Setting,
    centers,
    class_attention,
    cluster_means,
    density_peaks,
    highest,
    kkz,
    kmedoids,
    random_tokens,
    soft_matching,
)
from centerclip.model import ModelError
from centerclip.model.attachment import bias_keys, transformer_blocks, watch_scores
from tests.model import tiny

METHODS = ("means", "tome", "dpcknn", "kkz", "attention", "random")
SIZES = {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 2, "image_size": 32, "patch_size": 8}
MODELS = {
    "clip": (CLIPVisionModel, CLIPVisionConfig(**SIZES, intermediate_size=64)),
    "vit": (ViTModel, ViTConfig(**SIZES, intermediate_size=64)),
    "dinov2 with registers": (Dinov2WithRegistersModel, Dinov2WithRegistersConfig(**SIZES, num_register_tokens=4)),
    "siglip": (SiglipVisionModel, SiglipVisionConfig(**SIZES, intermediate_size=64)),
}


def points(batch=3, count=24, width=6, seed=0):
    return torch.randn(batch, count, width, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(params=MODELS.values(), ids=MODELS.keys())
def vision(request):
    kind, config = request.param
    torch.manual_seed(0)
    model = kind(copy.deepcopy(config)).eval()
    with torch.no_grad():  # the default start is so small that every token gets the same attention
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(8)
    return model


def pixels(videos=2, frames=6, still=False):
    found = torch.rand(videos, 1 if still else frames, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    return found.expand(-1, frames, -1, -1, -1).reshape(videos * frames, 3, 32, 32)


# ---- choosing -----------------------------------------------------------------------------------------------------


def obvious_density_peaks(tokens, k, neighbours):
    x = tokens.double().numpy()
    distances = np.linalg.norm(x[:, None] - x[None], axis=2)
    density = [math.exp(-np.mean(sorted(row)[1 : neighbours + 1] ** np.array(2)) / x.shape[1]) for row in distances]
    scores = []
    for i, own in enumerate(density):
        denser = [distances[i, j] for j, other in enumerate(density) if (other, i) > (own, j)]
        scores.append(own * (min(denser) if denser else distances[i].max()))
    return sorted(np.argsort(scores)[::-1][:k].tolist())


@pytest.mark.parametrize(("k", "neighbours"), [(5, 5), (1, 3), (12, 1)])
def test_density_peaks_are_those_of_the_definition(k, neighbours):
    tokens = points()
    ids, assignment = density_peaks(tokens, k, neighbours=neighbours)
    for item in range(3):
        assert ids[item].tolist() == obvious_density_peaks(tokens[item], k, neighbours)
    assert torch.equal(assignment, torch.cdist(tokens, tokens[torch.arange(3)[:, None], ids]).argmin(dim=2))


def test_density_peaks_of_wide_tokens_do_not_underflow():
    tokens = points(count=20, width=600) * 100
    assert len(density_peaks(tokens, 7).ids.unique(dim=0)) == 3
    with pytest.raises(ClusterError, match="neighbours"):
        density_peaks(tokens, 7, neighbours=0)


def obvious_matching(tokens, k):
    """Lists of members, merged by the rule of the paper; the group stands where its last survivor stood."""
    x = tokens.double().numpy()
    groups = [[i] for i in range(len(x))]
    while len(groups) > k:
        means = np.array([x[group].mean(axis=0) for group in groups])
        means /= np.linalg.norm(means, axis=1, keepdims=True)
        a, b = list(range(0, len(groups), 2)), list(range(1, len(groups), 2))
        pairs = [(means[i] @ means[j], i, j) for i in a for j in [max(b, key=lambda j: means[i] @ means[j])]]
        pairs = sorted(pairs, reverse=True)[: min(len(groups) - k, len(groups) // 2)]
        for _, i, j in pairs:
            groups[j] = groups[j] + groups[i]
        gone = {i for _, i, _ in pairs}
        groups = [group for i, group in enumerate(groups) if i not in gone]
    return groups


@pytest.mark.parametrize("length", [4, 5])
def test_matching_finds_the_copy_in_the_next_frame(length):
    """Sets alternate from token to token: with an even number of patches, a patch and its copy would be in the same."""
    frame = points(count=length)
    ids, assignment = soft_matching(torch.cat([frame, frame], dim=1), length, frame=length)
    assert torch.equal(assignment[:, :length], assignment[:, length:])
    assert (ids[:, 1:] > ids[:, :-1]).all()


def test_matching_needs_whole_frames():
    with pytest.raises(ClusterError, match="24 tokens are not a whole number of frames of 5"):
        soft_matching(points(), 3, frame=5)


@pytest.mark.parametrize(("count", "k"), [(24, 10), (25, 3), (9, 1), (8, 8)])
def test_matching_merges_what_the_definition_merges(count, k):
    tokens = points(count=count)
    ids, assignment = soft_matching(tokens, k)
    means, sizes = cluster_means(tokens, assignment, k)
    for item in range(3):
        groups = obvious_matching(tokens[item], k)
        assert ids[item].tolist() == [group[0] for group in groups]
        assert [sorted(torch.where(assignment[item] == g)[0].tolist()) for g in range(k)] == [*map(sorted, groups)]
        expected = torch.stack([tokens[item][group].mean(dim=0) for group in groups])
        assert torch.allclose(means[item], expected, atol=1e-6)
        assert sizes[item].tolist() == [len(group) for group in groups]


def test_class_attention_is_what_the_model_computes(vision):
    model = type(vision)._from_config(vision.config, attn_implementation="eager").eval()
    model.load_state_dict(vision.state_dict())
    prefix = 16 - 16 + model.embeddings(pixels()[:1]).shape[1] - 16
    seen = {}
    attention = next(m for m in model.modules() if hasattr(m, "q_proj") and hasattr(m, "k_proj"))
    attention.q_proj.register_forward_hook(lambda m, i, o: seen.update(q=o))
    attention.k_proj.register_forward_hook(lambda m, i, o: seen.update(k=o))
    attention.register_forward_hook(lambda m, i, o: seen.update(weights=o[1]))
    with torch.no_grad():
        model(pixels())
    weights = seen["weights"].mean(dim=1)  # over heads: [B, queries, keys]
    expected = (weights[:, 0] if prefix else weights.mean(dim=1))[:, prefix:]
    found = class_attention(seen["q"], seen["k"], head_dim=attention.head_dim, prefix=prefix)
    assert torch.allclose(found, expected, atol=1e-5)
    assert found.std() > 1e-4


def test_the_highest_with_ties_to_the_lowest():
    assert highest(torch.tensor([[1.0, 3.0, 3.0, 0.0, 3.0]]), 2).tolist() == [[1, 2]]
    with pytest.raises(ClusterError, match="between 1"):
        highest(torch.zeros(1, 3), 4)


def test_random_is_the_same_in_every_evaluation_and_new_in_training():
    tokens = torch.zeros(5, 30, 2)
    assert torch.equal(random_tokens(tokens, 8), random_tokens(tokens[:1], 8).expand(5, 8))
    drawn = random_tokens(tokens.expand(5, 30, 2).repeat(60, 1, 1), 8, training=True)
    assert (drawn[:, 1:] > drawn[:, :-1]).all()
    assert len(drawn.unique(dim=0)) > 250
    assert drawn.unique().tolist() == list(range(30))


def test_kkz_keeps_the_farthest_points_in_order():
    hidden = torch.cat([torch.zeros(3, 1, 6), points()], dim=1)
    kept = centers(hidden, frames=3, segments=3, k=7, method="kkz", grid=(4, 6))
    assert torch.equal(kept.ids, kkz(points(), 7).sort(dim=1).values)
    assert torch.equal(centers(hidden, frames=3, segments=3, k=7, options={"iterations": 0}, grid=(4, 6)).ids, kept.ids)


@settings(max_examples=15, deadline=None)
@given(st.sampled_from(METHODS), st.integers(1, 18), st.integers(0, 99), st.booleans())
def test_every_method_keeps_k_in_order_whatever_the_batch(method, k, seed, copies):
    hidden = points(batch=6, count=10, seed=seed)
    if copies:  # a still image: all ties
        hidden = hidden[:1].expand(6, -1, -1)
    scores = hidden[:, 1:].sum(dim=2)
    both = centers(hidden, frames=2, segments=1, k=k, method=method, scores=scores, grid=(3, 3))
    assert both.ids.shape == (3, k)
    assert (both.ids[:, 1:] > both.ids[:, :-1]).all()
    alone = centers(hidden[2:4], frames=2, segments=1, k=k, method=method, scores=scores[2:4], grid=(3, 3))
    assert torch.equal(alone.ids[0], both.ids[1])
    assert torch.allclose(alone.tokens[0], both.tokens[1], atol=1e-6)
    if both.assignment is not None:
        assert all(len(row.unique()) == k for row in both.assignment)
        assert torch.equal(both.assignment.gather(1, both.ids), torch.arange(k).expand(3, k))


# ---- merging ------------------------------------------------------------------------------------------------------


def test_means_of_the_clusters_and_their_sizes():
    hidden = points(batch=4, count=13)
    step = centers(hidden, frames=4, segments=2, k=5, method="means", grid=(3, 4))
    clusters = kmedoids(hidden[:, 1:].reshape(2, 24, 6), 5)
    assert torch.equal(step.ids, clusters.ids)
    for segment in range(2):
        for cluster in range(5):
            members = hidden[:, 1:].reshape(2, 24, 6)[segment][clusters.assignment[segment] == cluster]
            assert torch.allclose(step.tokens[segment, 1 + cluster], members.mean(dim=0), atol=1e-6)
            assert step.sizes[segment, cluster] == len(members)


def test_gradients_reach_every_member_of_a_cluster():
    hidden = points(batch=4, count=13).requires_grad_()
    step = centers(hidden, frames=4, segments=2, k=5, method="means", grid=(3, 4))
    step.tokens.sum().backward()
    share = 1 / step.sizes.gather(1, step.assignment)  # each member has its part of the mean
    assert torch.allclose(hidden.grad[:, 1:, 0].reshape(2, 24), share)


def test_a_second_step_weighs_by_what_tokens_stand_for():
    hidden = points(batch=4, count=10)
    first = centers(hidden, frames=4, segments=2, k=4, method="means", grid=(3, 3))
    second = centers(first.tokens, frames=2, segments=1, k=1, method="means", sizes=first.sizes, places=first.places)
    assert second.sizes.tolist() == [[36.0]]
    kept = centers(first.tokens, frames=2, segments=1, k=3, sizes=first.sizes, places=first.places)
    assert kept.sizes.sum() == 36
    assert torch.allclose(second.tokens[0, 1], hidden[:, 1:].reshape(36, 6).mean(dim=0), atol=1e-5)


def test_merging_needs_clusters():
    with pytest.raises(ClusterError, match="must return Clusters"):
        centers(
            points(),
            frames=3,
            segments=1,
            k=2,
            method=lambda tokens, k: torch.zeros(1, k, dtype=torch.long),
            merge=True,
        )


# ---- notation -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_notation_round_trip(method):
    assert str(Setting.parse(f"{method}:B6-4,49")) == f"{method}:B6-4,49"
    assert Setting.parse(f"{method}:B6-4,49").proportional == (method in ("means", "tome"))


def test_options_round_trip():
    assert Setting.parse("kmedoids[proportional]:B6-4,49").proportional
    assert not Setting.parse("B6-4,49").proportional
    for text in (
        "kmedoids[proportional]:B6-4,49",
        "means[proportional=false]:B6-4,49",
        "dpcknn[neighbours=9]:B6-4,49",
        "kkz[metric=cosine]:B6-4,49",
    ):
        assert str(Setting.parse(text)) == text
    assert not Setting.parse("tome[proportional=false]:B6-4,49").proportional


# ---- in models ----------------------------------------------------------------------------------------------------


@torch.no_grad()
@pytest.mark.parametrize("method", METHODS)
def test_attach_and_detach(vision, method):
    before = vision(pixels()).pooler_output
    attachment = centerclip.attach(vision, f"{method}:B2-3,10", frames=6)
    with attachment.record() as steps:
        found = vision(pixels()).pooler_output
    assert found.shape == (6, before.shape[1])
    assert torch.isfinite(found).all()
    assert steps[0].ids.shape == (6, 10)
    # The same alone or beside another video: nothing of a pass stays for the next.
    assert torch.allclose(vision(pixels()[:6]).pooler_output, found[:3], rtol=1e-4, atol=1e-4)
    centerclip.detach(vision)
    assert torch.equal(vision(pixels()).pooler_output, before)


@torch.no_grad()
@pytest.mark.parametrize(
    "setting", ["means:B2-2,16", "means:B1-3,16 B3-1,16", "tome:B2-3,16", "kmedoids[proportional]:B1-3,16 B3-1,16"]
)
def test_merging_a_still_video_changes_nothing(vision, setting):
    """All frames are the same, so every cluster holds copies: weighed by its size, it is exactly its members."""
    before = vision(pixels(still=True)).pooler_output[::6]
    centerclip.attach(vision, setting, frames=6)
    found = vision(pixels(still=True)).pooler_output
    assert torch.allclose(found, before.repeat_interleave(len(found) // 2, dim=0), atol=2e-4)


@torch.no_grad()
def test_size_bias_is_the_attention_of_the_members(vision):
    """Clusters of different sizes: the merged sequence gives what the sequence with all copies gives."""
    torch.manual_seed(3)
    blocks = transformer_blocks(vision)
    prefix = vision.embeddings(pixels()[:1]).shape[1] - 16
    sizes = torch.tensor([4, 1, 2, 1])
    tokens = torch.randn(1, prefix + 4, 32)
    copies = torch.cat([tokens[:, :prefix], tokens[:, prefix:].repeat_interleave(sizes, dim=1)], dim=1)
    bias = centerclip.cluster.size_bias(sizes[None].float(), 1, prefix)
    expected = blocks[3](copies, None)
    handles = bias_keys(vision, [blocks[3]], lambda: bias, pooling=False)
    found = blocks[3](tokens, None)
    for handle in handles:
        handle.remove()
    assert torch.allclose(found[:, prefix + 3], expected[:, prefix + 7], atol=1e-4)
    assert torch.allclose(found[:, 0], expected[:, 0], atol=1e-4)
    assert not torch.allclose(blocks[3](tokens, None), found, atol=1e-3)


@torch.no_grad()
def test_attention_keeps_what_the_block_looks_at(vision):
    attachment = centerclip.attach(vision, "attention:B2-3,10", frames=6)
    seen = {}
    block = attachment.blocks[1]
    handles = watch_scores(block, attachment.prefix, lambda s: seen.update(scores=s))
    with attachment.record() as steps:
        vision(pixels())
    for handle in handles:
        handle.remove()
    scores = seen["scores"].reshape(6, 32)
    lowest_kept = scores.gather(1, steps[0].ids).amin(dim=1)
    dropped = scores.scatter(1, steps[0].ids, -1).amax(dim=1)
    assert (lowest_kept >= dropped).all()


@pytest.mark.parametrize(
    "setting",
    [
        "means:B2-3,10",
        "tome:B1-3,12 B3-1,10",
        "attention:B2-3,10",
        "kmedoids[proportional]:B2-3,10",
        "kmedoids[proportional,budget=change]:B2-3,10",
        "rlt:B0-3,20 means:B2-3,10",
    ],
)
def test_gradient_checkpointing_gives_the_same_gradients(setting):
    torch.manual_seed(0)
    kind, config = MODELS["clip"]
    model = kind(config).train()
    centerclip.attach(model, setting, frames=6)
    found = []
    for checkpointing in (False, True):
        if checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        model.zero_grad()
        model(pixels()).pooler_output.square().sum().backward()
        found.append([parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None])
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(*found, strict=True))


def test_attention_that_takes_no_bias_is_refused(vision):
    vision.config._attn_implementation_internal = "flash_attention_2"
    with pytest.raises(ModelError, match="proportional=false"):
        centerclip.attach(vision, "means:B2-3,10", frames=6)
    centerclip.attach(vision, "B2-3,10", frames=6)


@torch.no_grad()
def test_half_precision(vision):
    model = vision.to(torch.bfloat16)
    centerclip.attach(model, "means:B2-3,10", frames=6)
    assert torch.isfinite(model(pixels().bfloat16()).pooler_output).all()
    model.float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.isfinite(model(pixels()).pooler_output).all()


@pytest.mark.parametrize("setting", ["kmedoids[proportional]:B2-4,5", "attention:B2-4,5"])
def test_threads_do_not_disturb_one_another(setting):
    model = tiny.center_clip(setting)
    groups = [tiny.videos()[:1].roll(shift, dims=1) for shift in range(4)] + [tiny.videos()]
    with torch.inference_mode():
        alone = [model.video_features(model.preprocess(group))[0] for group in groups]

    def encode(number):
        with torch.inference_mode():
            return [model.video_features(model.preprocess(groups[number]))[0] for _ in range(20)]

    with ThreadPoolExecutor(len(groups)) as threads:
        for expected, found in zip(alone, threads.map(encode, range(len(groups))), strict=True):
            assert all(torch.allclose(each, expected, atol=1e-6) for each in found)
