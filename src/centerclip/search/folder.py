"""The folder of an index: its settings, one writer at a time, and what a full disk or a damaged database is called."""

import errno
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ..errors import DamagedIndex, DiskFull, IndexBusy, IndexNotFound, first_line
from ..files import lock_file, remove_partial, write_atomic
from ..model.hub import DEFAULT_MODEL as DEFAULT_MODEL

SETTINGS = "index.json"
FORMAT = 2  # of the settings; 2: the model's fingerprint no longer depends on names inside transformers
# A CLIP of the hub never saw clustering: weighing centres by their clusters changes it least (docs/results.md).
DEFAULT_METHOD, DEFAULT_SHARE = "kmedoids[proportional]", "1/3"
SEGMENT_FRAMES = 3  # about; the paper's
DEFAULT_FRAMES = 12
DEFAULT_EVERY = 1.0  # seconds; a segment of the default model is then three seconds long

WRITER_LOCK = "writer.lock"  # held by the one writer; only writers take it
BUSY_LOCK = "busy.lock"  # held beside it, for others to see: a writer waits for those who look, and does not fail

DISK_FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# The database passes on what the system says, as text.
DISK_FULL_TEXTS = (
    "no space left",
    "disk quota exceeded",
    "file too large",
    *(f"os error {number}" for number in DISK_FULL_ERRORS),
)


@dataclass(frozen=True)
class IndexSettings:
    """The contents of ``index.json``.

    Attributes:
        model: as it was named.
        fingerprint: of its weights and preprocessing.
        clustering: in the paper's notation.
        frames: frames of a window.
        segments: segments of a window.
        every: seconds from frame to frame.
        width: of the vectors.
        files: size and time of the files that sentences are encoded from without torch; empty where torch is needed.
        roots: folders and files that were indexed.
        ignore: files, folders and patterns below them that are left out.
    """

    model: str
    fingerprint: str
    clustering: str
    frames: int
    segments: int
    every: float
    width: int
    files: dict[str, list[int]] = field(default_factory=dict)
    roots: list[str] = field(default_factory=list)
    ignore: list[str] = field(default_factory=list)
    format: int = FORMAT

    def describe(self) -> str:
        """The settings as one line of text."""
        return f"{self.model}, {self.clustering}, {self.frames} frames, one every {self.every:g} s"

    def same_vectors(self, other: "IndexSettings") -> bool:
        """Whether vectors made with the two can be in one index."""
        same: dict[str, Any] = {"model": "", "files": {}, "roots": [], "ignore": []}
        return replace(self, **same) == replace(other, **same)


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


def read_settings(folder: Path, *, any_format: bool = False) -> IndexSettings:
    """Read the settings of an index; with ``any_format`` also those of another version, as far as they are alike."""
    path = folder / SETTINGS
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise IndexNotFound(
            f"there is no index in {folder}. Make one with `centerclip index FOLDER`, or name another with --index"
        ) from error
    except (OSError, ValueError) as error:
        raise DamagedIndex(f"{path} cannot be read: {error}") from error
    try:
        if content["format"] != FORMAT and not any_format:
            raise DamagedIndex(
                f"the index {folder} was made by another version of centerclip (format {content['format']}, this "
                f"version reads {FORMAT}); make it again with `centerclip index --reindex`"
            )
        return IndexSettings(**content)
    except (KeyError, TypeError) as error:
        raise DamagedIndex(f"{path} does not describe an index ({error})") from error


def write_settings(folder: Path, settings: IndexSettings) -> None:
    """Replace the settings of an index in one step."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / SETTINGS, json.dumps(asdict(settings), indent=2) + "\n")


@contextmanager
def writer_lock(folder: Path) -> Iterator[None]:
    """Hold the index for writing, or raise :class:`IndexBusy`. What a killed writer left half written is removed."""
    with (folder / WRITER_LOCK).open("a+", encoding="utf-8") as lock, (folder / BUSY_LOCK).open("ab") as busy:
        if not lock_file(lock):
            lock.seek(0)
            writer = _describe_writer(lock.read())
            raise IndexBusy(f"another process{writer} is writing to the index {folder}; wait until it is done")
        lock.truncate(0)
        lock.write(json.dumps({"process": os.getpid(), "since": time.time()}))
        lock.flush()
        lock_file(busy, wait=True)
        remove_partial(folder)
        yield


def is_busy(folder: Path) -> bool:
    """Whether a process is writing to the index now."""
    try:
        with (folder / BUSY_LOCK).open("rb") as busy:
            return not lock_file(busy, shared=True)
    except OSError:
        return False


@contextmanager
def explain_full_disk(folder: Path) -> Iterator[None]:
    """Raise :class:`DiskFull` when something inside fails because the disk is full."""
    try:
        yield
    except (OSError, RuntimeError, ValueError) as error:
        if not _is_disk_full(error):
            raise
        raise DiskFull(
            f"the disk is full: cannot write to the index {folder} ({first_line(error)}). What was indexed so far is "
            "safe: free some space, then run the same command again"
        ) from error


@contextmanager
def explain_database_errors(folder: Path, action: str) -> Iterator[None]:
    """Name the index when its database fails; the ``action`` that failed is "read" or "written"."""
    try:
        with explain_full_disk(folder):
            yield
    except (OSError, RuntimeError, ValueError) as error:
        raise DamagedIndex(
            f"the index {folder} cannot be {action}: {first_line(error)}. If this happens again, make it anew with "
            "`centerclip index --reindex`"
        ) from error


def _describe_writer(content: str) -> str:
    try:
        writer = json.loads(content)
        return f" (PID {writer['process']}, since {time.strftime('%H:%M', time.localtime(writer['since']))})"
    except (ValueError, KeyError, TypeError):
        return ""


def _is_disk_full(error: Exception) -> bool:
    if isinstance(error, OSError) and error.errno in DISK_FULL_ERRORS:
        return True
    return any(text in str(error).lower() for text in DISK_FULL_TEXTS)
