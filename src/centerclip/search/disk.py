"""A full disk shows in many ways; here it becomes one error."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import DamagedIndex, DiskFull

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# The database passes on what the system says, as text.
FULL_TEXTS = ("no space left", "disk quota exceeded", "file too large", *(f"os error {number}" for number in FULL))


@contextmanager
def room(folder: Path) -> Iterator[None]:
    """Raise :class:`DiskFull` when something inside fails because there is no room left."""
    try:
        yield
    except (OSError, RuntimeError, ValueError) as error:
        if not _is_full(error):
            raise
        raise DiskFull(
            f"there is no room left to write to the index {folder} ({first_line(error)}). What was indexed so far is "
            "safe: make room, then run the same command again"
        ) from error


@contextmanager
def database(folder: Path, what: str) -> Iterator[None]:
    """Name the index when its database fails; ``what`` could not be done is "read" or "written"."""
    try:
        with room(folder):
            yield
    except (OSError, RuntimeError, ValueError) as error:
        raise DamagedIndex(
            f"the index {folder} cannot be {what}: {first_line(error)}. If this stays so, make it again with "
            "`centerclip index --reindex`"
        ) from error


def first_line(error: Exception) -> str:
    """The first line of what an error says."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def _is_full(error: Exception) -> bool:
    if isinstance(error, OSError) and error.errno in FULL:
        return True
    return any(text in str(error).lower() for text in FULL_TEXTS)
