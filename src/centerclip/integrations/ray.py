"""Indexing on a Ray cluster: actors decode and encode, a batch of files at a time; this process alone writes.

An actor runs the indexer of one machine on a store that only collects, so that the result is that of one machine. What
a worker or a node that dies had under way is done again elsewhere; what kills its worker three times is a failure."""

import hashlib
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from ..errors import SearchError, first_line
from ..files import path_of
from ..parallel import limit_cores
from ..search.folder import DISK_FULL_ERRORS, IndexSettings
from ..search.indexer import COMMIT_SECONDS, COMMIT_SEGMENTS, STAMPS_AT_A_TIME, Indexer, Progress, SidecarStamps
from ..search.query import Encoder
from ..search.results import IndexReport
from ..search.store import AddedVideo, File
from ..video.sampling import Windows

if TYPE_CHECKING:
    from ..search.indexer import Work

MAX_DEATHS = 3  # of workers over one video, before it is left out
ACTOR_CORES = 4  # of an actor without a GPU: they share one model
ACTOR_BYTES = 3 * 2**30  # of memory for an actor: a model, and the frames of a film; Ray places no more than fit
BATCH_BYTES, BATCH_FILES = 64 * 2**20, 32  # of small files that an actor gets together; fewer, so that
BATCHES_EACH = 4  # are there for each
BEGINNING_BYTES = 2**16  # of files of one size, which are no copies where these differ
SLOW_SECONDS = 60.0  # after which what an actor has is given to an idle one too, at the end of a run
Batch: TypeAlias = "tuple[list[File], frozenset[str]]"  # files, and videos that they may be copies of


@dataclass(frozen=True)
class Collected:
    """What an actor has made of some files."""

    videos: list[AddedVideo]
    files: list[File]
    report: IndexReport
    stamps: dict[str, str]
    seconds: float


@dataclass
class _Collector:
    """A store that keeps what is added, and knows which videos are elsewhere."""

    width: int
    known: frozenset[str]
    added: list[AddedVideo] = field(default_factory=list)
    noted: list[File] = field(default_factory=list)

    def view(self) -> Any:
        return self

    @property
    def videos(self) -> frozenset[str]:
        return self.known

    def add(self, videos: Sequence[AddedVideo], files: Sequence[File]) -> None:
        self.added += videos
        self.noted += files

    def value(self, name: str) -> bytes | None:
        return None


class Worker:
    """In a process of the cluster: an open model.

    Args:
        settings: of the index.
        options: of the indexer.
        device: where the model runs.
        cores: how many of the machine's it may use.
    """

    def __init__(self, settings: IndexSettings, options: dict[str, Any], device: str | None, cores: int) -> None:
        limit_cores(cores)
        self.settings, self.options = settings, options
        self.model = Encoder(settings, device=device).model()

    def index(self, files: list[File], known: frozenset[str]) -> Collected:
        """Index files, which may be copies of each other or of the ``known`` videos."""
        began, report = time.monotonic(), IndexReport()
        store: Any = _Collector(self.settings.width, known)
        sidecars = SidecarStamps(store)
        windows = Windows(self.settings.frames, self.settings.segments, self.settings.every)
        sizes = Counter(file.size for file in files)
        copies = {size for size, count in sizes.items() if known or count > 1}
        indexer = Indexer(store, self.model, windows, sidecars, may_be_copies=copies, **self.options)
        indexer.run(files, report)
        return Collected(store.added, store.noted, report, sidecars.stamps, time.monotonic() - began)


def index_with_ray(work: "Work", address: str, *, device: str | None = None, workers: int | None = None) -> None:
    """Index files on a cluster, into a store that the caller holds.

    Args:
        work: what to do.
        address: ``"auto"`` for the cluster of this machine, or one that is started for this run; or ``host:6379``.
        device: where models run; a GPU by default, where the node has one.
        workers: actors at the same time; by default one for each GPU, or for each four cores.
    """
    import ray

    with _connected(ray, address):
        resources, nodes = ray.cluster_resources(), [node["Resources"] for node in ray.nodes() if node["Alive"]]
        cores = int(resources.get("CPU", 1))
        gpus = int(resources.get("GPU", 0)) if device in (None, "cuda") else 0
        of_node = cores // max(1, len(nodes))
        actors = workers or gpus or max(1, cores // max(1, min(ACTOR_CORES, of_node)))
        share = max(1, min(cores // actors, of_node))
        actor = ray.remote(
            num_cpus=share, num_gpus=1 if gpus else 0, memory=memory_of_actor(nodes, actors), max_restarts=0
        )(Worker)
        options = {"detail": work.settings.detail, "hwaccel": work.hwaccel}
        start = lambda: actor.remote(work.settings, options, device, share)  # noqa: E731 - another for each that dies
        batches = batched(list(alike(work.groups)), actors)
        _Run(ray, work, batches, start, min(actors, len(batches))).run()


def memory_of_actor(nodes: Sequence[Mapping[str, float]], actors: int) -> int:
    """Bytes that an actor asks for: no more than there are for each, and than one node has, or it would never begin."""
    of_nodes = [node.get("memory", ACTOR_BYTES) for node in nodes] or [ACTOR_BYTES]
    return int(min(ACTOR_BYTES, sum(of_nodes) / actors, max(of_nodes)))


def alike(groups: Sequence[Batch]) -> Iterator[Batch]:
    """Files of one size that begin alike: cameras that make all files equally large would have one batch for all."""
    with ThreadPoolExecutor(STAMPS_AT_A_TIME) as pool:
        for files, known in groups:
            begins: dict[bytes, list[File]] = defaultdict(list)
            for file, begin in zip(files, pool.map(_beginning, files) if len(files) > 1 else [b""], strict=True):
                begins[begin].append(file)
            yield from ((some, known) for some in begins.values())


def _beginning(file: File) -> bytes:
    """A hash of the first bytes of a file; the same for all that cannot be read, which a worker says why."""
    if not file.size:  # it may be a pipe
        return b""
    try:
        with path_of(file.path).open("rb") as opened:
            return hashlib.blake2b(opened.read(BEGINNING_BYTES), digest_size=16).digest()
    except OSError:
        return b""


def batched(groups: Sequence[Batch], actors: int) -> list[Batch]:
    """What an actor gets at a time: a large file, or several small ones, which are quicker together.

    The largest come first, so that at the end of a run no actor has a film to do while the others wait.
    """
    total = sum(file.size for files, _ in groups for file in files)
    batches: list[Batch] = []
    room = 0
    for files, known in sorted(groups, key=lambda group: -group[0][0].size):
        size = sum(file.size for file in files)
        if not batches or size > room or len(batches[-1][0]) >= BATCH_FILES:
            batches.append(([], frozenset()))
            room = min(BATCH_BYTES, total // (BATCHES_EACH * actors))
        batches[-1] = [*batches[-1][0], *files], batches[-1][1] | known
        room -= size
    return batches


@contextmanager
def _connected(ray: Any, address: str) -> Iterator[None]:
    """Connected to a cluster, which the caller may be already; one that is started here ends here."""
    if ray.is_initialized():
        yield
        return
    _connect(ray, address)
    try:
        yield
    finally:
        ray.shutdown()


def _connect(ray: Any, address: str) -> None:
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        ray.init(address=address, **quiet)
    except (ConnectionError, ValueError, RuntimeError) as error:
        if address != "auto":
            raise SearchError(
                f"--ray {address}: there is no Ray cluster ({first_line(error)}). Start one with `ray start --head`, "
                "and name its address"
            ) from error
        ray.init(include_dashboard=False, **quiet)  # one of this machine's own, for this run


class _Run:
    """Gives batches of files to actors, and what comes back to the store."""

    def __init__(self, ray: Any, work: "Work", batches: list[Batch], start: Callable[[], Any], actors: int) -> None:
        self.ray, self.work, self.batches, self.start = ray, work, batches, start
        self.total = sum(len(files) for files, _ in batches)
        self.waiting = deque(range(len(batches)))
        self.deaths: Counter[int] = Counter()
        self.idle = deque(start() for _ in range(actors))  # the last one is given work first
        self.under_way: dict[Any, tuple[int, Any, float]] = {}  # what will come -> the batch, who makes it, since when
        self.videos: list[AddedVideo] = []
        self.files: list[File] = []
        self.began = self.last_commit = time.monotonic()
        self.finished = self.done = self.lost = 0
        self.video_seconds = 0.0
        self.unfit = ""  # why an actor was given up

    def run(self) -> None:
        """Until all is done."""
        try:
            while self.waiting or self.under_way:
                while self.idle and (batch := self._next()) is not None:
                    self._give(batch, self.idle.pop())
                if not self.under_way:
                    raise SearchError(f"no worker is left: {self.unfit}")
                ready, _ = self.ray.wait(list(self.under_way), timeout=COMMIT_SECONDS)
                for each in ready:
                    if each in self.under_way:  # not done by another actor meanwhile
                        self._take(each)
                full = sum(len(segments) for _, segments, _ in self.videos) >= COMMIT_SEGMENTS
                if full or time.monotonic() - self.last_commit >= COMMIT_SECONDS:
                    self._commit()
        except (KeyboardInterrupt, SearchError):
            self._commit()  # what is encoded is kept
            raise
        finally:
            for actor in [*self.idle, *(actor for _, actor, _ in self.under_way.values())]:
                self.ray.kill(actor)
        self._commit()

    def _next(self) -> int | None:
        """The batch to give out; at the end those that a slow actor, or one that cannot start, holds up."""
        if self.waiting:
            return self.waiting.popleft()
        given: dict[int, float] = {}  # when each was given out last: whoever it was given to may never begin either
        for batch, _, since in self.under_way.values():
            given[batch] = max(since, given.get(batch, since))
        late = time.monotonic() - SLOW_SECONDS
        return min((batch for batch in given if given[batch] < late), key=given.__getitem__, default=None)

    def _give(self, batch: int, actor: Any) -> None:
        files, known = self.batches[batch]
        self.under_way[actor.index.remote(files, known)] = batch, actor, time.monotonic()

    def _take(self, each: Any) -> None:
        batch, actor, _ = self.under_way.pop(each)
        try:
            collected = self.ray.get(each)
        except self.ray.exceptions.RayTaskError as error:
            if getattr(error.cause, "errno", None) not in DISK_FULL_ERRORS:  # a bug, or a bad model: everywhere
                raise error.as_instanceof_cause() from error
            self._give_up(batch, actor, f"a worker's disk is full ({first_line(error.cause)})")
            return
        except self.ray.exceptions.OutOfDiskError as error:
            self._give_up(batch, actor, f"a worker's disk is full ({first_line(error)})")
            return
        except self.ray.exceptions.RayError as error:  # the worker, its node, or what it made, is gone
            if "creation task" in str(error):
                self._give_up(batch, actor, f"a worker cannot start: {str(error).strip().splitlines()[-1]}")
            else:
                self._died(batch, actor)
            return
        self.idle.append(actor)
        for other, (same, slow, _) in list(self.under_way.items()):
            if same == batch:  # it need not be done twice
                del self.under_way[other]
                self.ray.kill(slow)
                self._start_another()
        self.videos += collected.videos
        self.files += collected.files
        self.work.sidecars.stamps.update(collected.stamps)
        self.work.count(collected.report)
        self.video_seconds += collected.report.video_seconds
        self.done += len(self.batches[batch][0])

    def _give_up(self, batch: int, actor: Any, reason: str) -> None:
        """Do without an actor whose machine is not fit; others do its work."""
        self.ray.kill(actor)
        self.unfit = reason
        self.lost += 1
        if not self._is_under_way(batch):
            self.waiting.append(batch)

    def _is_under_way(self, batch: int) -> bool:
        return any(other == batch for other, _, _ in self.under_way.values())

    def _died(self, batch: int, actor: Any) -> None:
        """Try again elsewhere what an actor had that is gone."""
        self.ray.kill(actor)
        self.lost += 1
        if not self._is_under_way(batch):  # otherwise another one has it too
            self._try_again(batch)
        self._start_another()

    def _start_another(self) -> None:
        """In the place of one that is gone, where it is needed. It is the last to get work: it may find no place."""
        if self.waiting or not self.idle:
            self.idle.appendleft(self.start())

    def _try_again(self, batch: int) -> None:
        """Let another one do what has killed its worker; a few times."""
        self.deaths[batch] += 1
        files, known = self.batches[batch]
        if len(files) > 1:  # it is the fault of one of them: from now on each is a batch
            self.batches[batch] = files[:1], known
            self.waiting.extend(range(len(self.batches), len(self.batches) + len(files) - 1))
            self.batches.extend(([file], known) for file in files[1:])
        if self.deaths[batch] < MAX_DEATHS:
            self.waiting.append(batch)  # at the end: what kills workers does not hold up the rest
            return
        reason = f"unreadable: it killed the worker that read it {MAX_DEATHS} times; --retry tries it again"
        failed = [replace(file, video="", failure=reason) for file in self.batches[batch][0]]
        self.files += failed
        self.work.count(IndexReport(failed={file.path: reason for file in failed}))
        self.done += len(failed)

    def _commit(self) -> None:
        if self.videos or self.files:
            self.work.store.add(self.videos, self.files)
            self.videos, self.files = [], []
        self.finished, self.last_commit = self.done, time.monotonic()
        seconds = self.last_commit - self.began
        rate = self.video_seconds / max(seconds, 1e-9)
        lost = f", {self.lost} lost" if self.lost else ""
        speed = f"{rate:,.0f} x as fast as it plays" if self.done else "waiting for the first that is done"
        note = f"{len(self.under_way)} workers, {speed}{lost}"
        expected = self.video_seconds * self.total / self.finished if self.finished else 0.0
        self.work.on_progress(Progress(self.finished, self.total, self.video_seconds, seconds, expected, note=note))
