"""Re-encodes one video small: few frames a second, short side of a few hundred pixels, upright, square pixels."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av
import torch
from torch import Tensor

from ..errors import DataError
from . import Limits, VideoError, VideoInfo, probe, read_times

LIMITS = Limits(seconds=4 * 3600.0)  # hours of 4K on one slow core
CHUNK_BYTES = 128 * 2**20  # of pictures in memory: minutes of video, so that a film does not fill it
KEYFRAME_SECONDS = 4  # seeking in the copy then decodes a dozen small frames at most
QUALITY = {"crf": "20", "preset": "fast", "threads": "1"}  # one thread: many files are encoded at the same time


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

    @property
    def partial(self) -> Path:
        """Where this process writes the copy until it is whole: in the same folder, so that the last step is a rename.

        Another process has another name: one that outlived its parent must not finish what a new run is writing.
        """
        return self.target.with_name(f".{self.target.name}.{os.getpid()}.part")


def encode(job: EncodeJob) -> int:
    """Write ``job.target`` as H.264 in MP4, whole or not at all, and return the number of its frames.

    Frame ``k`` of the copy is what the source shows at ``(k + 0.5) / fps``, the middle of its time on screen. Pictures
    are never enlarged. Sound is left out.

    Raises:
        DataError: the source cannot be read, or the copy cannot be written; it says why.
    """
    job.target.parent.mkdir(parents=True, exist_ok=True)
    try:
        frames = _write(job, probe(job.source, limits=LIMITS))
        with job.partial.open("rb+") as file:
            os.fsync(file.fileno())  # else a power cut after the rename could leave an empty file
        job.partial.replace(job.target)
    except VideoError as error:
        raise DataError(f"{error.detail}. {error.advice}") from error
    except av.FFmpegError as error:
        raise DataError(f"the copy cannot be written: {error.strerror}") from error
    finally:
        job.partial.unlink(missing_ok=True)
    return frames


def _write(job: EncodeJob, info: VideoInfo) -> int:
    number = -1
    with av.open(str(job.partial), "w", format="mp4", options={"movflags": "+faststart"}) as output:
        stream = output.add_stream("libx264", rate=job.rate)
        stream.width, stream.height = copy_size(info.width, info.height, job.short_side)
        stream.pix_fmt = "yuv420p"
        stream.time_base = 1 / job.rate
        stream.options = {**QUALITY, "g": str(max(1, round(KEYFRAME_SECONDS * job.rate)))}
        for number, pixels in enumerate(_pictures(job, info)):
            picture = av.VideoFrame.from_ndarray(pixels.numpy(), format="rgb24")
            picture = picture.reformat(stream.width, stream.height, "yuv420p")
            picture.pts, picture.time_base = number, 1 / job.rate
            output.mux(stream.encode(picture))
        output.mux(stream.encode())
    return number + 1


def _pictures(job: EncodeJob, info: VideoInfo) -> Iterator[Tensor]:
    """The frames of the copy, each uint8 ``[H, W, 3]``; always at least one."""
    width, height = copy_size(info.width, info.height, job.short_side)
    chunk = max(1, CHUNK_BYTES // (3 * width * height))
    count = max(1, round(info.duration * job.rate))
    for first in range(0, count, chunk):
        numbers = range(first, min(first + chunk, count))
        times = [float((number + Fraction(1, 2)) / job.rate) for number in numbers]
        yield from read_times(job.source, times, short_side=min(width, height), limits=LIMITS).rgb


def copy_size(width: int, height: int, short_side: int) -> tuple[int, int]:
    """Width and height of a copy: never larger, and even, because H.264 with halved chroma has no other."""
    scale = min(1.0, short_side / min(width, height))
    return max(2, 2 * round(width * scale / 2)), max(2, 2 * round(height * scale / 2))


def one_thread() -> None:
    """Let this process decode with one thread, because its neighbours have the other cores."""
    torch.set_num_threads(1)
