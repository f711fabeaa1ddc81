"""What the API shows of an index: ids and names instead of paths, and only files that are as they were indexed.

Also the indexing that is started from the page."""

import hashlib
import logging
import os
import re
import shlex
import stat
import threading
import time
import zipfile
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from io import BytesIO, FileIO
from pathlib import Path
from typing import TypeVar

import numpy as np

from ..errors import CenterClipError
from ..files import is_address, path_of, valid_text, write_atomic
from ..search import IndexNotFound, IndexReport, Progress, Query, Status, VideoEntry, VideoIndex
from ..search.folder import default_folder
from ..search.store import File
from .problems import Problem, problem_of

STATUS_CACHE_SECONDS = 2.0  # every open page asks for the status, and every path that is shown needs it
MAX_LISTED = 10_000  # videos of an index that is not in memory
MAX_SUBFOLDERS = 1000  # in a list to choose from
SAVED_QUERIES = 256  # by image or clip; the oldest is dropped
NOT_A_QUERY = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile)  # of a file that should hold one
Value = TypeVar("Value")
log = logging.getLogger("centerclip.server")


@dataclass(frozen=True)
class Folder:
    """A folder with videos in it or below."""

    id: str
    path: Path
    name: str
    videos: int


class Library:
    """An index as the web sees it. Safe to use from several threads.

    Args:
        index: the index; it need not exist yet.
        root_path: what the addresses in responses start with.
        queries: folder where queries by image and clip are kept for other processes that serve the index.
    """

    def __init__(self, index: VideoIndex, root_path: str = "", queries: Path | None = None) -> None:
        self.index, self.root_path, self._shared = index, root_path, queries
        self._lock = threading.Lock()
        self._cache: dict[str, tuple[float, object]] = {}  # name -> (when, value)
        self._queries: OrderedDict[str, Query] = OrderedDict()

    def model_version(self) -> Hashable:
        """Changes whenever the index may have another model."""
        return self.index.model_version()

    # ---- videos and folders -------------------------------------------------------------------------------------

    def status(self) -> Status | None:
        """What is in the index; None when there is none."""
        return self._cached("status", self._status)

    def _status(self) -> Status | None:
        try:
            return self.index.status()
        except IndexNotFound:
            return None

    def videos(self) -> list[VideoEntry]:
        """All videos, by path; of an index on a server the first 10,000: a search finds all."""
        return self._cached("videos", lambda: self.index.videos(limit=MAX_LISTED))

    def folders(self) -> list[Folder]:
        """The folders that were indexed, and those below them that hold videos, by path."""
        return self._cached("folders", self._folders)

    def _folders(self) -> list[Folder]:
        roots = self._roots()
        counts: Counter[Path] = Counter()
        for entry in self.videos():
            for path in (entry.path, *entry.copies):
                root = _root_of(path, roots)
                for parent in path.parents if root is not None and root != path else ():
                    counts[parent] += 1
                    if parent == root:
                        break
        return [Folder(_folder_id(path), path, self.place(path), count) for path, count in sorted(counts.items())]

    def folder(self, folder_id: str) -> Path:
        """The path of a folder."""
        for folder in self.folders():
            if folder.id == folder_id:
                return folder.path
        raise Problem("unknown-folder", "GET /api/v1/folders lists them.")

    def place(self, path: Path) -> str:
        """A path as it is shown: from the indexed folder on, always valid text."""
        root = _root_of(path, self._roots())
        shown = path.name if root is None or root == path else str(Path(root.name, path.relative_to(root)))
        return valid_text(shown)

    def _roots(self) -> tuple[Path, ...]:
        status = self.status()
        return status.roots if status else ()

    def clear_cache(self) -> None:
        """The index has changed."""
        with self._lock:
            self._cache.clear()

    def _cached(self, name: str, read: Callable[[], Value]) -> Value:
        with self._lock:
            when, value = self._cache.get(name, (float("-inf"), None))
        if time.monotonic() - when < STATUS_CACHE_SECONDS:
            return value  # type: ignore[return-value]
        fresh = read()
        with self._lock:
            self._cache[name] = (time.monotonic(), fresh)
        return fresh

    # ---- files --------------------------------------------------------------------------------------------------

    def open_file(self, video_id: str) -> tuple[FileIO, Path]:
        """Open the file of a video, if it is the one that was indexed; also gives its path.

        The size and time of the opened file must be the indexed ones, so whatever a path leads to by now (another file,
        a link to somewhere else) is not given away.
        """
        changed = False
        for file in self.index.files(video_id):
            opened = _open_unchanged(file)
            if opened is not None:
                return opened, Path(file.path)
            changed = changed or os.path.lexists(file.path)
        if changed:
            raise Problem("file-changed", "Index its folder again, then search again.")
        raise Problem("file-missing", "Is a disk not mounted? Restore the file, or index its folder again.")

    def is_remote(self, video_id: str) -> bool:
        """Whether a file of a video is in object storage, which is read before those of this machine."""
        return any(is_address(file.path) for file in self.index.files(video_id))

    def path_of(self, video_id: str) -> Path:
        """The path of a file of a video that is as it was indexed."""
        with self.unchanged(video_id) as path:
            return path

    @contextmanager
    def unchanged(self, video_id: str) -> Iterator[Path]:
        """The path of a file of a video, for reading; a problem where another one has taken its place meanwhile."""
        remote = [file for file in self.index.files(video_id) if is_address(file.path) and file.is_unchanged]
        if remote:
            yield path_of(remote[0].path)
            same = remote[0].is_unchanged
        else:
            file, path = self.open_file(video_id)
            with file:
                yield path
                try:
                    same = os.path.samestat(path.stat(), os.fstat(file.fileno()))
                except OSError:
                    same = False
        if not same:
            raise Problem("file-changed", "It was replaced while it was read. Index its folder again.")

    # ---- queries ------------------------------------------------------------------------------------------------

    def save_query(self, query: Query) -> str:
        """Keep a query by image or clip for a while, and give it a name."""
        name = self._name_of(query)
        with self._lock:
            self._queries[name] = query
            self._queries.move_to_end(name)
            while len(self._queries) > SAVED_QUERIES:
                self._queries.popitem(last=False)
        if self._shared is not None:
            with suppress(OSError):
                self._shared.mkdir(parents=True, exist_ok=True, mode=0o700)
                np.savez(content := BytesIO(), **vars(query))
                write_atomic(self._shared / name, content.getvalue(), durable=False)
                for old in sorted(self._shared.iterdir(), key=lambda file: file.stat().st_mtime)[:-SAVED_QUERIES]:
                    old.unlink(missing_ok=True)
        return name

    def saved_query(self, name: str) -> Query:
        """The query of a name."""
        with self._lock:
            query = self._queries.get(name)
        if query is None and self._shared is not None and re.fullmatch(r"[0-9a-f]+", name):
            with suppress(*NOT_A_QUERY), np.load(BytesIO((self._shared / name).read_bytes())) as kept:
                text = {part: str(kept[part]) for part in ("video_id", "text")}
                query = Query(kept["vector"], bool(kept["has_text"]), **text)
        if query is None or self._name_of(query) != name:
            raise Problem("unknown-query", "Images and clips are kept for a while only. Upload it again.")
        return query

    def _name_of(self, query: Query) -> str:
        """What a query is kept as: another with another model, whose vectors are not comparable."""
        content = repr(self.model_version()).encode() + query.vector.tobytes() + bytes([query.has_text])
        return hashlib.blake2b(content, digest_size=12).hexdigest()


@dataclass(frozen=True)
class IndexingRun:
    """How far indexing is, or how the last run ended."""

    running: bool = False  # this server is indexing now
    finished: int = 0  # files that are in the index
    total: int | None = None  # files to index; None while that is not known
    video_seconds: float = 0.0  # length of the video that was encoded
    seconds: float = 0.0  # since the start
    added: int | None = None  # videos that the last run added
    failed: int | None = None  # files that it could not read
    error: str | None = None  # why it failed


class BackgroundIndexing:
    """Adds folders in the background, one run at a time.

    Args:
        library: over the index.
        allowed: folders below this one may be added; None: none may.
    """

    def __init__(self, library: Library, allowed: Path | None) -> None:
        self.library, self.run = library, IndexingRun()
        self.allowed = None if allowed is None else allowed.expanduser().resolve()
        self._lock = threading.Lock()

    def start(self, folder: str | None) -> None:
        """Add a folder, or update all folders of the index."""
        self.check_allowed()
        paths = [] if folder is None else [self._resolve(folder)]
        status = self.library.status()
        with self._lock:
            if self.run.running or (status is not None and status.busy):
                raise Problem("index-busy", "Wait until indexing has finished, then try again.")
            self.run = IndexingRun(running=True)
        # The index is consistent whenever the process ends, so nothing has to wait for this thread.
        threading.Thread(target=self._work, args=[paths], name="server-indexing", daemon=True).start()

    def check_allowed(self) -> Path:
        """The folder below which folders may be added; raises a problem when the index may not be changed."""
        if self.allowed is None:
            raise Problem("not-allowed", "Start the server with: centerclip serve --allow-folders DIR")
        return self.allowed

    def subfolders(self, folder: str) -> list[str]:
        """The folders in one that may be added, as paths below the allowed one, by name."""
        allowed = self.check_allowed()
        try:
            entries = [entry for entry in os.scandir(self._resolve(folder)) if entry.is_dir()]
        except OSError as error:
            raise Problem("not-allowed", "The folder cannot be read.") from error
        # A link may lead out of the allowed folder; a name that is not valid text cannot be sent back.
        real = {entry.name: Path(entry.path).resolve() for entry in entries if not entry.name.startswith(".")}
        below = (name for name, path in real.items() if path.is_relative_to(allowed) and valid_text(name) == name)
        return [Path(folder, name).as_posix() for name in sorted(below, key=str.casefold)[:MAX_SUBFOLDERS]]

    def remove(self, *paths: Path, videos: tuple[str, ...] = ()) -> None:
        """Remove files below folders, or videos, from the index; the files stay."""
        self.check_allowed()
        self.library.index.remove(*paths, videos=videos)
        self.library.clear_cache()

    def _resolve(self, folder: str) -> Path:
        allowed = self.check_allowed()
        try:
            path = (allowed / Path(folder).expanduser()).resolve()
            usable = path.is_relative_to(allowed) and path.is_dir()
        except (OSError, ValueError, RuntimeError):
            usable = False
        if not usable:  # the same message for both, so that nobody learns what else is on the machine
            raise Problem("not-allowed", "There is no such folder below the one that the server was started with.")
        return path

    def _work(self, paths: list[Path]) -> None:
        began = time.monotonic()
        try:
            report: IndexReport = self.library.index.add(*paths, on_progress=self._report)
        except CenterClipError as error:
            reason = problem_of(error)  # the error itself names paths of this machine
            self.run = replace(self.run, running=False, error=f"{reason.title}. {reason.detail}")
        except Exception:
            log.exception("indexing failed")
            self.run = replace(self.run, running=False, error="See the server's output.")
        else:
            self.run = IndexingRun(
                finished=report.added + report.recognised,
                total=report.added + report.recognised,
                video_seconds=report.video_seconds,
                seconds=time.monotonic() - began,
                added=report.added,
                failed=len(report.failed),
            )
        self.library.clear_cache()

    def _report(self, progress: Progress) -> None:
        self.run = IndexingRun(True, progress.finished, progress.total, progress.video_seconds, progress.seconds)
        self.library.clear_cache()


def index_command(address: str, hide: bool = False) -> str:
    """The command that adds videos to an index, from any terminal; ``hide``: without the path of the index."""
    if "CENTERCLIP_INDEX" not in os.environ and address == str(default_folder()):
        return "centerclip index ~/Videos"
    place = address if "://" in address else str(Path(address).absolute())
    return f"centerclip index --index {'DIR' if hide else shlex.quote(place)} ~/Videos"


def _folder_id(path: Path) -> str:
    """An id that does not reveal the path."""
    return hashlib.blake2b(os.fsencode(path), digest_size=8).hexdigest()


def _root_of(path: Path, roots: tuple[Path, ...]) -> Path | None:
    parents = [root for root in roots if path.is_relative_to(root)]
    return min(parents, key=lambda root: len(root.parts), default=None)


def _open_unchanged(file: File) -> FileIO | None:
    try:
        # Without waiting: a pipe in the file's place would block the thread.
        handle = os.open(file.path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except OSError:
        return None
    status = os.fstat(handle)
    if stat.S_ISREG(status.st_mode) and (status.st_size, status.st_mtime_ns) == (file.size, file.modified):
        return os.fdopen(handle, "rb", buffering=0)
    os.close(handle)
    return None
