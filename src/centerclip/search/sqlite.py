"""The store on disk: one SQLite file with everything that an index is, its settings, files, videos, vectors and text.

A video with its segments, lines and files is one transaction. A connection for reading and one for writing are kept
open, but no transaction outlives a call, so readers see what was committed before it, whichever process did."""

import itertools
import json
import os
import re
import sqlite3
import threading
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, astuple, fields, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import DamagedIndex, IndexNotFound, SearchError
from ..files import is_below
from .folder import LANCE_SETTINGS, READ_ONLY_CODES, IndexSettings, explain_errors, explained, is_busy, writer_lock
from .matrix import MAX_EXACT_SEGMENTS, Block, Buffer, Matrix
from .roots import Roots, add_root, drop_unused_roots, from_stored, joined, storable, to_stored, video_key
from .store import AddedVideo, Among, File, Floats, Line, LineHit, Segments, TextSource, Video
from .text import index_text

if TYPE_CHECKING:
    from .approximate import ApproximateIndex

DATABASE = "index.db"
APPLICATION_ID = 0x43434C50  # "CCLP": what file(1) and SQLite's tools tell an index of ours by
BUSY_SECONDS = 30.0  # how long a connection waits for another one's lock
MIN_FREE_BYTES = 64 * 2**20  # a file with less room to give back stays as it is
# Shared memory, which WAL needs, works within one machine only.
NETWORK_FILE_SYSTEMS = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "coda", "fuse.glusterfs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs"}
    | {"fuse.vmhgfs-fuse", "glusterfs", "lustre", "ncpfs", "nfs", "nfs4", "prl_fs", "smb3", "smbfs", "vboxsf"}
    | {"virtiofs"}
)
CANNOT_WRITE_CODES = (*READ_ONLY_CODES, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL)

# The change from version n to n + 1 at place n. What was released once is never edited: changes are added at the end.
MIGRATIONS = (
    """
    CREATE TABLE setting (id INTEGER PRIMARY KEY CHECK (id = 1), content TEXT NOT NULL, vectors TEXT NOT NULL);
    CREATE TABLE value (name TEXT PRIMARY KEY, content BLOB NOT NULL);
    -- Paths are bytes, since names need not be text, with "/" between their parts.
    CREATE TABLE root (id INTEGER PRIMARY KEY, path BLOB NOT NULL UNIQUE, name TEXT NOT NULL UNIQUE,
        listed INTEGER NOT NULL);
    -- Keys grow and rows do not change: what is new has a greater key than all that a reader knows.
    CREATE TABLE video (key INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, duration REAL NOT NULL,
        width INTEGER NOT NULL, height INTEGER NOT NULL, added REAL NOT NULL, note TEXT NOT NULL, detail TEXT NOT NULL,
        recorded REAL, camera TEXT NOT NULL, latitude REAL, longitude REAL);
    -- Little-endian: times float32 [count], vectors float16 [count, width].
    CREATE TABLE segments (video INTEGER PRIMARY KEY REFERENCES video ON DELETE CASCADE, count INTEGER NOT NULL,
        starts BLOB NOT NULL, ends BLOB NOT NULL, vectors BLOB NOT NULL);
    CREATE TABLE file (key INTEGER PRIMARY KEY AUTOINCREMENT, root INTEGER NOT NULL REFERENCES root,
        path BLOB NOT NULL, size INTEGER NOT NULL, modified INTEGER NOT NULL,
        video INTEGER REFERENCES video ON DELETE CASCADE, failure TEXT NOT NULL, UNIQUE (root, path));
    CREATE INDEX file_video ON file (video);
    CREATE TABLE line (key INTEGER PRIMARY KEY AUTOINCREMENT, video INTEGER NOT NULL REFERENCES video ON DELETE CASCADE,
        start REAL NOT NULL, end REAL NOT NULL, source TEXT NOT NULL, text TEXT NOT NULL);
    CREATE INDEX line_video ON line (video, source);
    CREATE TABLE read_source (video INTEGER NOT NULL REFERENCES video ON DELETE CASCADE, source TEXT NOT NULL,
        PRIMARY KEY (video, source)) WITHOUT ROWID;
    CREATE VIRTUAL TABLE line_words USING fts5 (words, tokenize = 'unicode61 remove_diacritics 2', prefix = '2 3');
    CREATE VIRTUAL TABLE file_words USING fts5 (words, tokenize = 'unicode61 remove_diacritics 2', prefix = '2 3');
    CREATE TRIGGER line_gone AFTER DELETE ON line BEGIN DELETE FROM line_words WHERE rowid = old.key; END;
    CREATE TRIGGER file_gone AFTER DELETE ON file BEGIN DELETE FROM file_words WHERE rowid = old.key; END;
    """,
)
VIDEO_COLUMNS = ", ".join(field.name for field in fields(Video))


class Database:
    """The file of an index, opened when it is needed. Safe to use from several threads.

    Args:
        folder: of the index.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / DATABASE
        self._lock = threading.RLock()
        self._reader: sqlite3.Connection | None = None
        self._writer: sqlite3.Connection | None = None
        self._opened: Hashable = None  # the file that the reader has opened
        self._immutable = False
        self._openings = itertools.count()
        self._opening = 0

    def version(self) -> tuple[int, int]:
        with self._lock:
            try:
                (changes,) = self._reading().execute("PRAGMA data_version").fetchone()
            except sqlite3.Error as error:
                raise explained(error, self.folder, "read") from error
            return self._opening, changes

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """A connection that sees one state of the database."""
        with self._lock:
            try:
                connection = self._reading()
                connection.execute("BEGIN")
                try:
                    yield connection
                finally:
                    connection.execute("COMMIT")
            except sqlite3.Error as error:
                raise explained(error, self.folder, "read") from error

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """A connection whose changes are committed at the end, all or none. The caller holds the writer's lock."""
        with self._lock, explain_errors(self.folder, "written"):
            connection = self.open_for_writing()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def open_for_writing(self) -> sqlite3.Connection:
        """The connection for writing, to a file that is made or brought up to date if need be."""
        with self._lock, explain_errors(self.folder, "written"):
            if self._writer is None:
                connection = connect(self.path, "mode=rwc")
                try:
                    _set_journal(connection, self.folder)
                    connection.execute("PRAGMA synchronous = FULL")
                    connection.execute("PRAGMA fullfsync = ON")  # without it macOS leaves data in the disk's cache
                    connection.execute("PRAGMA foreign_keys = ON")
                    self._migrate(connection)
                except BaseException:
                    connection.close()
                    raise
                self._writer = connection
            return self._writer

    def close(self, *, writer_only: bool = False) -> None:
        with self._lock, explain_errors(self.folder, "written"):
            writer, self._writer = self._writer, None
            if writer is not None:
                writer.close()
            if not writer_only:
                reader, self._reader, self._opened = self._reader, None, None
                if reader is not None:
                    reader.close()

    def __del__(self) -> None:
        with suppress(Exception):
            self.close()

    @property
    def address(self) -> str:
        """The folder of the index."""
        return str(self.folder)

    def exists(self) -> bool:
        return self.path.exists()

    def store(self, settings: IndexSettings) -> "SqliteStore":
        return SqliteStore(self, settings.width, settings.vectors_id)

    @contextmanager
    def writing(self) -> Iterator[None]:
        self.folder.mkdir(parents=True, exist_ok=True)
        with explain_errors(self.folder, "written"), writer_lock(self.folder):
            yield

    def is_busy(self) -> bool:
        return is_busy(self.folder)

    def make_writable(self) -> None:
        self.open_for_writing()

    def remove(self) -> None:
        with self._lock:
            with suppress(SearchError, sqlite3.Error):
                self.close()
            for path in _files(self.path):
                path.unlink(missing_ok=True)

    def bytes(self) -> int:
        return sum(path.stat().st_size for path in _files(self.path) if path.exists())

    # ---- settings ---------------------------------------------------------------------------------------------

    def settings(self) -> IndexSettings:
        with self.read() as connection:
            row = connection.execute("SELECT content FROM setting").fetchone()
            roots = connection.execute("SELECT path FROM root WHERE listed ORDER BY id").fetchall()
        if row is None:
            raise self._not_found()
        try:
            return IndexSettings.of(json.loads(row[0]), roots=[from_stored(root) for (root,) in roots])
        except (ValueError, TypeError) as error:
            raise DamagedIndex(f"{self.path} does not describe an index ({error}); use --reindex") from error

    def root_named(self, name: str) -> str:
        with self.read() as connection:
            row = connection.execute("SELECT path FROM root WHERE name = ?", (storable(name),)).fetchone()
            return from_stored(row[0]) if row else ""

    def save_settings(self, settings: IndexSettings, *, clear: bool = False) -> None:
        content = asdict(settings)
        del content["roots"]
        with self.write() as connection:
            if clear:
                for table in ("file", "line", "video", "value"):
                    connection.execute(f"DELETE FROM {table}")
            connection.execute(
                "INSERT OR REPLACE INTO setting VALUES (1, ?, ?)", (json.dumps(content), settings.vectors_id)
            )
            connection.execute("UPDATE root SET listed = 0")
            for root in settings.roots:
                add_root(connection, to_stored(root), listed=True)
            drop_unused_roots(connection)

    # ---- inside -----------------------------------------------------------------------------------------------

    def _reading(self) -> sqlite3.Connection:
        """The connection for reading, to the file that is there now."""
        stamp = self._stamp()
        if self._reader is None or stamp != self._opened:
            if self._reader is not None:
                reader, self._reader = self._reader, None
                reader.close()
            self._reader = self._open_reader()
            self._opened, self._opening = self._stamp(), next(self._openings)
        return self._reader

    def _stamp(self) -> Hashable:
        """Tells the file from another one of its name; and its states, where SQLite does not look for changes."""
        try:
            status = self.path.stat()
        except (FileNotFoundError, NotADirectoryError) as error:
            raise self._not_found() from error
        same = (status.st_dev, status.st_ino)
        return (*same, status.st_size, status.st_mtime_ns, self._has_wal()) if self._immutable else same

    def _has_wal(self) -> bool:
        try:
            return _files(self.path)[1].stat().st_size > 0
        except OSError:
            return False

    def _open_reader(self) -> sqlite3.Connection:
        """Open the file: able to recover what a killed writer left where that is possible, else as it is."""
        # Where nothing can be written, a file in WAL mode opens only as one that never changes, which is not true
        # while it has a WAL.
        modes = ("mode=rw", "mode=ro") if self._has_wal() else ("mode=rw", "mode=ro&immutable=1")
        for mode in modes:
            self._immutable = "immutable" in mode
            try:
                connection, version = self._try_reader(mode)
            except sqlite3.OperationalError as error:
                if mode == modes[-1] or error.sqlite_errorcode & 0xFF not in CANNOT_WRITE_CODES:
                    raise
                continue
            if version == len(MIGRATIONS):
                return connection
            connection.close()
            self._bring_up_to_date(version)
            break
        return self._open_reader()

    def _try_reader(self, mode: str) -> tuple[sqlite3.Connection, int]:
        """A connection for reading, with which something has been read, and the version of the schema."""
        connection = connect(self.path, mode)
        try:
            if mode == "mode=rw":
                _set_journal(connection, self.folder, only_to_delete=True)
                connection.execute("PRAGMA query_only = ON")
            return connection, self._check_version(connection)
        except BaseException:
            connection.close()
            raise

    def _check_version(self, connection: sqlite3.Connection) -> int:
        """The version of the schema; an error when it is a file of another program or of a newer version."""
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        if (version, application) == (0, 0):
            raise self._not_found()  # made, but nothing was written yet
        if application != APPLICATION_ID:
            raise DamagedIndex(f"{self.path} is a database of another program; name another folder with --index")
        if version > len(MIGRATIONS):
            raise DamagedIndex(
                f"the index {self.folder} was made by a newer version of centerclip (schema {version}, this one knows "
                f"{len(MIGRATIONS)}): update centerclip"
            )
        return int(version)

    def _bring_up_to_date(self, version: int) -> None:
        """Change an old schema to this version's, if that is allowed here."""
        try:
            with writer_lock(self.folder):
                self.open_for_writing()
                self.close(writer_only=True)
        except (OSError, SearchError) as error:
            raise SearchError(
                f"the index {self.folder} is of an older version of centerclip (schema {version}) and cannot be "
                f"brought up to date here: {error}. Run `centerclip index` once where its folder can be written"
            ) from error

    def _migrate(self, connection: sqlite3.Connection) -> None:
        """Bring the schema of a file, new or old, to this version in one transaction."""
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version or connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            version = self._check_version(connection)
        if version == len(MIGRATIONS):
            return
        steps = "".join(MIGRATIONS[version:])
        marks = f"PRAGMA user_version = {len(MIGRATIONS)}; PRAGMA application_id = {APPLICATION_ID};"
        try:
            connection.executescript(f"BEGIN IMMEDIATE; {steps} {marks} COMMIT;")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _not_found(self) -> SearchError:
        if (self.folder / LANCE_SETTINGS).is_file() and not self.path.is_file():
            return DamagedIndex(
                f"the index {self.folder} was made by an earlier version of centerclip, which stored it in another "
                "way: make it again with `centerclip index --reindex`, which keeps its folders and its model"
            )
        return IndexNotFound(
            f"there is no index in {self.folder}. Make one with `centerclip index FOLDER`, or name another with --index"
        )


def read_settings(folder: Path) -> IndexSettings:
    """The settings of the index in a folder."""
    with closing(Database(folder)) as database:
        return database.settings()


class SqliteStore:
    """A :class:`~centerclip.search.store.Store` in the file of an index.

    Args:
        database: the file; or the folder that it is in.
        width: of the vectors.
        vectors: ``vectors_id`` of the settings that they are made with. When the index is made again with others, the
            view stays as it was.
    """

    def __init__(self, database: Database | Path, width: int, vectors: str | None = None) -> None:
        self.database = Database(database) if isinstance(database, Path) else database
        self.width, self._vectors = width, vectors
        self._lock = threading.RLock()
        self._reset()

    def _reset(self) -> None:
        self._version: tuple[int, int] | None = None  # that the view shows
        self._keys: dict[int, str] = {}  # of the videos, and their ids
        self._file_keys: dict[int, str] = {}  # of the files, and their paths
        self._roots: list[tuple[int, bytes, int]] = []
        self._buffer, self._last_row = Buffer(self.width), 0
        self._approximate: ApproximateIndex | None = None  # of the older rows, when there are many
        self._approximate_name = ""
        self._view = SqliteView(self, Contents({}, {}, {}, has_lines=False))

    # ---- writing ----------------------------------------------------------------------------------------------

    def add(self, videos: Sequence[AddedVideo], files: Sequence[File]) -> None:
        with self.database.write() as connection:
            for video, segments, lines in videos:
                if _add_video(connection, video, segments):
                    _add_lines(connection, video_key(connection, video.id), lines)
            roots = Roots(connection)
            for file in {file.path: file for file in files}.values():
                roots.add_file(file)

    def replace(self, video: Video, segments: Segments) -> None:
        with self.database.write() as connection:
            # Rows do not change, so that readers notice: it gets a new one, which takes over what belongs to it.
            old = video_key(connection, video.id)
            connection.execute("UPDATE video SET id = '-' || id WHERE key = ?", (old,))
            _add_video(connection, video, segments)
            new = video_key(connection, video.id)
            for table in ("file", "line", "read_source"):
                connection.execute(f"UPDATE {table} SET video = ? WHERE video = ?", (new, old))
            connection.execute("DELETE FROM video WHERE key = ?", (old,))

    def add_lines(self, video: str, lines: Sequence[Line], source: TextSource) -> None:
        with self.database.write() as connection:
            key = video_key(connection, video)
            connection.execute("DELETE FROM line WHERE video = ? AND source = ?", (key, source))
            connection.execute("INSERT OR IGNORE INTO read_source VALUES (?, ?)", (key, source))
            _add_lines(connection, key, [replace(line, source=source) for line in lines])

    def remove(self, videos: Collection[str], paths: Collection[str]) -> None:
        with self.database.write() as connection:
            roots = Roots(connection)
            for path in paths:
                roots.remove_file(path)
            connection.executemany("DELETE FROM video WHERE id = ?", [(storable(video),) for video in videos])
            drop_unused_roots(connection)

    def move(self, old: str, new: str) -> int:
        with self.database.write() as connection:
            moved = Roots(connection).move(to_stored(old), to_stored(new))
            drop_unused_roots(connection)
            return moved

    def value(self, name: str) -> bytes | None:
        with suppress(IndexNotFound), self.database.read() as connection:
            row = connection.execute("SELECT content FROM value WHERE name = ?", (name,)).fetchone()
            return row[0] if row else None
        return None

    def set_value(self, name: str, value: bytes) -> None:
        with self.database.write() as connection:
            connection.execute("INSERT OR REPLACE INTO value VALUES (?, ?)", (name, value))

    def tidy(self, queries: Floats) -> None:
        """Give unused space back when it is much, and leave one file if nobody else has it open."""
        connection = self.database.open_for_writing()
        with suppress(sqlite3.Error):  # of another process that reads, or a disk too full for it: the next time
            pages, free, size = (
                connection.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("page_count", "freelist_count", "page_size")
            )
            if free * size > MIN_FREE_BYTES and 2 * free > pages:
                connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
        if self._approximate_name or self.view().count() > MAX_EXACT_SEGMENTS:
            from .approximate import keep_up

            keep_up(self, queries)
        self.database.close(writer_only=True)

    def bytes(self) -> int:
        approximate = self.database.folder.glob("approximate-*/*")
        return self.database.bytes() + sum(path.stat().st_size for path in approximate)

    # ---- reading ----------------------------------------------------------------------------------------------

    def view(self) -> "SqliteView":
        with self._lock:
            try:
                version = self.database.version()
            except IndexNotFound:
                if self._version is not None:
                    self._reset()
                return self._view
            if version != self._version:
                with self.database.read() as connection:
                    if self._is_ours(connection):
                        if self._version is not None and version[0] != self._version[0]:
                            self._reset()  # another file: its keys mean something else
                        self._view, self._version = self._refreshed(connection), version
            return self._view

    def load_block(self, videos: Collection[str], index: "ApproximateIndex | None" = None) -> Block:
        """The rows of videos that an approximate index does not have; those that are not in memory are read."""
        with self._lock:
            kept = (self._buffer, self._last_row) if index is not self._approximate else None  # of an older view
            if kept:
                self._forget_rows(index)
            with suppress(IndexNotFound), self.database.read() as connection:
                if self._is_ours(connection):
                    self._read_rows(connection)
            block = self._buffer.block(videos)
            fresh = self._buffer.without_dead_rows(block)
            if fresh is not self._buffer:
                self._buffer, block = fresh, fresh.block(videos)
            if kept:
                self._buffer, self._last_row = kept
            return block

    def _forget_rows(self, index: "ApproximateIndex | None") -> None:
        """Begin anew with the rows that an approximate index does not have."""
        self._buffer, self._last_row = Buffer(self.width), index.last_key if index else 0

    def _is_ours(self, connection: sqlite3.Connection) -> bool:
        """Whether the index still has vectors of the kind that it had when this object was made."""
        row = connection.execute("SELECT vectors FROM setting").fetchone()
        return row is None or self._vectors is None or row[0] == self._vectors

    def _refreshed(self, connection: sqlite3.Connection) -> "SqliteView":
        """The last view and what has changed since; the same object when nothing has."""
        old = self._view
        videos, sizes = old.videos, old.sizes
        last, fresh, gone = _changes(connection, "video", self._keys)
        if fresh or gone:
            removed = {self._keys.pop(key) for key in gone}
            videos = {video: known for video, known in videos.items() if video not in removed}
            sizes = {video: size for video, size in sizes.items() if video not in removed}
            size_of = "(SELECT count FROM segments WHERE video = key)"
            query = f"SELECT key, {size_of}, {VIDEO_COLUMNS} FROM video WHERE key > ? ORDER BY key"
            for key, size, *columns in connection.execute(query, (last,)):
                video = Video(*columns)
                self._keys[key], videos[video.id], sizes[video.id] = video.id, video, size or 0
        files = self._refreshed_files(connection)
        has_lines = bool(connection.execute("SELECT EXISTS (SELECT 1 FROM line)").fetchone()[0])
        same_index = not self._open_approximate(connection)
        if videos is old.videos and files is old.files and has_lines == old.has_lines and same_index:
            return old
        contents = Contents(videos, files, sizes, has_lines)
        if self._approximate is None:
            return SqliteView(self, contents)
        from .approximate import LargeView

        return LargeView(self, contents, self._approximate, self._keys)

    def _open_approximate(self, connection: sqlite3.Connection) -> bool:
        """Open the approximate index that the database names; whether it is another one than before."""
        row = connection.execute("SELECT content FROM value WHERE name = 'approximate'").fetchone()
        name = bytes(row[0]).decode() if row else ""
        if name == self._approximate_name:
            return False
        self._approximate_name, before, self._approximate = name, self._approximate, None
        if name:
            from .approximate import open_index

            self._approximate = open_index(self, name)
        self._forget_rows(self._approximate)
        return self._approximate is not before

    def _refreshed_files(self, connection: sqlite3.Connection) -> Mapping[str, File]:
        roots = connection.execute("SELECT id, path, listed FROM root").fetchall()
        files = self._view.files
        if roots != self._roots:  # they are elsewhere, or there are others
            self._roots, self._file_keys, files = roots, {}, {}
        last, fresh, gone = _changes(connection, "file", self._file_keys)
        if not fresh and not gone:
            return files
        removed = {self._file_keys.pop(key) for key in gone}
        files = {path: file for path, file in files.items() if path not in removed}
        places = {root: (path, from_stored(path) if listed else "") for root, path, listed in roots}
        columns = "file.key, root, path, size, modified, id, failure"
        query = f"SELECT {columns} FROM file LEFT JOIN video ON video = video.key WHERE file.key > ? ORDER BY file.key"
        for key, root, rest, size, modified, video, failure in connection.execute(query, (last,)):
            path = from_stored(joined(places[root][0], rest))
            self._file_keys[key] = path
            files[path] = File(path, size, modified, video or "", failure, places[root][1])
        return files

    def _read_rows(self, connection: sqlite3.Connection) -> None:
        """Read the segments that are not in memory yet."""
        (rows,) = connection.execute("SELECT total(count) FROM segments WHERE video > ?", (self._last_row,)).fetchone()
        self._buffer.reserve(int(rows))
        query = "SELECT video, id, starts, ends, vectors FROM segments JOIN video ON video = key WHERE video > ?"
        for key, video, starts, ends, vectors in connection.execute(f"{query} ORDER BY video", (self._last_row,)):
            self._buffer.append(video, *decoded(self.database, self.width, video, starts, ends, vectors))
            self._last_row = key


class Contents(NamedTuple):
    """What of a view is always in memory: videos and numbers of segments by id, files by path."""

    videos: Mapping[str, Video]
    files: Mapping[str, File]
    sizes: Mapping[str, int]
    has_lines: bool


class SqliteView(Matrix):
    """A :class:`~centerclip.search.store.View`: videos and files in memory, rows from the first search on."""

    def __init__(self, store: SqliteStore, contents: Contents, index: "ApproximateIndex | None" = None) -> None:
        videos, files, sizes, self.has_lines = contents
        super().__init__(store.width, videos, files, sizes, partial(store.load_block, videos, index))
        self._database = store.database

    def lines(self, video: str) -> list[Line]:
        query = "SELECT start, end, text, source FROM line JOIN video ON video = video.key WHERE id = ?"
        with self._database.read() as connection:
            return [Line(*row) for row in connection.execute(f"{query} ORDER BY start, line.key", (video,))]

    def read_videos(self, source: TextSource) -> set[str]:
        query = "SELECT id FROM read_source JOIN video ON video = key WHERE source = ?"
        with self._database.read() as connection:
            return {video for (video,) in connection.execute(query, (source,))}

    def search_lines(self, match: str, top: int, *, among: Among = None) -> list[LineHit]:
        query = (
            "SELECT start, end, text, source, id, rank FROM line_words JOIN line ON line.key = line_words.rowid "
            "JOIN video ON video.key = line.video "
            "WHERE line_words MATCH ? ORDER BY rank"
        )
        with self._database.read() as connection:
            rows = connection.execute(query, (match,))
            return [LineHit(*row) for row in islice(self._wanted(rows, among), top)]

    def search_names(self, match: str, top: int, *, among: Among = None) -> list[tuple[str, str, float]]:
        query = (
            "SELECT root.path, file.path, video.id, rank FROM file_words JOIN file ON file.key = file_words.rowid "
            "JOIN video ON video.key = file.video JOIN root ON root.id = file.root "
            "WHERE file_words MATCH ? ORDER BY rank"
        )
        with self._database.read() as connection:
            rows = islice(self._wanted(connection.execute(query, (match,)), among), top)
            return [(from_stored(joined(root, rest)), video, rank) for root, rest, video, rank in rows]

    def _wanted(self, rows: Iterable[Any], among: Among) -> Iterator[Any]:
        """Rows, best first, whose video (before the rank) counts: a filter is exact however few it leaves."""
        passing = self.passing(among)
        wanted = self.videos if passing is None else set(passing) & self.videos.keys()
        return (row for row in rows if row[-2] in wanted)


def journal_mode(folder: Path) -> str:
    """``"wal"``, or ``"delete"`` on a network file system; ``$CENTERCLIP_JOURNAL`` says otherwise."""
    asked = os.environ.get("CENTERCLIP_JOURNAL", "").lower()
    if asked and asked not in ("wal", "delete"):
        raise SearchError(f"CENTERCLIP_JOURNAL is {asked!r}; set it to wal or delete, or leave it out")
    return asked or ("delete" if _file_system(folder) in NETWORK_FILE_SYSTEMS else "wal")


def _file_system(folder: Path) -> str:
    """The type of the file system that a folder is on, where the system tells; else empty."""
    try:
        lines = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return ""
    place, best, kind = os.path.realpath(folder), "", ""
    for line in lines:
        _, mounted, type_, *_ = line.split(" ")
        mounted = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), mounted)  # spaces are \040
        if is_below(place, mounted) and len(mounted) >= len(best):  # of two on one place the later one
            best, kind = mounted, type_
    return kind


def connect(path: Path, mode: str) -> sqlite3.Connection:
    """Open a database file."""
    return sqlite3.connect(
        f"{Path(os.path.abspath(path)).as_uri()}?{mode}",  # noqa: PTH100 - links stay as they are named
        uri=True,
        timeout=BUSY_SECONDS,
        isolation_level=None,  # transactions begin and end where we say
        check_same_thread=False,
    )


def _set_journal(connection: sqlite3.Connection, folder: Path, *, only_to_delete: bool = False) -> None:
    """Bring the journal to the mode that suits the disk, if nobody else has the file open."""
    wanted = journal_mode(folder)
    if only_to_delete and wanted != "delete":
        return
    if connection.execute("PRAGMA journal_mode").fetchone()[0] != wanted:
        with suppress(sqlite3.OperationalError):
            connection.execute(f"PRAGMA journal_mode = {wanted}")


def _files(path: Path) -> list[Path]:
    """The database and the files that SQLite keeps beside it: the WAL second."""
    return [path.with_name(path.name + ending) for ending in ("", "-wal", "-shm", "-journal")]


def decoded(
    database: Database, width: int, video: str, starts: bytes, ends: bytes, vectors: bytes
) -> tuple[Floats, Floats, NDArray[np.float16]]:
    """The columns of a row of ``segments``: starts and ends ``[S]``, vectors ``[S, width]``."""
    times = np.frombuffer(starts, "<f4"), np.frombuffer(ends, "<f4")
    values = np.frombuffer(vectors, "<f2")
    if len(values) != len(times[0]) * width or len(times[0]) != len(times[1]):
        raise DamagedIndex(f"{database.path}: the vectors of video {video} are damaged; use --reindex")
    return *times, values.reshape(-1, width)


def _changes(connection: sqlite3.Connection, table: str, known: dict[int, str]) -> tuple[int, int, set[int]]:
    """What a table has beyond the ``known`` keys: the greatest of those, how many are greater, which are gone."""
    last = next(reversed(known), 0)
    (total,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
    (fresh,) = connection.execute(f"SELECT count(*) FROM {table} WHERE key > ?", (last,)).fetchone()
    if total - fresh == len(known):
        return last, fresh, set()
    return last, fresh, known.keys() - {key for (key,) in connection.execute(f"SELECT key FROM {table}")}


def _add_video(connection: sqlite3.Connection, video: Video, segments: Segments) -> bool:
    """Add a video with its segments, unless it is there; whether it was added."""
    values = [storable(value) if isinstance(value, str) else value for value in astuple(video)]
    marks = ", ".join("?" * len(values))
    cursor = connection.execute(f"INSERT OR IGNORE INTO video ({VIDEO_COLUMNS}) VALUES ({marks})", values)
    if cursor.rowcount:
        arrays = ((segments.starts, "<f4"), (segments.ends, "<f4"), (segments.vectors, "<f2"))
        blobs = [np.asarray(array, kind).tobytes() for array, kind in arrays]
        connection.execute("INSERT INTO segments VALUES (?, ?, ?, ?, ?)", (cursor.lastrowid, len(segments), *blobs))
    return bool(cursor.rowcount)


def _add_lines(connection: sqlite3.Connection, key: int, lines: Iterable[Line]) -> None:
    for line in lines:
        cursor = connection.execute(
            "INSERT INTO line (video, start, end, source, text) VALUES (?, ?, ?, ?, ?)",
            (key, line.start, line.end, line.source, storable(line.text)),
        )
        words = index_text(storable(line.text))
        connection.execute("INSERT INTO line_words (rowid, words) VALUES (?, ?)", (cursor.lastrowid, words))
