"""MiniVTT: a generated benchmark of small clips with captions and event times, and training images to begin with."""

from .generate import ClipEvents, Report, TimedEvent, make, read_events

__all__ = ["ClipEvents", "Report", "TimedEvent", "make", "read_events"]
