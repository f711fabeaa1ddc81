"""Which frames to take: bin centres for evaluation, a random one per bin for training (TSN), windows for indexing."""

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

DetailName = Literal["fast", "normal", "fine"]  # how finely a video is indexed; video/selection.py has the numbers
ORDER: tuple[DetailName, ...] = ("fast", "normal", "fine")


def bin_centres(available: int, count: int) -> list[int]:
    """Cut ``available`` frames into ``count`` equal bins and take the middle of each.

    Integer arithmetic, so that every machine agrees. A video with fewer frames than asked for gives each of its
    frames once, then repeats the last.

    Returns:
        ``count`` ascending indices in ``[0, available)``.
    """
    _check(available, count)
    if available <= count:
        return _every_frame(available, count)
    return [(2 * i + 1) * available // (2 * count) for i in range(count)]


def random_in_bins(
    available: int, count: int, *, seed: int, epoch: int, video: str, drop_tail: bool = False
) -> list[int]:
    """Take one random frame of each of ``count`` equal bins.

    The choice is a function of the arguments alone: no generator state, so a run that was resumed, or that is spread
    over any number of workers, draws the same frames.

    Args:
        available: frames of the video.
        count: frames to take.
        seed: seed of the run.
        epoch: pass over the data.
        video: name of the video.
        drop_tail: bins of ``available // count`` frames from the start, as in the authors' procedure: what is left over
            at the end is never drawn. Otherwise bins cover the whole video, and differ by one frame at most.

    Returns:
        ``count`` ascending indices in ``[0, available)``; short videos as in :func:`bin_centres`.
    """
    _check(available, count)
    if available <= count:
        return _every_frame(available, count)
    chosen, drawn = [], available - available % count if drop_tail else available
    for i in range(count):
        first, past = i * drawn // count, (i + 1) * drawn // count
        digest = hashlib.blake2b(f"{seed}\0{epoch}\0{i}\0{video}".encode("utf-8", "surrogatepass"), digest_size=8)
        draw = int.from_bytes(digest.digest(), "big")  # uniform in [0, 2^64)
        chosen.append(first + (draw * (past - first) >> 64))
    return chosen


def _every_frame(available: int, count: int) -> list[int]:
    return [min(i, available - 1) for i in range(count)]


def _check(available: int, count: int) -> None:
    if available < 1 or count < 1:
        raise ValueError(f"cannot take {count} frames of {available}: both must be at least 1")


@dataclass(frozen=True)
class Windows:
    """How a video is cut into windows for indexing.

    It is cut into as many windows of equal length as come nearest to one frame every ``every`` seconds; each is
    ``frames`` frames, each in the middle of an equal share of the time. So a film gets thousands of frames, and a clip
    shorter than a window is spread over one; nothing is left over. There are never more windows than the video has
    frames, so that a still of a day, or a file that claims to be one, costs what its frames cost.

    Attributes:
        frames: frames of a window, as many as the model takes.
        segments: vectors that the model gives for a window.
        every: seconds from frame to frame, about.
    """

    frames: int
    segments: int
    every: float

    def count(self, duration: float, available: int) -> int:
        """How many windows a video of ``duration`` seconds and ``available`` frames has."""
        return max(1, min(round(duration / (self.frames * self.every)), available))

    def times(self, duration: float, available: int) -> list[float]:
        """The times of the frames in seconds, ascending, ``count * frames`` of them."""
        total = self.count(duration, available) * self.frames
        return [(place + 0.5) * duration / total for place in range(total)]

    def spans(self, duration: float, windows: int) -> "tuple[NDArray[np.float32], NDArray[np.float32]]":
        """Start and end of every segment in seconds, ``[windows * segments]`` each."""
        import numpy as np  # not when the command line starts, which takes the names of details from here

        edges = np.linspace(0, duration, windows * self.segments + 1, dtype=np.float32)
        return edges[:-1], edges[1:]
