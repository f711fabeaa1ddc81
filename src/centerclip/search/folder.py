"""The folder of an index: its settings, one writer at a time, and what happens when the disk is full."""

import errno
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO

from ..errors import DamagedIndex, DiskFull, IndexBusy, IndexNotFound

SETTINGS = "index.json"
FORMAT = 1
DEFAULT_MODEL = "openai/clip-vit-base-patch32"
# A CLIP of the hub never saw clustering: weighing centres by their clusters changes it least (docs/results.md).
DEFAULT_CLUSTERING = "kmedoids[proportional]:B6-4,49"
DEFAULT_FRAMES = 12
DEFAULT_EVERY = 1.0  # seconds; a segment of the default model is then three seconds long


@dataclass(frozen=True)
class IndexSettings:
    """The contents of ``index.json``.

    Attributes:
        model: as it was named.
        fingerprint: of its weights and preprocessing.
        files: where the model's files are, and their size and time: to see at a glance that they are the same.
        clustering: in the paper's notation.
        frames: frames of a window.
        segments: segments of a window.
        every: seconds from frame to frame.
        width: of the vectors.
        roots: folders and files that were indexed.
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
    format: int = FORMAT

    def describe(self) -> str:
        """The setting in words."""
        return f"{self.model}, {self.clustering}, {self.frames} frames, one every {self.every:g} s"

    def same_vectors(self, other: "IndexSettings") -> bool:
        """Whether vectors made with the two can be in one index."""
        ours, theirs = (replace(s, model="", files={}, roots=[]) for s in (self, other))
        return ours == theirs


def read_settings(folder: Path) -> IndexSettings:
    """Read the settings of an index."""
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
        if content["format"] != FORMAT:
            raise DamagedIndex(
                f"{folder} was made by another version of centerclip (format {content['format']}, this one reads "
                f"{FORMAT}); make it again with --reindex"
            )
        return IndexSettings(**content)
    except (KeyError, TypeError) as error:
        raise DamagedIndex(f"{path} does not describe an index ({error})") from error


def write_settings(folder: Path, settings: IndexSettings) -> None:
    """Replace the settings of an index in one step."""
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f".{SETTINGS}.{os.getpid()}"
    partial.write_text(json.dumps(asdict(settings), indent=2) + "\n", encoding="ascii")
    partial.replace(folder / SETTINGS)


def default_folder() -> Path:
    """Where the index is when none is named: ``$CENTERCLIP_INDEX``, else the user's data folder."""
    named = os.environ.get("CENTERCLIP_INDEX")
    if named:
        return Path(named).expanduser()
    if sys.platform == "darwin":
        base = Path.home() / "Library" / "Application Support"
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        base = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return base / "centerclip" / "index"


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
