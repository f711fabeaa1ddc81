"""Frames and converted pieces of videos, made when they are asked for and kept on disk up to a bound."""

import os
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ..video.container import Limits
from ..video.cut import PIECE, convert

if TYPE_CHECKING:
    pass


ROOM = 0.9  # after clearing, so that not every new file clears again


class DiskCache:
    """A folder of files by name. Several servers may share it: a file is there whole or not at all.

    Args:
        folder: made when the first file comes.
        bound: most bytes; a single larger file is kept until the next one comes.
    """

    def __init__(self, folder: Path, bound: int) -> None:
        self.folder, self.bound = folder, bound
        self.hits = self.misses = 0
        self._lock = threading.Lock()
        self._bytes: int | None = None  # about; counted anew when it nears the bound
        self._making: dict[str, threading.Lock] = {}

    def get(self, name: str) -> Path | None:
        """The file of a name, if it is there; it counts as used now."""
        path = self.folder / name
        try:
            os.utime(path)
        except OSError:
            return None
        return path

    def get_or_make(self, name: str, make: Callable[[Path], None]) -> Path:
        """The file of a name; ``make(path)`` writes it when it is not there, once for all who ask meanwhile."""
        with self._lock:
            lock = self._making.setdefault(name, threading.Lock())
        with lock:
            try:
                found = self.get(name)
                if found is not None:
                    self.hits += 1
                    return found
                self.misses += 1
                return self._make(name, make)
            finally:
                with self._lock:
                    self._making.pop(name, None)

    def _make(self, name: str, make: Callable[[Path], None]) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, partial = tempfile.mkstemp(dir=self.folder, prefix=".part-", suffix=Path(name).suffix)
        os.close(handle)
        try:
            make(Path(partial))
            size = Path(partial).stat().st_size
            self._make_room(size)
            Path(partial).replace(self.folder / name)
        except BaseException:
            Path(partial).unlink(missing_ok=True)
            raise
        return self.folder / name

    def _make_room(self, size: int) -> None:
        with self._lock:
            if self._bytes is not None and self._bytes + size <= self.bound:
                self._bytes += size
                return
            files = []
            for entry in os.scandir(self.folder):
                with suppress(OSError):  # another server cleared it
                    status = entry.stat()
                    if entry.is_file() and not entry.name.startswith(".part-"):
                        files.append((status.st_mtime, status.st_size, entry.path))
            total = sum(size for _, size, _ in files)
            if total + size > self.bound:
                for _, freed, path in sorted(files):
                    if total + size <= self.bound * ROOM:
                        break
                    with suppress(OSError):
                        Path(path).unlink()
                    total -= freed
            self._bytes = total + size


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


class Pieces:
    """Pieces of converted video, cached on disk."""

    def __init__(self, cache: DiskCache) -> None:
        self.cache = cache

    def piece(self, video_id: str, path: Path, number: int) -> Path:
        """A file with the part of a video from ``number * PIECE`` seconds on."""
        start = number * PIECE
        return self.cache.get_or_make(f"{video_id}-{number}.mp4", lambda target: convert(path, target, start, PIECE))
