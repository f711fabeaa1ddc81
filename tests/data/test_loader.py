"""The loader: right shapes, the same batches on every run, and clear errors when a file or a process fails."""

import multiprocessing
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

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


def same(one: Batch, other: Batch) -> bool:
    tensors = all(torch.equal(one[key], other[key]) for key in ("rgb", "mask", "times", "index"))  # type: ignore[literal-required]
    return tensors and one["captions"] == other["captions"] and one["video"] == other["video"]


def test_evaluation_gives_every_video_once_in_order_cropped_and_masked(benchmark: Benchmark) -> None:
    batches = list(Loader(benchmark, training=False, batch_size=2, frames=4, size=32, workers=0).epoch())
    assert [batch["video"] for batch in batches] == [["a", "b"], ["c", "d"], ["e"]]
    assert [batch["captions"] for batch in batches] == [["a0", "b0"], ["c0", "d0"], ["e0"]]
    first = batches[0]
    assert first["rgb"].shape == (2, 4, 32, 32, 3)
    assert first["rgb"].dtype == torch.uint8
    assert first["mask"].tolist() == [[True] * 4, [True, True, False, False]]
    assert first["times"][0].tolist() == pytest.approx([0.2, 0.7, 1.2, 1.7])
    assert torch.cat([batch["index"] for batch in batches]).tolist() == [0, 1, 2, 3, 4]


def test_training_repeats_by_seed_and_epoch_with_any_workers_and_from_any_batch(benchmark: Benchmark) -> None:
    setting = {"training": True, "batch_size": 2, "frames": 3, "size": 32}
    alone = Loader(benchmark, workers=0, **setting)
    crew = Loader(benchmark, workers=2, **setting)
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
        list(Loader(benchmark, training=True, batch_size=5, frames=1, size=8, workers=workers).epoch())
    assert torch.equal(torch.get_rng_state(), before)


@pytest.fixture
def spawning() -> Iterator[None]:
    """Processes start fresh, as on macOS and Windows."""
    usual = multiprocessing.get_start_method()
    multiprocessing.set_start_method("spawn", force=True)
    yield
    multiprocessing.set_start_method(usual, force=True)


def test_spawned_workers_give_the_same(benchmark: Benchmark, spawning: None) -> None:
    setting = {"training": True, "batch_size": 5, "frames": 2, "size": 16}
    spawned = next(Loader(benchmark, workers=1, **setting).epoch(1))
    assert same(spawned, next(Loader(benchmark, workers=0, **setting).epoch(1)))


def test_an_epoch_of_videos_has_one_caption_each_and_many_epochs_have_all(benchmark: Benchmark) -> None:
    loader = Loader(benchmark, training=True, batch_size=5, frames=1, size=8, workers=0)
    seen: dict[str, set[str]] = {video: set() for video in CAPTIONS}
    for epoch in range(16):
        (batch,) = loader.epoch(epoch)
        assert sorted(batch["video"]) == list(CAPTIONS)
        for video, caption in zip(batch["video"], batch["captions"], strict=True):
            seen[video].add(caption)
    assert seen == {video: set(captions) for video, captions in CAPTIONS.items()}


def test_an_epoch_of_pairs_has_each_pair_once_over_all_ranks(benchmark: Benchmark) -> None:
    pairs: Counter[tuple[str, str]] = Counter()
    for rank in range(2):
        loader = Loader(
            benchmark, training=False, items="pairs", batch_size=3, frames=1, size=8, workers=0, rank=rank, world=2
        )
        for batch in loader.epoch():
            pairs.update(zip(batch["video"], batch["captions"], strict=True))
            assert [benchmark.captions[place] for place in batch["index"]] == batch["captions"]
    assert pairs == Counter({(video, caption): 1 for video, captions in CAPTIONS.items() for caption in captions})


@pytest.mark.parametrize("workers", [0, 1])
def test_an_unreadable_video_is_an_error_that_names_it(benchmark: Benchmark, tmp_path: Path, workers: int) -> None:
    bad = Clip("broken", text(tmp_path / "broken.mp4", "no video"), ("x",))
    spoilt = Benchmark("made-up", "train", (*benchmark.videos[:2], bad))
    loader = Loader(spoilt, training=False, batch_size=3, frames=1, size=8, workers=workers)
    with pytest.raises(UnreadableVideoError, match=r"video broken \(.*broken\.mp4\) cannot be read: this is not"):
        list(loader.epoch())


def test_an_unreadable_video_can_be_skipped_and_is_reported(
    benchmark: Benchmark, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bad = Clip("broken", text(tmp_path / "broken.mp4", "no video"), ("x",))
    spoilt = Benchmark("made-up", "train", (benchmark.videos[0], bad, bad, benchmark.videos[2]))
    loader = Loader(spoilt, training=False, batch_size=1, frames=1, size=8, workers=0, on_error="skip")
    assert [batch["video"] for batch in loader.epoch()] == [["a"], ["c"]]
    assert list(loader.failures) == ["broken"]
    assert caplog.text.count("skipped video broken") == 1


def test_a_killed_worker_is_an_error_and_the_next_epoch_starts_new_ones(benchmark: Benchmark) -> None:
    many = Benchmark("made-up", "train", benchmark.videos * 40)
    loader = Loader(many, training=False, batch_size=1, frames=4, size=64, workers=2)
    batches = loader.epoch()
    before = multiprocessing.active_children()  # workers of other loaders may not have ended yet
    next(batches)
    victim = next(process for process in multiprocessing.active_children() if process not in before)
    assert victim.pid is not None
    os.kill(victim.pid, signal.SIGKILL)
    with pytest.raises(WorkerDiedError, match="a worker process died"):
        list(batches)
    assert next(loader.epoch())["video"] == ["a"]
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
    assert Loader(benchmark, training=False, world=world).workers == workers
    assert Loader(benchmark, training=False, world=world, workers=3).workers == 3


def test_a_batch_that_cannot_be_filled_is_an_error_at_once(benchmark: Benchmark) -> None:
    with pytest.raises(DataError, match="do not fill one batch of 6"):
        Loader(benchmark, training=True, batch_size=6)


def test_drawings_are_decoded_once_and_come_in_turn(benchmark, monkeypatch):
    from centerclip.data import loader as loader_module

    reads = []
    read = loader_module.read_frames
    monkeypatch.setattr(
        loader_module, "read_frames", lambda *given, **named: reads.append(given[0]) or read(*given, **named)
    )
    loader = Loader(benchmark, training=True, batch_size=5, frames=2, size=32, draws=2, seed=5)

    def shown(epoch):
        return {
            video: rgb for batch in loader.epoch(epoch) for video, rgb in zip(batch["video"], batch["rgb"], strict=True)
        }

    first, second, third = shown(0), shown(1), shown(2)
    assert len(reads) == 10
    assert all(torch.equal(first[video], third[video]) for video in first)
    assert any(not torch.equal(first[video], second[video]) for video in first)


def test_a_model_that_sees_the_whole_picture_gets_it_squashed(benchmark):
    squash = Preprocess(size=32, crop=False).to_square
    batch = next(iter(Loader(benchmark, training=False, batch_size=5, frames=2, size=32, squash=squash).epoch()))
    whole = read_frames(benchmark.videos[3].path, 2).rgb
    assert torch.equal(batch["rgb"][3], squash(whole))
    assert batch["rgb"].shape == (5, 2, 32, 32, 3)
