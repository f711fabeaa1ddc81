"""MiniVTT: a generated benchmark of small clips with captions and event times, and training images to begin with."""

from .folder import ClipEvents, TimedEvent, read_events
from .generate import Report, make, make_images

__all__ = ["ClipEvents", "Report", "TimedEvent", "make", "make_images", "read_events"]
