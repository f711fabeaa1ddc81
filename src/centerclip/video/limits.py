"""How much a single file may cost: size, length, memory and time."""

import time
from dataclasses import dataclass

from .errors import TimedOut


@dataclass(frozen=True)
class Limits:
    """Bounds for reading one file, so that a hostile one can neither hang nor fill the memory.

    Args:
        pixels: largest width x height of a frame, as coded and as shown.
        duration: longest video, in seconds.
        frames: most frames of a video; a day at 100 frames a second has 8.6 million.
        bytes: largest file.
        memory: most bytes of RGB frames that one call may return.
        seconds: deadline for one call.
    """

    pixels: int = 8192 * 8192
    duration: float = 24 * 3600.0
    frames: int = 10_000_000
    bytes: int = 64 * 2**30
    memory: int = 4 * 2**30
    seconds: float = 600.0


DEFAULT_LIMITS = Limits()


class Deadline:
    """A moment after which :meth:`check` raises :class:`TimedOut`."""

    def __init__(self, path: str, seconds: float) -> None:
        self.path, self.seconds = path, seconds
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds that remain; zero when the deadline has passed."""
        return max(0.0, self._end - time.monotonic())

    def check(self) -> None:
        """Raise :class:`TimedOut` when the deadline has passed."""
        if time.monotonic() >= self._end:
            raise self.passed()

    def passed(self) -> TimedOut:
        """The error that says so."""
        return TimedOut(self.path, f"reading took longer than {self.seconds:g} seconds")
