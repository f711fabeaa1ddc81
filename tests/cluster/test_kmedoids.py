from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from centerclip.cluster import ClusterError, kkz, kmedoids

from . import reference

GOLDEN = np.load(Path(__file__).parent / "golden" / "clustering.npz")
CASES = ("small", "b32_like", "wide", "single_frame")


def golden(case):
    return torch.from_numpy(GOLDEN[f"{case}.tokens"]), int(GOLDEN[f"{case}.k"])


def costs(tokens, ids, metric="euclidean"):
    return [reference.cost(x.double().numpy(), i.tolist(), metric) for x, i in zip(tokens, ids, strict=True)]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_golden_ids_match_exactly(case, kind):
    tokens, k = golden(case)
    tokens = tokens.numpy() if kind == "numpy" else tokens
    assert kkz(tokens, k).tolist() == GOLDEN[f"{case}.kkz.ids"].tolist()
    ids, assignment = kmedoids(tokens, k)
    assert ids.tolist() == GOLDEN[f"{case}.kmedoids.euclidean.ids"].tolist()
    assert assignment.tolist() == GOLDEN[f"{case}.kmedoids.euclidean.assign"].tolist()


def test_golden_cosine_costs():
    ratios = []
    for case in CASES:
        tokens, k = golden(case)
        ids, _ = kmedoids(tokens, k, metric="cosine")
        ratios += list(np.array(costs(tokens, ids, "cosine")) / GOLDEN[f"{case}.kmedoids.cosine.cost"])
    assert np.mean(ratios) <= 1.01
    assert max(ratios) <= 1.05


@st.composite
def some_tokens(draw, most=24):
    """Tokens in general position, or on a coarse grid where ties and copies abound."""
    batch, count, width = draw(st.integers(1, 3)), draw(st.integers(1, most)), draw(st.integers(1, 6))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    if draw(st.booleans()):
        tokens = torch.randn(batch, count, width, generator=generator)
    else:
        tokens = torch.randint(-1, 2, (batch, count, width), generator=generator).float()
    return tokens, draw(st.integers(1, count))


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    count=st.integers(2, 18),
    width=st.integers(2, 6),
    metric=st.sampled_from(["euclidean", "cosine"]),
    normalise=st.booleans(),
    centre=st.sampled_from(["medoid", "nearest-to-mean"]),
    data=st.data(),
)
def test_equals_the_obvious_form(seed, count, width, metric, normalise, centre, data):
    tokens = torch.randn(2, count, width, generator=torch.Generator().manual_seed(seed))
    k = data.draw(st.integers(1, count))
    if metric == "cosine" or normalise:
        centre = "medoid"  # the obvious form knows means of plain tokens only
    ids, assignment = kmedoids(tokens, k, metric=metric, normalise=normalise, centre=centre)
    for video in range(2):
        expected = reference.kmedoids(tokens[video].numpy(), k, metric, normalise, centre)
        if centre == "medoid":
            assert (ids[video].tolist(), assignment[video].tolist()) == expected
        else:  # both members of a pair are equally near its mean; round-off in the obvious form picks one
            got = reference.cost(tokens[video].numpy(), ids[video].tolist())
            assert got <= reference.cost(tokens[video].numpy(), expected[0]) * 1.3 + 1e-9


@settings(max_examples=100, deadline=None)
@given(some_tokens())
def test_ids_are_unique_and_sorted_and_medoids_belong_to_themselves(case):
    tokens, k = case
    ids, assignment = kmedoids(tokens, k)
    assert ids.shape == (len(tokens), k)
    assert assignment.shape == tokens.shape[:2]
    assert (ids[:, 1:] > ids[:, :-1]).all()
    assert torch.equal(assignment.gather(1, ids), torch.arange(k).expand(len(tokens), k))
    chosen = kkz(tokens, k)
    assert all(len(set(row)) == k for row in chosen.tolist())


@settings(max_examples=50, deadline=None)
@given(some_tokens())
def test_every_token_is_with_its_nearest_medoid(case):
    tokens, k = case
    ids, assignment = kmedoids(tokens, k)
    distances = torch.cdist(tokens.double(), tokens.double())
    to_medoids = distances.gather(2, ids[:, None].expand(-1, tokens.shape[1], -1))
    own = to_medoids.gather(2, assignment[:, :, None]).squeeze(2)
    assert (own <= to_medoids.amin(dim=2) + 1e-6).all()


@settings(max_examples=40, deadline=None)
@given(some_tokens(), st.sampled_from(["medoid", "nearest-to-mean"]))
def test_cost_never_rises_between_iterations(case, centre):
    tokens, k = case
    squared = torch.cdist(tokens.double(), tokens.double(), compute_mode="donot_use_mm_for_euclid_dist")
    if centre == "nearest-to-mean":
        squared = squared.square()
    before = None
    for rounds in range(6):
        ids, _ = kmedoids(tokens, k, iterations=rounds, centre=centre)
        now = squared.gather(2, ids[:, None].expand(-1, tokens.shape[1], -1)).amin(dim=2).sum(dim=1)
        assert before is None or (now <= before + 1e-6).all()
        before = now


@settings(max_examples=40, deadline=None)
@given(some_tokens(), st.randoms())
def test_permuting_videos_permutes_the_result(case, random):
    tokens, k = case
    order = list(range(len(tokens)))
    random.shuffle(order)
    ids, assignment = kmedoids(tokens, k)
    moved = kmedoids(tokens[order], k)
    assert torch.equal(moved.ids, ids[order])
    assert torch.equal(moved.assignment, assignment[order])


def test_nearest_to_mean_differs_from_the_medoid():
    # The mean of 0, 4, 5, 15 is 6, nearest to 5; the sums of distances are 24, 16, 16, 36: lowest id 4 wins.
    tokens = torch.tensor([[[0.0], [4.0], [5.0], [15.0]]])
    assert kmedoids(tokens, 1).ids.item() == 1
    assert kmedoids(tokens, 1, centre="nearest-to-mean").ids.item() == 2


def test_normalise_ignores_length():
    tokens = torch.tensor([[[1.0, 0.0], [100.0, 1.0], [0.0, 1.0], [0.0, 50.0]]])
    assert kmedoids(tokens, 2, normalise=True).assignment.tolist() == [[0, 0, 1, 1]]


def test_known_small_example():
    tokens = torch.tensor([[[0.0, 0.0], [0.1, 0.0], [0.2, 0.0], [5.0, 5.0], [5.1, 5.0], [5.2, 5.0]]])
    ids, assignment = kmedoids(tokens, 2)
    assert ids.tolist() == [[1, 4]]
    assert assignment.tolist() == [[0, 0, 0, 1, 1, 1]]
    assert kkz(tokens, 2).tolist() == [[5, 0]]


def test_no_gradient_through_the_choice():
    tokens = torch.randn(1, 10, 4, requires_grad=True)
    ids, _ = kmedoids(tokens, 3)
    assert not ids.requires_grad


@pytest.mark.parametrize(
    ("tokens", "k", "message"),
    [
        (torch.zeros(3, 4), 1, "batch, tokens, width"),
        (torch.zeros(1, 4, 2), 5, "between 1 and the number of tokens \\(4\\), got 5"),
        (torch.zeros(1, 4, 2), 0, "got 0"),
        (torch.zeros(1, 4, 2, dtype=torch.int64), 1, "floating point"),
        (torch.zeros(1, 4, 0), 1, "width 0"),
    ],
)
def test_wrong_input_is_named(tokens, k, message):
    with pytest.raises(ClusterError, match=message):
        kmedoids(tokens, k)


def test_unknown_names_are_refused():
    tokens = torch.randn(1, 4, 2)
    with pytest.raises(ClusterError, match='"euclidean" or "cosine"'):
        kmedoids(tokens, 2, metric="l1")
    with pytest.raises(ClusterError, match="nearest-to-mean"):
        kmedoids(tokens, 2, centre="mean")
    with pytest.raises(ClusterError, match="iterations"):
        kmedoids(tokens, 2, iterations=-1)
