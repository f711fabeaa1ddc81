"""When to look at a video: frames at a steady rate, in windows of as many as the model takes."""

from dataclasses import dataclass

import numpy as np

from .store import Floats


@dataclass(frozen=True)
class Windows:
    """How a video is cut.

    A video is cut into as many windows of equal length as come nearest to one frame every ``every`` seconds; each is
    ``frames`` frames, each in the middle of an equal share of the time. So a film gets thousands of frames and a clip
    that is shorter than a window is stretched over one; nothing is left over, and no frame is used twice.

    Attributes:
        frames: frames of a window, what the model takes.
        segments: vectors that the model makes of a window.
        every: seconds from frame to frame, about.
    """

    frames: int
    segments: int
    every: float

    def count(self, duration: float) -> int:
        """Windows of a video of so many seconds."""
        return max(1, round(duration / (self.frames * self.every)))

    def times(self, duration: float) -> list[float]:
        """The times of the frames in seconds, ascending, ``count * frames`` of them."""
        total = self.count(duration) * self.frames
        return [(place + 0.5) * duration / total for place in range(total)]

    def spans(self, duration: float) -> tuple[Floats, Floats]:
        """Start and end of every segment in seconds, ``[count * segments]`` each."""
        edges = np.linspace(0, duration, self.count(duration) * self.segments + 1, dtype=np.float32)
        return edges[:-1], edges[1:]
