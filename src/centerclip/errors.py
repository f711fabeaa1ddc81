"""Every error that CenterCLIP raises on purpose, a type for each kind that a caller may want to catch.

The reasons why a video cannot be read are in :mod:`centerclip.video.errors`."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any


class CenterClipError(Exception):
    """Something a person can act on: the message says what is wrong and what to do. The command line prints it."""


TORCH_LINE = "pip install 'centerclip[torch]'"  # what to type where torch is needed
EXTRAS = {  # packages that the core does without -> the extra that brings them
    "torch": "torch",
    "transformers": "torch",
    "instant_clip_tokenizer": "torch",
    "matplotlib": "research",
    "sklearn": "research",
    "tensorboard": "research",
    "faster_whisper": "speech",
    "rapidocr": "ocr",
    "opentimelineio": "editors",
    "otio_fcp_adapter": "editors",
    "mcp": "agents",
    "mteb": "mteb",
    "ray": "ray",
    "pymilvus": "milvus",
    "s3fs": "s3",
    "gcsfs": "gs",
    "datasets": "mteb",
    "pyarrow": "mteb",
}


class MissingExtra(CenterClipError, ImportError):
    """A package is needed that the core installation does without; the message has the line to type."""


@contextmanager
def extras_named() -> Iterator[None]:
    """Say, when an import inside fails for lack of an extra, which one it is.

    Raises:
        MissingExtra: in place of ``ModuleNotFoundError``.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        raise MissingExtra(
            f"this needs {package}, which is not installed. Type: pip install 'centerclip[{EXTRAS[package]}]'"
        ) from error


class Interrupted(CenterClipError):
    """Stopped (Ctrl-C, SIGTERM) before the end. What is done is kept; the message says how to resume."""


class ClusterError(CenterClipError, ValueError):
    """The tokens cannot be clustered as asked: wrong shape, K too large, NaN inside."""


class SettingError(CenterClipError, ValueError):
    """A clustering setting such as ``B6-4,49`` is malformed or does not fit the model."""


class MissingMethod(SettingError):
    """A clustering setting names a method that is neither built in nor installed."""


class ExtensionError(CenterClipError):
    """A method, data set or backbone of someone else cannot be registered, loaded or used."""


class ModelError(CenterClipError):
    """A model cannot be opened or used."""


class ModelNotFound(ModelError):
    """No such file, folder or hub name, or no connection to the hub."""


class NotADualEncoder(ModelError):
    """The model is of a kind that does not encode both images and text."""


class WrongWeights(ModelError):
    """Weights are missing, left over or of another shape than the model's."""


class UntrustedFile(ModelError):
    """Opening the file would run code that comes with it."""


SHOWN = 5  # a message names this many videos; more would hide the message


class DataError(CenterClipError):
    """Something is wrong with a data set; the base class of the errors of ``centerclip.data``."""


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
        super().__init__(
            f"video {video} ({path}) cannot be read: {reason} Replace it, or remove it and use --allow-missing."
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.video, self.path, self.reason)  # so that a worker process can hand it over


class WorkerDiedError(DataError):
    """A worker process ended without handing in its work, killed or crashed."""


def first_few(names: Sequence[str]) -> str:
    """``a, b, c, ... and 7 more``: the first names of a list that may be long."""
    shown = ", ".join(names[:SHOWN])
    return shown if len(names) <= SHOWN else f"{shown} and {len(names) - SHOWN:,} more"


def first_line(error: BaseException) -> str:
    """What an error of a library says, in one line; its type where it says nothing."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].rstrip(".")[:200]


class TrainingError(CenterClipError):
    """A run cannot start or resume."""


class RecipeError(TrainingError):
    """A recipe, or a setting given with ``--set``, is wrong."""


class CheckpointError(TrainingError):
    """A checkpoint cannot be written or read."""


class DivergedError(TrainingError):
    """The loss or the gradient is not finite."""


class EvaluationError(CenterClipError):
    """Results cannot be worked out, read or compared; the message says why."""


class SearchError(CenterClipError):
    """An index cannot be made, opened, searched or changed."""


class IndexNotFound(SearchError):
    """There is no index in the folder, or nothing in the index."""


class IndexBusy(SearchError):
    """Another process is writing to the index."""


class OtherSettings(SearchError):
    """The index was made with another model or setting; vectors of two kinds cannot be compared."""


class DamagedIndex(SearchError):
    """A file of the index cannot be read."""


class DiskFull(SearchError):
    """The disk is full. What was written before is safe."""


class QueryError(SearchError):
    """What was asked for cannot be searched for. The message names nothing of this machine: servers pass it on."""


class UnknownVideo(SearchError):
    """The index has no such video."""


class PortTaken(CenterClipError):
    """Another program listens on the port."""


class ReportError(CenterClipError):
    """A report cannot be made: unknown name, missing data, nothing to rebuild it from."""
