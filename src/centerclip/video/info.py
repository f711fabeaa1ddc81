"""Facts about a video file, found without decoding more than its first frame."""

from contextlib import suppress
from dataclasses import dataclass
from os import PathLike, fspath

import av

from .container import DEFAULT_LIMITS, Limits, Source, open_source
from .frames import Orientation, frame_orientation, pixel_aspect_of, shown_size
from .timeline import constant_rate, read_packet_table


@dataclass(frozen=True)
class VideoInfo:
    """What a file holds.

    Attributes:
        path: the file, as it was given.
        container: short name of the container, such as "mov" or "matroska".
        codec: name of the video codec, such as "h264".
        width: pixels of a shown frame, after turning and with square pixels.
        height: pixels of a shown frame.
        rotation: clockwise turn, in degrees, that the player has to make.
        pixel_aspect: width of a coded pixel over its height.
        duration: seconds from the first frame to the end of the last.
        fps: frames a second, on average.
        frames: number of frames, counted in the packets; what the container says is often zero or wrong.
        keyframes: places at which decoding can start.
        constant_rate: every frame is on the screen equally long, up to rounding.
        bytes: size of the file.
        seek_problem: why seeking is not safe in this file; None when it is.
    """

    path: str
    container: str
    codec: str
    width: int
    height: int
    rotation: int
    pixel_aspect: float
    duration: float
    fps: float
    frames: int
    keyframes: int
    constant_rate: bool
    bytes: int
    seek_problem: str | None


def probe(path: str | PathLike[str], *, limits: Limits = DEFAULT_LIMITS) -> VideoInfo:
    """Look at a file: its packets and its first frame.

    Raises:
        VideoError: the type says why the file cannot be read.
    """
    with open_source(path, limits) as source:
        orientation = _first_orientation(source)
    with open_source(path, limits) as source:
        table = read_packet_table(source)
        timeline, context, aspect = table.timeline, source.stream.codec_context, pixel_aspect_of(source.stream)
        width, height = orientation.size(*shown_size(context.width, context.height, aspect))
        return VideoInfo(
            path=fspath(path),
            container=source.container.format.name.split(",")[0],
            codec=context.codec.canonical_name,
            width=width,
            height=height,
            rotation=orientation.degrees,
            pixel_aspect=float(aspect or 1),
            duration=timeline.duration,
            fps=len(timeline) / timeline.duration,
            frames=len(timeline),
            keyframes=len(table.keyframes),
            constant_rate=constant_rate(timeline.pts),
            bytes=source.container.size,
            seek_problem=table.seek_problem,
        )


def _first_orientation(source: Source) -> Orientation:
    """How the first frame that decodes is turned; upright when none does."""
    with suppress(av.FFmpegError):  # of a packet that cannot be read: the packet table says what that means
        for packet in source.packets():
            with suppress(av.FFmpegError):
                for frame in source.stream.decode(packet):
                    return frame_orientation(frame)
    return Orientation(None)
