"""Frames of a video file, chosen by time: what ``centerclip.video`` is for."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from os import PathLike, fspath

import torch
from torch import Tensor

from .decode import Doubt, decode_all, seek_frames
from .errors import OutsideVideo, UnreadableVideo
from .limits import DEFAULT_LIMITS, Deadline, Limits
from .picture import Album, pixel_aspect_of
from .sampling import bin_centres, random_in_bins
from .source import open_source
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
