"""Why a video cannot be read: one error type per reason that a caller may want to catch."""

from os import PathLike
from typing import ClassVar

from ..errors import CenterClipError


class VideoError(CenterClipError):
    """A file that cannot be read. The message names the file, what is wrong and what to do.

    Attributes:
        reason: short name of the kind of failure, the same for every error of a type.
        advice: what a person can do about this kind of failure.
        path: the file, as it was given.
        detail: what is wrong with this file.
    """

    reason: ClassVar[str] = "unreadable"
    advice: ClassVar[str] = "Check that the file plays in a video player."

    def __init__(self, path: str | PathLike[str], detail: str) -> None:
        self.path = str(path)
        self.detail = detail
        # repr, because a file name may hold line breaks or terminal control codes
        super().__init__(f"{self.path!r}: {detail}. {self.advice}")

    def __reduce__(self) -> tuple[type["VideoError"], tuple[str, str]]:
        """Errors cross process borders: data loader workers raise them."""
        return type(self), (self.path, self.detail)


class MissingFile(VideoError):
    """There is no such file."""

    reason = "missing"
    advice = "Check the path."


class NotAVideo(VideoError):
    """Anything but a video container: an empty file, an image, a text file, a folder."""

    reason = "not-a-video"
    advice = "Give a video file, such as .mp4, .mkv, .webm, .mov or .avi."


class NoVideoStream(VideoError):
    """A media file without video: audio only, or without any stream."""

    reason = "no-video-stream"
    advice = "Give a file with a video track."


class TruncatedVideo(VideoError):
    """The file says that it is longer than it is: a copy or a download that stopped."""

    reason = "truncated"
    advice = "Copy or download the file again."


class EncryptedVideo(VideoError):
    """The frames are encrypted (DRM)."""

    reason = "encrypted"
    advice = "Give a file without copy protection."


class UnsupportedCodec(VideoError):
    """FFmpeg, as PyAV bundles it, has no decoder for the video track."""

    reason = "unsupported-codec"
    advice = "Convert the file, for example: ffmpeg -i FILE -c:v libx264 out.mp4."


class TooLarge(VideoError):
    """The file exceeds one of the :class:`~centerclip.video.Limits`; the detail names the setting."""

    reason = "too-large"
    advice = "If you trust the file, raise this limit."


class UnreadableVideo(VideoError):
    """A video container whose frames, or most of them, cannot be decoded."""

    reason = "unreadable"


class TimedOut(VideoError):
    """Reading took longer than ``Limits.seconds``."""

    reason = "timed-out"
    advice = "Raise Limits(seconds=...), or read a shorter part with start and end."


class OutsideVideo(VideoError):
    """The part asked for, from ``start`` to ``end``, holds no frame."""

    reason = "outside"
    advice = "Ask for a part inside the video."
