"""One source for NumPy and torch: the same ids, bit for bit, in the form for a CPU and in the form for a GPU."""

import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from centerclip.cluster import (
    ClusterError,
    SigmaWarning,
    arrays,
    centers,
    class_attention,
    density_peaks,
    distances,
    highest,
    kkz,
    kmedoids,
    pooling,
    random_tokens,
    size_bias,
    soft_matching,
    sparse_sampling,
    spectral,
    temporal_matching,
    temporal_shift,
    token_shift,
)
from centerclip.cluster.segments import patch_places
from tests.model import tiny

METHODS = {
    "kkz": kkz,
    "kmedoids": kmedoids,
    "cosine": lambda x, k: kmedoids(x, k, metric="cosine"),
    "normalised": lambda x, k: kmedoids(x, k, normalise=True),
    "nearest-to-mean": lambda x, k: kmedoids(x, k, centre="nearest-to-mean"),
    "two rounds": lambda x, k: kmedoids(x, k, iterations=2),
    "tome": lambda x, k: soft_matching(x, k, frame=max(n for n in range(1, 7) if x.shape[1] % n == 0)),
    "tempme": lambda x, k: temporal_matching(x, k, frame=max(n for n in range(1, 7) if x.shape[1] % n == 0)),
    "dpcknn": density_peaks,
    "sampling": sparse_sampling,
    "random": random_tokens,
    "highest": lambda x, k: highest(x[:, :, 0], k),
}
SPECTRAL = {
    "knn": lambda x, k: spectral(x, k, sigma="median"),
    "dense": lambda x, k: spectral(x, k, sigma="median", graph="dense"),
    "svd": lambda x, k: spectral(x, k, sigma="median", solver="svd"),
}
# What makes the host wait on a GPU: a value is read, or the shape of a result depends on values.
WAITING = ("_local_scalar_dense", "nonzero", "equal", "unique", "masked_select", "bincount", "repeat_interleave")


@pytest.fixture
def gpu_form(monkeypatch):
    """Let a CPU count as a device that the host should not wait for."""
    monkeypatch.setattr(arrays, "SYNCHRONOUS", ())


class NoWaiting(TorchDispatchMode):
    """Fails on what would make the host wait for a GPU."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        masks = [index for index in args[1] if index is not None] if name in ("index", "index_put_") else []
        if name in WAITING or any(mask.dtype == torch.bool for mask in masks):
            raise AssertionError(f"{function} makes the host wait")
        return function(*args, **(kwargs or {}))


def tokens(kind, batch=3, count=24, width=6, seed=0):
    """NumPy tokens: in general position, on a coarse grid full of ties, or of a video that stands partly still."""
    random = np.random.default_rng(seed)
    if kind == "random":
        return random.standard_normal((batch, count, width)).astype(np.float32)
    if kind == "ties":
        return random.integers(-1, 2, (batch, count, width)).astype(np.float32)
    frame = random.standard_normal((batch, 1, -(-count // 3), width))
    moves = random.random((1, 1, frame.shape[2], 1)) > (1 if kind == "static" else 0.5)
    noise = random.standard_normal((batch, 3, frame.shape[2], width)) * 0.3 * moves
    return (frame + noise).reshape(batch, -1, width)[:, :count].astype(np.float32)


def same(found, expected):
    """Whether two results, alone or in tuples, hold the same numbers."""
    found, expected = ([each] if not isinstance(each, tuple) else each for each in (found, expected))
    return all(
        (a is None and b is None) or np.array_equal(np.asarray(a), np.asarray(b))
        for a, b in zip(found, expected, strict=True)
    )


kinds = st.sampled_from(["random", "ties", "static", "video"])


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(list(METHODS)), kinds, st.integers(1, 40), st.integers(1, 9), st.integers(0, 2**31), st.data())
def test_numpy_and_torch_choose_the_same_tokens(method, kind, count, width, seed, data):
    values = tokens(kind, data.draw(st.integers(1, 4)), count, width, seed)
    values = values.astype(data.draw(st.sampled_from(["float16", "float32", "float64"])))
    k = data.draw(st.integers(1, count))
    found = METHODS[method](values, k)
    for ids in found if isinstance(found, tuple) else (found,):
        assert isinstance(ids, np.ndarray)
        assert ids.dtype == np.int64
    assert same(found, METHODS[method](torch.from_numpy(values), k))


@pytest.mark.parametrize("method", SPECTRAL)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_spectral_too(method, dtype):
    values = tokens("video", count=60, width=16).astype(dtype)
    assert same(SPECTRAL[method](values, 12), SPECTRAL[method](torch.from_numpy(values), 12))


def test_a_sigma_that_leaves_no_graph_is_replaced_in_numpy_too():
    values = tokens("random", count=30) * np.array([1, 1e4, 1e5], dtype=np.float32)[:, None, None]
    with pytest.warns(SigmaWarning, match=r"2 of 3 sets") as of_numpy:
        found = spectral(values, 5)
    with pytest.warns(SigmaWarning) as of_torch:
        assert same(found, spectral(torch.from_numpy(values), 5))
    assert str(of_numpy[0].message) == str(of_torch[0].message)


def test_bfloat16_chooses_what_its_values_choose_in_numpy():
    values = torch.from_numpy(tokens("video", count=60)).bfloat16()
    assert same(kmedoids(values, 20), kmedoids(values.float().numpy(), 20))


@pytest.mark.parametrize("method", METHODS)
def test_numpy_does_not_depend_on_the_batch(method, monkeypatch):
    values = tokens("video", batch=5, count=60)
    together = METHODS[method](values, 20)
    one_by_one = [METHODS[method](values[i : i + 1], 20) for i in range(5)]
    if isinstance(together, tuple):
        one_by_one = tuple(map(np.concatenate, zip(*one_by_one, strict=True)))
    else:
        one_by_one = np.concatenate(one_by_one)
    assert same(together, one_by_one)


@pytest.mark.parametrize("method", METHODS)
def test_an_empty_batch_gives_an_empty_result(method):
    found = METHODS[method](np.zeros((0, 6, 4), np.float32), 2)
    assert (found.ids if isinstance(found, tuple) else found).shape == (0, 2)


@pytest.mark.parametrize("scale", [1e300, 1e-300, 1e154, 1.0])
@pytest.mark.parametrize("kind", ["random", "ties", "static"])
def test_hard_values_give_no_warning(kind, scale):
    values = tokens(kind, count=12).astype(np.float64) * scale
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for choose in METHODS.values():
            assert same(choose(values, 5), choose(torch.from_numpy(values), 5))


# ---- the segment step and what surrounds it -----------------------------------------------------------------


@pytest.mark.parametrize("prefix", [0, 1, 5])
@pytest.mark.parametrize(
    "method", ["kmedoids", "spectral", "sampling", "means", "tome", "tempme", "dpcknn", "kkz", "random"]
)
def test_the_segment_step_is_the_same(method, prefix):
    hidden = tokens("random", batch=12, count=prefix + 9, width=8)
    step = {"frames": 6, "segments": 2, "k": 5, "method": method, "prefix": prefix}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SigmaWarning)
        found, expected = centers(hidden, **step), centers(torch.from_numpy(hidden), **step)
    assert found.tokens.dtype == np.float32
    np.testing.assert_allclose(found.tokens, expected.tokens.numpy(), atol=1e-6)
    assert same(found[1:], expected[1:])
    second = {"frames": 2, "segments": 1, "k": 4, "method": "means", "prefix": prefix}
    if found.sizes is not None:
        again = centers(found.tokens, **second, places=found.places, sizes=found.sizes)
        assert again.sizes.sum(axis=1).tolist() == [54, 54]


def test_what_surrounds_the_segment_step_is_the_same():
    hidden = tokens("random", batch=12, count=10, width=16)
    tensor = torch.from_numpy(hidden)
    for function, options in (
        (pooling, {"frames": 6, "segments": 2}),
        (token_shift, {"frames": 6}),
        (temporal_shift, {"frames": 6}),
        (lambda x: size_bias(abs(x[:, :, 0]) + 1, 3, 1), {}),
        (lambda x: class_attention(x, x * x, head_dim=4), {}),
        (lambda x: patch_places(12, 6, 9, None, x), {}),
    ):
        found, expected = function(hidden, **options), function(tensor, **options).numpy()
        assert type(found) is np.ndarray
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


def test_half_precision_stays_half():
    hidden = tokens("random", batch=6, count=10).astype(np.float16)
    for method in ("kmedoids", "means"):
        assert centers(hidden, frames=6, segments=2, k=5, method=method)[0].dtype == np.float16


def test_numpy_draws_from_a_numpy_generator():
    values = np.zeros((400, 30, 1), np.float32)
    for draw in (sparse_sampling, random_tokens):
        found = draw(values, 8, training=True, generator=np.random.default_rng(0))
        assert same(found, draw(values, 8, training=True, generator=np.random.default_rng(0)))
        assert (found[:, 1:] > found[:, :-1]).all()
        assert np.unique(found).tolist() == list(range(30))


def test_what_is_no_array_is_named():
    with pytest.raises(ClusterError, match="NumPy array or a torch tensor, got list"):
        kmedoids([[[1.0]]], 1)


def test_nan_in_numpy_is_named():
    values = tokens("random")
    values[1, 3, 2] = np.nan
    with pytest.raises(ClusterError, match=r"NaN \(first at batch item 1, token 3, channel 2\)"):
        kmedoids(values, 2)


def test_torch_is_not_imported():
    program = (
        "import sys, numpy as np\n"
        "from centerclip.cluster.segments import centers\n"
        "centers(np.random.default_rng(0).random((6, 10, 4), np.float32), frames=6, segments=2, k=5)\n"
        "sys.exit('torch' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


# ---- distances by limbs ---------------------------------------------------------------------------------------


def normal(*shape):
    return np.random.default_rng(0).standard_normal(shape)


HARD = {  # tokens whose products come near the limits of the limbs
    "equal signs": np.full((2, 40, 768), 3.7),
    "one large channel": normal(2, 40, 768) * np.where(np.arange(768) == 5, 1e3, 1e-3),
    "one channel": normal(2, 40, 1),
    "as wide as a limb product may be": normal(2, 20, 4096),
    "wider": normal(2, 20, 5000),
    # Of the norm that whole numbers may have, and remainders as large as they come in every channel.
    "large remainders": np.full((2, 20, 4096), 2.0**19 - 2**13) + np.arange(20)[:, None],
}
hard_tokens = pytest.mark.parametrize("values", HARD.values(), ids=HARD.keys())


@hard_tokens
def test_limbs_give_the_products_bit_for_bit(values):
    whole, _ = distances.whole_numbers(values)
    expected = np.matmul(whole, whole.mT)
    assert np.array_equal(distances.limb_products(whole), expected)
    assert torch.equal(distances.limb_products(torch.from_numpy(whole)), torch.from_numpy(expected))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(distances.limb_products(torch.from_numpy(whole)), torch.from_numpy(expected))


@hard_tokens
def test_limb_products_are_exact_in_float32_and_tf32(values):
    whole, _ = distances.whole_numbers(values[:, :, : distances.LIMB_CHANNELS])
    limbs = distances.split_limbs(whole)
    scales = [2.0**shift for shift in distances.LIMB_SHIFTS]
    together = sum(limb.astype(np.float64) * scale for limb, scale in zip(limbs, scales, strict=True))
    assert np.array_equal(together, whole)
    norms = [np.linalg.norm(limb.astype(np.float64), axis=2).max() for limb in limbs]
    assert max(norms) ** 2 <= 2**24  # Cauchy-Schwarz: no partial sum, in whatever order, is above
    assert max(np.abs(limb).max() for limb in limbs) <= 2**11  # TF32 has 11 bits


@settings(max_examples=60, deadline=None)
@given(kinds, st.integers(1, 150), st.integers(1, 30), st.booleans(), st.integers(0, 2**31))
def test_distances_are_the_same_bit_for_bit(kind, count, width, squared, seed):
    values = tokens(kind, 2, count, width, seed)
    expected = distances.exact_distances(torch.from_numpy(values), squared=squared)
    assert same(tuple(distances.exact_distances(values, squared=squared)), tuple(expected))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrays, "SYNCHRONOUS", ())
        assert same(tuple(distances.exact_distances(torch.from_numpy(values), squared=squared)), tuple(expected))


# ---- the form for a GPU -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["random", "ties", "static", "video"])
@pytest.mark.parametrize("method", METHODS)
def test_the_form_for_a_gpu_chooses_the_same_and_never_waits(method, kind, gpu_form, monkeypatch):
    values = torch.from_numpy(tokens(kind, count=60, width=16))
    with NoWaiting():
        found = METHODS[method](values, 20)
    monkeypatch.setattr(arrays, "SYNCHRONOUS", ("cpu",))
    assert same(found, METHODS[method](values, 20))


@pytest.mark.parametrize("method", ["kmedoids", "means", "kkz", "tome", "tempme", "dpcknn", "sampling"])
def test_the_segment_step_on_a_gpu_never_waits(method, gpu_form, monkeypatch):
    hidden = torch.from_numpy(tokens("random", batch=12, count=10, width=8))
    step = {"frames": 6, "segments": 2, "k": 5, "method": method}
    with NoWaiting():
        found = centers(hidden, **step)
        if found.sizes is not None:
            size_bias(found.sizes, 3, 1)
    monkeypatch.setattr(arrays, "SYNCHRONOUS", ("cpu",))
    assert same(found, centers(hidden, **step))


@pytest.mark.parametrize("setting", ["B2-4,9", "means:B1-6,10 B3-3,8"])
def test_the_whole_encoder_never_waits_on_a_gpu(setting, gpu_form, monkeypatch):
    model, video = tiny.center_clip(setting), tiny.videos(2)
    with torch.no_grad():
        with NoWaiting():
            found = model.video_features(video)
        monkeypatch.setattr(arrays, "SYNCHRONOUS", ("cpu",))
        assert same(found, model.video_features(video))


def test_waiting_is_noticed():
    with pytest.raises(AssertionError, match="makes the host wait"), NoWaiting():
        kmedoids(torch.from_numpy(tokens("random")), 5)
    with pytest.raises(AssertionError, match="index"), NoWaiting():
        torch.zeros(3)[torch.tensor([True, False, True])]


def test_a_gpu_runs_all_rounds_that_are_asked_for(gpu_form, monkeypatch):
    # A chain of clusters in which one move leads to the next, for more rounds than lie between two checks.
    values = torch.from_numpy(np.cumsum(1.03 ** np.arange(400))[None, :, None])
    found = [kmedoids(values, 12, iterations=rounds) for rounds in (0, 1, 5, 9, 100)]
    monkeypatch.setattr(arrays, "SYNCHRONOUS", ("cpu",))
    assert not same(found[-2], found[-1])
    assert all(same(f, kmedoids(values, 12, iterations=n)) for f, n in zip(found, (0, 1, 5, 9, 100), strict=True))


def test_on_a_gpu_a_segment_with_nan_stays_nan(gpu_form):
    hidden = torch.from_numpy(tokens("random", batch=6, count=10, width=8))
    expected = centers(hidden, frames=6, segments=3, k=5)
    hidden = hidden.clone()
    hidden[2, 4, 1] = float("inf")
    found = centers(hidden, frames=6, segments=3, k=5)
    assert found[0][1, 1:].isnan().all()
    assert torch.equal(found[0][[0, 2]], expected[0][[0, 2]])
    assert ((found[1] >= 0) & (found[1] < 18)).all()


def test_gradients_flow_in_the_form_for_a_gpu(gpu_form):
    hidden = torch.from_numpy(tokens("random", batch=6, count=10, width=8)).requires_grad_()
    kept, ids, *_ = centers(hidden, frames=6, segments=3, k=5)
    kept[:, 1:].sum().backward()
    gradient = hidden.grad[:, 1:].reshape(3, 18, 8)
    assert torch.equal(gradient, torch.zeros(3, 18, 8).scatter(1, ids[:, :, None].expand(-1, -1, 8), 1.0))
