"""All runs behind one or more reports: each is run once, and on a CPU several at a time."""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from pathlib import Path

import torch

from ..data.processes import usable_cores
from ..distributed import Processes
from ..errors import CenterClipError
from ..training.loop import Progress
from .errors import ReportError
from .plan import Plan
from .runs import Outcome, find_run, measure_plan, read_outcome, recipe_fingerprint, run_plan

THREADS = "OMP_NUM_THREADS"


@dataclass(frozen=True)
class Watcher:
    """Functions that are told how it goes."""

    say: Callable[[str], None] = lambda text: None  # a line when a run begins or, of several at a time, ends
    on_run: Callable[[int, int], None] = lambda done, total: None  # after every run
    on_step: Callable[[Progress], None] = lambda progress: None  # after every step, while one run is at work


SILENT = Watcher()


def run_all(
    plans: Sequence[Plan],
    root: Path,
    runs: Path,
    group: Processes,
    *,
    seeds: int = 1,
    jobs: int = 1,
    workers: int | None = None,
    watcher: Watcher = SILENT,
) -> list[Outcome]:
    """Run every row with every seed, then measure each row with the machine to itself; returns the rows in their order.

    Rows that come to the same run share it. All rows of a seed are run before the next seed, so that a comparison that
    is stopped early is still fair.

    Args:
        plans: rows of one or more reports.
        root: the folder of the benchmark, or one with a sub-folder for each.
        runs: where runs are kept.
        group: the processes of ``torchrun``, or this one alone.
        seeds: runs of every trained row, with the recipe's seed and those that follow it.
        jobs: runs at a time; more than one only on a CPU and without ``torchrun``.
        workers: decoding processes of each run; the cores of a run by default.
        watcher: is told how it goes.
    """
    every = [plan.with_seed(number) for number in range(seeds) for plan in plans]
    wanted = {recipe_fingerprint(each): each for each in every}
    if jobs > 1:
        if group.world > 1 or group.device.type != "cpu":
            raise ReportError(
                "several runs at a time are for a CPU; on GPUs torchrun shares out each run: leave out --jobs"
            )
        folders = _at_a_time(wanted, root, runs, jobs, workers, watcher)
    else:
        folders = {}
        for number, (name, plan) in enumerate(wanted.items(), start=1):

            def say(text: str, number: int = number) -> None:
                watcher.say(f"run {number} of {len(wanted)}: {text}")

            folders[name] = run_plan(plan, root, runs, group, workers=workers, say=say, on_step=watcher.on_step)
            watcher.on_run(number, len(wanted))
    if group.main:
        for plan in plans:
            measure_plan(plan, folders[recipe_fingerprint(plan)], group.device)
    group.barrier()
    return _outcomes(plans, seeds, lambda plan: folders[recipe_fingerprint(plan)])


def read_all(plans: Sequence[Plan], runs: Path, *, seeds: int = 1) -> list[Outcome]:
    """The rows from their logs alone.

    Raises:
        ReportError: a run was never finished here.
    """
    return _outcomes(plans, seeds, lambda plan: find_run(plan, runs))


def _outcomes(plans: Sequence[Plan], seeds: int, folder_of: Callable[[Plan], Path]) -> list[Outcome]:
    return [read_outcome(plan, [folder_of(plan.with_seed(number)) for number in range(seeds)]) for plan in plans]


def _at_a_time(
    wanted: dict[str, Plan], root: Path, runs: Path, jobs: int, workers: int | None, watcher: Watcher
) -> dict[str, Path]:
    """Runs in processes of their own, each with its share of the cores."""
    cores = max(1, usable_cores() // jobs)
    folders: dict[str, Path] = {}
    context = get_context("spawn")
    with _threads(cores), ProcessPoolExecutor(jobs, mp_context=context, initializer=_end_with_parent) as pool:
        futures = {
            pool.submit(_run_alone, plan, root, runs, cores if workers is None else workers): name
            for name, plan in wanted.items()
        }
        try:
            for future in as_completed(futures):
                name = futures[future]
                folders[name] = future.result()
                watcher.say(f"{len(folders)} of {len(wanted)} runs are there: {wanted[name].title} in {folders[name]}")
                watcher.on_run(len(folders), len(wanted))
        except BrokenProcessPool:
            raise ReportError(
                "a process that trained was killed; out of memory is the usual cause: take fewer --jobs. What was "
                "finished is kept"
            ) from None
        except BaseException:
            pool.shutdown(cancel_futures=True)  # runs that are at work finish, the others are left
            raise
    return folders


def _end_with_parent() -> None:
    """Stop this process when the one that started it is gone: a training then saves a checkpoint first."""
    parent = parent_process()
    assert parent is not None  # only called in a process of the pool

    def watch() -> None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def _run_alone(plan: Plan, root: Path, runs: Path, workers: int) -> Path:
    """One run in a process of its own. Errors come back as text: not every type can be sent."""
    try:
        return run_plan(plan, root, runs, Processes(0, 1, torch.device("cpu")), workers=workers)
    except CenterClipError as error:
        raise ReportError(f"{plan.title}: {error}") from None


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Processes that start inside compute with ``count`` threads: torch reads this when it is imported."""
    before = os.environ.get(THREADS)
    os.environ[THREADS] = str(count)
    try:
        yield
    finally:
        if before is None:
            del os.environ[THREADS]
        else:
            os.environ[THREADS] = before
