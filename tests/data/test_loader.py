"""The loader: right shapes, the same batches on every run, and clear errors when a file or a process fails."""

import multiprocessing
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from centerclip.data import Benchmark, Clip, DataError, UnreadableVideoError, WorkerDiedError
from centerclip.data.loader import Batch, Loader
from centerclip.model.preprocess import Preprocess
from centerclip.video import read_frames
from tests.data.made_up import clip, text

CAPTIONS = {"a": ("a0", "a1", "a2"), "b": ("b0",), "c": ("c0", "c1"), "d": ("d0", "d1"), "e": ("e0", "e1", "e2")}


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory: pytest.TempPathFactory) -> Benchmark:
    """Five clips of different shapes; ``b`` has fewer frames than a batch wants."""
    folder = tmp_path_factory.mktemp("clips")
    shapes = {"a": (64, 48), "b": (48, 64), "c": (32, 32), "d": (128, 48), "e": (64, 48)}
    clips = []
    for name, captions in CAPTIONS.items():
        path = clip(folder / f"{name}.mp4", size=shapes[name], seconds=0.2 if name == "b" else 2.0)
        clips.append(Clip(name, path, captions))
    return Benchmark("made-up", "train", tuple(clips))


def loader_of(benchmark: Benchmark, size: int = 32, *, preprocess: Preprocess | None = None, **options: Any) -> Loader:
    preprocess = preprocess or Preprocess(size)
    return Loader(benchmark, read_size=preprocess.read_size, to_square=preprocess.to_square, **options)


def same(one: Batch, other: Batch) -> bool:
    tensors = all(torch.equal(one[key], other[key]) for key in ("rgb", "mask", "times"))  # type: ignore[literal-required]
    return tensors and one["captions"] == other["captions"] and one["video"] == other["video"]


def test_a_batch_has_every_video_once_cropped_and_masked(benchmark: Benchmark) -> None:
    (batch,) = loader_of(benchmark, batch_size=5, frames=4, workers=0).epoch()
    assert sorted(batch["video"]) == list("abcde")
    assert batch["rgb"].shape == (5, 4, 32, 32, 3)
    assert batch["rgb"].dtype == torch.uint8
    masks = dict(zip(batch["video"], batch["mask"].tolist(), strict=True))
    assert masks == dict.fromkeys("acde", [True] * 4) | {"b": [True, True, False, False]}
    for video, times in zip(batch["video"], batch["times"], strict=True):
        if video != "b":  # 20 frames in 2 s: one of each half second
            assert (times / 0.5).long().tolist() == [0, 1, 2, 3]


def test_squares_are_the_middle_of_frames_read_at_that_size(benchmark: Benchmark) -> None:
    """What :meth:`Preprocess.to_square` gives at ``read_size`` is a plain centre crop, without a second resize."""
    for size in (24, 33):
        (batch,) = loader_of(benchmark, size, batch_size=5, frames=3, seed=9, workers=0).epoch(2)
        for video, rgb in zip(batch["video"], batch["rgb"], strict=True):
            path = next(clip.path for clip in benchmark.videos if clip.id == video)
            whole = read_frames(path, 3, random=(9, 2, video), short_side=size).rgb
            top, left = (whole.shape[1] - size) // 2, (whole.shape[2] - size) // 2
            assert np.array_equal(rgb, whole[:, top : top + size, left : left + size])


def test_a_model_that_resizes_before_it_crops_gets_squares_of_its_size(benchmark: Benchmark) -> None:
    preprocess = Preprocess(size=32, short_side=40)
    (batch,) = loader_of(benchmark, preprocess=preprocess, batch_size=5, frames=2, workers=0).epoch()
    whole = read_frames(benchmark.videos[3].path, 2, random=(42, 0, "d"), short_side=40).rgb
    assert np.array_equal(batch["rgb"][batch["video"].index("d")], preprocess.to_square(whole))
    assert batch["rgb"].shape == (5, 2, 32, 32, 3)


def test_the_authors_bins_and_the_end_of_a_clip_are_passed_on(benchmark: Benchmark) -> None:
    early = [Clip(each.id, each.path, each.captions, end=0.75) for each in benchmark.videos if each.id != "b"]
    cut = Benchmark("made-up", "train", tuple(early))
    # 8 frames are shown before 0.75 s; bins of 8 // 5 = 1 frame are always the first 5
    (authors,) = loader_of(cut, batch_size=4, frames=5, drop_tail=True, workers=0).epoch()
    assert (authors["times"] / 0.1).round().long().tolist() == [[0, 1, 2, 3, 4]] * 4
    (equal,) = loader_of(cut, batch_size=4, frames=5, workers=0).epoch()
    last = (equal["times"][:, 4] / 0.1).round()
    assert ((last > 5) & (last < 8)).all()


def test_training_repeats_by_seed_and_epoch_with_any_workers_and_from_any_batch(benchmark: Benchmark) -> None:
    setting = {"batch_size": 2, "frames": 3}
    alone = loader_of(benchmark, workers=0, **setting)
    crew = loader_of(benchmark, workers=2, **setting)
    for epoch in (0, 3):
        expected = list(alone.epoch(epoch))
        assert len(expected) == len(alone) == 2
        assert all(same(*pair) for pair in zip(crew.epoch(epoch), expected, strict=True))
    assert same(next(crew.epoch(3, start=1)), expected[1])
    assert same(next(crew.epoch(3)), expected[0])  # an iterator that was left in the middle does not linger
    assert not same(next(alone.epoch(0)), next(alone.epoch(1)))


def test_loading_leaves_the_random_numbers_of_the_training_alone(benchmark: Benchmark) -> None:
    before = torch.get_rng_state()
    for workers in (0, 1):
        list(loader_of(benchmark, 8, batch_size=5, frames=1, workers=workers).epoch())
    assert torch.equal(torch.get_rng_state(), before)


@pytest.fixture
def spawning() -> Iterator[None]:
    """Processes start fresh, as on macOS and Windows."""
    usual = multiprocessing.get_start_method()
    multiprocessing.set_start_method("spawn", force=True)
    yield
    multiprocessing.set_start_method(usual, force=True)


def test_spawned_workers_give_the_same(benchmark: Benchmark, spawning: None) -> None:
    setting = {"batch_size": 5, "frames": 2, "size": 16}
    spawned = next(loader_of(benchmark, workers=1, **setting).epoch(1))
    assert same(spawned, next(loader_of(benchmark, workers=0, **setting).epoch(1)))


def test_an_epoch_of_videos_has_one_caption_each_and_many_epochs_have_all(benchmark: Benchmark) -> None:
    loader = loader_of(benchmark, 8, batch_size=5, frames=1, workers=0)
    seen: dict[str, set[str]] = {video: set() for video in CAPTIONS}
    for epoch in range(16):
        (batch,) = loader.epoch(epoch)
        assert sorted(batch["video"]) == list(CAPTIONS)
        for video, caption in zip(batch["video"], batch["captions"], strict=True):
            seen[video].add(caption)
    assert seen == {video: set(captions) for video, captions in CAPTIONS.items()}


def test_an_epoch_of_pairs_has_no_pair_twice_over_all_ranks(benchmark: Benchmark) -> None:
    pairs: Counter[tuple[str, str]] = Counter()
    for rank in range(2):
        loader = loader_of(benchmark, 8, items="pairs", batch_size=1, frames=1, workers=0, rank=rank, world=2)
        for batch in loader.epoch():
            pairs.update(zip(batch["video"], batch["captions"], strict=True))
    every = {(video, caption) for video, captions in CAPTIONS.items() for caption in captions}
    assert len(every) == 11
    assert len(pairs) == sum(pairs.values()) == 10  # the last one does not fill a batch of both
    assert pairs.keys() <= every


@pytest.mark.parametrize("workers", [0, 1])
def test_an_unreadable_video_is_an_error_that_names_it(benchmark: Benchmark, tmp_path: Path, workers: int) -> None:
    bad = Clip("broken", text(tmp_path / "broken.mp4", "no video"), ("x",))
    spoilt = Benchmark("made-up", "train", (*benchmark.videos[:2], bad))
    loader = loader_of(spoilt, 8, batch_size=3, frames=1, workers=workers)
    with pytest.raises(UnreadableVideoError, match=r"video broken \(.*broken\.mp4\) cannot be read: this is not"):
        list(loader.epoch())


def test_a_killed_worker_is_an_error_and_the_next_epoch_starts_new_ones(benchmark: Benchmark) -> None:
    many = Benchmark("made-up", "train", benchmark.videos * 40)
    loader = loader_of(many, 64, batch_size=1, frames=4, workers=2)
    batches = loader.epoch()
    before = multiprocessing.active_children()  # workers of other loaders may not have ended yet
    next(batches)
    victim = next(process for process in multiprocessing.active_children() if process not in before)
    assert victim.pid is not None
    os.kill(victim.pid, signal.SIGKILL)
    with pytest.raises(WorkerDiedError, match="a worker process died"):
        list(batches)
    assert len(list(zip(range(3), loader.epoch(), strict=False))) == 3
    loader.close()


@pytest.mark.parametrize(
    ("cores", "local_ranks", "world", "workers"),
    [(96, "8", 16, 12), (96, None, 8, 12), (96, None, 1, 96), (4, "8", 8, 1)],
)
def test_ranks_share_the_cores_of_their_machine(
    benchmark: Benchmark,
    monkeypatch: pytest.MonkeyPatch,
    cores: int,
    local_ranks: str | None,
    world: int,
    workers: int,
) -> None:
    """By default; ``LOCAL_WORLD_SIZE`` is how torchrun says how many ranks a machine has."""
    monkeypatch.setattr("centerclip.parallel.usable_cores", lambda: cores)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    if local_ranks:
        monkeypatch.setenv("LOCAL_WORLD_SIZE", local_ranks)
    many = Benchmark("made-up", "train", benchmark.videos * 4)
    assert loader_of(many, batch_size=1, world=world).workers == workers
    assert loader_of(many, batch_size=1, world=world, workers=3).workers == 3


def test_a_batch_that_cannot_be_filled_is_an_error_at_once(benchmark: Benchmark) -> None:
    with pytest.raises(DataError, match="do not fill one batch of 6"):
        loader_of(benchmark, batch_size=6)


def test_drawings_are_decoded_once_and_come_in_turn(benchmark, monkeypatch):
    from centerclip.data import loader as loader_module

    reads = []
    read = loader_module.read_frames
    monkeypatch.setattr(
        loader_module, "read_frames", lambda *given, **named: reads.append(given[0]) or read(*given, **named)
    )
    loader = loader_of(benchmark, batch_size=5, frames=2, draws=2, seed=5)

    def shown(epoch):
        return {
            video: rgb for batch in loader.epoch(epoch) for video, rgb in zip(batch["video"], batch["rgb"], strict=True)
        }

    first, second, third = shown(0), shown(1), shown(2)
    assert len(reads) == 10
    assert all(torch.equal(first[video], third[video]) for video in first)
    assert any(not torch.equal(first[video], second[video]) for video in first)


def test_a_model_that_sees_the_whole_picture_gets_it_squashed(benchmark):
    preprocess = Preprocess(size=32, crop=False)
    (batch,) = loader_of(benchmark, preprocess=preprocess, batch_size=5, frames=2, workers=0).epoch()
    whole = read_frames(benchmark.videos[3].path, 2, random=(42, 0, "d")).rgb
    assert np.array_equal(batch["rgb"][batch["video"].index("d")], preprocess.to_square(whole))
    assert batch["rgb"].shape == (5, 2, 32, 32, 3)
