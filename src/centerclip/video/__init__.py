"""Everything that touches FFmpeg: frames of any video file with their times, or a clear reason why not; clips, copies.

Modules that need FFmpeg are imported on first use: the command line and a search start without it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

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
from .sampling import bin_centres, random_in_bins

if TYPE_CHECKING:
    from .container import Limits
    from .info import VideoInfo, probe
    from .reader import Frames, Streamed, Window, read_frames, read_times, stream_segments, stream_windows

_LAZY = {"Limits": ".container", "VideoInfo": ".info", "probe": ".info"} | dict.fromkeys(
    ("Frames", "Streamed", "Window", "read_frames", "read_times", "stream_segments", "stream_windows"), ".reader"
)
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
    "stream_segments",
    "stream_windows",
]


def __getattr__(name: str) -> Any:
    """Import what is asked for on first use."""
    if name in _LAZY:
        return getattr(import_module(_LAZY[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
