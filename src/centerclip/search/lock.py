"""One writer at a time. The operating system gives the lock back when a process ends, however it ends."""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from .errors import IndexBusy

LOCK = "writer.lock"
FAR = 2**20  # Windows locks bytes, and others may not read those: lock one that nobody needs


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Hold the index for writing, or raise :class:`IndexBusy`."""
    with (folder / LOCK).open("a+", encoding="utf-8") as file:
        if not _take(file):
            file.seek(0)
            raise IndexBusy(
                f"another process{_who(file.read())} is writing to the index {folder}; wait until it is done"
            )
        file.truncate(0)
        file.write(json.dumps({"process": os.getpid(), "since": time.time()}))
        file.flush()
        yield


def is_busy(folder: Path) -> bool:
    """Whether a process is writing to the index now."""
    try:
        with (folder / LOCK).open("r+", encoding="utf-8") as file:
            return not _take(file)
    except OSError:
        return False


def _take(file: IO[str]) -> bool:
    try:
        import fcntl
    except ImportError:
        import msvcrt

        try:
            file.seek(FAR)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        except OSError:
            return False
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _who(text: str) -> str:
    try:
        holder = json.loads(text)
        since = time.strftime("%H:%M", time.localtime(holder["since"]))
        return f" (number {holder['process']}, since {since})"
    except (ValueError, KeyError, TypeError):
        return ""
