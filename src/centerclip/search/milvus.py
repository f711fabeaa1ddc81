"""The store on a Milvus server: an index that many machines fill and search, ``milvus://host:19530/name``.

Milvus has neither transactions nor snapshots, so each row says from which generation on it is there and from which on
it is not, and one row, the head, says which generation counts. A step writes rows of the next generation, then the
head: it is there whole or not at all, and a view of a generation does not change. What a killed writer left of the next
generation is removed by the next one. All writes are upserts by a key, so that one that is sent again is there once.

Two collections: ``NAME`` has the head, values, videos, files and lines, ``NAME_WIDTH`` the segments. Nothing of them is
held in memory but what was asked for last."""

import hashlib
import json
import logging
import os
import re
import secrets
import socket
import threading
import time
import zlib
from base64 import b64decode, b64encode
from collections import OrderedDict
from collections.abc import Callable, Collection, ItemsView, Iterable, Iterator, Mapping, Sequence, ValuesView
from contextlib import contextmanager
from dataclasses import asdict, astuple, replace
from functools import cached_property
from itertools import islice
from typing import Any, Generic, TypeVar
from urllib.parse import unquote, urlsplit

import numpy as np

from ..errors import IndexBusy, IndexNotFound, SearchError, first_line
from ..files import is_below, valid_text
from ..video.sampling import ORDER
from .filters import KEPT_FILTERS, Filters, Totals, offline_check
from .folder import IndexSettings
from .matrix import MAX_EXACT_SEGMENTS
from .roots import from_stored, storable, to_stored
from .store import AddedVideo, Among, File, Floats, Line, LineHit, SegmentHits, Segments, TextSource, Video
from .text import index_name, index_text, match_texts, stems_of

READ_SECONDS, WRITE_SECONDS = 30.0, 300.0  # how long a call is tried again while the server cannot be reached
FRESH_SECONDS = 2.0  # after which the head is read again, in the background
SETTLED_SECONDS = 15.0  # after a generation was seen first, reads need not wait for it: three times Milvus' own bound
LEASE_SECONDS, RENEW_SECONDS, SETTLE_SECONDS = 60.0, 10.0, 1.0  # of the one writer
MAX_ROWS = 16_384  # that a server gives in one answer, or searches for
PAGE_ROWS = 1_000  # read or written at a time
MAX_IDS = 10_000  # videos that a filter may leave to be named in a search; where more pass, hits are checked instead
KEPT_VIDEOS = 10_000  # looked up last
KEPT_SEGMENTS = 256  # videos whose segments were read last
AHEAD = 16  # videos of a search whose segments are read together
FOREVER = 2**62  # the generation that never comes
NOTHING = -1e15  # a number that the file does not say
MAX_BYTES, MAX_TEXT = 65_535, 20_000  # of a text in Milvus, and letters of a line
REFUSED = (6, 1100, 1101)  # codes of the server: what was asked for is wrong, whenever it is asked for
PIECE = 45_000  # bytes of a value in one row
EF, WIDE_EF = 256, 4_096  # how widely a graph is searched; and to see how much that misses
RECALL_QUERIES, RECALL_TOP = 32, 100
FULL_TEXT, INFIX = (2, 5), (2, 4)  # versions of the server from which on words, and parts of names, can be searched
NAME = re.compile(r"(?!.*_\d+$)[A-Za-z_][A-Za-z0-9_]{0,200}")  # NAME_512 is that of another one's segments
# Bytes of a name that are no text as letters that nobody uses: VARCHAR takes valid text only.
TO_TEXT = {0xDC00 + byte: 0xEF00 + byte for byte in range(0x80, 0x100)}
FROM_TEXT = {letter: surrogate for surrogate, letter in TO_TEXT.items()}
ABOUT = ("duration", "recorded", "latitude", "longitude")  # numbers of a video that filters look at
Row = dict[str, Any]
Value = TypeVar("Value")


class MilvusDatabase:
    """An index on a server.

    Args:
        address: ``milvus://[user:password@]host:19530/name``; with ``?tls`` encrypted. Without a host the path of a
            file of Milvus Lite comes first: ``milvus:///folder/file.db/name``.
    """

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        path, _, self.name = parts.path.rpartition("/")
        if not NAME.fullmatch(self.name) or not (parts.hostname or path):
            raise SearchError(
                f"{address!r} is no address of an index; write it as milvus://host:19530/name, "
                "the name of letters, digits and underscores, not ending in an underscore and a number"
            )
        host = f"{parts.hostname}:{parts.port or 19530}"
        self.address = f"milvus://{host if parts.hostname else path}/{self.name}"
        self._uri = f"http{'s' if 'tls' in parts.query else ''}://{host}" if parts.hostname else path
        self._login = {"user": unquote(parts.username or ""), "password": unquote(parts.password or "")}
        self._lock = threading.RLock()
        self._head: Row | None = None
        self._read_at, self.seen_at = float("-inf"), float("-inf")  # when it was read, and was another one
        self._refreshing = False
        self._lease = ""  # while this process is the writer
        self.rolled_back = False  # what a killed writer left, since this process writes

    # ---- the server -------------------------------------------------------------------------------------------

    @cached_property
    def client(self) -> Any:
        """The connection, made at the first use."""
        from pymilvus import MilvusClient

        logging.getLogger("pymilvus").setLevel(logging.CRITICAL)  # what fails is tried again, or raised
        return MilvusClient(self._uri, timeout=READ_SECONDS, **self._login)

    def call(self, method: str, *arguments: Any, seconds: float | None = None, **options: Any) -> Any:
        """Call a method of the client, again and again while the server is away."""
        seconds = seconds or READ_SECONDS
        return self._try(lambda: getattr(self.client, method)(*arguments, timeout=seconds, **options), seconds)

    def _try(self, call: Callable[[], Any], seconds: float) -> Any:
        from pymilvus.exceptions import MilvusException, ParamError

        end, pause = time.monotonic() + seconds, 0.1
        while True:
            try:
                return call()
            except ParamError:
                raise
            except (MilvusException, ConnectionError, ValueError) as error:  # a closed channel is a ValueError
                if time.monotonic() + pause > end or getattr(error, "code", 0) in REFUSED:
                    raise SearchError(
                        f"the Milvus server of {self.address} cannot be used: {first_line(error)}. Is it running, and "
                        "is the address right? What was written before is safe: try again when it is up"
                    ) from error
                time.sleep(pause)
                pause = min(2 * pause, 2.0)

    @cached_property
    def server_version(self) -> tuple[int, ...]:
        """Of the server; Milvus Lite has what the newest servers have."""
        version = str(self.call("get_server_version"))
        numbers = re.search(r"v?(\d+)\.(\d+)", version)
        return (99,) if "milvus_lite" in version or not numbers else tuple(map(int, numbers.groups()))

    @property
    def finds_text(self) -> bool:
        return self.server_version >= FULL_TEXT

    def level(self) -> str:
        """How long a read waits: for this process's own writes, for all of them, or hardly at all."""
        if self._lease:
            return "Session" if self.rolled_back else "Strong"
        return "Strong" if time.monotonic() - self.seen_at < SETTLED_SECONDS else "Bounded"

    def query(self, where: str, output: Sequence[str], *, width: int = 0, limit: int = MAX_ROWS) -> list[Row]:
        """Rows of the collection of segments of a width, or else of the other one; all, or at most ``limit``."""
        options: Row = {"filter": where, "output_fields": list(output), "consistency_level": self.level()}
        found = list(self.call("query", self.collection(width), limit=limit, **options))
        if len(found) == MAX_ROWS:  # there may be more than the server gives at a time
            return [row for page in self.pages(where, output, width=width) for row in page]
        return found

    def pages(self, where: str, output: Sequence[str], *, width: int = 0) -> Iterator[list[Row]]:
        """All rows that pass, some at a time."""
        options: Row = {"filter": where, "output_fields": list(output), "batch_size": PAGE_ROWS}
        iterator = self.call("query_iterator", self.collection(width), consistency_level=self.level(), **options)
        try:
            while page := self._try(iterator.next, READ_SECONDS):
                yield list(page)
        finally:
            iterator.close()

    def count(self, where: str, *, width: int = 0) -> int:
        """How many rows pass."""
        options: Row = {"filter": where, "output_fields": ["count(*)"], "consistency_level": self.level()}
        return int(self.call("query", self.collection(width), **options)[0]["count(*)"])

    def upsert(self, rows: Iterable[Row], *, width: int = 0) -> None:
        """Write rows, or replace those of the same ids."""
        rest = iter(rows)
        while some := list(islice(rest, PAGE_ROWS)):
            self.call("upsert", self.collection(width), some, seconds=WRITE_SECONDS)

    def delete(self, where: str, *, width: int = 0) -> None:
        """Delete rows: by their ids, since the server itself would miss some that were written a moment ago."""
        gone = [[row["id"] for row in page] for page in self.pages(where, ["id"], width=width)]
        for ids in gone:
            self.call("delete", self.collection(width), ids=ids, seconds=WRITE_SECONDS)
        if gone:  # reads that wait for this process's own writes do not wait for deletions; one that waits for all does
            options: Row = {"filter": where, "output_fields": ["id"], "consistency_level": "Strong"}
            self.call("query", self.collection(width), limit=1, **options)

    def collection(self, width: int = 0) -> str:
        """The collection of segments of a width, or else the other one."""
        return f"{self.name}_{width}" if width else self.name

    # ---- settings ---------------------------------------------------------------------------------------------

    def head(self) -> Row:
        """The row that says what counts; once it is known, it is looked for again in the background."""
        with self._lock:
            if self._head is None or (self._lease and not self.rolled_back):
                self._read_head()
            elif not (self._lease or self._refreshing) and time.monotonic() - self._read_at > FRESH_SECONDS:
                self._refreshing = True
                threading.Thread(target=self._refresh, name="milvus-head", daemon=True).start()
            if self._head is None:
                raise IndexNotFound(
                    f"there is no index {self.address}. Make one with `centerclip index FOLDER --index ...`, or copy "
                    "one with `centerclip copy`"
                )
            return self._head

    def _refresh(self) -> None:
        try:
            self._read_head()
        except SearchError:  # the server is away: what is known stays
            self._read_at = time.monotonic()
        finally:
            self._refreshing = False

    def _read_head(self) -> None:
        found = []
        if self._head is not None or self.call("has_collection", self.name):
            found = self.call(
                "query", self.name, filter='id == "head"', output_fields=["content"], consistency_level="Strong"
            )
        self._keep_head(json.loads(found[0]["content"]) if found else None)

    def _keep_head(self, head: Row | None) -> None:
        with self._lock:
            if head != self._head:
                self.seen_at = time.monotonic()
            self._head, self._read_at = head, time.monotonic()

    def commit(self, **changes: Any) -> None:
        """Write the head with changes: what was written before counts from now on."""
        self._check_lease()
        head = (self._head or {"generation": 0, "since": 1, "seconds": 0.0}) | changes
        head["version"] = head.get("version", 0) + 1
        content = json.dumps(head)
        if len(content) > MAX_BYTES:
            raise SearchError(
                f"{self.address}: the names of all folders, and of what is left out, are too long for Milvus together. "
                "Name a folder above them, or files in a .txt list"
            )
        self.upsert([self.row("head", "head", content=content)])
        self._keep_head(head)

    def exists(self) -> bool:
        try:
            return bool(self.head())
        except IndexNotFound:
            return False

    def version(self) -> int:
        """Changes whenever something in the index has changed; seen within some seconds."""
        return int(self.head()["version"])

    def settings(self) -> IndexSettings:
        content = self.head()["settings"]
        return IndexSettings.of(content, roots=list(map(from_key, content["roots"])))

    def save_settings(self, settings: IndexSettings, *, clear: bool = False) -> None:
        self._make_collection(settings.width)
        before = self._head if self.exists() else None
        changes: Row = {"settings": asdict(settings), "vectors": settings.vectors_id}
        changes["settings"]["roots"] = list(map(to_key, settings.roots))
        if clear and before:
            generation = before["generation"] + 1
            changes |= {"generation": generation, "since": generation + 1, "seconds": 0.0}
        self.commit(**changes)
        if clear and before:
            self.delete(f'kind != "head" and kind != "lease" and born <= {changes["generation"]}')
            width = before["settings"]["width"]
            if width != settings.width:
                self.call("drop_collection", self.collection(width), seconds=WRITE_SECONDS)
            else:
                self.delete(f"born <= {changes['generation']}", width=width)

    def _make_collection(self, width: int = 0) -> None:
        """Make the collection of segments of a width, or else the other one, unless it is there."""
        from pymilvus import DataType, Function, FunctionType

        if self.call("has_collection", self.collection(width)):
            return
        schema = self.client.create_schema(auto_id=False, enable_dynamic_field=False)
        indexes = self.client.prepare_index_params()
        texts = {"id": 160, "video": 64, "label": 1_000} | (
            {} if width else {"kind": 8, "key": MAX_BYTES, "content": MAX_BYTES}
        )
        for name, length in texts.items():
            schema.add_field(name, DataType.VARCHAR, max_length=length, is_primary=name == "id")
        for name in ("born", "died", *(("number", "draw") if width else ("size", "modified"))):
            schema.add_field(name, DataType.INT64)
        for name in ABOUT:
            schema.add_field(name, DataType.DOUBLE)
        if width:
            schema.add_field("start", DataType.FLOAT)
            schema.add_field("end", DataType.FLOAT)
            schema.add_field("vector", DataType.FLOAT_VECTOR, dim=width)
            graph = {"index_type": "HNSW", "params": {"M": 16, "efConstruction": 200}}
            indexes.add_index("vector", metric_type="IP", **graph)
        else:
            schema.add_field("failed", DataType.BOOL)
            schema.add_field("none", DataType.FLOAT_VECTOR, dim=2)  # a collection has to have vectors
            indexes.add_index("none", metric_type="IP", index_type="FLAT")
            if self.finds_text:
                schema.add_field("words", DataType.VARCHAR, max_length=MAX_BYTES, enable_analyzer=True)
                schema.add_field("sparse", DataType.SPARSE_FLOAT_VECTOR)
                schema.add_function(Function("bm25", FunctionType.BM25, ["words"], ["sparse"]))
                indexes.add_index("sparse", index_type="SPARSE_INVERTED_INDEX", metric_type="BM25")
        options: Row = {"schema": schema, "index_params": indexes, "consistency_level": "Bounded"}
        self.call("create_collection", self.collection(width), seconds=WRITE_SECONDS, **options)
        self.call("load_collection", self.collection(width), seconds=WRITE_SECONDS)

    def row(self, kind: str, id: str, *, words: str = "", **columns: Any) -> Row:
        """A row of the collection that has no segments."""
        empty = {"video": "", "key": "", "size": 0, "modified": 0, "failed": False, "label": "", "content": ""}
        row = {"id": id, "kind": kind, "born": 0, "died": FOREVER, "none": [0.0, 0.0], **empty}
        row |= dict.fromkeys(ABOUT, NOTHING) | columns
        return row | {"words": words[:MAX_TEXT]} if self.finds_text else row

    def store(self, settings: IndexSettings) -> "MilvusStore":
        return MilvusStore(self, settings.width, settings.vectors_id)

    def root_named(self, name: str) -> str:
        return next((root for root in self.settings().roots if os.path.basename(root) == name), "")  # noqa: PTH119

    def make_writable(self) -> None:
        """There is no older version."""

    def remove(self) -> None:
        width = self.settings().width if self.exists() else 0
        for name in {self.collection(), self.collection(width)}:
            if self.call("has_collection", name):
                self.call("drop_collection", name, seconds=WRITE_SECONDS)
        self._keep_head(None)

    def close(self) -> None:
        if "client" in vars(self):
            vars(self).pop("client").close()

    # ---- one writer -------------------------------------------------------------------------------------------

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the index for writing, or raise IndexBusy.

        The server cannot compare and swap: a writer leaves its mark, waits as long as another one may take from looking
        to writing, and looks whose mark is there. One that is not renewed is no longer valid; one of a process of this
        machine that has ended is not either.
        """
        with self._lock:
            if self._lease:
                raise IndexBusy(f"this process is writing to the index {self.address}; wait until it is done")
            self._make_collection()
            if self._holder():
                raise IndexBusy(f"{self._holder()} is writing to the index {self.address}; wait until it is done")
            self._lease, self.rolled_back = secrets.token_hex(8), False
        done = threading.Event()
        try:
            self._mark(time.time())
            time.sleep(SETTLE_SECONDS)
            self._check_lease()
            threading.Thread(target=self._renew, args=[done], name="milvus-lease", daemon=True).start()
            yield
            if self.call("has_collection", self.name):  # it may have been removed
                self._mark(0.0)
        finally:
            done.set()
            self._lease = ""
            self.seen_at = time.monotonic()  # others' reads of this process wait for what it has written

    def is_busy(self) -> bool:
        return bool(self._lease or self._holder())

    def _mark(self, when: float) -> None:
        mark = {"token": self._lease, "host": socket.gethostname(), "process": os.getpid(), "renewed": when}
        self.upsert([self.row("lease", "lease", content=json.dumps(mark))])

    def _renew(self, done: threading.Event) -> None:
        while not done.wait(RENEW_SECONDS):
            with self._lock:  # not after the mark of a writer that has ended
                if not done.is_set():
                    self._mark(time.time())

    def _read_lease(self) -> Row:
        where: Row = {"filter": 'id == "lease"', "output_fields": ["content"], "consistency_level": "Strong"}
        found = self.call("query", self.name, **where)
        return json.loads(found[0]["content"]) if found else {"token": "", "renewed": 0.0}

    def _holder(self) -> str:
        """Who writes now; empty for nobody."""
        if not self.call("has_collection", self.name):
            return ""
        lease = self._read_lease()
        if time.time() - lease["renewed"] > LEASE_SECONDS:
            return ""
        here = lease["host"] == socket.gethostname()
        if here and not _is_running(lease["process"]):
            return ""
        return f"process {lease['process']} of {lease['host']}"

    def _check_lease(self) -> None:
        if not self._lease or self._read_lease()["token"] != self._lease:
            raise IndexBusy(f"another process has taken over writing to the index {self.address}")


class MilvusStore:
    """A :class:`~centerclip.search.store.Store` on a server.

    Args:
        database: the index.
        width: of the vectors.
        vectors: ``vectors_id`` of the settings that they are made with.
    """

    def __init__(self, database: MilvusDatabase, width: int, vectors: str) -> None:
        self.database, self.width, self._vectors = database, width, vectors
        self._lock = threading.RLock()
        self._view: MilvusView | None = None

    def view(self) -> "MilvusView":
        """What is in the store now; what others have written is seen within some seconds."""
        with self._lock:
            head = self.database.head()
            same = head["vectors"] == self._vectors
            if self._view is None or (same and self._view.stamp != _stamp(head)):
                self._view = MilvusView(self.database, self.width, head)
            return self._view

    # ---- writing ----------------------------------------------------------------------------------------------

    @contextmanager
    def _step(self) -> Iterator[tuple[int, "MilvusView", Row]]:
        """The generation to write, the view before it, and changes of the head; all count at the end."""
        database = self.database
        with self._lock:
            head = database.head()
            if not database.rolled_back:
                self._roll_back(head["generation"])
                database.rolled_back = True
            changes: Row = {}
            try:
                yield head["generation"] + 1, self.view(), changes
                database.commit(generation=head["generation"] + 1, **changes)
            except BaseException:
                database.rolled_back = False
                raise

    def _roll_back(self, generation: int) -> None:
        """Undo what was written of generations that do not count."""
        for width in (0, self.width):
            self.database.delete(f"born > {generation}", width=width)
            self._end(f"died > {generation} and died < {FOREVER}", FOREVER, width)

    def _end(self, where: str, died: int, width: int) -> list[Row]:
        """Set from when on rows are gone; gives those of videos."""
        columns = ["id", "video", "born", *ABOUT, "label"]
        columns += ["number", "draw", "start", "end", "vector"] if width else ["kind", "key", "size", "modified"]
        columns += [] if width else ["failed", "content", "none", *(["words"] if self.database.finds_text else [])]
        videos: list[Row] = []
        for page in list(self.database.pages(where, columns, width=width)):  # before it is changed
            self.database.upsert(({**row, "died": died} for row in page), width=width)
            videos += [row for row in page if row.get("kind") == "video"]
        return videos

    def add(self, videos: Sequence[AddedVideo], files: Sequence[File]) -> None:
        with self._step() as (generation, before, changes):
            named = {video.id for video, _, _ in videos} | {file.video for file in files if file.video}
            there = before.about(named)
            fresh: dict[str, AddedVideo] = {}
            for added in videos:
                if added[0].id not in there:
                    fresh.setdefault(added[0].id, added)
            for video in named - there.keys() - fresh.keys():
                raise KeyError(video)
            for added in fresh.values():
                self._add_video(added[0], added[1], generation)
                self._add_lines(added[0].id, added[2], generation)
            latest = {file.path: file for file in files}
            for part in _parts(map(to_key, latest)):
                self._end(f'{before.alive} and kind == "file" and key in {_list(part)}', generation, 0)
            self.database.upsert(self._file_row(file, generation) for file in latest.values())
            seconds = sum(video.duration for video, _, _ in fresh.values())
            changes["seconds"] = self.database.head()["seconds"] + seconds

    def replace(self, video: Video, segments: Segments) -> None:
        with self._step() as (generation, before, _):
            if video.id not in before.about([video.id]):
                raise KeyError(video.id)
            this = f"{before.alive} and video == {_text(video.id)}"
            self._end(f'{this} and kind == "video"', generation, 0)
            self._end(this, generation, self.width)
            self._add_video(video, segments, generation)

    def add_lines(self, video: str, lines: Sequence[Line], source: TextSource) -> None:
        with self._step() as (generation, before, _):
            if video not in before.about([video]):
                raise KeyError(video)
            this = f"{before.alive} and video == {_text(video)} and key == {_text(source)}"
            self._end(f'{this} and (kind == "line" or kind == "read")', generation, 0)
            self._add_lines(video, [replace(line, source=source) for line in lines], generation)
            row: Row = {"video": video, "key": source, "born": generation}
            self.database.upsert([self.database.row("read", f"r{video}.{source}.{generation:x}", **row)])

    def remove(self, videos: Collection[str], paths: Collection[str]) -> None:
        with self._step() as (generation, before, changes):
            seconds = self.database.head()["seconds"]
            for part in _parts(videos):
                for width in (self.width, 0):
                    gone = self._end(f"{before.alive} and video in {_list(part)}", generation, width)
                    seconds -= sum(row["duration"] for row in gone)
            for part in _parts(map(to_key, paths)):
                self._end(f'{before.alive} and kind == "file" and key in {_list(part)}', generation, 0)
            changes["seconds"] = max(0.0, seconds)

    def move(self, old: str, new: str) -> int:
        with self._step() as (generation, before, changes):
            below = f'{before.alive} and kind == "file" and {_below(to_key(old))}'
            moved = [before.file_of(row) for page in self.database.pages(below, FILE_COLUMNS) for row in page]
            elsewhere = [replace(file, path=new + file.path[len(old) :]) for file in moved]
            for part in _parts(to_key(file.path) for file in [*moved, *elsewhere]):
                self._end(f'{before.alive} and kind == "file" and key in {_list(part)}', generation, 0)
            self.database.upsert(self._file_row(file, generation) for file in elsewhere)
            settings = dict(self.database.head()["settings"])
            roots = list(map(from_key, settings["roots"]))
            at = [new + root[len(old) :] if is_below(root, old) else root for root in roots]
            if any(is_below(file.path, root) for file in moved for root in roots):  # a part of a root leaves it
                at += [] if all(any(is_below(file.path, root) for root in at) for file in elsewhere) else [new]
            changes["settings"] = settings | {"roots": list(map(to_key, dict.fromkeys(at)))}
        return len(moved)

    def _add_video(self, video: Video, segments: Segments, generation: int) -> None:
        about = {name: NOTHING if getattr(video, name) is None else getattr(video, name) for name in ABOUT}
        common: Row = {"video": video.id, "born": generation, "label": storable(video.camera.casefold())[:250], **about}
        content = json.dumps([storable(each) if isinstance(each, str) else each for each in astuple(video)])
        id = f"{video.id}.{generation:x}"
        rows = (
            {
                "id": f"{id}.{number:x}",
                "number": number,
                "draw": _draw(f"{video.id}.{number:x}"),
                "died": FOREVER,
                "start": float(start),
                "end": float(end),
                "vector": np.asarray(vector, np.float32),
                **common,
            }
            for number, (start, end, vector) in enumerate(
                zip(segments.starts, segments.ends, np.asarray(segments.vectors, np.float16), strict=True)
            )
        )
        self.database.upsert(rows, width=self.width)
        common |= {"content": content, "size": len(segments), "key": video.detail or "fine"}
        self.database.upsert([self.database.row("video", f"v{id}", **common)])

    def _add_lines(self, video: str, lines: Sequence[Line], generation: int) -> None:
        rows = []
        for number, line in enumerate(lines):
            text = storable(line.text)[:MAX_TEXT]
            words = index_text(text)
            columns: Row = {"video": video, "key": line.source, "born": generation, "size": number}
            content = json.dumps([line.start, line.end, text, line.source], ensure_ascii=False)
            id = f"l{video}.{line.source}.{number:x}.{generation:x}"
            rows.append(self.database.row("line", id, content=content, words=f"{words} {stems_of(words)}", **columns))
        self.database.upsert(rows)

    def _file_row(self, file: File, generation: int) -> Row:
        key = to_key(file.path)
        id = f"f{hashlib.blake2b(key.encode(), digest_size=16).hexdigest()}.{generation:x}"
        facts: Row = {"key": key, "size": file.size, "modified": file.modified, "failed": bool(file.failure)}
        words = index_name(valid_text(file.path))
        facts["label"] = os.path.basename(key).casefold()[:250]  # noqa: PTH119 - no Path
        facts |= {"video": file.video, "content": storable(file.failure)[:MAX_TEXT], "born": generation}
        return self.database.row("file", id, words=f"{words} {stems_of(words)}" if file.video else "", **facts)

    def value(self, name: str) -> bytes | None:
        """What is kept under a name; None for nothing, and for what a killed writer left half written."""
        if not self.database.exists():
            return None
        this = f'kind == "value" and key == {_text(name)} and born == {-self.database.head()["since"]}'
        rows = self.database.query(this, ["size", "modified", "content"])
        pieces = {row["size"]: row["content"] for row in rows}
        content = b"".join(b64decode(pieces[number]) for number in sorted(pieces))
        return content if rows and all(row["modified"] == zlib.crc32(content) for row in rows) else None

    def set_value(self, name: str, value: bytes) -> None:
        pieces = [value[at : at + PIECE] for at in range(0, max(1, len(value)), PIECE)]
        mark: Row = {"key": name, "modified": zlib.crc32(value), "born": -self.database.head()["since"]}
        self.database.upsert(
            self.database.row("value", f"value/{name}/{n}", size=n, content=b64encode(piece).decode(), **mark)
            for n, piece in enumerate(pieces)
        )
        self.database.delete(f'kind == "value" and key == {_text(name)} and size >= {len(pieces)}')

    def tidy(self, queries: Floats) -> None:
        """Delete for good what is gone, and see how much a search misses, after many changes."""
        generation = self.database.head()["generation"]
        for width in (0, self.width):
            if self.database.count(f"died <= {generation}", width=width):
                self.database.delete(f"died <= {generation}", width=width)
        view = self.view()
        measured, _ = _recall(self)
        if view.count() > MAX_EXACT_SEGMENTS and abs(view.count() - measured) > 0.2 * measured:
            shares = []
            for query in queries[:RECALL_QUERIES]:
                found, best = (
                    {id for id, _ in view.nearest(query, RECALL_TOP, ef=ef, column="id")} for ef in (EF, WIDE_EF)
                )
                shares.append(len(found & best) / max(1, len(best)))
            if shares:
                self.set_value("recall", json.dumps([view.count(), float(np.mean(shares))]).encode())

    def bytes(self) -> int:
        """Of the vectors, which are most of it: the server does not say."""
        return 4 * self.width * self.view().count()


FILE_COLUMNS = ("video", "key", "size", "modified", "content", "failed")


class MilvusView:
    """A :class:`~centerclip.search.store.View` of one generation. Only what was looked up last is in memory."""

    is_listed = False

    def __init__(self, database: MilvusDatabase, width: int, head: Row) -> None:
        self.database, self.width, self.stamp = database, width, _stamp(head)
        generation, since, roots = self.stamp
        self.alive = f"born >= {since} and born <= {generation} and died > {generation}"
        self._seconds = head["seconds"]
        self._roots = sorted(map(from_key, roots), key=len, reverse=True)
        self.videos: Mapping[str, Video] = _Paged(self, "video", lambda row: Video(*json.loads(row["content"])))
        self.files: Mapping[str, File] = _Paged(self, "file", self.file_of)
        self._lock = threading.Lock()
        self._about: OrderedDict[str, tuple[Video, int]] = OrderedDict()
        self._segments: OrderedDict[str, Segments] = OrderedDict()
        self._ahead: list[str] = []  # videos in the order of the last search
        self._samples: dict[int, Floats] = {}
        self._passing: dict[Filters, list[str] | None] = {}

    @property
    def finds_text(self) -> bool:
        return self.database.finds_text

    @cached_property
    def has_lines(self) -> bool:
        return bool(self.database.query(f'{self.alive} and kind == "line"', ["id"], limit=1))

    def file_of(self, row: Row) -> File:
        """A file from its row."""
        path = from_key(row["key"])
        root = next((root for root in self._roots if is_below(path, root)), "")
        return File(path, row["size"], row["modified"], row["video"], row["content"], root)

    # ---- looking up -------------------------------------------------------------------------------------------

    def about(self, videos: Collection[str]) -> dict[str, tuple[Video, int]]:
        """Those of the videos that are there, with their numbers of segments."""
        with self._lock:
            known = {video: self._about[video] for video in videos if video in self._about}
        for part in _parts(video for video in videos if video not in known):
            where = f'{self.alive} and kind == "video" and video in {_list(part)}'
            found = {row["video"]: row for row in self.database.query(where, ["video", "content", "size"])}
            known |= {video: (Video(*json.loads(row["content"])), row["size"]) for video, row in found.items()}
        with self._lock:
            _remember(self._about, known, KEPT_VIDEOS)
        return known

    def with_files(self, videos: Collection[str]) -> dict[str, tuple[Video, list[File]]]:
        files: dict[str, list[File]] = {}
        for part in _parts(videos):
            for row in self.database.query(f'{self.alive} and kind == "file" and video in {_list(part)}', FILE_COLUMNS):
                files.setdefault(row["video"], []).append(self.file_of(row))
        about = self.about(files.keys())
        return {video: (about[video][0], files[video]) for video in videos if video in files and video in about}

    def files_at(self, paths: Iterable[str]) -> dict[str, File]:
        found: dict[str, File] = {}
        for part in _parts(map(to_key, paths)):
            where = f'{self.alive} and kind == "file" and key in {_list(part)}'
            found |= {file.path: file for file in map(self.file_of, self.database.query(where, FILE_COLUMNS))}
        return found

    def has_size(self, size: int) -> bool:
        where = f'{self.alive} and kind == "file" and failed == false and size == {size}'
        return bool(self.database.query(where, ["id"], limit=1))

    def totals(self) -> Totals:
        videos, files = (f'{self.alive} and kind == "{kind}"' for kind in ("video", "file"))
        photos = self.database.count(f"{videos} and duration == 0.0")
        is_offline = offline_check()
        gone = [root for root in self._roots if is_offline(File(f"{root}{os.sep}x", 0, 0, "", root=root))]
        failed = (row for page in self.database.pages(f"{files} and failed == true", FILE_COLUMNS) for row in page)
        return Totals(
            videos=len(self.videos),
            photos=photos,
            files=self.database.count(f"{files} and failed == false"),
            seconds=self._seconds,
            details={
                name: n
                for name in ORDER
                if (n := self.database.count(f'{videos} and duration > 0.0 and key == "{name}"'))
            },
            failed={file.path: file.failure for file in map(self.file_of, failed)},
            offline=sum(self.database.count(f"{files} and {_below(to_key(root))}") for root in gone),
            offline_roots=frozenset(gone),
        )

    def size(self, video: str) -> int:
        return self.about([video])[video][1]

    def segments(self, video: str) -> Segments:
        """The segments of a video, read with those that a search has found next; KeyError when it is not there."""
        with self._lock:
            if video in self._segments:
                return self._segments[video]
            at = self._ahead.index(video) + 1 if video in self._ahead else len(self._ahead)
            together = [video, *self._ahead[at : at + AHEAD]]
        sizes = self.about(together)
        while len(together) > 1 and sum(size for _, size in sizes.values()) > MAX_ROWS:
            sizes.pop(together.pop(), None)
        found = self._read_segments(together)
        if video not in found:
            raise KeyError(video)
        with self._lock:
            _remember(self._segments, found, KEPT_SEGMENTS)
        return found[video]

    def _read_segments(self, videos: list[str]) -> dict[str, Segments]:
        columns, where = ["video", "number", "start", "end", "vector"], f"{self.alive} and video in {_list(videos)}"
        parts: dict[str, list[Row]] = {}
        for row in sorted(self.database.query(where, columns, width=self.width), key=lambda row: row["number"]):
            parts.setdefault(row["video"], []).append(row)
        return {
            video: Segments(*(np.array([row[name] for row in part], np.float32) for name in ("start", "end", "vector")))
            for video, part in parts.items()
        }

    def lines(self, video: str) -> list[Line]:
        where = f'{self.alive} and kind == "line" and video == {_text(video)}'
        rows = [row for page in self.database.pages(where, ["size", "content"]) for row in page]
        lines = [Line(*json.loads(row["content"])) for row in sorted(rows, key=lambda row: row["size"])]
        return sorted(lines, key=lambda line: line.start)

    def read_videos(self, source: TextSource) -> set[str]:
        where = f'{self.alive} and kind == "read" and key == {_text(source)}'
        return {row["video"] for page in self.database.pages(where, ["video"]) for row in page}

    # ---- searching --------------------------------------------------------------------------------------------

    def count(self) -> int:
        return self._count

    @cached_property
    def _count(self) -> int:
        return self.database.count(self.alive, width=self.width)

    def sample(self, count: int) -> Floats:
        """Vectors ``[N, D]`` of about ``count`` segments: those whose keys hash to little."""
        if count not in self._samples:
            least = DRAWS if self.count() <= 4 * count else int(1.5 * count / self.count() * DRAWS)
            rows = self.database.query(f"{self.alive} and draw < {least}", ["id", "vector"], width=self.width)
            rows.sort(key=lambda row: row["id"])
            self._samples[count] = np.array([row["vector"] for row in rows], np.float32).reshape(-1, self.width)
        return self._samples[count]

    def recall(self) -> float:
        """Share of the best segments that a wider search finds too, as it was measured last."""
        return _recall(self)[1]

    def search(self, query: Floats, top: int, *, among: Among = None) -> SegmentHits:
        """About the ``top`` segments with the largest dot products, at most 16,384."""
        where, passing = self._where(among)
        limit = min(top, MAX_ROWS)
        while limit > 0:
            found = self.nearest(query, limit, where)
            kept = found if passing is None else _kept(found, passing({video for video, _ in found}))
            if len(kept) >= min(top, MAX_ROWS) or len(found) < limit or limit == MAX_ROWS:
                self._ahead = list(dict.fromkeys(video for video, _ in kept))
                kept = kept[:top]
                return SegmentHits([video for video, _ in kept], np.array([score for _, score in kept], np.float32))
            limit = min(4 * limit, MAX_ROWS)
        return SegmentHits([], np.zeros(0, np.float32))

    def nearest(
        self, query: Floats, limit: int, where: str = "", *, ef: int = EF, column: str = "video"
    ) -> list[tuple[str, float]]:
        """The videos (or ids) and scores of the best segments that pass, by a search that is ``ef`` wide."""
        options: Row = {
            "search_params": {"metric_type": "IP", "params": {"ef": max(ef, limit)}},
            "output_fields": [column],
        }
        hits = self.database.call(
            "search",
            self.database.collection(self.width),
            data=[np.asarray(query, np.float32).tolist()],
            anns_field="vector",
            filter=f"{self.alive} and {where}" if where else self.alive,
            limit=limit,
            consistency_level=self.database.level(),
            **options,
        )[0]
        return [(hit["id"] if column == "id" else hit["entity"][column], hit["distance"]) for hit in hits]

    def search_lines(self, match: str, top: int, *, among: Among = None) -> list[LineHit]:
        """The ``top`` lines that match best. A word that is only begun (``zep*``) is not found."""
        lines = [(row["video"], Line(*json.loads(row["content"]))) for row in self._match(match, "line", top, among)]
        found = match_texts(match, (index_text(line.text) for _, line in lines))
        hits = [LineHit(**vars(lines[at][1]), video=lines[at][0], rank=rank) for at, rank in found]
        kept = _kept([(hit.video, hit) for hit in hits], self._passing_of(among)({hit.video for hit in hits}))
        return [hit for _, hit in kept][:top]

    def search_names(self, match: str, top: int, *, among: Among = None) -> list[tuple[str, str, float]]:
        files = [self.file_of(row) for row in self._match(match, "file", top, among)]
        found = match_texts(match, (index_name(valid_text(file.path)) for file in files))
        hits = [(files[at].video, (files[at].path, files[at].video, rank)) for at, rank in found]
        return [hit for _, hit in _kept(hits, self._passing_of(among)({video for video, _ in hits}))][:top]

    def _match(self, match: str, kind: str, top: int, among: Among) -> list[Row]:
        """Rows that have a word of an FTS5 expression, those of the best BM25 rank: more than ``top``."""
        words = " ".join(dict.fromkeys(word for part in re.findall(r'"([^"]*)"|(\w+)', match) for word in part if word))
        if not (self.finds_text and words and top > 0):
            return []
        where = f'{self.alive} and kind == "{kind}"'
        if among is not None and not isinstance(among, Filters):
            where += f" and video in {_list(among)}"
        hits = self.database.call(
            "search",
            self.database.collection(),
            data=[words],
            anns_field="sparse",
            filter=where,
            limit=min(4 * top, MAX_ROWS),
            search_params={"metric_type": "BM25"},
            output_fields=list(FILE_COLUMNS),
            consistency_level=self.database.level(),
        )[0]
        return [hit["entity"] for hit in hits]

    # ---- filters ----------------------------------------------------------------------------------------------

    def _passing_of(self, among: Among) -> Callable[[set[str]], set[str]]:
        """Which videos of some pass."""
        if among is None or among == Filters():
            return lambda videos: videos
        if not isinstance(among, Filters):
            return set(among).intersection
        return lambda videos: {
            video
            for video, (known, files) in self.with_files(videos).items()
            if among.keep_video(known) and any(map(among.keep_file, files))
        }

    def _where(self, among: Among) -> tuple[str, Callable[[set[str]], set[str]] | None]:
        """What segments have to pass on the server, and what their videos have to pass afterwards."""
        if among is None:
            return "", None
        if not isinstance(among, Filters):
            return f"video in {_list(among)}", None
        where, exact = self._about_video(among)
        if exact and not self._about_file(among):
            return where, None
        if among not in self._passing:
            if len(self._passing) >= KEPT_FILTERS:
                self._passing.clear()
            self._passing[among] = self._few_passing(among, where, exact)
        few = self._passing[among]
        return (where, self._passing_of(among)) if few is None else (f"video in {_list(few)}", None)

    def _few_passing(self, filters: Filters, where: str, exact: bool) -> list[str] | None:
        """The videos that pass; None where they are many."""
        about_file = self._about_file(filters)
        passing: dict[str, None] = {}
        kind = f'kind == "{"file" if about_file else "video"}"'
        conditions = [self.alive, kind, *([about_file] if about_file else [where] if where else [])]
        for page in self.database.pages(" and ".join(conditions), FILE_COLUMNS):
            videos = {row["video"] for row in page if not about_file or filters.keep_file(self.file_of(row))} - {""}
            known = {} if exact and not where else self.about(videos)
            passing |= dict.fromkeys(
                video for video in videos if video not in known or filters.keep_video(known[video][0])
            )
            if len(passing) > MAX_IDS:
                return None
        return list(passing)

    def _about_video(self, filters: Filters) -> tuple[str, bool]:
        """A condition that all videos meet which pass a filter, and whether no others do."""
        conditions = {"videos": ["duration > 0.0"], "photos": ["duration == 0.0"]}.get(filters.only, [])
        if filters.min_duration is not None or filters.max_duration is not None:
            conditions.append("duration > 0.0")
        conditions += _range("duration", filters.min_duration, filters.max_duration, "<=")
        if filters.recorded_after is not None or filters.recorded_before is not None:
            conditions.append(f"recorded > {NOTHING}")
        conditions += _range("recorded", filters.recorded_after, filters.recorded_before)
        conditions += [f"video != {_text(filters.without)}"] if filters.without else []
        if filters.near is not None:
            around = filters.near[2] / 110.5 + 0.01  # degrees
            conditions += _range("latitude", filters.near[0] - around, filters.near[0] + around)
        if filters.camera and self.database.server_version >= INFIX:
            conditions += _like(filters.camera)
        return " and ".join(conditions), not filters.camera and filters.near is None

    def _about_file(self, filters: Filters) -> str:
        """A condition that all files meet which pass a filter; empty when it says nothing about files."""
        conditions = [] if filters.folder is None else [_below(to_key(filters.folder))]
        after, before = (None if when is None else round(when * 1e9) for when in (filters.after, filters.before))
        conditions += _range("modified", after, before)
        if filters.name is not None:
            conditions += ["failed == false", *(_like(filters.name) if self.database.server_version >= INFIX else [])]
        return " and ".join(conditions)


class _Paged(Mapping[str, Value], Generic[Value]):
    """Rows of a kind, looked up one by one, or all some at a time."""

    def __init__(self, view: MilvusView, kind: str, value: Callable[[Row], Value]) -> None:
        self._view, self._value = view, value
        self._key = "video" if kind == "video" else "key"
        self._where = f'{view.alive} and kind == "{kind}"'

    def __getitem__(self, key: str) -> Value:
        found = self._view.database.query(
            f"{self._where} and {self._key} == {_text(to_key(key))}", FILE_COLUMNS, limit=1
        )
        if not found:
            raise KeyError(key)
        return self._value(found[0])

    def __iter__(self) -> Iterator[str]:
        return (key for key, _ in self.pages())

    @cached_property
    def _length(self) -> int:
        return self._view.database.count(self._where)

    def __len__(self) -> int:
        return self._length

    def pages(self) -> Iterator[tuple[str, Value]]:
        """All of them."""
        for page in self._view.database.pages(self._where, FILE_COLUMNS):
            yield from ((from_key(row[self._key]), self._value(row)) for row in page)

    def items(self) -> ItemsView[str, Value]:
        """Keys and values, without looking each up."""
        return _Items(self)

    def values(self) -> ValuesView[Value]:
        """Values, without looking each up."""
        return _Values(self)


class _Items(ItemsView[str, Value]):
    def __iter__(self) -> Iterator[tuple[str, Value]]:
        return self._mapping.pages()  # type: ignore[attr-defined]


class _Values(ValuesView[Value]):
    def __iter__(self) -> Iterator[Value]:
        return (value for _, value in self._mapping.pages())  # type: ignore[attr-defined]


DRAWS = 2**31


def _draw(id: str) -> int:
    """A number from 0 to ``DRAWS`` that is as good as drawn."""
    return int.from_bytes(hashlib.blake2b(id.encode(), digest_size=4).digest(), "little") % DRAWS


def _stamp(head: Row) -> tuple[int, int, tuple[str, ...]]:
    return head["generation"], head["since"], tuple(head["settings"]["roots"])


def _recall(store: "MilvusStore | MilvusView") -> tuple[int, float]:
    """Of how many segments, and how much, a search found when it was measured last."""
    values = MilvusStore(store.database, store.width, "").value("recall")
    count, share = json.loads(values) if values else (0, 1.0)
    return int(count), float(share)


def _remember(kept: OrderedDict[str, Any], new: Mapping[str, Any], limit: int) -> None:
    for key, value in new.items():
        kept[key] = value
        kept.move_to_end(key)
    while len(kept) > max(limit, len(new)):
        kept.popitem(last=False)


def _kept(found: Iterable[tuple[str, Value]], passing: set[str]) -> list[tuple[str, Value]]:
    return [(video, each) for video, each in found if video in passing]


def _parts(each: Iterable[str]) -> Iterator[list[str]]:
    """Some at a time."""
    rest = iter(each)
    while some := list(islice(rest, PAGE_ROWS)):
        yield some


def to_key(path: str) -> str:
    """A path as the server keeps it: valid text, with "/" between its parts."""
    return os.fsdecode(to_stored(path)).translate(TO_TEXT)


def from_key(key: str) -> str:
    """The path of a key."""
    return from_stored(os.fsencode(key.translate(FROM_TEXT)))


def _text(text: str) -> str:
    """Text in a condition."""
    return json.dumps(text, ensure_ascii=False)


def _list(texts: Iterable[str]) -> str:
    return f"[{', '.join(map(_text, texts))}]"


def _below(folder: str) -> str:
    base = folder.rstrip("/")
    return f"(key == {_text(folder)} or (key >= {_text(base + '/')} and key < {_text(base + '0')}))"  # 0 follows /


def _range(column: str, low: float | None, high: float | None, below: str = "<") -> list[str]:
    return ([] if low is None else [f"{column} >= {low}"]) + ([] if high is None else [f"{column} {below} {high}"])


def _like(pattern: str) -> list[str]:
    """A condition that a pattern of names implies: the longest part of it that stands for itself."""
    part = max(re.split(r"\[.*?\]|[^\w .-]|_", pattern.casefold()), key=len)
    return [f'label like "%{part}%"'] if part else []


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True
