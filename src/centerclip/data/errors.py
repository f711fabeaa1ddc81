"""What can go wrong between a benchmark's files and a batch."""

from collections.abc import Sequence

from ..errors import CenterClipError

SHOWN = 5  # a message names this many videos; more would hide the message


class DataError(CenterClipError):
    """Something about a data set; the root of the errors of this package."""


class AnnotationError(DataError, ValueError):
    """An annotation file is absent, malformed or asks for something outside the data set."""


class AbsentError(AnnotationError):
    """There is no annotation file, or nothing in it, for a split."""


class MissingVideosError(DataError, FileNotFoundError):
    """Annotated videos have no file. ``missing`` holds all their ids."""

    def __init__(self, missing: Sequence[str], *, annotated: int, where: str) -> None:
        self.missing = tuple(missing)
        super().__init__(
            f"{len(missing):,} of {annotated:,} videos are missing under {where}: {first_few(missing)}. "
            "Add them, or accept a smaller gallery with --allow-missing (allow_missing=True)."
        )


class UnreadableVideoError(DataError):
    """A video file cannot be decoded. ``video`` is its id, ``reason`` what the reader said."""

    def __init__(self, video: str, path: str, reason: str) -> None:
        self.video, self.path, self.reason = video, path, reason
        super().__init__(f'video {video} ({path}) cannot be read: {reason} Replace it, or load with on_error="skip".')


class WorkerDiedError(DataError):
    """A worker process ended without handing in its work, killed from outside or by a crash."""


def first_few(names: Sequence[str]) -> str:
    """``a, b, c, ... and 7 more``: the first names of a list that may be long."""
    shown = ", ".join(names[:SHOWN])
    return shown if len(names) <= SHOWN else f"{shown} and {len(names) - SHOWN:,} more"
