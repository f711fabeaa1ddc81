"""Brings an index up to date with its folders: finds what is new, encodes it, drops what is gone.

The unit of work is one video, by content. Whatever stops the run, a video is in the store whole or not at all, and the
next run continues with those that are not.
"""

import json
import os
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import first_line
from ..files import content_id, find_videos, is_below, is_photo
from ..parallel import usable_cores
from ..video.errors import VideoError
from ..video.sampling import ORDER, DetailName, Windows
from ..video.subtitles import Sidecars, read_lines, sidecar_stamp
from .folder import suffixes_of
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
COMMIT_SEGMENTS = 20_000  # how many vectors may wait in memory for the next commit
NO_LENGTH = (0.0, 0, 1)
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
    """

    finished: int
    total: int
    video_seconds: float
    seconds: float
    total_seconds: float = 0.0
    task: str = "indexing"

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
    recognisers: "Sequence[Recogniser]",
    *,
    retry: bool,
    decoders: int | None,
    on_progress: Callable[[Progress], None],
    finer: DetailName | None = None,
    hwaccel: str = "none",
) -> IndexReport:
    """Encode what is new or changed below the roots and drop what is gone. The caller holds the writer's lock.

    With ``finer``, videos that are indexed less finely than that are encoded again, one step finer.
    """
    report = IndexReport()
    before = index.store.view()
    todo: list[File] = []
    unchanged: list[File] = []
    seen: set[str] = set()
    unreadable: dict[str, str] = {}  # folders

    def note(error: OSError) -> None:
        unreadable[str(error.filename)] = error.strerror or str(error)

    present, ignore = [root for root in roots if root.exists()], index.settings.ignore
    suffixes = suffixes_of(index.settings.only)
    for path in find_videos(*present, skip=index.folder, ignore=ignore, on_error=note, suffixes=suffixes):
        seen.add(str(path))
        try:
            status = path.stat()
        except OSError as error:
            report.failed[str(path)] = f"unreadable: {error.strerror}"
            continue
        file = File(str(path), status.st_size, status.st_mtime_ns, "")
        known = before.files.get(file.path)
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
    sidecars = _SidecarStamps(index.store)
    refined = _to_refine(before, unchanged, finer, last_found(index.folder)) if finer else []
    if todo or refined:  # the model is not even opened when nothing is new
        sizes = Counter([file.size for file in todo] + [file.size for file in before.files.values() if file.video])
        Indexer(
            index.store,
            index.encoder.model(),
            index.windows,
            sidecars,
            decoders,
            on_progress,
            detail=index.settings.detail,
            may_be_copies={size for size, count in sizes.items() if count > 1},
            again={file.path: before.videos[file.video] for file in refined},
            hwaccel=hwaccel,
        ).run([*todo, *refined], report)
    unmounted = _unmounted(index.store, seen)
    _drop_missing(index.store, roots, seen, {*unreadable, *unmounted}, {file.path for file in todo}, report)
    report.not_dropped += [folder for folder in unmounted if folder not in report.not_dropped]
    paths: dict[str, list[str]] = defaultdict(list)  # of videos that are below the roots
    for name, each in index.store.view().files.items():
        if name in seen and each.video and not is_photo(name):
            paths[each.video].append(name)
    report.texts += sidecars.update(paths)
    for recogniser in recognisers:
        _recognise(index.store, recogniser, paths, report, on_progress)
    index.store.tidy(calibration.vectors)
    if (index.store.view().videos is not before.videos or not len(calibration.texts)) and calibration.is_due():
        calibration.measure()
        index.store.tidy(calibration.vectors)
    return report


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


class _SidecarStamps:
    """Which subtitle files each video was indexed with, so that new and changed ones are read by the next run."""

    def __init__(self, store: Store) -> None:
        self.store, self.sidecars = store, Sidecars()
        self._before = store.value(SIDECARS) or b"{}"
        self._stamps: dict[str, str] = json.loads(self._before)

    def read(self, video: str, path: str, duration: float) -> tuple[list[Line], str]:
        """The text that comes with a new video, and a note about what could not be read."""
        files = self.sidecars.of(path)
        self._stamps[video] = sidecar_stamp(files)
        return read_lines(path, files, duration=duration)

    def update(self, paths: Mapping[str, Sequence[str]]) -> int:
        """Read the subtitles of videos again whose files have changed; of how many."""
        videos, changed = self.store.view().videos, 0
        for video, copies in paths.items():
            files = [file for path in copies for file in self.sidecars.of(path)]
            stamp = sidecar_stamp(files)
            if stamp != self._stamps.get(video, ""):
                lines, _ = read_lines(copies[0], files, duration=videos[video].duration)
                self.store.add_lines(video, [line for line in lines if line.source == "subtitle"], "subtitle")
                self._stamps[video] = stamp
                changed += 1
        stamps = {video: stamp for video, stamp in self._stamps.items() if stamp and video in videos}
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
        sidecars: _SidecarStamps | None = None,
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
        self.sidecars = sidecars or _SidecarStamps(store)
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
        self._lengths: dict[str, tuple[float, int, int]] = {}  # seconds, bytes and windows of files that were opened
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
        hashed = self._hashing.submit(content_id, Path(file.path), self._stopped.is_set)
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

        def pass_on(frames: Frames, end: float) -> None:
            with self._lock:
                self._covered[file.path, frames.number] = end
            deliver(frames.number, Window(preprocess.to_square(frames.rgb)))

        def pass_fine(frames: Frames) -> None:
            nonlocal still
            if not frames.number:  # also when the file is read again
                still = StillFrames()
            seconds, _, windows = self._lengths[file.path]
            pass_on(replace(frames, rgb=still(frames.rgb)), seconds * (frames.number + 1) / windows)

        options: dict[str, Any] = {"short_side": preprocess.read_size, "pool": self._pool, "hwaccel": self.hwaccel}
        if detail == "fine":
            return stream_windows(file.path, partial(self._plan, file), self.windows.frames, pass_fine, **options)
        return stream_segments(
            file.path,
            DETAILS[detail],
            self.windows.frames,
            self.windows.segments,
            pass_on,
            on_length=partial(self._length, file),
            **options,
        )

    def _read_photo(self, task: _Task, deliver: "Deliver") -> "Streamed":
        """Read a photograph: a video of one frame that takes no time."""
        from ..model.pipeline import Window, to_window
        from ..video import Streamed
        from ..video.photo import read_photo

        photo = read_photo(task.files[0].path, short_side=self.model.preprocess.read_size)
        deliver(0, Window(*to_window(self.model.preprocess, photo.rgb[None], self.windows.frames)))
        return Streamed(0.0, photo.width, photo.height, 1, photo.note, photo.recording)

    def _plan(self, file: File, duration: float, available: int) -> list[float]:
        """The times of a video's frames at equal distances."""
        times = self.windows.times(duration, available)
        self._length(file, duration, len(times) // self.windows.frames)
        return times

    def _length(self, file: File, duration: float, windows: int = 1) -> None:
        """The length of a video is known from now on."""
        with self._lock:
            self._bytes.pop(file.path, None)
            self._lengths[file.path] = duration, file.size, windows

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
            known, size, _ = (sum(part) for part in zip(NO_LENGTH, *self._lengths.values(), strict=True))
            total = known + known / max(size, 1) * sum(self._bytes.values())
        seconds = self._last_commit - self._began
        self.on_progress(Progress(self._finished, self._total, sum(self._encoded.values()), seconds, total))


def sharpen(index: "IndexState", hit: "Hit") -> bool:
    """Encode the moment of a hit anew at the fine rate, with what lies beside it; whether that changed anything.

    The caller holds the writer's lock.
    """
    from ..model.pipeline import to_window
    from ..video import Window, stream_windows

    windows, view = index.windows, index.store.view()
    try:
        video, segments = view.videos[hit.video_id], view.segments(hit.video_id)
    except KeyError:  # it has gone meanwhile
        return False
    fine = windows.every * windows.frames / windows.segments  # seconds of a segment
    near = (segments.ends > hit.start - fine) & (segments.starts < hit.end + fine)
    coarse = near & (segments.ends - segments.starts > SHARP_ENOUGH * fine)
    if not coarse.any():
        return False
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
        return False
    starts, ends = windows.spans(end - start, len(vectors))
    whole = [
        np.concatenate([old[:first], new, old[last + 1 :]])
        for old, new in (
            (segments.starts, starts + np.float32(start)),
            (segments.ends, ends + np.float32(start)),
            (segments.vectors, np.concatenate([vectors[number] for number in sorted(vectors)])),
        )
    ]
    index.store.replace(video, Segments(*whole))
    return True


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
    store: Store, roots: list[Path], seen: set[str], unreadable: Collection[str], new: set[str], report: IndexReport
) -> None:
    """Drop files that are gone from the folders that were walked; a folder that is empty now is kept as it was."""
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
    moved = {known[path].video for path in new & known.keys()}  # counted as recognised
    report.removed = sum(known[path].video not in moved for path in gone)


def _reason(error: Exception) -> str:
    """Why a file cannot be read, for the store."""
    if isinstance(error, VideoError):
        return f"{error.reason}: {error.detail}. {error.advice}"
    return f"unreadable: {getattr(error, 'strerror', None) or error}"
