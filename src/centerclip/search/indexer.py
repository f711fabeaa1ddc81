"""Brings an index up to date with its folders: decoding in threads, encoding beside it, one commit for a few videos.

The unit of work is one video, by content. Whatever stops the run, a video is in the store whole or not at all, and the
next run continues with those that are not."""

import os
import queue
import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..files import content_id, find_videos, is_below
from ..video.sampling import Windows
from .results import IndexReport
from .state import OpenIndex
from .store import File, Segments, Store, Video

if TYPE_CHECKING:
    from torch import Tensor

    from ..model import CenterCLIP
    from ..video import Streamed, Window


COMMIT_SECONDS = 2.0  # how much work a kill can cost, beside the videos that are under way
COMMIT_SEGMENTS = 20_000
CPU_BATCH = 8  # windows; larger batches are no faster on a CPU and come in jerks
AHEAD = 2  # batches that may wait, decoded, for the model


@dataclass(frozen=True)
class Progress:
    """How far a run is. ``finished`` files are in the store for good."""

    finished: int
    total: int
    video_seconds: float
    seconds: float


@dataclass
class Outcome:
    """What became of the files that were given.

    Attributes:
        added: videos that were encoded.
        recognised: files whose content was known: moved, renamed, copied or touched.
        failed: path and reason of files that could not be read.
        video_seconds: length of the videos that were encoded.
        segments: vectors that were added.
    """

    added: int = 0
    recognised: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    video_seconds: float = 0.0
    segments: int = 0


@dataclass
class _Job:
    """One video on its way."""

    id: str
    files: list[File]
    vectors: dict[int, np.ndarray] = field(default_factory=dict)  # window -> [S, D]
    streamed: "Streamed | None" = None


class _Stopped(Exception):
    """The run is over; a decoding thread gives up."""


class Indexer:
    """Encodes files into a store.

    Args:
        store: where to; the caller holds its lock.
        model: what with.
        windows: how videos are cut.
        decoders: files read at the same time.
        on_progress: called after every commit.
    """

    def __init__(
        self,
        store: Store,
        model: "CenterCLIP",
        windows: Windows,
        *,
        decoders: int = 2,
        on_progress: Callable[[Progress], None] = lambda progress: None,
    ) -> None:
        self.store, self.model, self.windows, self.on_progress = store, model, windows, on_progress
        self.decoders = decoders
        self.batch = model.batch_size() if model.device.type == "cuda" else min(CPU_BATCH, model.batch_size())
        self._queue: queue.Queue[Any] = queue.Queue(maxsize=AHEAD * self.batch)
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._known = set(store.view().videos)
        self._under_way: dict[str, _Job] = {}

    def run(self, files: Sequence[tuple[Path, int, int]]) -> Outcome:
        """Index files, given as path, size and time of change in nanoseconds."""
        self._todo = iter(files)
        self._outcome, self._total, self._began = Outcome(), len(files), time.monotonic()
        self._videos: list[tuple[Video, Segments]] = []
        self._files: list[File] = []
        self._finished, self._last_commit = 0, time.monotonic()
        threads = [threading.Thread(target=self._decode_files, daemon=True) for _ in range(self.decoders)]
        for thread in threads:
            thread.start()
        try:
            self._encode(len(threads))
        except KeyboardInterrupt:
            self._commit()  # what is done is done
            raise
        finally:
            self._stop.set()
            for thread in threads:
                while thread.is_alive():
                    with suppress(queue.Empty):  # a thread may wait for room
                        self._queue.get_nowait()
                    thread.join(0.05)
        self._commit()
        return self._outcome

    # ---- decoding: in threads --------------------------------------------------------------------------------

    def _decode_files(self) -> None:
        try:
            while True:
                with self._lock:
                    file = next(self._todo, None)
                if file is None:
                    break
                self._decode_file(*file)
        except _Stopped:
            return
        except BaseException as error:  # a fault of ours: the run must not wait for this thread
            self._put(error)
        self._put(None)

    def _decode_file(self, path: Path, size: int, modified: int) -> None:
        from ..video import VideoError, stream_windows

        file = File(str(path), size, modified, "")
        try:
            video = content_id(path)
        except OSError as error:
            self._put(_failed(file, f"unreadable: {error.strerror or error}"))
            return
        file = File(str(path), size, modified, video)
        job = self._claim(file)
        if job is None:
            return
        preprocess = self.model.preprocess
        short_side = (preprocess.short_side or preprocess.size) if preprocess.crop else None
        try:
            job.streamed = stream_windows(
                path,
                self.windows.times,
                self.windows.frames,
                lambda window: self._put((job, window.number, self._square(window))),
                short_side=short_side,
            )
            status = path.stat()
            if (status.st_size, status.st_mtime_ns) != (size, modified):
                raise OSError("the file changed while it was read; the next run takes it again")
            self._put(job)
        except VideoError as error:
            self._give_up(job, f"{error.reason}: {error.detail}. {error.advice}")
        except (OSError, MemoryError, ValueError, RuntimeError) as error:
            self._give_up(job, f"unreadable: {error}")

    def _claim(self, file: File) -> _Job | None:
        """A job for a video that nobody has taken; a copy of one that is known or under way needs none."""
        with self._lock:
            if file.video not in self._known:
                job = self._under_way.get(file.video)
                if job is None:
                    self._under_way[file.video] = job = _Job(file.video, [file])
                    return job
                job.files.append(file)
                return None
        self._put(file)
        return None

    def _give_up(self, job: _Job, reason: str) -> None:
        with self._lock:
            del self._under_way[job.id]
        for file in job.files:
            self._put(_failed(file, reason))

    def _square(self, window: "Window") -> "Tensor":
        """uint8 ``[T, size, size, 3]``: small, and the same for all videos, so that windows of several make a batch."""
        import torch

        # NumPy's copy, because torch would wake threads for it.
        return torch.from_numpy(np.ascontiguousarray(self.model.preprocess.to_square(window.rgb).numpy()))

    def _put(self, item: Any) -> None:
        while not self._stop.is_set():
            with suppress(queue.Full):
                self._queue.put(item, timeout=0.2)
                return
        raise _Stopped

    # ---- encoding: in the thread of the caller ----------------------------------------------------------------

    def _encode(self, running: int) -> None:
        waiting: list[tuple[_Job, int, Tensor]] = []
        ended: list[_Job] = []
        while running:
            item = self._next(idle=not waiting)
            if isinstance(item, tuple):
                waiting.append(item)
            elif isinstance(item, _Job):
                ended.append(item)
            elif isinstance(item, File):
                self._settle(item)
            elif isinstance(item, BaseException):
                raise item
            elif item is None:
                running -= 1
            if waiting and (len(waiting) >= self.batch or item is queue.Empty):
                self._encode_windows(waiting)
                waiting = []
            if not waiting:
                for job in ended:
                    self._finish(job)
                ended = []
            self._commit_now_and_then()
        self._encode_windows(waiting)
        for job in ended:
            self._finish(job)

    def _next(self, idle: bool) -> Any:
        """The next item; the class ``queue.Empty`` when nothing is there and something else could be done."""
        try:
            return self._queue.get(timeout=0.5) if idle else self._queue.get_nowait()
        except queue.Empty:
            return queue.Empty

    def _encode_windows(self, waiting: "list[tuple[_Job, int, Tensor]]") -> None:
        import torch

        for first in range(0, len(waiting), self.batch):
            part = waiting[first : first + self.batch]
            with self.model.inference():  # half precision on a GPU, as encode_videos has it
                segments, _ = self.model.video_features(torch.stack([rgb for _, _, rgb in part]))
            for (job, number, _), vectors in zip(part, segments.float().cpu().numpy(), strict=True):
                if number == 0:
                    job.vectors.clear()  # a damaged file is read again from its start
                job.vectors[number] = vectors

    def _finish(self, job: _Job) -> None:
        assert job.streamed is not None
        starts, ends = self.windows.spans(job.streamed.duration)
        vectors = np.concatenate([job.vectors[number] for number in range(job.streamed.windows)])
        info = job.streamed
        video = Video(job.id, info.duration, info.width, info.height, time.time(), info.note or "")
        self._videos.append((video, Segments(starts, ends, vectors)))
        self._outcome.added += 1
        self._outcome.recognised -= 1  # its first file is counted with it
        self._outcome.video_seconds += info.duration
        self._outcome.segments += len(starts)
        with self._lock:
            self._known.add(job.id)
            del self._under_way[job.id]
            files = list(job.files)
        for file in files:
            self._settle(file)

    def _settle(self, file: File) -> None:
        self._files.append(file)
        if file.failure:
            self._outcome.failed[file.path] = file.failure
        else:
            self._outcome.recognised += 1

    def _commit_now_and_then(self) -> None:
        waited = time.monotonic() - self._last_commit
        if waited >= COMMIT_SECONDS or sum(len(segments) for _, segments in self._videos) >= COMMIT_SEGMENTS:
            self._commit()

    def _commit(self) -> None:
        if self._files or self._videos:
            self.store.add(self._videos, self._files)
            self._finished += len(self._files)
            self._videos, self._files = [], []
        self._last_commit = time.monotonic()
        seconds = self._last_commit - self._began
        self.on_progress(Progress(self._finished, self._total, self._outcome.video_seconds, seconds))


def _failed(file: File, reason: str) -> File:
    return File(file.path, file.size, file.modified, "", reason)


def update(
    index: OpenIndex,
    roots: list[Path],
    *,
    retry: bool,
    decoders: int | None,
    on_progress: Callable[[Progress], None],
) -> IndexReport:
    """Encode what is new or changed below the roots and drop what is gone. The caller holds the lock."""
    report = IndexReport()
    before = index.store.view()
    known = before.files
    todo, seen = [], set()
    unreadable: dict[str, str] = {}

    def note(error: OSError) -> None:
        unreadable[str(error.filename)] = error.strerror or str(error)

    for path in find_videos(*(root for root in roots if root.exists()), skip=index.folder, on_error=note):
        seen.add(str(path))
        try:
            status = path.stat()
        except OSError as error:
            report.failed[str(path)] = f"unreadable: {error.strerror}"
            continue
        file = known.get(str(path))
        same = file is not None and (file.size, file.modified) == (status.st_size, status.st_mtime_ns)
        if file is None or not same or (file.failure and retry):
            todo.append((path, status.st_size, status.st_mtime_ns))
        elif file.failure:
            report.failed[str(path)] = file.failure
        else:
            report.unchanged += 1
    report.failed |= {folder: f"unreadable: {reason}" for folder, reason in unreadable.items()}
    index.calibration.encode(index.encoder)
    if todo:  # the model is not even opened when nothing is new
        indexer = Indexer(
            index.store,
            index.encoder.model(),
            index.windows,
            decoders=decoders or default_decoders(),
            on_progress=on_progress,
        )
        outcome = indexer.run(todo)
        report.added, report.recognised = outcome.added, outcome.recognised
        report.video_seconds, report.segments = outcome.video_seconds, outcome.segments
        report.failed |= outcome.failed
    _drop_missing(index.store, roots, seen, unreadable, report)
    index.store.tidy(index.calibration.vectors)
    if index.store.view().videos is not before.videos or not len(index.calibration.texts):
        index.calibration.measure(index.store.view())
    return report


def _drop_missing(
    store: Store, roots: list[Path], seen: set[str], unreadable: Collection[str], report: IndexReport
) -> None:
    """Drop files that are gone from the folders that were walked; a whole folder that is empty now is kept."""
    known = store.view().files
    gone: set[str] = set()
    for root in roots:
        inside = {path for path in known if is_below(path, str(root))}
        lost = {path for path in inside - seen if not any(is_below(path, folder) for folder in unreadable)}
        if lost and lost == inside and not root.is_file():
            report.not_dropped.append(str(root))
        else:
            gone |= lost
    drop(store, gone)
    report.removed = len(gone)


def drop(store: Store, paths: set[str]) -> None:
    """Remove files, and the videos that are left without any."""
    view = store.view()
    left = {file.video for path, file in view.files.items() if path not in paths}
    orphans = [video for video in view.videos if video not in left]
    if paths or orphans:
        store.remove(orphans, sorted(paths))


def default_decoders() -> int:
    """Files to read at the same time: enough to keep the model busy, few enough to leave it the processor."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(4, cores // 2))
