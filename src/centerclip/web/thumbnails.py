"""Single frames of videos as JPEG files, made when they are asked for first."""

from pathlib import Path

from ..video.limits import Limits
from .cache import DiskCache

STEP = 0.1  # seconds: times are rounded to it, so that the cache is not filled with the same picture
QUALITY = 82
LIMITS = Limits(seconds=30.0)


class Thumbnails:
    """Frames of videos, cached on disk."""

    def __init__(self, cache: DiskCache) -> None:
        self.cache = cache

    def jpeg(self, video_id: str, path: Path, time: float, width: int) -> Path:
        """A file with the frame at a time in seconds, at most ``width`` pixels wide."""
        tenths = round(time / STEP)

        def make(target: Path) -> None:
            from PIL import Image

            from ..video import read_times

            # The short side is at least as large as needed even of a tall picture that is cut down to the width.
            frame = read_times(path, [tenths * STEP], short_side=width, limits=LIMITS).rgb[0].numpy()
            picture = Image.fromarray(frame)
            picture.thumbnail((width, width), Image.Resampling.LANCZOS)
            picture.save(target, "JPEG", quality=QUALITY, optimize=True)

        return self.cache.get_or_make(f"{video_id}-{tenths}-{width}.jpg", make)
