"""A benchmark -> (video, captions) pairs. ``loader`` and ``cache`` import torch; the rest of the package is light."""

from ..errors import AnnotationError, DataError, MissingVideosError, UnreadableVideoError, WorkerDiedError
from .benchmark import FORMATS, Benchmark, Clip, load, read_captions

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
