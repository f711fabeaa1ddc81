"""MiniVTT: a generated benchmark of small clips with sentences and event times, and pictures of the same world."""

from .folder import ClipEvents, TimedEvent, read_events
from .generate import Report, make, make_stills

__all__ = ["ClipEvents", "Report", "TimedEvent", "make", "make_stills", "read_events"]
