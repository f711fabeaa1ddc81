"""Open a file that nobody vouches for: the right stream of it, within limits, or a typed error."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import av
import torch
from av.container import InputContainer
from av.packet import Packet
from av.stream import Discard, Disposition
from av.video.stream import VideoStream

from .errors import (
    EncryptedVideo,
    MissingFile,
    NotAVideo,
    NoVideoStream,
    TooLarge,
    TruncatedVideo,
    UnreadableVideo,
    UnsupportedCodec,
    VideoError,
)
from .limits import Deadline, Limits
from .structure import read_structure

# Containers of moving pictures. A list of what may be opened, not of what may not: FFmpeg also takes play lists and
# scripts, which name other files and addresses, and pictures.
CONTAINERS = (
    "3g2,3gp,asf,avi,av1,dv,f4v,flv,gif,h263,h264,hevc,ivf,live_flv,m4v,matroska,mj2,mov,mp4,mpeg,mpegts,"
    "mpegvideo,mxf,nsv,nut,obu,ogg,rm,vc1,webm,wtv,yuv4mpegpipe,aac,flac,mp3,wav"
)
LOST_TAIL = 0.01  # a file that lacks less of its bytes than this still plays to the end

# What matters comes back as an error, so FFmpeg's messages go nowhere. Any level but None also makes decoder threads
# wait for Python's lock to log, which the thread that waits for them to stop may hold: a deadlock.
av.logging.set_level(None)


@dataclass
class Source:
    """An open video file.

    Attributes:
        path: the file, as it was given.
        container: the open container.
        stream: its video stream; every other stream is discarded.
        deadline: when reading has to be over.
        limits: bounds that hold for the file.
    """

    path: str
    container: InputContainer
    stream: VideoStream
    deadline: Deadline
    limits: Limits

    def packets(self) -> Iterator[Packet]:
        """Packets of the video from the current position on, and an empty one at the end to flush the decoder."""
        for packet in self.container.demux(self.stream):
            self.deadline.check()
            yield packet


@contextmanager
def open_source(path: str | PathLike[str], limits: Limits, deadline: Deadline | None = None) -> Iterator[Source]:
    """Open a video file for reading.

    Raises:
        VideoError: the type says why the file cannot be read.
    """
    name = os.fspath(path)
    deadline = deadline or Deadline(name, limits.seconds)
    _check_file(name, limits)
    try:
        container = av.open(
            f"file:{Path(name).absolute()}",  # the prefix, so that no part of a name is taken for a protocol
            mode="r",
            options={"max_pixels": str(limits.pixels)},
            container_options={"protocol_whitelist": "file", "format_whitelist": CONTAINERS},
            metadata_errors="ignore",
            timeout=deadline.left,
        )
    except av.ExitError as error:  # FFmpeg gave up because the time was over
        raise deadline.passed() from error
    except (av.FFmpegError, OSError, ValueError) as error:
        raise _why_not_opened(name, error) from error
    with container:
        stream = _video_stream(name, container)
        _check_whole(name)
        _check_stream(name, stream, limits)
        yield Source(name, container, stream, deadline, limits)


def _check_file(name: str, limits: Limits) -> None:
    try:
        status = Path(name).stat()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise MissingFile(name, "there is no such file") from error
    except (OSError, ValueError) as error:
        raise UnreadableVideo(name, f"the file cannot be opened ({error})") from error
    if stat.S_ISDIR(status.st_mode):
        raise NotAVideo(name, "this is a folder")
    if not stat.S_ISREG(status.st_mode):  # reading a pipe or a device could wait for ever
        raise NotAVideo(name, "this is not a regular file")
    if status.st_size == 0:
        raise NotAVideo(name, "the file is empty")
    if status.st_size > limits.bytes:
        raise TooLarge(name, f"{status.st_size:,} bytes, the limit is Limits(bytes={limits.bytes})")
    if not os.access(name, os.R_OK):
        raise UnreadableVideo(name, "no permission to read the file")


def _check_whole(name: str) -> None:
    missing = read_structure(name).missing
    if missing > LOST_TAIL:
        raise TruncatedVideo(name, f"{missing:.0%} of the file is missing at its end")


def _why_not_opened(name: str, error: Exception) -> VideoError:
    structure = read_structure(name)
    if structure.container is None:
        return NotAVideo(name, "this is not a video")
    if not structure.indexed:
        return TruncatedVideo(name, "the end of the file, which says where its frames are, is missing")
    _check_whole(name)
    return UnreadableVideo(name, f"the container is damaged ({_short(error)})")


def _video_stream(name: str, container: InputContainer) -> VideoStream:
    """The video stream that FFmpeg thinks best; cover pictures of songs do not count."""
    real = [s for s in container.streams.video if not s.disposition & Disposition.attached_pic]
    if not real:
        kinds = {"a cover picture" if stream.type == "video" else stream.type for stream in container.streams}
        raise NoVideoStream(name, f"the file has no video, only {', '.join(sorted(kinds)) or 'an empty container'}")
    best = container.streams.best("video")
    chosen = next((stream for stream in real if best is not None and stream.index == best.index), real[0])
    for stream in container.streams:
        if stream.index != chosen.index:
            stream.discard = Discard.all  # the demuxer need not even read them
    return chosen


def _check_stream(name: str, stream: VideoStream, limits: Limits) -> None:
    if "enc_key_id" in stream.metadata:  # how FFmpeg marks an encrypted Matroska track
        raise EncryptedVideo(name, "the video track is encrypted")
    context = stream.codec_context
    if context is None:
        raise UnsupportedCodec(name, "no decoder knows the codec of the video track")
    if context.width * context.height > limits.pixels:
        raise TooLarge(name, f"{context.width} x {context.height}, the limit is Limits(pixels={limits.pixels})")
    context.options = {"max_pixels": str(limits.pixels)}  # the size can change in the middle of a stream
    context.thread_type = "AUTO"
    context.thread_count = torch.get_num_threads()  # 1 in a data loader's worker, all cores elsewhere


def _short(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
