"""A benchmark -> (video, captions) pairs. ``loader`` and ``cache`` import torch; the rest of the package is light."""

from .benchmark import Benchmark, Clip
from .errors import AnnotationError, DataError, MissingVideosError, UnreadableVideoError, WorkerDiedError
from .load import FORMATS, load, read_captions

__all__ = [
    "FORMATS",
    "AnnotationError",
    "Benchmark",
    "Clip",
    "DataError",
    "MissingVideosError",
    "UnreadableVideoError",
    "WorkerDiedError",
    "load",
    "read_captions",
]
