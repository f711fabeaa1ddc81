"""The server: its calls, what the head says, and the one writer."""

import json
import logging
import os
import re
import secrets
import socket
import threading
import time
import zlib
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from ...errors import IndexBusy, IndexNotFound, SearchError, first_line
from ..folder import IndexSettings
from . import rows
from .rows import (
    ABOUT,
    FOREVER,
    FULL_TEXT,
    MAX_BYTES,
    MAX_ROWS,
    MAX_TEXT,
    NOTHING,
    Row,
    from_key,
    in_parts,
    quoted,
    to_key,
)

if TYPE_CHECKING:
    from .store import MilvusStore

READ_SECONDS, WRITE_SECONDS = 30.0, 300.0  # how long a call is tried again while the server cannot be reached
FRESH_SECONDS = 2.0  # after which the head is read again, in the background
SETTLED_SECONDS = 15.0  # after a generation was seen first, reads need not wait for it: three times Milvus' own bound
LEASE_SECONDS, RENEW_SECONDS, SETTLE_SECONDS = 60.0, 10.0, 1.0  # of the one writer
REFUSED = (6, 1100, 1101)  # codes of the server: what was asked for is wrong, whenever it is asked for
NAME = re.compile(r"(?!.*_\d+$)[A-Za-z_][A-Za-z0-9_]{0,200}")  # NAME_512 is that of another one's segments


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
        options: Row = {"filter": where, "output_fields": list(output), "batch_size": rows.PAGE_ROWS}
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

    def upsert(self, all_rows: Iterable[Row], *, width: int = 0) -> None:
        """Write rows, or replace those of the same ids."""
        for some in in_parts(all_rows):
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
        from .store import MilvusStore

        return MilvusStore(self, settings.width, settings.vectors_id)

    def value(self, name: str) -> bytes | None:
        """What is kept under a name; None for nothing, and for what a killed writer left half written."""
        if not self.exists():
            return None
        this = f'kind == "value" and key == {quoted(name)} and born == {-self.head()["since"]}'
        rows = self.query(this, ["size", "modified", "content"])
        pieces = {row["size"]: row["content"] for row in rows}
        content = b"".join(b64decode(pieces[number]) for number in sorted(pieces))
        return content if rows and all(row["modified"] == zlib.crc32(content) for row in rows) else None

    def measured_recall(self) -> tuple[int, float]:
        """Of how many segments, and how much, a search found when it was measured last."""
        kept = self.value("recall")
        count, share = json.loads(kept) if kept else (0, 1.0)
        return int(count), float(share)

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


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True
