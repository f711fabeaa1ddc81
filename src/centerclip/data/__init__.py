"""A benchmark -> (video, captions) pairs. ``loader`` and what opens videos import torch; the rest is light."""

from ..errors import AnnotationError, DataError, MissingVideosError, UnreadableVideoError, WorkerDiedError
from .annotations import AnnotationFiles
from .benchmark import Benchmark, Clip, load, read_captions
from .formats import FORMATS

__all__ = [
    "FORMATS",
    "AnnotationError",
    "AnnotationFiles",
    "Benchmark",
    "Clip",
    "DataError",
    "MissingVideosError",
    "UnreadableVideoError",
    "WorkerDiedError",
    "load",
    "read_captions",
]
