"""Frames of any video file, with their times, or a clear reason why not.

Nothing is imported before it is used: the command line and a search start without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .container import Limits
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
    from .info import VideoInfo, probe
    from .reader import Frames, Streamed, Window, read_frames, read_times, stream_windows
    from .sampling import bin_centres, random_in_bins

_HOMES = {
    ".container": ("Limits",),
    ".errors": (
        "EncryptedVideo",
        "MissingFile",
        "NoVideoStream",
        "NotAVideo",
        "OutsideVideo",
        "TimedOut",
        "TooLarge",
        "TruncatedVideo",
        "UnreadableVideo",
        "UnsupportedCodec",
        "VideoError",
    ),
    ".info": (
        "VideoInfo",
        "probe",
    ),
    ".reader": (
        "Frames",
        "Streamed",
        "Window",
        "read_frames",
        "read_times",
        "stream_windows",
    ),
    ".sampling": (
        "bin_centres",
        "random_in_bins",
    ),
}
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


def __getattr__(name: str) -> Any:
    """Import what is asked for on first use."""
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(module, __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
