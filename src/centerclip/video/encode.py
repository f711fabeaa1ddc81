"""Writes videos: frames as H.264, and small copies of whole files, of few frames a second and a few hundred pixels."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from av.video.reformatter import VideoReformatter
from numpy.typing import NDArray

from ..errors import DataError
from ..files import write_atomic
from .container import Limits
from .errors import VideoError
from .frames import even_size

LIMITS = Limits(seconds=4 * 3600.0)  # hours of 4K on one slow core
CHUNK_BYTES = 128 * 2**20  # of frames in memory: minutes of video, so that a film does not fill it
KEYFRAME_SECONDS = 4  # seeking then decodes a dozen small frames at most
QUALITY = {"crf": "20", "preset": "fast"}


@dataclass(frozen=True)
class EncodeJob:
    """One file to re-encode."""

    source: Path
    target: Path
    fps: float = 3.0
    short_side: int = 224

    @property
    def rate(self) -> Fraction:
        """Frames a second of the copy, as the container writes them."""
        return Fraction(self.fps).limit_denominator(1001)


def encode(job: EncodeJob) -> int:
    """Write ``job.target`` as H.264 in MP4, whole or not at all, and return the number of its frames.

    Frame ``k`` of the copy is what the source shows at ``(k + 0.5) / fps``, the middle of its time on screen. Frames
    are never enlarged. Sound is left out.

    Raises:
        DataError: the source cannot be read, or the copy cannot be written; it says why.
    """
    from .info import probe

    job.target.parent.mkdir(parents=True, exist_ok=True)
    try:
        info = probe(job.source, limits=LIMITS)
        size = even_size(info.width, info.height, job.short_side)
        frames = _frames(job, info.duration, size)
        return write_video(job.target, frames, job.rate, QUALITY, size=size)
    except VideoError as error:
        raise DataError(f"{error.detail}. {error.advice}") from error


def _frames(job: EncodeJob, duration: float, size: tuple[int, int]) -> Iterator[NDArray[np.uint8]]:
    """The frames of the copy, each ``[H, W, 3]``; always at least one."""
    from .reader import read_times

    chunk = max(1, CHUNK_BYTES // (3 * size[0] * size[1]))
    count = max(1, round(duration * job.rate))
    for first in range(0, count, chunk):
        numbers = range(first, min(first + chunk, count))
        times = [float((number + Fraction(1, 2)) / job.rate) for number in numbers]
        yield from read_times(job.source, times, short_side=min(size), limits=LIMITS).rgb


def write_video(
    target: Path,
    frames: Iterable[NDArray[np.uint8]],
    fps: int | Fraction,
    quality: Mapping[str, str],
    *,
    size: tuple[int, int] | None = None,
    durable: bool = True,
) -> int:
    """Encode frames as H.264 in MP4, whole or not at all and the same bytes every time; returns their number.

    Args:
        target: the file; its folder must exist.
        frames: each ``[H, W, 3]``.
        fps: frames a second.
        quality: options of x264.
        size: width and height of the video, both even; by default those of the first frame.
        durable: also survive a power cut.
    """
    rate, number = Fraction(fps), -1
    to_yuv = VideoReformatter()  # one for all frames: setting it up costs more than a small frame does

    def write(partial: Path) -> None:
        nonlocal number
        muxer = {"movflags": "+faststart", "fflags": "+bitexact"}
        with av.open(str(partial), "w", format="mp4", options=muxer) as output:
            stream = output.add_stream("libx264", rate=rate)
            stream.pix_fmt, stream.time_base = "yuv420p", 1 / rate
            # One thread: the same bytes every time, and many files are written at the same time.
            stream.options = {**quality, "threads": "1", "g": str(max(1, round(KEYFRAME_SECONDS * rate)))}
            for number, pixels in enumerate(frames):
                if number == 0:
                    stream.width, stream.height = size or (pixels.shape[1], pixels.shape[0])
                frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
                frame = to_yuv.reformat(frame, stream.width, stream.height, "yuv420p", threads=1)
                frame.pts, frame.time_base = number, 1 / rate
                output.mux(stream.encode(frame))
            output.mux(stream.encode())

    try:
        write_atomic(target, write, durable=durable)
    except av.FFmpegError as error:
        raise DataError(f"{target} cannot be written: {error.strerror}") from error
    return number + 1
