"""What holds for every method that chooses tokens: edge cases and determinism."""

import importlib

import pytest
import torch

from centerclip.cluster import ClusterError, kkz, kmedoids, spectral
from centerclip.cluster.kmedoids import GROUP_BYTES

METHODS = {
    "kkz": lambda x, k: kkz(x, k),
    "kmedoids": lambda x, k: kmedoids(x, k).ids,
    "cosine": lambda x, k: kmedoids(x, k, metric="cosine").ids,
    "normalised": lambda x, k: kmedoids(x, k, normalise=True).ids,
    "nearest-to-mean": lambda x, k: kmedoids(x, k, centre="nearest-to-mean").ids,
    "spectral-knn": lambda x, k: spectral(x, k, sigma="median").ids,
    "spectral-dense": lambda x, k: spectral(x, k, sigma="median", graph="dense").ids,
}
every_method = pytest.mark.parametrize("choose", METHODS.values(), ids=METHODS.keys())


def video_like(batch, frames=3, patches=49, width=96, seed=0):
    """Tokens of neighbouring frames: near-copies of one another, some of them exact."""
    generator = torch.Generator().manual_seed(seed)
    scene = torch.randn(batch, 1, patches, width, generator=generator)
    noise = torch.randn(batch, frames, patches, width, generator=generator) * 0.3
    noise[:, :, : patches // 3] = 0  # a static part
    return (scene + noise).flatten(1, 2)


def valid(ids, count):
    return all(len(set(row)) == len(row) and min(row) >= 0 and max(row) < count for row in ids.tolist())


@every_method
def test_any_batch_size_gives_the_same_ids(choose):
    tokens = video_like(7)
    together = choose(tokens, 49)
    assert torch.equal(together, torch.cat([choose(tokens[i : i + 1], 49) for i in range(7)]))
    assert torch.equal(together, torch.cat([choose(tokens[:3], 49), choose(tokens[3:], 49)]))


@every_method
def test_any_thread_count_gives_the_same_ids(choose):
    tokens = video_like(3)
    threads = torch.get_num_threads()
    try:
        results = []
        for count in (1, 2, 4):
            torch.set_num_threads(count)
            results.append(choose(tokens, 49))
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(results[0], other) for other in results)


@every_method
def test_memory_layout_does_not_matter(choose):
    tokens = video_like(2)
    strided = torch.empty(2, 147, 2 * 96)[:, :, ::2]
    strided.copy_(tokens)
    backwards = tokens.mT.contiguous().mT
    assert torch.equal(choose(tokens, 20), choose(strided, 20))
    assert torch.equal(choose(tokens, 20), choose(backwards, 20))


@every_method
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_precisions_equal_float32_of_the_same_values(choose, dtype):
    tokens = video_like(2).to(dtype)
    expected = choose(tokens.float(), 20) if dtype != torch.float64 else choose(video_like(2), 20)
    assert torch.equal(choose(tokens, 20), expected)


@every_method
@pytest.mark.parametrize(
    "tokens",
    [
        torch.zeros(2, 12, 5),
        torch.ones(2, 12, 5),
        torch.randn(2, 12, 5, generator=torch.Generator().manual_seed(1)) * 1e30,
        torch.randn(2, 12, 5, generator=torch.Generator().manual_seed(1)) * 1e-38,
        torch.randn(2, 12, 5, generator=torch.Generator().manual_seed(1)).double() * 1e250,
        torch.randn(2, 12, 5, generator=torch.Generator().manual_seed(1)).double() * 1e-300,
        torch.randn(1, 4, 5, generator=torch.Generator().manual_seed(1)).repeat(2, 3, 1),
        torch.randn(2, 12, 1, generator=torch.Generator().manual_seed(1)),
    ],
    ids=["zeros", "identical", "huge", "tiny", "huge double", "tiny double", "copies", "one channel"],
)
@pytest.mark.parametrize("k", [1, 5, 12])
def test_hard_values(choose, tokens, k):
    ids = choose(tokens, k)
    assert ids.shape == (2, k)
    assert valid(ids, 12)
    assert torch.equal(ids, choose(tokens, k))


@every_method
def test_one_token(choose):
    assert choose(torch.randn(3, 1, 8), 1).tolist() == [[0], [0], [0]]


@every_method
def test_an_empty_batch_gives_an_empty_result(choose):
    assert choose(torch.randn(0, 6, 4), 2).shape == (0, 2)


@every_method
def test_all_tokens_are_kept_when_k_is_n(choose):
    tokens = video_like(2, frames=1, patches=20)
    assert choose(tokens, 20).sort(dim=1).values.tolist() == [list(range(20))] * 2


@every_method
@pytest.mark.parametrize(("value", "name"), [(float("nan"), "NaN"), (float("inf"), "infinity")])
def test_not_a_number_is_a_clear_error(choose, value, name):
    tokens = torch.randn(2, 6, 4)
    tokens[1, 3, 2] = value
    with pytest.raises(ClusterError, match=rf"{name} \(first at batch item 1, token 3, channel 2\)"):
        choose(tokens, 2)


@pytest.mark.parametrize("scale", [2.0**-60, 2.0**40])
def test_scaling_by_a_power_of_two_changes_nothing(scale):
    tokens = video_like(2)
    assert torch.equal(kmedoids(tokens, 30).ids, kmedoids(tokens * scale, 30).ids)


def test_groups_do_not_change_the_result(monkeypatch):
    tokens = video_like(5)
    expected = kmedoids(tokens, 30)
    module = importlib.import_module("centerclip.cluster.kmedoids")
    assert GROUP_BYTES > 5 * 147 * 147 * 24
    monkeypatch.setattr(module, "GROUP_BYTES", 1)
    monkeypatch.setattr(module, "CACHE_BYTES", 1)
    grouped = kmedoids(tokens, 30)
    assert torch.equal(grouped.ids, expected.ids)
    assert torch.equal(grouped.assignment, expected.assignment)


def test_autocast_and_inference_mode_do_not_change_the_result():
    tokens = video_like(2)
    expected = kmedoids(tokens, 30).ids
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(kmedoids(tokens, 30).ids, expected)
