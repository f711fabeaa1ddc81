"""Where the files of an index are: below named roots, so that a disk can move to another place or another system.

A path is stored as bytes, since names need not be text, with "/" between its parts."""

import itertools
import os
import re
import sqlite3
from collections.abc import Iterator

from ..files import is_address, valid_text
from .store import File
from .text import index_name

WINDOWS_PATH = re.compile(r"[A-Za-z]:[\\/]|\\\\")


class Roots:
    """Where files are: each below the longest root that holds it, or below ``/`` when none does."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self._read()

    def _read(self) -> None:
        rows = self.connection.execute("SELECT path, id, listed FROM root").fetchall()
        self.by_path = {path: (root, bool(listed)) for path, root, listed in rows}

    def places(self, path: bytes) -> list[tuple[int, bytes, bytes]]:
        """Roots that hold a path, the longest first: id, path, and the rest of the path below."""
        above = (base for base in _upwards(path) if base in self.by_path and _is_below(path, base))
        return [(self.by_path[base][0], base, _rest(path, base)) for base in above]

    def add_file(self, file: File) -> None:
        """Add a file, or replace the one of its path."""
        path = to_stored(file.path)
        places = self.places(path)
        if not places:
            drive = re.match(rb"[A-Za-z]:/|//[^/]+/[^/]+|[A-Za-z][A-Za-z0-9+.-]+://[^/]+|/", path)
            add_root(self.connection, drive.group() if drive else b"/", listed=False)
            self._read()
            places = self.places(path)
        self._delete(places)
        root, base, rest = places[0]
        video = video_key(self.connection, file.video) if file.video else None
        cursor = self.connection.execute(
            "INSERT INTO file (root, path, size, modified, video, failure) VALUES (?, ?, ?, ?, ?, ?)",
            (root, rest, file.size, file.modified, video, storable(file.failure)),
        )
        name = base.rpartition(b"/")[2] + (b"/" + rest if rest else b"")
        words = index_name(valid_text(os.fsdecode(name)))
        self.connection.execute("INSERT INTO file_words (rowid, words) VALUES (?, ?)", (cursor.lastrowid, words))

    def remove_file(self, path: str) -> None:
        """Forget a file."""
        self._delete(self.places(to_stored(path)))

    def _delete(self, places: list[tuple[int, bytes, bytes]]) -> None:
        # A root that came later may hold a file that is kept below another one.
        self.connection.executemany(
            "DELETE FROM file WHERE root = ? AND path = ?", [(root, rest) for root, _, rest in places]
        )

    def move(self, old: bytes, new: bytes) -> int:
        """Change the place of the roots and files at or below ``old``; how many files there are."""
        query = (
            "SELECT file.key, root.path, listed, file.path, size, modified, video.id, failure FROM file "
            "JOIN root ON root = root.id LEFT JOIN video ON video = video.key"
        )
        moved: list[File] = []
        watched: list[bytes] = []  # those whose root somebody has named
        for key, base, listed, rest, size, modified, video, failure in self.connection.execute(query).fetchall():
            path = joined(base, rest)
            if _is_below(path, old):
                target = _moved(path, old, new)
                moved.append(File(from_stored(target), size, modified, video or "", failure))
                watched += [target] if listed else []
                self.connection.execute("DELETE FROM file WHERE key = ?", (key,))
        for base, (root, listed) in self.by_path.items():
            if _is_below(base, old):
                self.connection.execute("DELETE FROM root WHERE id = ?", (root,))
                add_root(self.connection, _moved(base, old, new), listed=listed, id=root)
        self._read()
        if not all(any(self.by_path[base][1] for _, base, _ in self.places(path)) for path in watched):
            add_root(self.connection, new, listed=True)  # a part of a root that is no longer below it
            self._read()
        for file in moved:
            self.add_file(file)
        return len(moved)


def add_root(connection: sqlite3.Connection, path: bytes, *, listed: bool, id: int | None = None) -> None:
    """Add a root, named after its folder, or list the one that is there."""
    if connection.execute("UPDATE root SET listed = max(listed, ?) WHERE path = ?", (listed, path)).rowcount:
        return
    folder = valid_text(os.fsdecode(path.rpartition(b"/")[2] or path))
    names = (f"{folder} {number}" if number > 1 else folder for number in itertools.count(1))
    taken = "SELECT 1 FROM root WHERE name = ?"
    name = next(name for name in names if not connection.execute(taken, (name,)).fetchone())
    connection.execute("INSERT INTO root VALUES (?, ?, ?, ?)", (id, path, name, listed))


def drop_unused_roots(connection: sqlite3.Connection) -> None:
    """Forget roots that nobody has named and that have no files."""
    connection.execute("DELETE FROM root WHERE NOT listed AND NOT EXISTS (SELECT 1 FROM file WHERE root = root.id)")


def video_key(connection: sqlite3.Connection, video: str) -> int:
    """The key of a video; KeyError when it is not there."""
    row = connection.execute("SELECT key FROM video WHERE id = ?", (storable(video),)).fetchone()
    if row is None:
        raise KeyError(video)
    return int(row[0])


def storable(text: str) -> str:
    """Text that can be stored: names in it may hold any bytes."""
    return text.encode(errors="replace").decode()


def to_stored(path: str) -> bytes:
    """A path as it is stored, with "/" between its parts whatever the system."""
    raw = os.fsencode(path)
    if os.name == "nt" or WINDOWS_PATH.match(path):
        raw = raw.replace(b"\\", b"/")
    bare = raw.rstrip(b"/")
    return bare + b"/" if not bare or bare.endswith(b":") else bare


def from_stored(stored: bytes) -> str:
    """A stored path as this system writes it."""
    path = os.fsdecode(stored)
    return path.replace("/", "\\") if os.name == "nt" and not is_address(path) else path


def joined(base: bytes, rest: bytes) -> bytes:
    """The path of what is below a root; of the root itself when ``rest`` is empty."""
    return base.rstrip(b"/") + b"/" + rest if rest else base


def _rest(path: bytes, base: bytes) -> bytes:
    """What follows a folder in a path; empty for the folder itself."""
    return path[len(base.rstrip(b"/")) + 1 :] if path != base else b""


def _upwards(path: bytes) -> Iterator[bytes]:
    """A path and the folders that it may be in, with and without their slash: "/" too, which an address is not in."""
    yield path
    while path:
        path = path.rpartition(b"/")[0]
        yield from (path, path + b"/")


def _is_below(path: bytes, folder: bytes) -> bool:
    return path == folder or path.startswith(folder.rstrip(b"/") + b"/")


def _moved(path: bytes, old: bytes, new: bytes) -> bytes:
    return joined(new, _rest(path, old))
