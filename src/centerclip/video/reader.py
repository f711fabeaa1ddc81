"""Frames of a video file, chosen by time: a few at once, or many, window by window."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby
from os import PathLike, fspath

import torch
from av.video.frame import VideoFrame
from torch import Tensor

from .container import DEFAULT_LIMITS, Deadline, Limits, Source, open_source
from .decode import Doubt, decode_all, seek_frames
from .errors import OutsideVideo, UnreadableVideo
from .frames import Album, frame_orientation, pixel_aspect_of, shown_size
from .sampling import bin_centres, random_in_bins
from .timeline import PacketTable, Timeline, part, read_packet_table


@dataclass(frozen=True)
class Frames:
    """Frames of a video.

    Attributes:
        rgb: uint8 ``[T, H, W, 3]``, upright and with square pixels.
        times: float64 ``[T]``, when each frame appears, in seconds from the video's first frame.
        mask: bool ``[T]``, False where a frame only repeats the last one because the video has no more.
        duration: seconds of the whole video.
        note: what was wrong with the file and was overcome; None for most files.
    """

    rgb: Tensor
    times: Tensor
    mask: Tensor
    duration: float
    note: str | None = None


@dataclass(frozen=True)
class Choice:
    """Which frames of a timeline are wanted: ``frames`` may repeat, ``mask`` is False where one only fills up."""

    frames: list[int]
    mask: list[bool]


Chooser = Callable[[Timeline], Choice]


def read_frames(
    path: str | PathLike[str],
    count: int = 12,
    *,
    random: tuple[int, int, str] | None = None,
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
        short_side: scale the frames so that the short side has so many pixels; None keeps the size.
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

    def choose(timeline: Timeline) -> Choice:
        begin, finish, first, past = part(timeline, start, end)
        available = past - first
        if available < 1:
            raise OutsideVideo(name, f"no frame from {start} to {end} s in a video of {timeline.duration:.3f} s")
        if random is None:
            slots = bin_centres(available, count)
        else:
            seed, epoch, video = random
            slots = random_in_bins(available, count, seed=seed, epoch=epoch, video=video)
        mask = [place < available for place in range(count)]
        if available <= count:
            return Choice([first + slot for slot in slots], mask)
        slot_length = (finish - begin) / available
        return Choice([timeline.shown_at(begin + (slot + Fraction(1, 2)) * slot_length) for slot in slots], mask)

    return _read(name, choose, short_side, limits)


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
        short_side: scale the frames so that the short side has so many pixels; None keeps the size.
        limits: bounds on what the file may cost.

    Returns:
        ``T`` frames, in the order of ``times``.

    Raises:
        VideoError: the type says why the file cannot be read.
    """
    wanted = [float(time) for time in times]
    if not wanted:
        raise ValueError("times is empty: give at least one")

    def choose(timeline: Timeline) -> Choice:
        return Choice([timeline.shown_at(time) for time in wanted], [0 <= time < timeline.duration for time in wanted])

    return _read(fspath(path), choose, short_side, limits)


def _read(name: str, choose: Chooser, short_side: int | None, limits: Limits) -> Frames:
    if short_side is not None and short_side < 1:
        raise ValueError(f"short_side must be at least 1, not {short_side}")
    deadline = Deadline(name, limits.seconds)
    with open_source(name, limits, deadline) as source:
        table = read_packet_table(source)
        choice = choose(table.timeline)
        unique = sorted(set(choice.frames))
        album = Album(name, len(unique), pixel_aspect_of(source.stream), short_side, limits)
        try:
            seek_frames(source, table, unique, album.add)
            return _frames(table.timeline, choice, unique, album)
        except Doubt as doubt:
            reason = str(doubt)
    return _read_everything(name, choose, table, short_side, limits, deadline, reason)


def _read_everything(
    name: str,
    choose: Chooser,
    table: PacketTable,
    short_side: int | None,
    limits: Limits,
    deadline: Deadline,
    reason: str,
) -> Frames:
    """Decode the file from start to end; twice when the frames that come are not those the packets announce."""
    timeline = table.timeline
    for _ in range(2):
        choice = choose(timeline)
        unique = sorted(set(choice.frames))
        with open_source(name, limits, deadline) as source:
            album = Album(name, len(unique), pixel_aspect_of(source.stream), short_side, limits)
            timeline, lost = decode_all(source, table, unique, album.add)
        if choose(timeline) == choice and len(album.added) == len(unique):
            note = f"read from start to end: {reason}" + (f"; packets that do not decode: {lost}" if lost else "")
            return _frames(timeline, choice, unique, album, note)
    raise UnreadableVideo(name, "decoding gives other frames each time")


def _frames(timeline: Timeline, choice: Choice, unique: list[int], album: Album, note: str | None = None) -> Frames:
    assert album.rgb is not None  # choices are never empty
    places = {frame: place for place, frame in enumerate(unique)}
    order = [places[frame] for frame in choice.frames]
    rgb = album.rgb if order == list(range(len(unique))) else album.rgb[torch.tensor(order)]
    times = torch.tensor([timeline.seconds(frame) for frame in choice.frames], dtype=torch.float64)
    return Frames(rgb, times, torch.tensor(choice.mask), timeline.duration, note)


@dataclass(frozen=True)
class Window:
    """Frames that follow each other.

    Attributes:
        number: place of the window in the video, from 0.
        rgb: uint8 ``[T, H, W, 3]``, upright and with square pixels.
    """

    number: int
    rgb: Tensor


@dataclass(frozen=True)
class Streamed:
    """What a pass over a video found.

    Attributes:
        duration: seconds.
        width: pixels of a shown frame.
        height: pixels of a shown frame.
        windows: how many were delivered.
        note: what was wrong with the file and was overcome; None for most files.
    """

    duration: float
    width: int
    height: int
    windows: int
    note: str | None


Plan = Callable[[float], Sequence[float]]


def stream_windows(
    path: str | PathLike[str],
    plan: Plan,
    size: int,
    deliver: Callable[[Window], None],
    *,
    short_side: int | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Streamed:
    """Read the frames on the screen at many times, ``size`` of them at a time.

    When a file turns out to be damaged on the way, it is read again from its start as a player does, and windows come
    again from number 0: the last one of each number counts.

    Args:
        path: a video file.
        plan: from the length of the video in seconds to the times of the frames: ascending, a multiple of ``size``.
        size: frames of a window.
        deliver: called with each window; may wait, which does not count as reading.
        short_side: scale the frames so that the short side has so many pixels; None keeps the size.
        limits: bounds on what the file may cost. ``seconds`` holds for a window, not for the whole video.

    Raises:
        VideoError: the type says why the file cannot be read.
    """
    name = fspath(path)
    deadline = _Renewed(name, limits.seconds)
    with open_source(name, limits, deadline) as source:
        table = read_packet_table(source)
        timeline = table.timeline
        frames = _choose(timeline, plan)
        writer = _Writer(source, size, deliver, short_side, frames)
        try:
            seek_frames(source, table, writer.unique, writer.keep)
            return writer.finished(timeline, None)
        except Doubt as doubt:
            reason = str(doubt)
    for _ in range(2):  # a second time when the frames that come are not those the packets announce
        frames = _choose(timeline, plan)
        with open_source(name, limits, deadline) as source:
            writer = _Writer(source, size, deliver, short_side, frames)
            timeline, lost = decode_all(source, table, writer.unique, writer.keep)
        if _choose(timeline, plan) == frames and writer.complete:
            note = f"read from start to end: {reason}" + (f"; packets that do not decode: {lost}" if lost else "")
            return writer.finished(timeline, note)
    raise UnreadableVideo(name, "decoding gives other frames each time")


def _choose(timeline: Timeline, plan: Plan) -> list[int]:
    return [timeline.shown_at(time) for time in plan(timeline.duration)]


class _Renewed(Deadline):
    """A deadline for every window."""

    def renew(self) -> None:
        self._end = time.monotonic() + self.seconds


class _Writer:
    """Puts frames, as they come, into the window they belong to."""

    def __init__(
        self,
        source: Source,
        size: int,
        deliver: Callable[[Window], None],
        short_side: int | None,
        frames: Sequence[int],
    ) -> None:
        self.source, self.size, self.deliver, self.short_side = source, size, deliver, short_side
        # A frame that is on the screen at several of the times has several positions.
        self.positions = [[place for place, _ in group] for _, group in groupby(enumerate(frames), lambda p: p[1])]
        self.unique = [frames[places[0]] for places in self.positions]
        self.total = len(frames)
        self.shown = (0, 0)
        self.album = self._new_album()
        self.written = 0

    @property
    def complete(self) -> bool:
        return self.written == self.total

    def keep(self, place: int, frame: VideoFrame) -> None:
        if self.shown == (0, 0):
            width, height = shown_size(frame.width, frame.height, pixel_aspect_of(self.source.stream))
            self.shown = (height, width) if frame_orientation(frame).transpose else (width, height)
        for position in self.positions[place]:
            if position != self.written:
                raise UnreadableVideo(self.source.path, "frames came out of order")
            self.album.add(position % self.size, frame)
            self.written += 1
            if self.written % self.size == 0:
                assert self.album.rgb is not None
                window = Window(position // self.size, self.album.rgb)
                self.album = self._new_album()
                self.deliver(window)
                assert isinstance(self.source.deadline, _Renewed)
                self.source.deadline.renew()

    def finished(self, timeline: Timeline, note: str | None) -> Streamed:
        return Streamed(timeline.duration, *self.shown, self.total // self.size, note)

    def _new_album(self) -> Album:
        source = self.source
        return Album(source.path, self.size, pixel_aspect_of(source.stream), self.short_side, source.limits)
