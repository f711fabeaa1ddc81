"""Many frames of a long video, window by window: one pass over the file, and never more than a window in memory."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from os import PathLike, fspath

from av.video.frame import VideoFrame
from torch import Tensor

from .decode import Doubt, decode_all, seek_frames
from .errors import UnreadableVideo
from .limits import DEFAULT_LIMITS, Deadline, Limits
from .picture import Album, frame_orientation, pixel_aspect_of, shown_size
from .source import Source, open_source
from .timeline import Timeline, read_packet_table


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
