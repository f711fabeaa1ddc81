"""Brings an index up to date with its folders: finds what is new, encodes it, drops what is gone.

The unit of work is one video, by content. Whatever stops the run, a video is in the store whole or not at all, and the
next run continues with those that are not.
"""

import json
import os
import stat
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import first_line
from ..files import content_id, find_videos, is_address, is_below, is_photo, path_of
from ..parallel import usable_cores
from ..video.errors import VideoError
from ..video.sampling import ORDER, DetailName, Windows
from ..video.subtitles import Sidecars, read_lines, sidecar_stamp
from .folder import IndexSettings, suffixes_of
from .ranking import Calibration
from .results import IndexReport, last_found
from .store import AddedVideo, File, Line, Segments, Store, Video, View

if TYPE_CHECKING:
    from ..model.pipeline import Decoded, Deliver, VideoEncoder
    from ..video import Streamed
    from .index import IndexState
    from .recognise import Recogniser
    from .results import Hit

COMMIT_SECONDS = 2.0  # how much work a kill can cost, beside the videos that are being encoded
FILES_AT_A_TIME = 1000  # compared with the store
STAMPS_AT_A_TIME = 32  # files of a storage that are asked for their sizes
COMMIT_SEGMENTS = 20_000  # how many vectors may wait in memory for the next commit
NO_LENGTH = (0.0, 0)
SHARP_ENOUGH = 1.5  # times the length of a fine segment: a shorter one is not read again
MAX_SHARPENED = 16  # coarse segments of a moment that are read again, its first ones: it may be a whole film
SIDECARS = "sidecars"  # their stamps in the store
MOUNTS = "mounts"  # in the store: the mount points that files were found below
TASKS = {"spoken": "transcribing", "written": "reading text"}  # as the progress bar calls them
CPU_BATCH = 8  # windows; larger batches are no faster on a CPU, and videos would finish in bursts


@dataclass(frozen=True)
class Progress:
    """How far a run is.

    Attributes:
        finished: files that are in the store for good.
        total: files that are new or changed.
        video_seconds: of video that have been encoded, also of videos that are not finished.
        seconds: since the run began.
        total_seconds: of video in all files, about: the length of a file is known when it is opened, and before that
            taken from its size. 0 until the first is.
        task: what is done now.
        note: about who does it, where it is not this process.
    """

    finished: int
    total: int
    video_seconds: float
    seconds: float
    total_seconds: float = 0.0
    task: str = "indexing"
    note: str = ""  # about who does it

    @property
    def share(self) -> float:
        """How much is done, 0 to 1."""
        done, total = (self.video_seconds, self.total_seconds) if self.total_seconds else (self.finished, self.total)
        return min(1.0, done / max(total, 1e-9))

    @property
    def seconds_left(self) -> float | None:
        """How long the rest will take, about; None until something has been encoded."""
        return self.seconds * (1 / self.share - 1) if self.video_seconds and self.share else None


def update(
    index: "IndexState",
    roots: list[Path],
    lists: Mapping[str, Sequence[Path]],
    recognisers: "Sequence[Recogniser]",
    *,
    retry: bool,
    decoders: int | None,
    on_progress: Callable[[Progress], None],
    finer: DetailName | None = None,
    hwaccel: str = "none",
    runner: "Callable[[Work], None] | None" = None,
) -> IndexReport:
    """Encode what is new or changed below the roots and in lists of files, and drop what is gone from there.

    The caller holds the writer's lock. With ``finer``, videos that are indexed less finely than that are encoded again,
    one step finer. A ``runner`` takes the place of :class:`Indexer` for new files.
    """
    report = IndexReport()
    before = index.store.view()
    todo: list[File] = []
    unchanged: list[File] = []
    seen: set[str] = set()
    unreadable: dict[str, str] = {}  # folders

    def note(error: OSError) -> None:
        unreadable[str(error.filename)] = error.strerror or str(error)

    present = [root for root in roots if is_address(root) or root.exists()]
    ignore = index.settings.ignore
    suffixes = suffixes_of(index.settings.only)
    paths = find_videos(*present, skip=index.folder, ignore=ignore, on_error=note, suffixes=suffixes)
    for file, known in compared(before, _stamped(chain(paths, *lists.values()), seen, report)):
        changed = known is None or (file.size, file.modified) != (known.size, known.modified)
        if known is None or changed or (known.failure and retry):
            todo.append(file)
        elif known.failure:
            report.failed[file.path] = known.failure
            report.failed_before.append(file.path)
        else:
            report.unchanged += 1
            unchanged.append(known)
    report.failed |= {folder: f"unreadable: {reason}" for folder, reason in unreadable.items()}
    calibration = Calibration(index.store)
    calibration.encode(index.encoder)
    sidecars = SidecarStamps(index.store)
    refined = _to_refine(before, unchanged, finer, last_found(index.folder)) if finer else []
    groups = _same_size(before, todo)
    if todo and runner is not None:
        runner(Work(index.store, index.settings, groups, sidecars, hwaccel, on_progress, report))
        todo_here = refined
    else:
        todo_here = [*todo, *refined]
    if todo_here:  # the model is not even opened when nothing is new
        Indexer(
            index.store,
            index.encoder.model(),
            index.windows,
            sidecars,
            decoders,
            on_progress,
            detail=index.settings.detail,
            may_be_copies={files[0].size for files, known in groups if known or len(files) > 1},
            again={file.path: before.videos[file.video] for file in refined},
            hwaccel=hwaccel,
        ).run(todo_here, report)
    unmounted = _unmounted(index.store, seen)
    _drop_missing(index.store, roots, lists, seen, {*unreadable, *unmounted}, {file.path for file in todo}, report)
    report.not_dropped += [folder for folder in unmounted if folder not in report.not_dropped]
    of_video: dict[str, list[str]] = defaultdict(list)  # paths of videos that are below the roots
    for name, each in index.store.view().files.items():
        if name in seen and each.video and not is_photo(name):
            of_video[each.video].append(name)
    report.texts += sidecars.update(of_video)
    for recogniser in recognisers:
        _recognise(index.store, recogniser, of_video, report, on_progress)
    index.store.tidy(calibration.vectors)
    if (index.store.view().videos is not before.videos or not len(calibration.texts)) and calibration.is_due():
        calibration.measure()
        index.store.tidy(calibration.vectors)
    return report


@dataclass(frozen=True)
class Work:
    """What is to be indexed, and where to, for something that does it elsewhere.

    Attributes:
        store: the caller holds its lock.
        settings: of the index.
        groups: files of one size, which may be copies, and the videos of the store that they may be copies of.
        sidecars: gets the stamps of the subtitles that came with them.
        hwaccel: a device that decodes.
        on_progress: called after every commit.
        report: what is done is counted there, by :meth:`count`.
    """

    store: Store
    settings: IndexSettings
    groups: list[tuple[list[File], frozenset[str]]]
    sidecars: "SidecarStamps"
    hwaccel: str
    on_progress: Callable[[Progress], None]
    report: IndexReport

    def count(self, part: IndexReport) -> None:
        """Add the counts of a part."""
        for name in ("added", "recognised", "video_seconds", "segments"):
            setattr(self.report, name, getattr(self.report, name) + getattr(part, name))
        self.report.failed |= part.failed


def _same_size(view: View, files: Sequence[File]) -> list[tuple[list[File], frozenset[str]]]:
    """Files by their size, and the videos of a view with a file of that size."""
    groups: dict[int, list[File]] = defaultdict(list)
    for file in files:
        groups[file.size].append(file)
    known: dict[int, set[str]] = defaultdict(set)
    for stored in view.files.values() if groups else ():
        if stored.video and stored.size in groups:
            known[stored.size].add(stored.video)
    return [(some, frozenset(known.get(size, ()))) for size, some in groups.items()]


def _stamped(paths: Iterable[Path], seen: set[str], report: IndexReport) -> Iterator[File]:
    """Files with their size and time as they are now; each is ``seen``, unless there is none."""
    rest = iter(paths)
    with ThreadPoolExecutor(STAMPS_AT_A_TIME) as pool:
        while some := list(islice(rest, FILES_AT_A_TIME)):
            # Each question to a storage takes a while, to a disk hardly any time.
            each = pool.map(_status, some) if any(map(is_address, some)) else map(_status, some)
            for path, status in zip(map(str, some), each, strict=True):
                if path in seen:
                    continue
                # A link to nothing stays: the disk that it points to may be away.
                if not isinstance(status, FileNotFoundError) or os.path.islink(path):  # noqa: PTH114 - quicker
                    seen.add(path)
                if isinstance(status, OSError):
                    report.failed[path] = f"unreadable: {status.strerror}"
                elif stat.S_ISDIR(status.st_mode):
                    report.failed[path] = "unreadable: this is a folder; name it itself, not in a list"
                else:
                    yield File(path, status.st_size, status.st_mtime_ns, "")


def _status(path: Path) -> os.stat_result | OSError:
    try:
        return path.stat()
    except OSError as error:
        return error


def compared(view: View, files: Iterable[File]) -> Iterator[tuple[File, File | None]]:
    """Each file with what a view knows of its path, looked up some at a time."""
    rest = iter(files)
    while some := list(islice(rest, FILES_AT_A_TIME)):
        known = view.files_at(file.path for file in some)
        yield from ((file, known.get(file.path)) for file in some)


def _to_refine(view: View, files: Sequence[File], finer: DetailName, found: Mapping[str, float]) -> list[File]:
    """A file of each video to index again: those that were found last by a search first."""
    level = {name: place for place, name in enumerate(ORDER)}
    one_each: dict[str, File] = {}
    for file in files:
        video = view.videos.get(file.video)
        if video is not None and not video.is_photo and level[detail_of(video)] < level[finer]:
            one_each.setdefault(file.video, file)
    order = sorted(one_each, key=lambda video: (found.get(video, 0.0), view.videos[video].added), reverse=True)
    return [one_each[video] for video in order]


def detail_of(video: Video) -> DetailName:
    """How finely a video is indexed; before there was a choice, every one was as finely as can be."""
    return video.detail or "fine"  # type: ignore[return-value]


class SidecarStamps:
    """Which subtitle files each video was indexed with, so that new and changed ones are read by the next run."""

    def __init__(self, store: Store) -> None:
        self.store, self.sidecars = store, Sidecars()
        self._before = store.value(SIDECARS) or b"{}"
        self.stamps: dict[str, str] = json.loads(self._before)

    def read(self, video: str, path: str, duration: float) -> tuple[list[Line], str]:
        """The text that comes with a new video, and a note about what could not be read."""
        files = self.sidecars.of(path)
        self.stamps[video] = sidecar_stamp(files)
        return read_lines(path, files, duration=duration)

    def update(self, paths: Mapping[str, Sequence[str]]) -> int:
        """Read the subtitles of videos again whose files have changed; of how many."""
        videos, changed = self.store.view().videos, 0
        for video, copies in paths.items():
            files = [file for path in copies for file in self.sidecars.of(path)]
            stamp = sidecar_stamp(files)
            if stamp != self.stamps.get(video, ""):
                lines, _ = read_lines(copies[0], files, duration=videos[video].duration)
                self.store.add_lines(video, [line for line in lines if line.source == "subtitle"], "subtitle")
                self.stamps[video] = stamp
                changed += 1
        stamps = {video: stamp for video, stamp in self.stamps.items() if stamp and video in videos}
        content = json.dumps(stamps, sort_keys=True).encode()
        if content != self._before:
            self.store.set_value(SIDECARS, content)
        return changed


def _recognise(
    store: Store,
    recogniser: "Recogniser",
    paths: Mapping[str, Sequence[str]],
    report: IndexReport,
    on_progress: Callable[[Progress], None],
) -> None:
    """Run a recogniser on videos that it has not been run on; each is in the store before the next begins."""
    began, task, view = time.monotonic(), TASKS[recogniser.source], store.view()
    done = view.read_videos(recogniser.source)
    todo = [video for video in paths if video in view.videos and video not in done]
    for finished, video in enumerate(todo):
        on_progress(Progress(finished, len(todo), 0.0, time.monotonic() - began, task=task))
        path = paths[video][0]
        try:
            lines = recogniser(path, view.videos[video], view.segments(video))
        except (VideoError, OSError) as error:
            report.text_failed[path] = error.detail if isinstance(error, VideoError) else first_line(error)
        else:
            store.add_lines(video, lines, recogniser.source)
            report.texts += 1
    on_progress(Progress(len(todo), len(todo), 0.0, time.monotonic() - began, task=task))


@dataclass
class _Task:
    """One video being encoded: all files with its content, the one that is read first."""

    files: list[File]
    streamed: "Streamed | None" = None
    detail: str = ""
    hashed: "Future[str] | None" = None  # what its content is, where that is not known before it is read
    again: Video | None = None  # it is in the store, and indexed more finely now
    lines: list[Line] = field(default_factory=list)
    note: str = ""  # about its text
    failure: str = ""  # of the content: every file has it
    failed: list[File] = field(default_factory=list)  # files that could not be read while another could


class Indexer:
    """Encodes files into a store.

    Args:
        store: where to; the caller holds its lock.
        model: what with.
        windows: how videos are cut.
        sidecars: reads the text that comes with them.
        decoders: files read at the same time; by default as many as keep the model busy.
        on_progress: called after every commit.
        detail: how finely videos are indexed.
        may_be_copies: sizes of files whose content may be that of another file: it is looked at before they are read.
            None stands for all. Others are hashed while they are read.
        again: videos that are in the store, by the paths of the files to index one step finer.
        hwaccel: decodes on this device, as :func:`~centerclip.video.container.open_source` takes it.
    """

    def __init__(
        self,
        store: Store,
        model: "VideoEncoder",
        windows: Windows,
        sidecars: SidecarStamps | None = None,
        decoders: int | None = None,
        on_progress: Callable[[Progress], None] = lambda progress: None,
        *,
        detail: str = "fine",
        may_be_copies: Collection[int] | None = None,
        again: Mapping[str, Video] | None = None,
        hwaccel: str = "none",
    ) -> None:
        from ..model.pipeline import default_decoders

        self.store, self.model, self.windows, self.on_progress = store, model, windows, on_progress
        self.detail, self.may_be_copies, self.again, self.hwaccel = detail, may_be_copies, dict(again or {}), hwaccel
        self.sidecars = sidecars or SidecarStamps(store)
        self.decoders = decoders or default_decoders(model)
        self.batch_size = model.batch_size() if model.on_gpu else min(CPU_BATCH, model.batch_size())
        self._lock = threading.Lock()
        self._known = set(store.view().videos)
        self._tasks: dict[str, _Task] = {}  # by the id of the video
        self._stopped = threading.Event()

    def run(self, files: Sequence[File], report: IndexReport) -> None:
        """Encode files (with their size and time as they were found) and count them in ``report``."""
        from ..model.pipeline import encode_as_decoded
        from ..video.container import DEFAULT_LIMITS

        self._report, self._total, self._began = report, len(files), time.monotonic()
        # Of files whose length is not known yet; those too large to be opened say nothing about it.
        measured = (file for file in files if file.size <= DEFAULT_LIMITS.bytes and not is_photo(file.path))
        self._bytes = {file.path: file.size for file in measured}
        self._lengths: dict[str, tuple[float, int]] = {}  # seconds and bytes of files that were opened
        self._encoded: dict[str, float] = {}  # seconds of them that have been encoded
        self._covered: dict[tuple[str, int], float] = {}  # seconds up to the end of a window
        self._videos: list[AddedVideo] = []
        self._replaced: list[tuple[Video, Segments]] = []
        self._files: list[File] = []
        self._finished, self._done, self._last_commit = 0, 0, time.monotonic()
        encoded = encode_as_decoded(
            self.model,
            files,
            self._decode,
            batch_size=self.batch_size,
            decoders=self.decoders,
            on_batch=self._encoded_batch,
            stop=self._stopped,
        )
        with ThreadPoolExecutor(usable_cores()) as self._pool, ThreadPoolExecutor(self.decoders) as self._hashing:
            try:
                for each in encoded:
                    self._settle(each)
                    self._commit_now_and_then()
            except KeyboardInterrupt:
                self._commit()  # what is encoded is kept
                raise
            finally:
                encoded.close()  # type: ignore[attr-defined]  # a generator: ends its threads
        self._commit()

    # ---- in the decoding threads ------------------------------------------------------------------------------

    def _decode(self, file: File, deliver: "Deliver") -> "_Task | File | None":
        """Decode a video that nobody has taken yet.

        Returns:
            the task; the file alone, when its content is in the index; None, when another thread decodes a copy of it.
        """
        from ..video.container import check_file

        check_file(file.path)  # reading a pipe or a device would never end
        if file.path in self.again:
            task = _Task([file], again=self.again[file.path])
            self._read(task, deliver)
            return task
        hashed = self._hashing.submit(content_id, path_of(file.path), self._stopped.is_set)
        if self.may_be_copies is not None and file.size not in self.may_be_copies:
            task = _Task([file], hashed=hashed)  # it is hashed while it is read
            self._read(task, deliver)
            return task
        file = replace(file, video=hashed.result())
        with self._lock:
            if file.video in self._known:
                return file
            if file.video in self._tasks:
                self._tasks[file.video].files.append(file)
                return None
            task = self._tasks[file.video] = _Task([file])
        while not self._read(task, deliver):
            pass
        return task

    def _read(self, task: _Task, deliver: "Deliver") -> bool:
        """Read a video from its first file; whether that settles it. If not, a copy of the file comes next."""
        from ..model.pipeline import UNREADABLE

        file = task.files[0]
        failure, spoiled = "", False
        try:
            read = self._read_photo if is_photo(file.path) else self._read_video
            task.streamed = read(task, deliver)
            if task.hashed is not None:
                file = task.files[0] = replace(file, video=task.hashed.result())
        except UNREADABLE as error:
            failure, spoiled = _reason(error), not isinstance(error, VideoError)
        if not file.is_unchanged:
            failure, spoiled = "unreadable: the file changed while it was read; the next run takes it again", True
        if not failure and task.streamed is not None:
            if not is_photo(file.path) and task.again is None:
                task.lines, task.note = self.sidecars.read(file.video, file.path, task.streamed.duration)
            return True
        task.streamed = None
        with self._lock:
            if spoiled and len(task.files) > 1:  # it is about this file: a copy may be fine
                task.failed.append(replace(task.files.pop(0), video="", failure=failure))
                return False
            task.failure = failure
            self._tasks.pop(file.video, None)
        return True

    def _read_video(self, task: _Task, deliver: "Deliver") -> "Streamed":
        """Read the frames of a video that its detail asks for."""
        from ..model.pipeline import Window
        from ..video import Window as Frames
        from ..video import stream_segments, stream_windows
        from ..video.selection import DETAILS, StillFrames

        file, preprocess, still = task.files[0], self.model.preprocess, StillFrames()
        detail = self.detail if task.again is None else ORDER[ORDER.index(detail_of(task.again)) + 1]
        task.detail = detail

        def pass_on(frames: Frames) -> None:
            nonlocal still
            if not frames.number:  # also when the file is read again
                still = StillFrames()
            rgb = frames.rgb if frames.lengths else still(frames.rgb)
            with self._lock:
                self._covered[file.path, frames.number] = frames.end
            deliver(frames.number, Window(preprocess.to_square(rgb), lengths=frames.lengths))

        def plan(duration: float, available: int) -> list[float]:
            self._length(file, duration)
            return self.windows.times(duration, available)

        size, most = self.windows.frames, self.windows.frames // self.windows.segments
        options: dict[str, Any] = {"short_side": preprocess.read_size, "pool": self._pool, "hwaccel": self.hwaccel}
        if detail == "fine":
            return stream_windows(file.path, plan, size, pass_on, **options)
        known = partial(self._length, file)
        return stream_segments(file.path, DETAILS[detail], size, most, pass_on, on_length=known, **options)

    def _read_photo(self, task: _Task, deliver: "Deliver") -> "Streamed":
        """Read a photograph: a video of one frame that takes no time."""
        from ..model.pipeline import Window, to_window
        from ..video import Streamed
        from ..video.photo import read_photo

        photo = read_photo(task.files[0].path, short_side=self.model.preprocess.read_size)
        deliver(0, Window(*to_window(self.model.preprocess, photo.rgb[None], self.windows.frames)))
        return Streamed(0.0, photo.width, photo.height, 1, photo.note, photo.recording)

    def _length(self, file: File, duration: float) -> None:
        """The length of a video is known from now on."""
        with self._lock:
            self._bytes.pop(file.path, None)
            self._lengths[file.path] = duration, file.size

    # ---- in the thread of the caller --------------------------------------------------------------------------

    def _settle(self, decoded: "Decoded[File, _Task | File | None]") -> None:
        """Put what became of a file into the next commit."""
        task, again = decoded.info, self.again.get(decoded.item.path)
        if again is not None:
            failure = _reason(decoded.error) if decoded.error is not None else task.failure  # type: ignore[union-attr]
            if failure:  # it could not be indexed more finely: it stays as it is
                self._report.failed[decoded.item.path] = failure
                self._count(decoded.item)
            else:
                self._replace(task, again, decoded.segments)  # type: ignore[arg-type]
        elif decoded.error is not None:
            self._note(replace(decoded.item, failure=_reason(decoded.error)))
        elif isinstance(task, File):
            self._note(task)
        elif task is not None:
            for file in task.failed:
                self._note(file)
            if task.failure:
                for file in task.files:
                    self._note(replace(file, video="", failure=task.failure))
            else:
                self._add(task, decoded.segments)

    def _add(self, task: _Task, vectors: np.ndarray) -> None:
        info, video = task.streamed, task.files[0].video
        assert info is not None
        segments = self._segments(info, vectors)
        note, size = "; ".join(filter(None, (info.note, task.note))), (info.width, info.height)
        added = Video(video, info.duration, *size, time.time(), note, task.detail, **vars(info.recording))
        self._videos.append((added, segments, task.lines))
        self._report.added += 1
        self._report.recognised -= 1  # its first file is counted with it
        self._report.video_seconds += info.duration
        self._report.segments += len(segments)
        with self._lock:
            self._known.add(video)
            self._tasks.pop(video, None)
            files = list(task.files)
        for file in files:
            self._note(file)

    def _segments(self, info: "Streamed", vectors: np.ndarray) -> Segments:
        """The segments of a video that was read."""
        starts, ends = self.windows.spans(info.duration, info.windows)
        if not info.duration:  # a photograph: only the first segment has a frame that does not just fill up
            starts, ends = starts[:1], ends[:1]
        elif info.spans:
            starts, ends = np.array(info.spans, np.float32).T
        return Segments(starts, ends, vectors[: len(starts)])

    def _replace(self, task: _Task, video: Video, vectors: np.ndarray) -> None:
        """Put a video that was indexed again into the next commit."""
        assert task.streamed is not None
        segments = self._segments(task.streamed, vectors)
        self._replaced.append((replace(video, detail=task.detail), segments))
        self._report.refined += 1
        self._report.video_seconds += video.duration
        self._report.segments += len(segments)
        self._count(task.files[0])

    def _count(self, file: File) -> None:
        """A file is finished."""
        self._done += 1
        with self._lock:
            self._bytes.pop(file.path, None)
            self._encoded[file.path] = self._lengths.get(file.path, NO_LENGTH)[0]

    def _note(self, file: File) -> None:
        self._files.append(file)
        self._count(file)
        if file.failure:
            self._report.failed[file.path] = file.failure
        else:
            self._report.recognised += 1

    def _encoded_batch(self, batch: "Sequence[tuple[Decoded[File, _Task | File | None], int]]") -> None:
        """Count the windows of a batch; those of a file come in their order."""
        with self._lock:
            for decoded, number in batch:
                path = decoded.item.path
                self._encoded[path] = self._covered.pop((path, number), 0.0)  # none when a copy is read instead
        self._commit_now_and_then()

    def _commit_now_and_then(self) -> None:
        waited = time.monotonic() - self._last_commit
        if waited >= COMMIT_SECONDS or sum(len(segments) for _, segments, _ in self._videos) >= COMMIT_SEGMENTS:
            self._commit()

    def _commit(self) -> None:
        if self._files or self._videos:
            self.store.add(self._videos, self._files)
            self._videos, self._files = [], []
        for video, segments in self._replaced:
            self.store.replace(video, segments)
        self._replaced, self._finished = [], self._done
        self._last_commit = time.monotonic()
        with self._lock:
            known, size = (sum(part) for part in zip(NO_LENGTH, *self._lengths.values(), strict=True))
            total = known + known / max(size, 1) * sum(self._bytes.values())
        seconds = self._last_commit - self._began
        self.on_progress(Progress(self._finished, self._total, sum(self._encoded.values()), seconds, total))


def sharpened(index: "IndexState", hit: "Hit") -> tuple[Video, Segments, Segments] | None:
    """Encode the moment of a hit anew at the fine rate, with what lies beside it.

    Returns:
        the video, its segments as they are and as they should be; None where they are fine already.
    """
    from ..model.pipeline import to_window
    from ..video import Window, stream_windows

    windows, view = index.windows, index.store.view()
    try:
        video, segments = view.videos[hit.video_id], view.segments(hit.video_id)
    except KeyError:  # it has gone meanwhile
        return None
    fine = windows.every * windows.frames / windows.segments  # seconds of a segment
    near = (segments.ends > hit.start - fine) & (segments.starts < hit.end + fine)
    coarse = near & (segments.ends - segments.starts > SHARP_ENOUGH * fine)
    if not coarse.any():
        return None
    first, last = int(np.flatnonzero(coarse)[0]), int(np.flatnonzero(coarse)[-1])
    last = min(last, first + MAX_SHARPENED - 1)
    start, end = float(segments.starts[first]), float(segments.ends[last])
    model = index.encoder.model()
    times = [start + time for time in windows.times(end - start, windows.frames * len(segments))]
    vectors: dict[int, np.ndarray] = {}  # of each window

    def encode(window: Window) -> None:
        rgb, mask = to_window(model.preprocess, window.rgb, windows.frames)
        vectors[window.number] = model.encode_windows(rgb[None], mask[None])[0][0]

    try:
        stream_windows(hit.path, lambda *_: times, windows.frames, encode, short_side=model.preprocess.read_size)
    except (VideoError, OSError):  # it is not what it was: the next run of the indexer sees to it
        return None
    starts, ends = windows.spans(end - start, len(vectors))
    whole = [
        np.concatenate([old[:first], new, old[last + 1 :]])
        for old, new in (
            (segments.starts, starts + np.float32(start)),
            (segments.ends, ends + np.float32(start)),
            (segments.vectors, np.concatenate([vectors[number] for number in sorted(vectors)])),
        )
    ]
    return video, segments, Segments(*whole)


def drop(store: Store, paths: set[str]) -> None:
    """Remove files, and the videos that are left without any."""
    view = store.view()
    left = {file.video for path, file in view.files.items() if path not in paths}
    orphans = [video for video in view.videos if video not in left]
    if paths or orphans:
        store.remove(orphans, sorted(paths))


def _unmounted(store: Store, seen: Collection[str]) -> list[str]:
    """The mount points of files in the store that are none now: their disks are away, and nothing below is deleted."""
    before = store.value(MOUNTS) or b"[]"
    folders: set[str] = set()
    for path in seen:
        while (path := os.path.dirname(path)) not in folders:  # noqa: PTH120 - quicker, for every file
            folders.add(path)
    gone = [folder for folder in json.loads(before) if not os.path.ismount(folder)]
    kept = [folder for folder in gone if any(is_below(path, folder) for path in store.view().files)]
    mounts = json.dumps(sorted({*filter(os.path.ismount, folders), *kept})).encode()
    if mounts != before:
        store.set_value(MOUNTS, mounts)
    return kept


def _drop_missing(
    store: Store,
    roots: list[Path],
    lists: Mapping[str, Sequence[Path]],
    seen: set[str],
    unreadable: Collection[str],
    new: set[str],
    report: IndexReport,
) -> None:
    """Drop files that are gone from the folders and lists that were read; where all are gone, they are kept."""
    view = store.view()
    named = view.files_at(map(str, roots))
    inside: dict[str, set[str]] = {str(root): {str(root)} & named.keys() for root in roots}
    folders = inside.keys() - named.keys()
    for path in view.files if folders else ():
        for folder in folders:
            if is_below(path, folder):
                inside[folder].add(path)
    inside |= {name: set(view.files_at(map(str, paths))) for name, paths in lists.items()}
    gone: set[str] = set()
    for root, files in inside.items():
        lost = {path for path in files - seen if not any(is_below(path, folder) for folder in unreadable)}
        if lost and lost == files:
            report.not_dropped.append(root)
        else:
            gone |= lost
    known = view.files_at(gone | new)
    drop(store, gone)
    moved = {known[path].video for path in new & known.keys()}  # counted as recognised
    report.removed = sum(known[path].video not in moved for path in gone)


def _reason(error: Exception) -> str:
    """Why a file cannot be read, for the store."""
    if isinstance(error, VideoError):
        return f"{error.reason}: {error.detail}. {error.advice}"
    return f"unreadable: {getattr(error, 'strerror', None) or error}"
