"""Which frames of a video to index, by what they cost to decode, and the segments that they make.

The packets of a file tell which frames are keyframes, which need nothing else to be decoded. They come first: encoders
put one at every cut, and after some seconds without one. Where they are too far apart, the frames come next that need
the fewest packets to be decoded beside them. Where they are too close, as in files of nothing but keyframes, some are
left out.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from .timeline import PacketTable, Timeline

Pixels = NDArray[np.uint8]

EPSILON = 1e-9  # seconds, by which times may be rounded
REGULAR_SHARE = 0.9  # of the packets between most keyframes; one that comes sooner was put there for a cut
SPIKE = 0.6  # of the size of the keyframe before: a packet so large that is no keyframe begins a new scene
MIN_STEP = 0.75  # of an even distance: a frame that closes a gap is not nearer to the one before, and shows the same
THUMBNAIL = 32  # pixels of a side
STILL_MEAN, STILL_MAX = 1.0, 8.0  # grey levels of 255 by which thumbnails of a still scene differ, at most
HINTED_DIFFERENCE = 0.01  # mean difference of two thumbnails, of the whole range, from which a hint is a cut
CUT_COLOURS = 0.35  # share of the pixels whose colours two frames do not share; from here on it is a cut without a hint
COLOURS = 4  # steps of each channel by which colours are told apart


@dataclass(frozen=True)
class Detail:
    """How many frames of a video are taken.

    Attributes:
        thin: seconds from keyframe to keyframe; those between, unless they begin a scene, are left out.
        limit: seconds from frame to frame at most, for which frames are taken that are no keyframes.
        closest: seconds between keyframes that begin scenes, at least.
        least: frames of a short video: the seconds above count only as far as there are so many.
        together: frames of a segment, at most.
    """

    thin: float
    limit: float
    closest: float
    least: int
    together: int

    def for_length(self, duration: float) -> "Detail":
        """The same for a video of so many seconds."""
        most = duration / self.least
        return Detail(min(self.thin, most), min(self.limit, most), min(self.closest, most), self.least, self.together)


# "fine" has none: its frames are at equal distances, as Windows has them.
DETAILS = {
    "fast": Detail(thin=4.0, limit=30.0, closest=1.0, least=3, together=3),
    "normal": Detail(thin=4.0, limit=5.0, closest=1.0, least=6, together=2),
}


class Cut(NamedTuple):
    """Where a scene begins between two frames, if one does."""

    time: float  # seconds
    hinted: bool  # packets make it likely


@dataclass(frozen=True)
class Choice:
    """Frames that were chosen: their ascending numbers, and for each where a scene may have begun since the last."""

    frames: list[int]
    cuts: list[Cut]


def choose_frames(table: PacketTable, detail: Detail) -> Choice:
    """The frames of a video whose packets can be relied on.

    Two frames are never further apart than ``detail.limit``, nor the last one from the end, unless the video has no
    frame between. Of what can close a gap, those frames are taken that need the fewest packets.
    """
    timeline, detail = table.timeline, detail.for_length(table.timeline.duration)
    times = (np.asarray(timeline.pts, np.float64) - timeline.pts[0]) * float(timeline.tick)
    keyframes = [keyframe for keyframe in table.keyframes if timeline.has(keyframe.pts)]
    numbers = [timeline.find(keyframe.pts) for keyframe in keyframes]
    scenes = scene_keyframes(table, numbers)
    chosen = {0, *thinned(times, numbers, scenes, detail, timeline.duration)}
    ends = [*sorted(chosen), len(times)]
    whole = np.append(times, timeline.duration)
    for first, last in pairwise(ends):
        chosen.update(_closing(table, whole, first, last, detail.limit))
    frames, begins = sorted(chosen), sorted(scenes)
    is_keyframe = np.zeros(len(table.sizes), dtype=bool)
    is_keyframe[[keyframe.packet for keyframe in table.keyframes]] = True
    cuts = [_possible_cut(table, times, begins, is_keyframe, *pair) for pair in pairwise(frames)]
    return Choice(frames, [Cut(0.0, hinted=False), *cuts])


def even_frames(timeline: Timeline, detail: Detail) -> Choice:
    """Frames at equal distances, for a video whose packets cannot be relied on: it is decoded from start to end."""
    limit = detail.for_length(timeline.duration).limit
    count = max(1, min(len(timeline), int(np.ceil(timeline.duration / limit))))
    frames = sorted({timeline.shown_at((place + 0.5) * timeline.duration / count) for place in range(count)})
    times = [timeline.seconds(frame) for frame in frames]
    return Choice(frames, [Cut((before + after) / 2, hinted=False) for before, after in pairwise([0.0, *times])])


def scene_keyframes(table: PacketTable, numbers: Sequence[int]) -> set[int]:
    """Those of the keyframes (numbers of frames) that come sooner after the one before than an encoder's usual ones."""
    gaps = [int(table.positions[after] - table.positions[before]) for before, after in pairwise(numbers)]
    usual = max(gaps, default=0)
    return {number for number, gap in zip(numbers[1:], gaps, strict=True) if gap < REGULAR_SHARE * usual}


def thinned(
    times: NDArray[np.float64], keyframes: Sequence[int], scenes: set[int], detail: Detail, end: float
) -> list[int]:
    """Keyframes that are not too close: those that begin scenes, and of the others as few as ``detail.thin`` allows."""
    when = times[np.asarray(keyframes, np.int64)]
    begins = np.array([place for place, number in enumerate(keyframes) if number in scenes], np.int64)
    kept = [0] if keyframes else []
    while kept and kept[-1] < len(keyframes) - 1:
        now = when[kept[-1]]
        near = int(np.searchsorted(when, now + detail.thin + EPSILON, side="right"))  # the first that is too far
        scene = int(np.searchsorted(when[begins], now + detail.closest - EPSILON))
        if scene < len(begins) and kept[-1] < begins[scene] < near:
            kept.append(int(begins[scene]))
        elif end <= now + detail.thin + EPSILON:
            break
        else:
            kept.append(max(near - 1, kept[-1] + 1))
    return [keyframes[place] for place in kept]


def _closing(table: PacketTable, times: NDArray[np.float64], first: int, last: int, limit: float) -> list[int]:
    """Frames between two chosen ones (or the end) that close the gap, if it is too long."""
    if times[last] - times[first] <= limit + EPSILON or last - first < 2:
        return []
    # What must be decoded is decided by the last frame alone: all that it needs is decoded before it.
    gap = times[last] - times[first]
    nearest = times[first] + MIN_STEP * gap / np.ceil(gap / limit)
    earliest = max(first + 1, int(np.searchsorted(times, max(times[last] - limit, nearest) - EPSILON)))
    x = earliest + int(np.argmin(table.positions[earliest:last])) if earliest < last else last - 1
    return [*_between(table, times, first, x, limit), x]


def _between(table: PacketTable, times: NDArray[np.float64], first: int, last: int, limit: float) -> list[int]:
    """Frames between two that are decoded, at about equal distances; large packets first: others refer to them."""
    gap = times[last] - times[first]
    if gap <= limit + EPSILON or last - first < 2:
        return []
    parts = int(np.ceil(gap / limit))
    target = times[first] + gap * (parts // 2) / parts
    slack = min((limit - gap / parts) / 2, gap / parts / 4)
    inside = np.arange(first + 1, last)
    decoded = inside[table.positions[inside] < table.positions[last]]
    inside = decoded if len(decoded) else inside
    near = inside[np.abs(times[inside] - target) <= slack]
    sizes = table.sizes[table.positions[near]]
    middle = int(near[np.argmax(sizes)] if len(near) else inside[np.argmin(np.abs(times[inside] - target))])
    left, right = (_between(table, times, *ends, limit) for ends in ((first, middle), (middle, last)))
    return [*left, middle, *right]


def _possible_cut(
    table: PacketTable,
    times: NDArray[np.float64],
    scenes: Sequence[int],
    is_keyframe: NDArray[np.bool_],
    before: int,
    after: int,
) -> Cut:
    """Where a scene begins after one frame and up to another, if one does."""
    place = bisect_right(scenes, after) - 1
    if place >= 0 and scenes[place] > before:
        return Cut(float(times[scenes[place]]), hinted=True)
    between = np.arange(before + 1, after + 1)
    between = between[~is_keyframe[table.positions[between]]]  # a usual keyframe is large without a cut
    if len(between):
        sizes = table.sizes[table.positions[between]]
        largest = int(np.argmax(sizes))
        if sizes[largest] > SPIKE * table.sizes[table.keyframe_before(table.timeline.pts[before]).packet]:
            return Cut(float(times[between[largest]]), hinted=True)
    at_keyframe = is_keyframe[table.positions[after]]  # no other packet could show another picture
    return Cut(float(times[after] if at_keyframe else (times[before] + times[after]) / 2), hinted=False)


# ---- segments ---------------------------------------------------------------------------------------------------


def thumbnail_of(rgb: Pixels) -> NDArray[np.float32]:
    """A frame ``[H, W, 3]`` as ``[32, 32, 3]``: each value the mean of a part."""
    return np.asarray(Image.fromarray(rgb).resize((THUMBNAIL, THUMBNAIL), Image.Resampling.BOX), np.float32)


def is_still(before: NDArray[np.float32], after: NDArray[np.float32]) -> bool:
    """Whether two frames, by their thumbnails, show the same: nothing but noise has changed."""
    difference = np.abs(after - before)
    return float(difference.mean()) <= STILL_MEAN and float(difference.max()) <= STILL_MAX


def is_cut(before: NDArray[np.float32], after: NDArray[np.float32], *, hinted: bool) -> bool:
    """Whether a scene ends between two frames, by their thumbnails."""
    if hinted and float(np.abs(after - before).mean()) / 255 >= HINTED_DIFFERENCE:
        return True
    # Colours, not pixels: a camera that moves changes those too.
    return float(np.abs(_colours(after) - _colours(before)).sum()) / 2 >= CUT_COLOURS


def _colours(thumbnail: NDArray[np.float32]) -> NDArray[np.float64]:
    """How often each of 64 colours comes, ``[64]``, 1 in all."""
    steps = (thumbnail * (COLOURS / 256)).astype(np.int64) @ [COLOURS**2, COLOURS, 1]
    return np.bincount(steps.ravel(), minlength=COLOURS**3) / steps.size


class StillFrames:
    """Repeats a frame in the place of those after it that show the same, so that they need not be encoded again."""

    def __init__(self) -> None:
        self._last: tuple[Pixels, NDArray[np.float32]] | None = None

    def __call__(self, rgb: Pixels) -> Pixels:
        """The next frames ``[T, H, W, 3]``; what is repeated is copied in place."""
        for place, frame in enumerate(rgb):
            thumbnail = thumbnail_of(frame)
            if self._last is not None and is_still(self._last[1], thumbnail):
                rgb[place] = self._last[0]
            else:
                self._last = frame.copy(), thumbnail
        return rgb


@dataclass
class _Segment:
    start: float
    frames: list[Pixels]  # that differ
    last: float  # when the last frame appears, also one that does not differ
    still: bool = False  # there was one


class SegmentWriter:
    """Puts frames, as they come, into segments, and segments into windows.

    A segment ends at a cut, after ``together`` frames that differ, and when something changes in a still scene. Frames
    that show the same are one: the segment only becomes longer.

    Args:
        frames: a window is delivered when it has as many.
        together: frames of a segment, at most.
        deliver: called with the number of a window, its frames ``[T, H, W, 3]``, its end in seconds, and how many of
            its frames each segment has.
    """

    def __init__(
        self, frames: int, together: int, deliver: Callable[[int, Pixels, float, tuple[int, ...]], None]
    ) -> None:
        self.frames, self.together, self.deliver = frames, together, deliver
        self.spans: list[tuple[float, float]] = []
        self.windows = 0  # that were delivered
        self._window: list[list[Pixels]] = []  # the frames of each segment of the next one
        self._open = _Segment(0.0, [], 0.0)
        self._thumbnail: NDArray[np.float32] | None = None

    def add(self, time: float, rgb: Pixels, cut: Cut) -> None:
        """The next frame ``[H, W, 3]``, when it appears, and where its scene may have begun."""
        thumbnail, before = thumbnail_of(rgb), self._thumbnail
        if before is not None:
            if is_still(before, thumbnail):
                self._open.last, self._open.still = time, True
                return
            if self._open.still or is_cut(before, thumbnail, hinted=cut.hinted):
                self._close(max(cut.time, self._open.last))
            elif len(self._open.frames) == self.together:
                self._close((self._open.last + time) / 2)
        self._open.frames.append(rgb)
        self._open.last, self._thumbnail = time, thumbnail

    def finish(self, end: float) -> None:
        """There are no more frames, and the last segment ends."""
        self._close(end)
        if self._window:
            self._deliver()

    def _close(self, end: float) -> None:
        self._window.append(self._open.frames)
        self.spans.append((self._open.start, end))
        self._open = _Segment(end, [], end)
        if sum(map(len, self._window)) >= self.frames:
            self._deliver()

    def _deliver(self) -> None:
        window, self._window = self._window, []
        rgb = np.stack([frame for frames in window for frame in frames])
        self.deliver(self.windows, rgb, self.spans[-1][1], tuple(map(len, window)))
        self.windows += 1
