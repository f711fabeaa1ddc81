"""Indexing on a cluster gives what one machine gives, whatever dies meanwhile."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random

import fsspec
import psutil
import pytest
import ray

from centerclip.integrations import ray as on_ray
from centerclip.integrations.ray import Worker, index_with_ray
from centerclip.search import IndexReport, SearchError, VideoIndex
from tests.machines.parts import Storage
from tests.machines.world import VIDEOS, World
from tests.search.collection import content

KILLS = 20


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 - as nice as the test: on a busy machine they would starve
    storage = Storage()
    os.environ.update(storage.environment)  # before the workers start, who take it over
    ray.init(
        num_cpus=2, object_store_memory=100 * 2**20, include_dashboard=False, log_to_driver=False, logging_level="ERROR"
    )
    yield
    ray.shutdown()
    storage.kill()


def add(index: VideoIndex, world: World, **options: object) -> IndexReport:
    return index.add(world.videos, runner=partial(index_with_ray, address="auto", **options))  # type: ignore[arg-type]


def worker_processes() -> list[psutil.Process]:
    return [
        each
        for each in psutil.process_iter(["cmdline"])
        if " ".join(each.info["cmdline"] or ()).startswith("ray::Worker")
    ]


def test_the_result_is_that_of_one_machine(world: World, cluster: None, tmp_path: Path) -> None:
    index = VideoIndex(tmp_path / "index", model=world.model)
    report = add(index, world, workers=2)
    assert (report.added, report.recognised, report.failed) == (VIDEOS, 1, {})
    assert content(index) == world.expected
    again = add(index, world)
    assert (again.added, again.unchanged) == (0, VIDEOS + 1)


def test_killed_workers_cost_only_what_they_had_under_way(
    world: World, cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_ray, "MAX_DEATHS", 1000)  # here they are not the video's fault
    chance, killed, done = Random(0), 0, threading.Event()

    def kill_now_and_then() -> None:
        nonlocal killed
        while killed < KILLS and not done.is_set():
            time.sleep(chance.random() / 2)
            running = worker_processes()
            if running:
                chance.choice(running).kill()
                killed += 1

    killer = threading.Thread(target=kill_now_and_then)
    killer.start()
    index, runs = VideoIndex(tmp_path / "index", model=world.model), 0
    while killed < KILLS or not runs:
        add(index, world, workers=2) if not runs else index.add(
            world.videos, reindex=True, runner=partial(index_with_ray, address="auto", workers=2)
        )
        runs += 1
    done.set()
    killer.join()
    print(f"\n{killed} workers killed in {runs} runs")
    assert content(index) == world.expected


class Poisoned(Worker):
    """One that the file of a name kills."""

    def index(self, files: list, known: frozenset) -> object:
        if any(Path(file.path).name == "5.mp4" for file in files):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().index(files, known)


def test_a_poisoned_video_is_reported_and_does_not_stop_the_rest(
    world: World, cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_ray, "Worker", Poisoned)
    index = VideoIndex(tmp_path / "index", model=world.model)
    report = add(index, world, workers=1)
    poisoned = str(world.videos / "5.mp4")
    assert list(report.failed) == [poisoned]
    assert "killed the worker that read it 3 times" in report.failed[poisoned]
    assert content(index) == {path: each for path, each in world.expected.items() if path != poisoned}
    monkeypatch.undo()
    assert index.add(world.videos, retry=True, runner=partial(index_with_ray, address="auto", workers=1)).added == 1
    assert content(index) == world.expected


def first_of_its_kind(folder: Path) -> bool:
    """Whether no other process has asked before: for a fault of one worker."""
    try:
        (folder / "asked").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


class FullDisk(Worker):
    """The first of them has a disk that is full."""

    def index(self, files: list, known: frozenset) -> object:
        if first_of_its_kind(Path(files[0].path).parents[1]):
            with Path("/dev/full").open("wb", buffering=0) as disk:
                disk.write(b"what a library keeps there")
        return super().index(files, known)


class Slow(Worker):
    """The first of them takes for ever."""

    def index(self, files: list, known: frozenset) -> object:
        if first_of_its_kind(Path(files[0].path).parents[1]):
            time.sleep(3600)
        return super().index(files, known)


@pytest.mark.parametrize("fault", [FullDisk, Slow])
def test_a_worker_with_a_full_disk_or_a_slow_one_holds_nothing_up(
    fault: type, world: World, cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_ray, "Worker", fault)
    monkeypatch.setattr(on_ray, "SLOW_SECONDS", 1.0)
    asked = world.folder / "asked"
    index = VideoIndex(tmp_path / "index", model=world.model)
    notes: list[str] = []
    report = index.add(
        world.videos,
        runner=partial(index_with_ray, address="auto", workers=2),
        on_progress=lambda progress: notes.append(progress.note),
    )
    assert asked.exists()
    asked.unlink()
    assert (report.added, report.recognised, report.failed) == (VIDEOS, 1, {})
    assert content(index) == world.expected
    assert any("1 lost" in note for note in notes) == (fault is FullDisk)


def test_where_every_disk_is_full_the_run_stops_and_keeps_what_is_done(
    world: World, cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_ray, "Worker", FullDisk)
    index = VideoIndex(tmp_path / "index", model=world.model)
    with pytest.raises(SearchError, match="no worker is left: a worker's disk is full"):
        add(index, world, workers=1)
    (world.folder / "asked").unlink()
    monkeypatch.undo()
    assert add(index, world, workers=1).added == VIDEOS


def test_a_bucket_gives_what_its_files_on_a_disk_give(world: World, cluster: None, tmp_path: Path) -> None:
    system = fsspec.filesystem("s3")
    system.mkdir("films")
    for path in world.videos.iterdir():
        system.pipe(f"films/deep/{path.name}", path.read_bytes())
    index = VideoIndex(tmp_path / "index", model=world.model)
    report = index.add("s3://films", runner=partial(index_with_ray, address="auto", workers=2))
    assert (report.added, report.recognised, report.failed) == (VIDEOS, 1, {})
    by_name = {Path(path).name: each for path, each in world.expected.items()}
    assert content(index) == {f"s3://films/deep/{name}": each for name, each in by_name.items()}
    system.rm("films/deep/3.mp4")
    report = index.add()
    assert (report.unchanged, report.removed) == (VIDEOS, 1)
    report = VideoIndex(tmp_path / "alone", model=world.model).add("s3://films/deep/4.mp4")
    assert report.added == 1


def test_a_worker_that_cannot_open_the_model_says_so(world: World, cluster: None, tmp_path: Path) -> None:
    from centerclip.errors import CenterClipError

    index = VideoIndex(tmp_path / "index", model=world.model)

    def broken(work: object) -> None:
        from dataclasses import replace

        index_with_ray(replace(work, settings=replace(work.settings, model="/not/there")), "auto", workers=1)

    with pytest.raises(CenterClipError, match=r"cannot start.*there"):
        index.add(world.videos, runner=broken)
