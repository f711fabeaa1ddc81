"""A cluster on a clock of its own: the scheduling of ``index --ray`` runs on it as on Ray, in no time."""

import heapq
import itertools
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from unittest import mock

from centerclip.integrations import ray as on_ray
from centerclip.integrations.ray import Collected
from centerclip.search.indexer import Progress, Work
from centerclip.search.results import IndexReport
from centerclip.search.store import File


class RayError(Exception):
    """The worker is gone."""


class RayTaskError(RayError):
    """The worker has raised an error."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause

    def as_instanceof_cause(self) -> Exception:
        return self.cause


@dataclass
class Actor:
    """A worker: from ``ready`` on, until it ``dies``."""

    cluster: "SimulatedCluster"
    ready: float
    dies: float
    slowness: float = 1.0
    calls: int = 0
    index: Any = field(init=False)

    def __post_init__(self) -> None:
        self.index = SimpleNamespace(remote=self.take)

    def take(self, files: list[File], known: frozenset[str]) -> int:
        """Begin with a batch; what will come of it has a number."""
        return self.cluster.begin(self, files)


class SimulatedCluster:
    """In Ray's place.

    Args:
        seconds: how long a file takes.
        lifetime: how long a new worker lives.
        start: seconds until it can begin.
        slowness: of a new worker.
        fault: what happens to a worker that takes a file, or None.
        write_seconds: how long the store takes for so many files.
    """

    exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError, OutOfDiskError=MemoryError)

    def __init__(
        self,
        seconds: Callable[[File], float],
        *,
        lifetime: Callable[[], float] = lambda: float("inf"),
        start: float = 0.0,
        slowness: Callable[[], float] = lambda: 1.0,
        fault: Callable[[File], Exception | None] = lambda file: None,
        write_seconds: Callable[[int], float] = lambda files: 0.0,
    ) -> None:
        self.seconds, self.lifetime, self.start, self.slowness = seconds, lifetime, start, slowness
        self.fault, self.write_seconds = fault, write_seconds
        self.now = self.writing = 0.0
        self.stored: list[File] = []
        self.deaths = 0
        self.numbers = itertools.count()
        self.ends: list[tuple[float, int]] = []  # a heap
        self.results: dict[int, Collected | Exception] = {}

    def monotonic(self) -> float:
        return self.now

    def actor(self) -> Actor:
        ready = self.now + self.start
        return Actor(self, ready, ready + self.lifetime(), self.slowness())

    def begin(self, actor: Actor, files: list[File]) -> int:
        number, began = next(self.numbers), max(self.now, actor.ready)
        end = began + actor.slowness * sum(map(self.seconds, files))
        faults = [fault for fault in map(self.fault, files) if fault is not None]
        result: Collected | Exception = Collected([], files, IndexReport(added=len(files)), {}, end - began)
        if faults:
            end, result = (began + end) / 2, faults[0]
        if actor.dies < end:
            end, result = max(actor.dies, self.now), RayError("it has died")
        self.results[number] = result
        heapq.heappush(self.ends, (end, number))
        return number

    def wait(self, numbers: Sequence[int], timeout: float) -> tuple[list[int], list[int]]:
        wanted = set(numbers)
        while self.ends and self.ends[0][1] not in wanted:  # of actors that were killed
            heapq.heappop(self.ends)
        if not self.ends or self.ends[0][0] > self.now + timeout:
            self.now += timeout
            return [], list(numbers)
        end, number = heapq.heappop(self.ends)
        self.now = max(self.now, end)
        return [number], list(wanted - {number})

    def get(self, number: int) -> Collected:
        result = self.results.pop(number)
        if isinstance(result, Exception):
            self.deaths += not isinstance(result, RayTaskError)
            raise result
        return result

    def kill(self, actor: Actor) -> None:
        """What it has is not waited for any more."""

    # ---- the store ----------------------------------------------------------------------------------------------

    def add(self, videos: Sequence[Any], files: Collection[File]) -> None:
        self.stored += files
        self.now += self.write_seconds(len(files))
        self.writing += self.write_seconds(len(files))

    def index(self, files: Sequence[File], workers: int) -> IndexReport:
        """Index files as ``index --ray`` does, and count."""
        report, progress = IndexReport(), list[Progress]()
        groups: list[on_ray.Batch] = [([file], frozenset()) for file in files]
        sidecars: Any = SimpleNamespace(stamps={})
        store: Any = self
        work = Work(store, None, groups, sidecars, "none", progress.append, report)  # type: ignore[arg-type]
        with mock.patch.object(on_ray, "time", self):
            on_ray._Run(self, work, on_ray.batched(groups, workers), self.actor, workers).run()
        return report
