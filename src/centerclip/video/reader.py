"""Frames of a video file, chosen by time: a few at once, or those of a long video window by window.

Streaming is one pass over the file with never more than a window in memory.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby
from os import PathLike, fspath
from typing import Protocol, TypeVar

import numpy as np
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from .container import DEFAULT_LIMITS, Deadline, Limits, Source, open_source
from .decode import SeekMismatch, decode_all, seek_frames
from .errors import OutsideVideo, UnreadableVideo
from .frames import FrameBuffer, frame_orientation, pixel_aspect_of, shown_size
from .info import Recording, recording_of
from .sampling import bin_centres, random_in_bins
from .timeline import Timeline, part, read_packet_table


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
    """

    number: int
    rgb: NDArray[np.uint8]


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
    """

    duration: float
    width: int
    height: int
    windows: int
    note: str | None
    recording: Recording


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

    Raises:
        VideoError: the type says why the file cannot be read.
    """

    def choose(timeline: Timeline) -> list[int]:
        return [timeline.shown_at(time) for time in plan(timeline.duration, len(timeline))]

    def collect(source: Source, frames: list[int]) -> _WindowWriter:
        return _WindowWriter(source, frames, size, deliver, short_side)

    return _read(fspath(path), choose, collect, limits)


Chosen = TypeVar("Chosen")
Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)


class _Collector(Protocol[Result_co]):
    """Takes the chosen frames of one attempt to read a file."""

    unique: list[int]  # the numbers of the frames: ascending, without repeats

    def keep(self, place: int, frame: VideoFrame) -> None: ...

    @property
    def complete(self) -> bool: ...

    def result(self, timeline: Timeline, note: str | None) -> Result_co: ...


def _read(
    name: str,
    choose: Callable[[Timeline], Chosen],
    collect: Callable[[Source, Chosen], _Collector[Result]],
    limits: Limits,
) -> Result:
    """Seek to the chosen frames; where what comes is not what the packets promise, decode from start to end."""
    deadline = Deadline(name, limits.seconds)
    with open_source(name, limits, deadline) as source:
        table = read_packet_table(source)
        timeline = table.timeline
        collector = collect(source, choose(timeline))
        try:
            seek_frames(source, table, collector.unique, collector.keep)
            return collector.result(timeline, None)
        except SeekMismatch as mismatch:
            reason = str(mismatch)
    for _ in range(2):  # a second time when the frames that come are not those the packets announce
        chosen = choose(timeline)
        with open_source(name, limits, deadline) as source:
            collector = collect(source, chosen)
            timeline, lost = decode_all(source, table, collector.unique, collector.keep)
        if choose(timeline) == chosen and collector.complete:
            note = f"read from start to end: {reason}" + (f"; packets that do not decode: {lost}" if lost else "")
            return collector.result(timeline, note)
    raise UnreadableVideo(name, "decoding gives other frames each time")


Selection = tuple[list[int], list[bool]]  # numbers of frames, which may repeat, and False where one only fills up


def _read_selection(
    name: str, choose: Callable[[Timeline], Selection], short_side: int | None, limits: Limits
) -> Frames:
    if short_side is not None and short_side < 1:
        raise ValueError(f"short_side must be at least 1, not {short_side}")
    return _read(name, choose, lambda source, selection: _SelectionReader(source, selection, short_side), limits)


class _SelectionReader:
    """Decodes each frame of a selection once, and repeats those that the selection repeats."""

    def __init__(self, source: Source, selection: Selection, short_side: int | None) -> None:
        self.frames, self.mask = selection
        self.unique = sorted(set(self.frames))
        self.buffer = FrameBuffer(source, len(self.unique), short_side)

    @property
    def complete(self) -> bool:
        return len(self.buffer.filled) == len(self.unique)

    def keep(self, place: int, frame: VideoFrame) -> None:
        self.buffer.add(place, frame)

    def result(self, timeline: Timeline, note: str | None) -> Frames:
        rgb = self.buffer.rgb
        assert rgb is not None  # selections are never empty
        if self.frames != self.unique:
            rgb = rgb[np.searchsorted(self.unique, self.frames)]
        times = np.array([timeline.seconds(frame) for frame in self.frames], dtype=np.float64)
        return Frames(rgb, times, np.array(self.mask), timeline.duration, note)


class _WindowWriter:
    """Puts frames, as they come, into the window they belong to, and delivers each window that is full."""

    def __init__(
        self, source: Source, frames: list[int], size: int, deliver: Callable[[Window], None], short_side: int | None
    ) -> None:
        self.source, self.size, self.deliver, self.short_side = source, size, deliver, short_side
        # A frame that is on the screen at several of the times has several positions.
        self.positions = [[place for place, _ in group] for _, group in groupby(enumerate(frames), lambda p: p[1])]
        self.unique = [frames[places[0]] for places in self.positions]
        self.total, self.written = len(frames), 0
        self.shown = (0, 0)  # width and height, known with the first frame
        self.buffer = FrameBuffer(source, size, short_side)

    @property
    def complete(self) -> bool:
        return self.written == self.total

    def keep(self, place: int, frame: VideoFrame) -> None:
        if self.shown == (0, 0):
            size = shown_size(frame.width, frame.height, pixel_aspect_of(self.source.stream))
            self.shown = frame_orientation(frame).size(*size)
        for position in self.positions[place]:
            if position != self.written:
                raise UnreadableVideo(self.source.path, "frames came out of order")
            self.buffer.add(position % self.size, frame)
            self.written += 1
            if self.written % self.size == 0:
                assert self.buffer.rgb is not None
                window = Window(position // self.size, self.buffer.rgb)
                self.buffer = FrameBuffer(self.source, self.size, self.short_side)
                self.deliver(window)
                self.source.deadline.renew()  # each window has the time of a call

    def result(self, timeline: Timeline, note: str | None) -> Streamed:
        recording = recording_of(self.source)
        return Streamed(timeline.duration, *self.shown, self.total // self.size, note, recording)
