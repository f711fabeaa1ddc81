import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from centerclip.cluster import (
    ClusterError,
    SigmaWarning,
    kmedoids,
    sign_flip,
    similarity_graph,
    spectral,
    spectral_embedding,
)

from . import reference
from .test_behaviour import video_like

GOLDEN = np.load(Path(__file__).parent / "golden" / "clustering.npz")


def golden(case):
    tokens = torch.from_numpy(GOLDEN[f"{case}.tokens"]).float()
    return tokens / (tokens.norm(dim=-1).mean() / 4), int(GOLDEN[f"{case}.k"]), int(GOLDEN[f"{case}.frames"])


@pytest.mark.parametrize("solver", ["eigh", "svd"])
def test_golden_costs(solver):
    ratios = []
    for case in ("small", "b32_like", "wide", "single_frame"):
        tokens, k, frames = golden(case)
        for graph, name in (("knn", "KNN"), ("dense", "HeatKernel")):
            ids, _ = spectral(tokens, k, neighbours=5 * frames, graph=graph, solver=solver)
            rows, _ = spectral_embedding(tokens, k, neighbours=5 * frames, graph=graph)
            costs = [reference.cost(r.numpy(), i.tolist()) for r, i in zip(rows, ids, strict=True)]
            ratios += list(np.array(costs) / GOLDEN[f"{case}.spectral.{name}.cost"])
    assert np.mean(ratios) <= 1.05
    assert max(ratios) <= 1.1


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31), st.integers(6, 24), st.sampled_from(["knn", "dense"]), st.data())
def test_equals_the_obvious_form(seed, count, graph, data):
    tokens = torch.randn(1, count, 5, generator=torch.Generator().manual_seed(seed))
    k = data.draw(st.integers(1, count - 1))
    neighbours = data.draw(st.integers(3, count))
    ids, assignment = spectral(tokens, k, neighbours=neighbours, graph=graph)
    expected, labels, rows = reference.spectral(tokens[0].numpy(), k, neighbours, graph=graph)
    if (ids[0].tolist(), assignment[0].tolist()) != (expected, labels):
        # Two-member clusters tie, and the obvious form breaks ties by round-off: it may not be better.
        assert reference.cost(rows, ids[0].tolist()) <= reference.cost(rows, expected) * 1.15 + 1e-6


@pytest.mark.parametrize("graph", ["knn", "dense"])
def test_any_solver_gives_the_same_ids(graph):
    tokens = video_like(4)
    first = spectral(tokens, 49, sigma="median", graph=graph)
    second = spectral(tokens, 49, sigma="median", graph=graph, solver="svd")
    assert torch.equal(first.ids, second.ids)
    assert torch.equal(first.assignment, second.assignment)


def test_any_basis_of_equal_eigenvalues_gives_the_same_ids():
    # Three far groups of equal shape: every eigenvalue comes three times, so K = 4 cuts through a triple.
    generator = torch.Generator().manual_seed(0)
    shape = torch.randint(-2, 3, (8, 4), generator=generator).float()  # exact wherever it is moved
    tokens = torch.cat([shape + 100 * i * torch.eye(4)[i] for i in range(3)])[None]
    first = spectral(tokens, 4, graph="dense")
    assert torch.equal(first.ids, spectral(tokens, 4, graph="dense", solver="svd").ids)
    rows, _ = spectral_embedding(tokens, 4, graph="dense")
    assert torch.count_nonzero(rows[..., 3]) == 0


def test_separates_what_distance_cannot():
    angle = torch.linspace(0, 2 * torch.pi, 41)[:-1]
    ring = torch.stack([angle.cos(), angle.sin()], dim=1)
    tokens = torch.cat([ring, 4 * ring])[None]
    assignment = spectral(tokens, 2, neighbours=5, sigma=0.5).assignment[0]
    assert len(set(assignment[:40].tolist())) == 1
    assert len(set(assignment[40:].tolist())) == 1
    assert assignment[0] != assignment[40]


def test_graph_is_symmetric_with_self_loops_and_enough_neighbours():
    tokens = video_like(2)
    weights = similarity_graph(tokens, neighbours=15, sigma="median")
    assert torch.equal(weights, weights.mT)
    assert (weights.diagonal(dim1=1, dim2=2) == 1).all()
    assert ((weights > 0).sum(dim=2) >= 15).all()
    assert (similarity_graph(tokens, neighbours=10_000, sigma="median") > 0).all()


def test_sigma_that_leaves_no_graph_is_noticed_and_replaced():
    tokens = video_like(3, width=768)
    tokens[0] *= 100
    with pytest.warns(SigmaWarning, match=r'1 of 3 sets.*sigma="median"'):
        ids = spectral(tokens * 0.1, 20, sigma=2.0).ids
    assert torch.equal(ids[:1], spectral(tokens[:1] * 0.1, 20, sigma="median").ids)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(ids[1:], spectral(tokens[1:] * 0.1, 20, sigma=2.0).ids)


def test_sign_flip_follows_algorithm_two():
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(2, 12, 12, generator=generator, dtype=torch.float64)
    matrix = matrix @ matrix.mT
    left, values, right = torch.linalg.svd(matrix)
    left, values, right = left[..., :5], values[..., :5], right.mT[..., :5]
    flipped = sign_flip(matrix, left, values, right)
    for video in range(2):
        for k in range(5):
            others = sum(
                values[video, i] * torch.outer(left[video, :, i], right[video, :, i]) for i in range(5) if i != k
            )
            projected = left[video, :, k] @ (matrix[video] - others)
            sign = torch.sign((projected.sign() * projected**2).sum())
            assert torch.allclose(flipped[video, :, k], sign * left[video, :, k])
    assert torch.equal(flipped, sign_flip(matrix, -left, values, -right))


def test_sign_flip_leaves_euclidean_clustering_unchanged():
    tokens, k, frames = golden("b32_like")
    rows, _ = spectral_embedding(tokens, k, neighbours=5 * frames)
    signs = torch.randint(0, 2, (4, 1, k), generator=torch.Generator().manual_seed(0)) * 2 - 1
    assert torch.equal(kmedoids(rows, k).ids, kmedoids(rows * signs, k).ids)
    laplacian = torch.eye(rows.shape[1], dtype=torch.float64) - rows @ rows.mT
    flipped = sign_flip(laplacian, rows, torch.ones(4, k, dtype=torch.float64))
    assert torch.equal(kmedoids(rows, k).ids, kmedoids(flipped, k).ids)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sigma": 0}, "positive number"),
        ({"sigma": float("nan")}, "positive number"),
        ({"sigma": "mean"}, '"median"'),
        ({"graph": "ring"}, '"knn" or "dense"'),
        ({"neighbours": 0}, "at least 1"),
        ({"solver": "qr"}, '"eigh" or "svd"'),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(ClusterError, match=message):
        spectral(torch.randn(1, 5, 3), 2, **options)
