"""Files that are costly to make, kept on disk up to a bound; the ones that were not used for longest go first."""

import os
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

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
