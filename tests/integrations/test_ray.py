"""How indexing on a cluster is divided: on a simulated one, with any faults. ``make test-cluster`` has a real one."""

import errno
import math
import os
from pathlib import Path
from random import Random

import pytest

from centerclip.integrations.ray import ACTOR_BYTES, MAX_DEATHS, SLOW_SECONDS, alike, batched, memory_of_actor
from centerclip.search import SearchError
from centerclip.search.store import File
from tests.faults.cluster import RayError, RayTaskError, SimulatedCluster


def some_files(chance: Random, count: int) -> list[File]:
    return [File(f"/v/{n}.mp4", int(chance.paretovariate(0.7) * 10**6), n, f"{n}") for n in range(count)]


def seconds(file: File) -> float:
    return file.size / 10**7


@pytest.mark.parametrize("seed", range(20))
def test_whatever_dies_each_file_is_stored_once(seed: int) -> None:
    chance = Random(seed)
    files = some_files(chance, 200)
    cluster = SimulatedCluster(
        seconds,
        lifetime=lambda: chance.expovariate(1 / 20.0) + 1.0,
        start=chance.choice([0.0, 5.0]),
        slowness=lambda: chance.choice([1.0, 1.0, 1.0, 30.0]),
    )
    report = cluster.index(files, workers=chance.choice([1, 3, 20]))
    lost = set(report.failed)  # films that no worker lives long enough for
    assert sorted(file.path for file in cluster.stored) == sorted(file.path for file in files)
    assert all(30 * seconds(file) > 1.0 for file in files if file.path in lost)
    assert {file.path for file in cluster.stored if file.failure} == lost
    assert report.added == len(files) - len(lost)


def test_a_poisoned_file_is_left_out_after_three_deaths_and_nothing_else_is() -> None:
    files = some_files(Random(1), 60)
    poison = files[17]
    cluster = SimulatedCluster(seconds, fault=lambda file: RayError("died") if file == poison else None)
    report = cluster.index(files, workers=4)
    assert list(report.failed) == [poison.path]
    assert report.added == 59
    assert cluster.deaths in (MAX_DEATHS, MAX_DEATHS + 1)  # once among others, then alone


def test_a_full_disk_costs_one_worker_and_the_last_one_ends_the_run() -> None:
    files, full = some_files(Random(2), 60), [RayTaskError(OSError(errno.ENOSPC, "No space left on device"))]
    cluster = SimulatedCluster(seconds, fault=lambda file: full.pop() if full else None)
    assert cluster.index(files, workers=2).added == 60
    full = [RayTaskError(OSError(errno.ENOSPC, "No space left on device")) for _ in range(2)]
    with pytest.raises(SearchError, match="no worker is left: a worker's disk is full"):
        SimulatedCluster(seconds, fault=lambda file: full.pop()).index(files, workers=2)


def test_a_bug_ends_the_run() -> None:
    bug = RayTaskError(ZeroDivisionError("division by zero"))
    with pytest.raises(ZeroDivisionError):
        SimulatedCluster(seconds, fault=lambda file: bug).index(some_files(Random(3), 5), workers=2)


def test_a_slow_worker_holds_nothing_up() -> None:
    files, slow = some_files(Random(4), 100), [1.0, 1.0, 1.0, 10**6]
    cluster = SimulatedCluster(seconds, slowness=lambda: slow.pop() if slow else 1.0)
    assert cluster.index(files, workers=4).added == 100
    assert cluster.now < sum(map(seconds, files)) + 200


@pytest.mark.parametrize("seed", range(10))
def test_a_lost_node_costs_what_it_had_even_where_its_workers_find_no_other_place(seed: int) -> None:
    chance = Random(seed)
    lives, speeds = [math.inf, math.inf, *(chance.uniform(1, 30) for _ in range(6))], [1.0] * 8
    cluster = SimulatedCluster(
        seconds,
        lifetime=lambda: lives.pop() if lives else math.inf,
        slowness=lambda: speeds.pop() if speeds else math.inf,  # one that has no place never begins
    )
    files = some_files(chance, 60)
    assert cluster.index(files, workers=8).added == 60
    assert sorted(file.path for file in cluster.stored) == sorted(file.path for file in files)
    assert cluster.now < sum(map(seconds, files)) + 10 * SLOW_SECONDS


def test_batches_are_of_small_files_and_the_largest_come_first() -> None:
    groups = [([file], frozenset({file.path})) for file in some_files(Random(5), 500)]
    batches = batched(groups, actors=3)
    assert sorted(file.path for files, _ in batches for file in files) == sorted(files[0].path for files, _ in groups)
    assert all(known == {file.path for file in files} for files, known in batches)
    sizes = [max(file.size for file in files) for files, _ in batches]
    assert sizes == sorted(sizes, reverse=True)
    assert 3 * 4 <= len(batches) < 500
    copies = [([File("/a", 5, 1, ""), File("/b", 5, 1, "")], frozenset()), ([File("/empty", 0, 1, "")], frozenset())]
    assert [len(files) for files, _ in batched(copies, actors=1)] == [2, 1]


def test_files_of_one_size_that_begin_differently_are_given_to_several_workers(tmp_path: Path) -> None:
    files = []
    for number in range(6):
        (tmp_path / f"{number}.mp4").write_bytes(bytes([number % 3]) * 100)
        files.append(File(str(tmp_path / f"{number}.mp4"), 100, 1, ""))
    gone = File(str(tmp_path / "gone.mp4"), 100, 1, "")
    os.mkfifo(tmp_path / "pipe.mp4")
    pipes = [File(str(tmp_path / "pipe.mp4"), 0, 1, "")] * 2
    known = frozenset({"x"})
    apart = [files[::3], files[1::3], files[2::3], [gone], pipes, [gone]]
    assert list(alike([([*files, gone], known), (pipes, known), ([gone], known)])) == [(some, known) for some in apart]


def test_a_worker_asks_for_no_more_memory_than_a_node_has() -> None:
    gigabytes = 2**30
    assert memory_of_actor([{"memory": 2 * gigabytes}, {"memory": 1 * gigabytes}], 1) == 2 * gigabytes
    assert memory_of_actor([{"memory": 2 * gigabytes}] * 2, 4) == gigabytes
    assert memory_of_actor([{"memory": 64 * gigabytes}], 4) == ACTOR_BYTES
    assert memory_of_actor([{}], 1) == ACTOR_BYTES
