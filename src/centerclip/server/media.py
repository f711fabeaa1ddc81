"""Files that are made from videos when they are asked for (frames, converted pieces) and kept on disk up to a bound."""

import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from io import FileIO
from pathlib import Path

from ..files import write_atomic
from ..search.folder import DISK_FULL_ERRORS
from ..video.container import Limits
from ..video.cut import thumbnail
from .library import Library
from .problems import Problem

CLEAR_TO = 0.9  # of the bound is left after clearing, so that not every new file clears again
TIME_STEP = 0.1  # seconds: times are rounded to it, so that the cache is not filled with the same frame
JPEG_QUALITY = 82
THUMBNAIL_LIMITS = Limits(seconds=30.0)  # a page waits for it
ATTEMPTS = 3  # to open a file before others make so many that it is cleared
log = logging.getLogger("centerclip.server")


class DiskCache:
    """A folder of files by name. Several servers may share it: a file is complete or absent.

    Args:
        folder: made with the first file.
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

    def open_or_make(self, name: str, make: Callable[[Path], None]) -> FileIO:
        """The file of a name, open; ``make(path)`` writes it when it is not there, once for all who ask meanwhile."""
        for _ in range(ATTEMPTS):
            try:
                path = self._get_or_make(name, make)
            except OSError as error:
                if error.errno not in DISK_FULL_ERRORS:
                    raise
                log.error("the cache %s cannot be written: %s", self.folder, error)
                raise Problem("disk-full", "Free some space there, then try again.") from error
            with suppress(FileNotFoundError):  # cleared since, by another request or another server
                return path.open("rb", buffering=0)
        raise Problem("busy", "Its cache is too small for so many requests. Try again in a moment.")

    def _get_or_make(self, name: str, make: Callable[[Path], None]) -> Path:
        with self._lock:
            lock = self._making.setdefault(name, threading.Lock())
        with lock:
            try:
                cached = self.get(name)
                if cached is not None:
                    self.hits += 1
                    return cached
                self.misses += 1
                return self._make(name, make)
            finally:
                with self._lock:
                    self._making.pop(name, None)

    def _make(self, name: str, make: Callable[[Path], None]) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)

        def write(path: Path) -> None:
            make(path)
            self._clear_for(path.stat().st_size)

        return write_atomic(self.folder / name, write, durable=False)

    def _clear_for(self, size: int) -> None:
        """Remove the files that were not used for longest, if a new one would not fit."""
        with self._lock:
            if self._bytes is not None and self._bytes + size <= self.bound:
                self._bytes += size
                return
            files = []
            for entry in os.scandir(self.folder):
                with suppress(OSError):  # another server cleared it
                    status = entry.stat()
                    if entry.is_file() and not entry.name.startswith("."):  # not half written
                        files.append((status.st_mtime, status.st_size, entry.path))
            total = sum(size for _, size, _ in files)
            if total + size > self.bound:
                for _, freed, path in sorted(files):
                    if total + size <= self.bound * CLEAR_TO:
                        break
                    with suppress(OSError):
                        Path(path).unlink()
                    total -= freed
            self._bytes = total + size


def frame(cache: DiskCache, library: Library, video_id: str, time: float, width: int) -> bytes:
    """The frame of a video at a time in seconds as a JPEG file, at most ``width`` pixels wide."""

    def make(target: Path) -> None:
        with library.unchanged(video_id) as path:
            image = thumbnail(path, round(time / TIME_STEP) * TIME_STEP, width, limits=THUMBNAIL_LIMITS)
        image.save(target, "JPEG", quality=JPEG_QUALITY, optimize=True)

    with cache.open_or_make(f"{video_id}-{round(time / TIME_STEP)}-{width}.jpg", make) as file:
        return file.read()
