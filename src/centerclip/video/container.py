"""Opens untrusted video files: the one place that picks streams, sets limits, and says why a file cannot be opened.

FFmpeg answers "invalid data" alike for a text file and for half a download. The outermost boxes of the common
containers tell them apart, and show a missing tail that FFmpeg ignores without a word.
"""

import os
import stat
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from os import PathLike
from pathlib import Path
from typing import BinaryIO

import av
from av.audio.stream import AudioStream
from av.codec.hwaccel import HWAccel, hwdevices_available
from av.container import InputContainer
from av.packet import Packet
from av.stream import Discard, Disposition
from av.video.stream import VideoStream

from ..files import is_address, path_of
from ..parallel import decoder_threads
from .errors import (
    EncryptedVideo,
    MissingFile,
    NotAVideo,
    NoVideoStream,
    TimedOut,
    TooLarge,
    TruncatedVideo,
    UnreadableVideo,
    UnsupportedCodec,
    VideoError,
)


@dataclass(frozen=True)
class Limits:
    """Bounds for reading one file, so that a hostile one can neither hang nor fill the memory.

    Args:
        pixels: largest width x height of a frame, as coded and as shown.
        duration: longest video, in seconds.
        frames: most frames of a video; a day at 100 frames a second has 8.6 million.
        bytes: largest file.
        memory: most bytes of RGB frames that one call may return.
        seconds: deadline for one call.
    """

    pixels: int = 8192 * 8192
    duration: float = 24 * 3600.0
    frames: int = 10_000_000
    bytes: int = 64 * 2**30
    memory: int = 4 * 2**30
    seconds: float = 600.0


DEFAULT_LIMITS = Limits()


class Deadline:
    """A moment after which :meth:`check` raises :class:`TimedOut`."""

    def __init__(self, path: str, seconds: float) -> None:
        self.path, self.seconds = path, seconds
        self.renew()

    def renew(self) -> None:
        """Start the time again from now."""
        self._end = time.monotonic() + self.seconds

    @property
    def left(self) -> float:
        """Seconds that remain; zero when the deadline has passed."""
        return max(0.0, self._end - time.monotonic())

    def check(self) -> None:
        """Raise :class:`TimedOut` when the deadline has passed."""
        if time.monotonic() >= self._end:
            raise self.error()

    def error(self) -> TimedOut:
        """The error of a deadline that has passed."""
        return TimedOut(self.path, f"reading took longer than {self.seconds:g} seconds")


# An allowlist of video containers, because FFmpeg also opens playlists and scripts, which name other files and
# addresses, and images.
CONTAINERS = (
    "3g2,3gp,asf,avi,av1,dv,f4v,flv,gif,h263,h264,hevc,ivf,live_flv,m4v,matroska,mj2,mov,mp4,mpeg,mpegts,"
    "mpegvideo,mxf,nsv,nut,obu,ogg,rm,vc1,webm,wtv,yuv4mpegpipe,aac,flac,mp3,wav"
)
MISSING_SHARE = 0.01  # a file that lacks a smaller share of its bytes than this still plays to the end

# What matters comes back as an error, so FFmpeg's messages go nowhere. Any level but None also makes decoder threads
# wait for Python's lock to log, which the thread that waits for them to stop may hold: a deadlock.
av.logging.set_level(None)


_MISSING_DEVICES: set[str] = set()  # kinds of devices that this machine turned out not to have


@dataclass
class Source:
    """An open video file.

    Attributes:
        path: the file, as it was given.
        container: the open container.
        stream: its video stream.
        audio: its first audio stream, where it was asked for and the file has one. All other streams are discarded.
        deadline: when reading has to be over.
        limits: bounds that hold for the file.
    """

    path: str
    container: InputContainer
    stream: VideoStream
    audio: AudioStream | None
    deadline: Deadline
    limits: Limits
    primed: bool = False  # its decoder has seen the first packet
    hardware: str = ""  # the device that decodes; empty for the processor

    @property
    def streams(self) -> list[VideoStream | AudioStream]:
        """The video stream, and the audio stream if there is one."""
        return [self.stream] if self.audio is None else [self.stream, self.audio]

    @property
    def tick(self) -> Fraction:
        """Seconds of a tick, the unit of the video stream's timestamps."""
        return self.stream.time_base or Fraction(1, 90_000)

    @property
    def origin(self) -> Fraction:
        """When the container says that the first frame is shown, in seconds."""
        return (self.stream.start_time or 0) * self.tick

    def seek(self, seconds: float) -> None:
        """Go to the keyframe at or before a time, in seconds from the first frame. Not every container can."""
        if seconds > 0:
            self.container.seek(int((seconds + float(self.origin)) / self.tick), stream=self.stream)

    def packets(self) -> Iterator[Packet]:
        """Packets from the current position on, and an empty one of each stream at the end to flush its decoder."""
        for packet in self.container.demux(self.streams):
            self.deadline.check()
            yield packet


@contextmanager
def open_source(
    path: str | PathLike[str],
    limits: Limits,
    deadline: Deadline | None = None,
    *,
    audio: bool = False,
    threads: int | None = None,
    hwaccel: str = "none",
) -> Iterator[Source]:
    """Open a video file for reading, with its audio if it is asked for; ``threads`` decode it, all cores by default.

    ``hwaccel`` names a device that decodes in their place, or ``"auto"`` for one of those that the machine has. Where
    it is missing or does not know the codec, the processor decodes: ``Source.hardware`` tells.

    Raises:
        VideoError: the type says why the file cannot be read, also when FFmpeg fails while the file is open.
    """
    name = os.fspath(path)
    deadline = deadline or Deadline(name, limits.seconds)
    check_file(name, limits)
    container, device = _open_on_device(name, limits, deadline, hwaccel)
    with container:
        video = _video_stream(name, container)
        sound = next(iter(container.streams.audio), None) if audio else None
        source = Source(name, container, video, sound, deadline, limits, hardware=device)
        for stream in container.streams:
            if stream.index not in {wanted.index for wanted in source.streams}:
                stream.discard = Discard.all  # the demuxer need not even read them
        _check_whole(name)
        _check_stream(name, video, limits)
        video.codec_context.thread_count = threads or decoder_threads()
        try:
            yield source
        except av.FFmpegError as error:  # what a reader has not dealt with: a packet of impossible size, a bad disk
            deadline.check()
            raise UnreadableVideo(name, f"the file cannot be read further ({short_reason(error)})") from error


def devices_for(hwaccel: str) -> list[str]:
    """The kinds of devices to try: none, one, or with ``"auto"`` all that FFmpeg knows here and that did not fail yet.

    Raises:
        ValueError: FFmpeg does not know a device of this name.
    """
    known = hwdevices_available()
    if hwaccel not in ("auto", "none", *known):
        raise ValueError(f"there is no hardware decoder {hwaccel!r} here; choose auto, none, {', '.join(known)}")
    wanted = [] if hwaccel == "none" else known if hwaccel == "auto" else [hwaccel]
    return [device for device in wanted if device not in _MISSING_DEVICES]


def uses_hardware(container: InputContainer) -> bool:
    """Whether a device decodes the video of an open file."""
    return any(
        stream.codec_context is not None and stream.codec_context.is_hwaccel for stream in container.streams.video
    )


def _open_on_device(name: str, limits: Limits, deadline: Deadline, hwaccel: str) -> tuple[InputContainer, str]:
    """Open a file on the first device that decodes it, else on the processor; and the name of the device."""
    failed = []
    for device in devices_for(hwaccel):
        try:
            container = _open(name, limits, deadline, HWAccel(device, allow_software_fallback=True))
        except (VideoError, RuntimeError, NotImplementedError):  # it is missing, though FFmpeg was built for it
            failed.append(device)
            continue
        if uses_hardware(container):
            _MISSING_DEVICES.update(failed)  # it was not the file's fault
            return container, device
        container.close()  # it does not know the codec
    container = _open(name, limits, deadline)
    _MISSING_DEVICES.update(failed)
    return container, ""


def _open(name: str, limits: Limits, deadline: Deadline, hwaccel: HWAccel | None = None) -> InputContainer:
    try:
        return av.open(
            # The prefix, so that no part of a name is taken for a protocol.
            path_of(name).open("rb") if is_address(name) else f"file:{Path(name).absolute()}",
            mode="r",
            options={"max_pixels": str(limits.pixels)},
            container_options={"protocol_whitelist": "file", "format_whitelist": CONTAINERS},
            metadata_errors="ignore",
            timeout=deadline.left,
            hwaccel=hwaccel,
        )
    except av.ExitError as error:  # FFmpeg gave up because the time was over
        raise deadline.error() from error
    except (av.FFmpegError, OSError, ValueError) as error:
        raise _why_not_opened(name, error) from error


def check_file(name: str, limits: Limits = DEFAULT_LIMITS) -> None:
    """Refuse, before it is opened, what cannot be a video: a folder, a pipe, a device, an empty or an immense file.

    Raises:
        VideoError: the type says why.
    """
    try:
        status = path_of(name).stat()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise MissingFile(name, "there is no such file") from error
    except (OSError, ValueError) as error:
        raise UnreadableVideo(name, f"the file cannot be opened ({error})") from error
    if stat.S_ISDIR(status.st_mode):
        raise NotAVideo(name, "this is a folder")
    if not stat.S_ISREG(status.st_mode):  # reading a pipe or a device could wait for ever
        raise NotAVideo(name, "this is a pipe or a device, not a file")
    if status.st_size == 0:
        raise NotAVideo(name, "the file is empty")
    if status.st_size > limits.bytes:
        raise TooLarge(name, f"{status.st_size:,} bytes, the limit is Limits(bytes={limits.bytes})")
    if not (is_address(name) or os.access(name, os.R_OK)):
        raise UnreadableVideo(name, "no permission to read the file")


def _check_whole(name: str) -> None:
    missing = _structure(name).missing
    if missing > MISSING_SHARE:
        raise TruncatedVideo(name, f"{missing:.0%} of the file is missing at its end")


def _structure(name: str) -> "Structure":
    try:
        return read_structure(name)
    except OSError as error:  # a bad disk, a share that went away
        raise UnreadableVideo(name, f"the file cannot be read ({short_reason(error)})") from error


def _why_not_opened(name: str, error: Exception) -> VideoError:
    structure = _structure(name)
    if structure.container is None:
        kind = next((kind for start, kind in OTHER_FILES.items() if structure.head.lower().startswith(start)), None)
        return NotAVideo(name, f"this is {kind}, not a video" if kind else "this is not a video")
    if not structure.indexed:
        return TruncatedVideo(name, "the end of the file, which holds its index, is missing")
    _check_whole(name)
    return UnreadableVideo(name, f"the container is damaged ({short_reason(error)})")


def short_reason(error: Exception) -> str:
    """What an error says, without the path that FFmpeg and the system add."""
    return getattr(error, "strerror", None) or str(error)


def _video_stream(name: str, container: InputContainer) -> VideoStream:
    """The video stream that FFmpeg thinks best; cover images do not count."""
    real = [s for s in container.streams.video if not s.disposition & Disposition.attached_pic]
    if not real:
        kinds = {"a cover image" if stream.type == "video" else stream.type for stream in container.streams}
        raise NoVideoStream(name, f"the file has no video, only {', '.join(sorted(kinds)) or 'an empty container'}")
    best = container.streams.best("video")
    return next((stream for stream in real if best is not None and stream.index == best.index), real[0])


def _check_stream(name: str, stream: VideoStream, limits: Limits) -> None:
    if "enc_key_id" in stream.metadata:  # how FFmpeg marks an encrypted Matroska track
        raise EncryptedVideo(name, "the video track is encrypted")
    context = stream.codec_context
    if context is None:
        raise UnsupportedCodec(name, "there is no decoder for its video codec")
    if context.width * context.height > limits.pixels:
        raise TooLarge(name, f"{context.width} x {context.height}, the limit is Limits(pixels={limits.pixels})")
    context.options = {"max_pixels": str(limits.pixels)}  # the size can change in the middle of a stream
    context.thread_type = "AUTO"  # not SLICE: with it a damaged VP9 file can give noise without an error


MP4_BOXES = {b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide", b"pnot", b"styp", b"moof", b"sidx", b"uuid", b"udta"}
EBML_HEADER, MATROSKA_SEGMENT = b"\x1a\x45\xdf\xa3", b"\x18\x53\x80\x67"
OTHER_FILES = {  # what is often named as a video, by its first bytes in lower case
    b"\xff\xd8\xff": "a JPEG picture",
    b"\x89png": "a PNG picture",
    b"%pdf": "a PDF document",
    b"pk\3\4": "a ZIP archive",
    b"<!doctype html": "a web page",
    b"<html": "a web page",
}
UNKNOWN_RIFF_LENGTH = 0xFFFFFFFF  # written by recorders that were still running
MAX_BOXES = 100_000  # a fragmented file of a day has about this many; a hostile one could have billions


@dataclass(frozen=True)
class Structure:
    """The outermost structure of a file.

    Attributes:
        container: "mp4", "matroska", "riff", or None when the file starts with none of these.
        declared: bytes that the file says it has; at most ``size`` for a whole file.
        size: bytes that it has.
        indexed: False for an MP4 without the box that says where its frames are, which is often written last.
        head: its first bytes.
    """

    container: str | None
    declared: int
    size: int
    indexed: bool = True
    head: bytes = b""

    @property
    def missing(self) -> float:
        """Share of the declared bytes that are not there, in ``[0, 1)``."""
        return max(0, self.declared - self.size) / max(self.declared, 1)


def read_structure(path: str | Path) -> Structure:
    """Look at the outermost boxes of a file; reads a few bytes of each."""
    with path_of(path).open("rb") as file:
        size = file.seek(0, 2)
        file.seek(0)
        head = file.read(16)
        if head[4:8] in MP4_BOXES:
            declared, indexed = _walk_mp4(file, size)
            return Structure("mp4", declared, size, indexed)
        if head[:4] == EBML_HEADER:
            return Structure("matroska", _matroska_end(file, size), size)
        if head[:4] == b"RIFF" and head[8:12] == b"AVI ":
            length = int.from_bytes(head[4:8], "little")
            return Structure("riff", size if length == UNKNOWN_RIFF_LENGTH else 8 + length, size)
        return Structure(None, size, size, head=head)


def _walk_mp4(file: BinaryIO, size: int) -> tuple[int, bool]:
    """Follow the boxes ``[length, name, ...]``: the end of the last one, and whether one of them is the index."""
    position, indexed = 0, False
    for _ in range(MAX_BOXES):
        file.seek(position)
        head = file.read(16)
        if len(head) < 8:
            break
        indexed |= head[4:8] == b"moov"
        length = int.from_bytes(head[:4], "big")
        if length == 1 and len(head) == 16:
            length = struct.unpack(">Q", head[8:])[0]
        if length < 8 or not head[4:8].isascii():  # 0 is "until the end of the file", the rest junk after the last
            return size, indexed
        position += length
        if position >= size:
            break
    return position, indexed


def _matroska_end(file: BinaryIO, size: int) -> int:
    """The end of the segment, which holds everything but the header; ``size`` when it is written as unknown."""
    file.seek(len(EBML_HEADER))
    header_length = _matroska_length(file)
    if header_length is None or header_length > size:
        return size
    file.seek(header_length, 1)
    if file.read(4) != MATROSKA_SEGMENT:
        return size
    length = _matroska_length(file)
    return size if length is None else file.tell() + length


def _matroska_length(file: BinaryIO) -> int | None:
    """Read a length whose leading zero bits say how many bytes it takes; None when it is written as unknown."""
    first = file.read(1)
    if not first or not first[0]:
        return None
    width = 9 - first[0].bit_length()
    value = int.from_bytes(bytes([first[0] & (0xFF >> width)]) + file.read(width - 1), "big")
    return None if value == (1 << 7 * width) - 1 else value
