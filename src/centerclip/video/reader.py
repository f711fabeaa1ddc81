"""Frames of a video file, chosen by time: a few at once, or those of a long video window by window.

Streaming is one pass over the file with never more than a window in memory.
"""

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass
from fractions import Fraction
from os import PathLike, fspath
from typing import Any, Generic, TypeVar

import av
import numpy as np
from numpy.typing import NDArray

from .container import DEFAULT_LIMITS, Deadline, Limits, Source, open_source, short_reason
from .decode import Keep, SeekMismatch, decode_all, runs_of, seek_frames
from .errors import OutsideVideo, TooLarge, UnreadableVideo
from .frames import FrameConverter
from .info import Recording, recording_of
from .sampling import bin_centres, random_in_bins
from .selection import Choice, Detail, SegmentWriter, choose_frames, even_frames
from .timeline import PacketTable, Timeline, part, read_packet_table

PART_FRAMES = 12  # of a video that are decoded in one go, when several threads share it
DEVICE_CHECK_SIDE = 128  # pixels of the short side at which the first frame of a device is compared
DEVICE_DIFFERENCE = 2.0  # grey levels of 255 by which it may differ, in the mean
MAX_PART_FRAMES = 60  # where keyframes are further apart, the video is read by one: memory is bounded


@dataclass(frozen=True)
class Frames:
    """Frames of a video.

    Attributes:
        rgb: uint8 ``[T, H, W, 3]``, upright and with square pixels.
        times: float64 ``[T]``, when each frame appears, in seconds from the video's first frame.
        mask: bool ``[T]``, False where a frame only repeats the last one because the video has no more.
        duration: seconds of the whole video.
        note: what is wrong with the file, although it could be read; None for most files.
    """

    rgb: NDArray[np.uint8]
    times: NDArray[np.float64]
    mask: NDArray[np.bool_]
    duration: float
    note: str | None = None


@dataclass(frozen=True)
class Window:
    """Frames that follow each other.

    Attributes:
        number: place of the window in the video, from 0.
        rgb: uint8 ``[T, H, W, 3]``, upright and with square pixels.
        end: how far, in seconds, the video is read with it.
        lengths: frames of each of its segments, where :func:`stream_segments` made them.
    """

    number: int
    rgb: NDArray[np.uint8]
    end: float
    lengths: tuple[int, ...] = ()


@dataclass(frozen=True)
class Streamed:
    """A video whose windows were all delivered.

    Attributes:
        duration: seconds.
        width: pixels of a shown frame.
        height: pixels of a shown frame.
        windows: how many were delivered.
        note: what is wrong with the file, although it could be read; None for most files.
        recording: when, with what and where it was recorded, as far as the container says.
        spans: start and end of each segment in seconds, where :func:`stream_segments` made them.
    """

    duration: float
    width: int
    height: int
    windows: int
    note: str | None
    recording: Recording
    spans: tuple[tuple[float, float], ...] = ()


def read_frames(
    path: str | PathLike[str],
    count: int = 12,
    *,
    random: tuple[int, int, str] | None = None,
    drop_tail: bool = False,
    short_side: int | None = None,
    limits: Limits = DEFAULT_LIMITS,
    start: float | None = None,
    end: float | None = None,
) -> Frames:
    """Read frames spread evenly over a video, or a part of it.

    The time of the video is cut into as many equal slots as it has frames; the sampler chooses slots, and the frame on
    the screen in the middle of a slot is taken. At a constant frame rate slots are frames; at a variable one, a burst
    of frames does not crowd out the rest of the video.

    Args:
        path: a video file.
        count: frames to read. A video with fewer gives each once, then repeats the last, masked.
        random: ``(seed, epoch, video)`` takes a random frame of each of ``count`` equal bins, the same one whenever
            the three are the same; None takes the middle of each bin.
        drop_tail: random bins are as wide as whole frames allow and start at the first frame, as in the authors'
            procedure: the frames left over at the end are never drawn.
        short_side: scale the frames so that their short side has this many pixels; None keeps the size.
        limits: bounds on what the file may cost.
        start: seconds at which to begin, from the video's first frame.
        end: seconds at which to end.

    Returns:
        ``count`` frames.

    Raises:
        VideoError: the type says why the file cannot be read.
    """
    if count < 1:
        raise ValueError(f"count must be at least 1, not {count}")
    name = fspath(path)

    def choose(timeline: Timeline) -> Selection:
        begin, finish, first, past = part(timeline, start, end)
        available = past - first
        if available < 1:
            raise OutsideVideo(name, f"no frame from {start} to {end} s in a video of {timeline.duration:.3f} s")
        if random is None:
            slots = bin_centres(available, count)
        else:
            seed, epoch, video = random
            slots = random_in_bins(available, count, seed=seed, epoch=epoch, video=video, drop_tail=drop_tail)
        mask = [place < available for place in range(count)]
        if available <= count:
            return [first + slot for slot in slots], mask
        slot_length = (finish - begin) / available
        return [timeline.shown_at(begin + (slot + Fraction(1, 2)) * slot_length) for slot in slots], mask

    return _read_selection(name, choose, short_side, limits)


def read_times(
    path: str | PathLike[str],
    times: Sequence[float],
    *,
    short_side: int | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Frames:
    """Read the frames on the screen at given times.

    Args:
        path: a video file.
        times: ``[T]`` seconds from the video's first frame, in any order. Before the start the first frame is given,
            from the end on the last one; both are masked.
        short_side: scale the frames so that their short side has this many pixels; None keeps the size.
        limits: bounds on what the file may cost.

    Returns:
        ``T`` frames, in the order of ``times``.

    Raises:
        VideoError: the type says why the file cannot be read.
    """
    wanted = [float(time) for time in times]
    if not wanted:
        raise ValueError("times is empty: give at least one")

    def choose(timeline: Timeline) -> Selection:
        frames = [timeline.shown_at(time) for time in wanted]
        return frames, [0 <= time < timeline.duration for time in wanted]

    return _read_selection(fspath(path), choose, short_side, limits)


def stream_windows(
    path: str | PathLike[str],
    plan: Callable[[float, int], Sequence[float]],
    size: int,
    deliver: Callable[[Window], None],
    *,
    short_side: int | None = None,
    limits: Limits = DEFAULT_LIMITS,
    pool: ThreadPoolExecutor | None = None,
    hwaccel: str = "none",
) -> Streamed:
    """Read the frames on the screen at many times, ``size`` of them at a time.

    When a file turns out to be damaged on the way, it is read again from its start, as a player does, and windows start
    again from number 0: the last one of each number counts.

    Args:
        path: a video file.
        plan: from the length of the video, in seconds and in frames, to the times of the frames to read: ascending, a
            multiple of ``size``.
        size: frames of a window.
        deliver: called with each window; may wait, which does not count as reading.
        short_side: scale the frames so that their short side has this many pixels; None keeps the size.
        limits: bounds on what the file may cost. ``seconds`` holds for a window, not for the whole video.
        pool: threads that decode parts of the video at the same time.
        hwaccel: a device that decodes, as for :func:`~.container.open_source`.

    Raises:
        VideoError: the type says why the file cannot be read.
    """

    def choose(timeline: Timeline, table: PacketTable | None) -> list[int]:
        return [timeline.shown_at(time) for time in plan(timeline.duration, len(timeline))]

    def collect(source: Source, frames: list[int]) -> _WindowWriter:
        return _WindowWriter(source, frames, size, deliver)

    return _read(fspath(path), choose, collect, short_side, limits, pool, hwaccel)


def stream_segments(
    path: str | PathLike[str],
    detail: Detail,
    frames: int,
    most: int,
    deliver: Callable[[Window], None],
    *,
    on_length: Callable[[float], None] = lambda duration: None,
    short_side: int | None = None,
    limits: Limits = DEFAULT_LIMITS,
    pool: ThreadPoolExecutor | None = None,
    hwaccel: str = "none",
) -> Streamed:
    """Read the frames of a video that cost least to decode, and make segments of them, as :mod:`.selection` says.

    Args:
        path: a video file.
        detail: how many frames to take.
        frames: a window has as many, or with its last segment some more; the last one has fewer.
        most: frames of a segment, whatever the detail says.
        deliver: as for :func:`stream_windows`.
        on_length: called with the length of the video in seconds, when it is known.
        short_side: scale the frames so that their short side has this many pixels; None keeps the size.
        limits: bounds on what the file may cost. ``seconds`` holds for a window, not for the whole video.
        pool: threads that decode parts of the video at the same time.
        hwaccel: a device that decodes, as for :func:`~.container.open_source`.

    Raises:
        VideoError: the type says why the file cannot be read.
    """

    def choose(timeline: Timeline, table: PacketTable | None) -> Choice:
        on_length(timeline.duration)
        return even_frames(timeline, detail) if table is None else choose_frames(table, detail)

    def collect(source: Source, choice: Choice) -> _SegmentCollector:
        return _SegmentCollector(source, choice, frames, min(detail.together, most), deliver)

    return _read(fspath(path), choose, collect, short_side, limits, pool, hwaccel)


Chosen = TypeVar("Chosen")
Result = TypeVar("Result")
Choose = Callable[[Timeline, PacketTable | None], Chosen]  # without a table: for a file read from start to end


class _Collector(Generic[Result]):
    """Takes the chosen frames of one attempt to read a file, in their order: ``unique``, ascending numbers."""

    def __init__(self, source: Source, unique: list[int]) -> None:
        self.source, self.unique, self.taken = source, unique, 0

    def add(self, rgb: NDArray[np.uint8], timeline: Timeline) -> None:
        """The next frame."""
        self.take(rgb, timeline.seconds(self.unique[self.taken]))
        self.taken += 1

    def take(self, rgb: NDArray[np.uint8], seconds: float) -> None:
        """The frame that appears at a time; ``taken`` came before it."""
        raise NotImplementedError

    def result(self, timeline: Timeline, shown: tuple[int, int], note: str | None) -> Result:
        """What reading gives, when all have come."""
        raise NotImplementedError


def _read(
    name: str,
    choose: Choose[Chosen],
    collect: Callable[[Source, Chosen], _Collector[Result]],
    short_side: int | None,
    limits: Limits,
    pool: ThreadPoolExecutor | None = None,
    hwaccel: str = "none",
) -> Result:
    """Seek to the chosen frames; where what comes is not what the packets promise, decode from start to end."""
    deadline, hardware = Deadline(name, limits.seconds), ""
    with open_source(name, limits, deadline, hwaccel=hwaccel) as source:
        table = read_packet_table(source)
        timeline, reason = table.timeline, table.seek_problem
        if reason is None:
            hardware = source.hardware
            collector = collect(source, choose(timeline, table))
            try:
                if hardware:
                    _check_device(source, table)
                shown = _seek(source, table, collector, short_side, pool)
                return collector.result(timeline, shown, None)
            except SeekMismatch as mismatch:
                reason = str(mismatch)
    if hardware:  # it may be the device that is to blame
        return _read(name, choose, collect, short_side, limits, pool)
    for _ in range(2):  # a second time when the frames that come are not those the packets announce
        chosen = choose(timeline, None)
        with open_source(name, limits, deadline) as source:
            collector, convert = collect(source, chosen), FrameConverter(source, short_side)
            timeline, lost = decode_all(source, table, collector.unique, _keeper(collector, convert, timeline))
        if choose(timeline, None) == chosen and collector.taken == len(collector.unique):
            note = f"read from start to end: {reason}" + (f"; packets that do not decode: {lost}" if lost else "")
            return collector.result(timeline, convert.shown, note)
    raise UnreadableVideo(name, "decoding gives other frames each time")


def _check_device(source: Source, table: PacketTable) -> None:
    """Raise :class:`SeekMismatch` when a device decodes the first frame of a file to other pixels."""

    def first(opened: Source) -> NDArray[np.uint8]:
        pictures: list[NDArray[np.uint8]] = []
        convert = FrameConverter(opened, DEVICE_CHECK_SIDE)
        seek_frames(opened, table, [0], lambda frame: pictures.append(convert(frame)))
        return pictures[0]

    with open_source(source.path, source.limits, source.deadline, threads=1) as plain:
        difference = np.subtract(first(source), first(plain), dtype=np.int16)
    if float(np.abs(difference).mean()) > DEVICE_DIFFERENCE:
        raise SeekMismatch(f"{source.hardware} decodes it to other pixels")


def _keeper(collector: _Collector[Result], convert: FrameConverter, timeline: Timeline) -> Keep:
    return lambda frame: collector.add(convert(frame), timeline)


def _seek(
    source: Source,
    table: PacketTable,
    collector: _Collector[Result],
    short_side: int | None,
    pool: ThreadPoolExecutor | None,
) -> tuple[int, int]:
    """Decode the chosen frames, several parts of the video at a time if there is a pool; the size as shown."""
    convert = FrameConverter(source, short_side)
    keep = _keeper(collector, convert, table.timeline)
    parts = _parts(table, collector.unique) if pool is not None and short_side is not None else []
    if pool is None or len(parts) < 2:
        if pool is not None and len(collector.unique) <= PART_FRAMES:
            source.stream.codec_context.thread_count = 1  # other files are read meanwhile
        seek_frames(source, table, collector.unique, keep)
        return convert.shown
    source.stream.codec_context.thread_count = 1
    seek_frames(source, table, parts[0], keep)  # its first frame decides the size of all
    with _PartReader(source, table, convert) as reader:
        for frames in reader.read(parts[1:], pool):
            for rgb in frames:
                collector.add(rgb, table.timeline)
    return convert.shown


def _parts(table: PacketTable, chosen: Sequence[int]) -> list[list[int]]:
    """Chosen frames in groups of one or several keyframes each; none when a group would not fit into memory."""
    parts: list[list[int]] = []
    for run in runs_of(table, chosen):
        if parts and len(parts[-1]) < PART_FRAMES:
            parts[-1] += run
        else:
            parts.append(run)
    return parts if max(map(len, parts)) <= MAX_PART_FRAMES else []


class _PartReader:
    """Decodes parts of a file at the same time, each in one thread, with as many copies of the open file.

    Args:
        source: the file, which was opened by somebody else.
        table: its packets.
        convert: has seen its first frame.
    """

    def __init__(self, source: Source, table: PacketTable, convert: FrameConverter) -> None:
        self.first, self.table, self.convert = source, table, convert
        self._spare: deque[tuple[Source, FrameConverter]] = deque([(source, convert)])
        self._lock, self._opened = threading.Lock(), ExitStack()
        self._running: deque[Future[list[NDArray[np.uint8]]]] = deque()

    def __enter__(self) -> "_PartReader":
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._running:
            each.cancel()
        wait(self._running)
        self._opened.close()

    def read(self, parts: Sequence[Sequence[int]], pool: ThreadPoolExecutor) -> Iterator[list[NDArray[np.uint8]]]:
        """The frames of each part in turn; never more than a few parts ahead of whoever takes them."""
        todo = iter(parts)
        while True:
            while len(self._running) <= pool._max_workers and (part := next(todo, None)) is not None:
                self._running.append(pool.submit(self._read_part, part))
            if not self._running:
                return
            # It stays in the list until it is done: a thread that uses the file must not outlive it.
            frames = self._running[0].result()
            self._running.popleft()
            yield frames
            self.first.deadline.renew()

    def _read_part(self, part: Sequence[int]) -> list[NDArray[np.uint8]]:
        try:
            source, convert = self._spare.pop()
        except IndexError:
            limits = self.first.limits
            deadline, device = Deadline(self.first.path, limits.seconds), self.first.hardware or "none"
            opened = open_source(self.first.path, limits, deadline, threads=1, hwaccel=device)
            with self._lock:
                source = self._opened.enter_context(opened)
            convert = FrameConverter(source, self.convert.short_side, like=self.convert)
        source.deadline.renew()
        frames: list[NDArray[np.uint8]] = []
        try:
            seek_frames(source, self.table, part, lambda frame: frames.append(convert(frame)))
        except av.FFmpegError as error:
            raise SeekMismatch(short_reason(error)) from error
        self._spare.append((source, convert))
        return frames


Selection = tuple[list[int], list[bool]]  # numbers of frames, which may repeat, and False where one only fills up


def _read_selection(
    name: str, choose: Callable[[Timeline], Selection], short_side: int | None, limits: Limits
) -> Frames:
    if short_side is not None and short_side < 1:
        raise ValueError(f"short_side must be at least 1, not {short_side}")
    return _read(name, lambda timeline, _: choose(timeline), _SelectionReader, short_side, limits)


class _SelectionReader(_Collector[Frames]):
    """Decodes each frame of a selection once, and repeats those that the selection repeats."""

    def __init__(self, source: Source, selection: Selection) -> None:
        self.frames, self.mask = selection
        super().__init__(source, sorted(set(self.frames)))
        self.rgb: NDArray[np.uint8] | None = None  # [unique, H, W, 3]

    def take(self, rgb: NDArray[np.uint8], seconds: float) -> None:
        if self.rgb is None:
            count, (height, width) = len(self.unique), rgb.shape[:2]
            if count * rgb.nbytes > self.source.limits.memory:
                raise TooLarge(
                    self.source.path,
                    f"{count} frames of {width} x {height} take {count * rgb.nbytes:,} bytes, the limit is "
                    f"Limits(memory={self.source.limits.memory}); short_side makes them smaller",
                )
            self.rgb = np.empty((count, *rgb.shape), np.uint8)
        self.rgb[self.taken] = rgb

    def result(self, timeline: Timeline, shown: tuple[int, int], note: str | None) -> Frames:
        rgb = self.rgb
        assert rgb is not None  # selections are never empty
        if self.frames != self.unique:
            rgb = rgb[np.searchsorted(self.unique, self.frames)]
        times = np.array([timeline.seconds(frame) for frame in self.frames], dtype=np.float64)
        return Frames(rgb, times, np.array(self.mask), timeline.duration, note)


class _WindowWriter(_Collector[Streamed]):
    """Puts frames, as they come, into the window they belong to, and delivers each window that is full."""

    def __init__(self, source: Source, frames: list[int], size: int, deliver: Callable[[Window], None]) -> None:
        times = Counter(frames)  # a frame may be on the screen at several of the times
        super().__init__(source, list(times))
        self.size, self.deliver, self.repeats, self.windows = size, deliver, list(times.values()), 0
        self.window: list[NDArray[np.uint8]] = []

    def take(self, rgb: NDArray[np.uint8], seconds: float) -> None:
        for _ in range(self.repeats[self.taken]):
            self.window.append(rgb)
            if len(self.window) == self.size:
                window, self.window = Window(self.windows, np.stack(self.window), seconds), []
                self.deliver(window)
                self.windows += 1
                self.source.deadline.renew()  # each window has the time of a call

    def result(self, timeline: Timeline, shown: tuple[int, int], note: str | None) -> Streamed:
        return Streamed(timeline.duration, *shown, self.windows, note, recording_of(self.source))


class _SegmentCollector(_Collector[Streamed]):
    """Hands frames, as they come, to a :class:`~.selection.SegmentWriter`."""

    def __init__(
        self,
        source: Source,
        choice: Choice,
        frames: int,
        together: int,
        deliver: Callable[[Window], None],
    ) -> None:
        super().__init__(source, choice.frames)

        def pass_on(*window: Any) -> None:
            deliver(Window(*window))
            source.deadline.renew()  # each window has the time of a call

        self.cuts, self.writer = choice.cuts, SegmentWriter(frames, together, pass_on)

    def take(self, rgb: NDArray[np.uint8], seconds: float) -> None:
        self.writer.add(seconds, rgb, self.cuts[self.taken])

    def result(self, timeline: Timeline, shown: tuple[int, int], note: str | None) -> Streamed:
        self.writer.finish(timeline.duration)
        recording = recording_of(self.source)
        return Streamed(timeline.duration, *shown, self.writer.windows, note, recording, tuple(self.writer.spans))
