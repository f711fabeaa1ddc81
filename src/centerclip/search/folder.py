"""The folder of an index: what its settings are, one writer at a time, and what an error of the database is called."""

import errno
import hashlib
import json
import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from ..errors import DamagedIndex, DiskFull, IndexBusy, SearchError, first_line
from ..files import PHOTO_SUFFIXES, VIDEO_SUFFIXES, lock_file

# A CLIP of the hub never saw clustering: weighing centres by their clusters changes it least (docs/results.md).
DEFAULT_METHOD, DEFAULT_SHARE = "kmedoids[proportional]", "1/3"
SEGMENT_FRAMES = 3  # about; the paper's
DEFAULT_FRAMES = 12
DEFAULT_EVERY = 1.0  # seconds; a segment of the default model is then three seconds long

LANCE_SETTINGS = "index.json"
WRITER_LOCK = "writer.lock"  # held by the one writer; only writers take it
BUSY_LOCK = "busy.lock"  # held beside it, for others to see: a writer waits for those who look, and does not fail

DISK_FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# SQLite calls only ENOSPC a full disk; a quota or the largest size of a file shows as a write that failed.
DISK_FULL_CODES = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE)
BUSY_CODES = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
READ_ONLY_CODES = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM)


@dataclass(frozen=True)
class IndexSettings:
    """What an index was made with, and from.

    Attributes:
        model: as it was named.
        fingerprint: of its weights and preprocessing.
        clustering: in the paper's notation.
        frames: frames of a window.
        segments: segments of a window.
        every: seconds from frame to frame.
        width: of the vectors.
        precision: that it was made in; those that are close to it can be mixed.
        roots: folders and files that were indexed.
        ignore: files, folders and patterns below them that are left out.
        only: "videos" or "photos" where the others are left out; else empty.
        detail: how finely new videos are indexed: "fast", "normal" or "fine".
    """

    model: str
    fingerprint: str
    clustering: str
    frames: int
    segments: int
    every: float
    width: int
    precision: str = "float32"
    roots: list[str] = field(default_factory=list)
    ignore: list[str] = field(default_factory=list)
    only: str = ""
    detail: str = "normal"

    @classmethod
    def of(cls, content: dict[str, Any], **known: Any) -> "IndexSettings":
        """Settings as they were written, also by another version; TypeError where something is missing."""
        return cls(**{each.name: content[each.name] for each in fields(cls) if each.name in content} | known)

    def describe(self) -> str:
        """The settings as one line of text."""
        return f"{self.model}, {self.clustering}, {self.frames} frames, one every {self.every:g} s"

    @property
    def vectors_id(self) -> str:
        """Names what vectors depend on: those of two settings can be in one index when it is the same."""
        parts = (self.fingerprint, self.clustering, self.frames, self.segments, self.every, self.width)
        return hashlib.blake2b(repr(parts).encode(), digest_size=12).hexdigest()


def suffixes_of(only: str) -> frozenset[str]:
    """Of the files to look for below the roots, by what is wanted alone: "videos", "photos", or anything else."""
    return {"videos": VIDEO_SUFFIXES, "photos": PHOTO_SUFFIXES}.get(only, VIDEO_SUFFIXES | PHOTO_SUFFIXES)


def default_clustering(*, blocks: int, frames: int) -> str:
    """The clustering of a new index: after half of the model's blocks, a share of the tokens of about three frames."""
    if blocks < 2:
        return "none"
    segments = [count for count in range(1, frames + 1) if frames % count == 0]
    nearest = min(segments, key=lambda count: abs(count - frames / SEGMENT_FRAMES))
    return f"{DEFAULT_METHOD}:B{blocks // 2}-{nearest},{DEFAULT_SHARE}"


def default_folder() -> Path:
    """Where the index is when none is named: ``$CENTERCLIP_INDEX``, else the user's data folder."""
    from platformdirs import user_data_path

    named = os.environ.get("CENTERCLIP_INDEX")
    return Path(named).expanduser() if named else user_data_path("centerclip", appauthor=False) / "index"


def local_folder(address: str) -> Path:
    """Where this machine keeps what concerns it alone of an index on a server."""
    from platformdirs import user_cache_path

    name = hashlib.blake2b(address.encode(), digest_size=8).hexdigest()
    return user_cache_path("centerclip", appauthor=False, opinion=False) / "indexes" / name


def read_lance_settings(folder: Path) -> IndexSettings | None:
    """The settings of an index as versions before SQLite made it, with LanceDB; None when there is none."""
    try:
        return IndexSettings.of(json.loads((folder / LANCE_SETTINGS).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def remove_lance(folder: Path) -> None:
    """Remove what such a version left in the folder of an index."""
    for place in (*folder.glob("*.lance"), *folder.glob("snapshot-*"), *folder.glob(".snapshot-*")):
        shutil.rmtree(place, ignore_errors=True)
    for name in (LANCE_SETTINGS, "calibration.npz"):
        (folder / name).unlink(missing_ok=True)


@contextmanager
def writer_lock(folder: Path) -> Iterator[None]:
    """Hold the index for writing, or raise :class:`IndexBusy`."""
    with (folder / WRITER_LOCK).open("a+", encoding="utf-8") as lock, (folder / BUSY_LOCK).open("ab") as busy:
        if not lock_file(lock):
            lock.seek(0)
            writer = _describe_writer(lock.read())
            raise IndexBusy(f"another process{writer} is writing to the index {folder}; wait until it is done")
        lock.truncate(0)
        lock.write(json.dumps({"process": os.getpid(), "since": time.time()}))
        lock.flush()
        lock_file(busy, wait=True)
        yield


def is_busy(folder: Path) -> bool:
    """Whether a process is writing to the index now."""
    try:
        with (folder / BUSY_LOCK).open("rb") as busy:
            return not lock_file(busy, shared=True)
    except OSError:
        return False


@contextmanager
def explain_errors(folder: Path, action: str) -> Iterator[None]:
    """Name the index when its database or its disk fails; the ``action`` that failed is "read" or "written"."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise explained(error, folder, action) from error


def explained(error: sqlite3.Error | OSError, folder: Path, action: str) -> Exception:
    """What an error means for the index in a folder; the error itself when it is not about that."""
    if isinstance(error, OSError):
        return _disk_full(error, folder) if error.errno in DISK_FULL_ERRORS else error
    code = getattr(error, "sqlite_errorcode", None) or 0  # an error of the module itself has none
    kind = code & 0xFF
    if code in DISK_FULL_CODES or kind in DISK_FULL_CODES:
        return _disk_full(error, folder)
    if kind in BUSY_CODES:
        return IndexBusy(f"another process is using the index {folder}; wait until it is done")
    if kind in READ_ONLY_CODES:
        return SearchError(
            f"the index {folder} cannot be {action} ({first_line(error)}): check that you may read and write its "
            "folder, and that the disk is not mounted read-only"
        )
    return DamagedIndex(
        f"the index {folder} cannot be {action}: {first_line(error)}. If this happens again, make it anew with "
        "`centerclip index --reindex`"
    )


def _disk_full(error: Exception, folder: Path) -> DiskFull:
    return DiskFull(
        f"the disk is full: cannot write to the index {folder} ({first_line(error)}). What was indexed so far is "
        "safe: free some space, then run the same command again"
    )


def _describe_writer(content: str) -> str:
    try:
        writer = json.loads(content)
        return f" (PID {writer['process']}, since {time.strftime('%H:%M', time.localtime(writer['since']))})"
    except (ValueError, KeyError, TypeError):
        return ""
