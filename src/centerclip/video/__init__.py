"""Frames of any video file, with their times, or a clear reason why not."""

from .errors import (
    EncryptedVideo,
    MissingFile,
    NotAVideo,
    NoVideoStream,
    OutsideVideo,
    TimedOut,
    TooLarge,
    TruncatedVideo,
    UnreadableVideo,
    UnsupportedCodec,
    VideoError,
)
from .limits import Limits
from .probe import VideoInfo, probe
from .reader import Frames, read_frames, read_times
from .sampling import bin_centres, random_in_bins
from .stream import Streamed, Window, stream_windows

__all__ = [
    "EncryptedVideo",
    "Frames",
    "Limits",
    "MissingFile",
    "NoVideoStream",
    "NotAVideo",
    "OutsideVideo",
    "Streamed",
    "TimedOut",
    "TooLarge",
    "TruncatedVideo",
    "UnreadableVideo",
    "UnsupportedCodec",
    "VideoError",
    "VideoInfo",
    "Window",
    "bin_centres",
    "probe",
    "random_in_bins",
    "read_frames",
    "read_times",
    "stream_windows",
]
