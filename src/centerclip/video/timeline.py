"""When each frame of a video is shown, and where decoding can start: known from the packets, without decoding."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import av
import numpy as np
from numpy.typing import NDArray

from .container import Source
from .errors import EncryptedVideo, TooLarge, UnreadableVideo

MAX_REORDERING = 16  # frames; timestamps that step back by more than a reordering can explain start a new recording


@dataclass(frozen=True)
class Keyframe:
    """A place to seek to: number of its packet in the file, and its timestamps in ticks."""

    packet: int
    pts: int
    dts: int


@dataclass(frozen=True)
class Timeline:
    """Frames of a video in the order they are shown.

    Attributes:
        pts: ``[N]`` ascending, when each frame appears, in ticks.
        end: when the last one goes, in ticks.
        tick: seconds of a tick.
    """

    pts: Sequence[int]
    end: int
    tick: Fraction

    def __len__(self) -> int:
        return len(self.pts)

    @property
    def duration(self) -> float:
        """Seconds from the first frame's appearance to the end of the last."""
        return float((self.end - self.pts[0]) * self.tick)

    def seconds(self, frame: int) -> float:
        """When a frame appears, in seconds from the first one."""
        return float((self.pts[frame] - self.pts[0]) * self.tick)

    def find(self, pts: int) -> int:
        """Number of the first frame that appears at a time, in ticks, or later."""
        return bisect_left(self.pts, pts)

    def has(self, pts: int) -> bool:
        """Whether a frame appears exactly at a time, in ticks."""
        number = self.find(pts)
        return number < len(self.pts) and self.pts[number] == pts

    def shown_at(self, seconds: float | Fraction) -> int:
        """The frame on the screen at a time; the first or the last one outside of the video."""
        ticks = Fraction(seconds) / self.tick + self.pts[0]
        # Times come back as rounded floats: one that lies a hair before a frame means this frame.
        return max(0, bisect_right(self.pts, ticks + Fraction(1, 1000)) - 1)


@dataclass(frozen=True)
class PacketTable:
    """What the packets of a file say.

    Attributes:
        timeline: the frames that a decoder should give.
        keyframes: ascending in file order and in time, unless there is a ``seek_problem``.
        positions: ``[N]`` number of each frame's packet in the file; means nothing where there is a ``seek_problem``.
        sizes: ``[P]`` bytes of every packet of the file.
        reordered: frames are stored in another order than shown, as they are when some refer to later ones.
        seek_problem: why the table cannot be relied on, so that only a sequential read is safe; None when it can.
    """

    timeline: Timeline
    keyframes: list[Keyframe]
    positions: NDArray[np.int64]
    sizes: NDArray[np.int64]
    reordered: bool
    seek_problem: str | None

    def keyframe_before(self, pts: int) -> Keyframe:
        """The last keyframe shown at or before a time: decoding from it gives every frame from there on.

        A frame that follows a keyframe in the file but is shown before it (an open GOP's) needs the keyframe before.
        """
        return self.keyframes[max(0, bisect_right(self.keyframes, pts, key=lambda keyframe: keyframe.pts) - 1)]


def read_packet_table(source: Source) -> PacketTable:
    """Go through the packets of a file once, from its start, without decoding; a few bytes are kept of each."""
    shown, stored, sizes, keyframes = array("q"), array("q"), array("q"), []
    packets, missing, broken, last_duration = 0, 0, 0, 0
    latest = -(2**63)
    try:
        for packet in source.packets():
            if not packet.size:
                continue
            pts = packet.pts
            if pts is None:
                missing += 1
            elif not packet.is_discard:  # cut off by an edit list: decoded, never shown
                if pts > latest:
                    latest, last_duration = pts, packet.duration or 0
                shown.append(pts)
                stored.append(packets)
            sizes.append(packet.size)
            if packet.is_keyframe:
                if packet.has_sidedata("encryption_info"):
                    raise EncryptedVideo(source.path, "the frames are encrypted")
                if pts is not None:
                    keyframes.append(Keyframe(packets, pts, pts if packet.dts is None else packet.dts))
            broken += packet.is_corrupt
            packets += 1
            if packets > source.limits.frames:
                raise TooLarge(source.path, f"more frames than the limit, Limits(frames={source.limits.frames})")
    except av.FFmpegError as error:
        source.deadline.check()
        broken += 1
        if not packets:
            raise UnreadableVideo(source.path, f"no frame of it can be read ({error.strerror})") from error
    if not shown and not missing:
        raise UnreadableVideo(source.path, "the video track is empty")

    order = np.argsort(np.asarray(shown), kind="stable")
    ascending = array("q", np.asarray(shown)[order].tobytes())
    problem = _order_problem(ascending, keyframes)
    if missing:
        problem = f"{missing} of {packets} packets have no timestamp"
    elif broken:
        problem = "the container reports damaged packets"
    times = ascending if problem is None else repaired([*shown, *[None] * missing], source)
    timeline = finished_timeline(times, last_duration, source)
    return PacketTable(timeline, keyframes, np.asarray(stored)[order], np.asarray(sizes), ascending != shown, problem)


def _order_problem(ascending: Sequence[int], keyframes: list[Keyframe]) -> str | None:
    if not keyframes or keyframes[0].packet > 0:
        return "the video does not start with a keyframe"
    if any(after.pts <= before.pts for before, after in pairwise(keyframes)):
        return "the timestamps of keyframes are out of order"
    if any(after == before for before, after in pairwise(ascending)):
        return "several frames have the same timestamp"
    return None


def finished_timeline(pts: Sequence[int], last_duration: int, source: Source) -> Timeline:
    """Close a list of ascending times with the end of the last frame, and hold it to ``Limits.duration``.

    Containers are often wrong about the last frame's duration: it counts only when frames differ in length anyway.
    """
    believed = last_duration > 0 and (len(pts) == 1 or not constant_rate(pts))
    timeline = Timeline(pts, pts[-1] + (last_duration if believed else frame_ticks(pts, source)), source.tick)
    limit = source.limits.duration
    if timeline.duration > limit:
        raise TooLarge(source.path, f"{timeline.duration:,.0f} seconds long, the limit is Limits(duration={limit:g})")
    return timeline


def constant_rate(pts: Sequence[int]) -> bool:
    """Whether frames follow each other at equal distances, up to the rounding of times to ticks."""
    shortest = min((after - before for before, after in pairwise(pts)), default=0)
    longest = max((after - before for before, after in pairwise(pts)), default=0)
    return longest - shortest <= min(1, shortest // 4)


def frame_ticks(pts: Sequence[int | None], source: Source) -> int:
    """Ticks from one frame to the next: the middle gap, or what the container says when there is none."""
    known = sorted(time for time in pts if time is not None)
    gaps = sorted(after - before for before, after in pairwise(known) if after > before)
    if gaps:
        return gaps[len(gaps) // 2]
    rate = source.stream.average_rate or source.stream.guessed_rate or Fraction(25)
    return max(1, round(1 / (rate * source.tick)))


def repaired(pts: Sequence[int | None], source: Source) -> list[int]:
    """Turn the times of frames in the order they came into strictly ascending ones.

    Decoders give frames in the order of showing, so when their times are shuffled the times are wrong, not the order.
    A missing time follows the frame before; a recording that starts again from zero continues where the last one ended.
    """
    step = frame_ticks(pts, source)
    offset, known, latest = 0, [], None
    for time in pts:
        if time is None:
            continue
        if latest is not None and time + offset < latest - MAX_REORDERING * step:
            offset = latest + step - time
        known.append(time + offset)
        latest = max(known[-1], latest) if latest is not None else known[-1]
    ascending = iter(sorted(known))
    times: list[int] = []
    for time in pts:
        candidate = next(ascending) if time is not None else None
        if candidate is None or (times and candidate <= times[-1]):
            candidate = times[-1] + step if times else 0
        times.append(candidate)
    return times


def part(timeline: Timeline, start: float | None, end: float | None) -> tuple[Fraction, Fraction, int, int]:
    """Frames shown between two times: ``(start, end, first, past)``, seconds and frame numbers.

    ``past <= first`` when there are none.
    """
    length = (timeline.end - timeline.pts[0]) * timeline.tick
    begin = max(Fraction(0), Fraction(start)) if start is not None else Fraction(0)
    finish = min(length, Fraction(end)) if end is not None else length
    if begin >= finish:
        return begin, finish, 0, 0
    first = timeline.shown_at(begin)
    past = bisect_left(timeline.pts, finish / timeline.tick + timeline.pts[0])
    return begin, finish, first, max(past, first + 1)
