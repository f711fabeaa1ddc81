"""Writing: steps of rows that count together."""

import hashlib
import json
import os
import threading
import zlib
from base64 import b64encode
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, replace
from typing import TYPE_CHECKING

import numpy as np

from ...files import is_below, valid_text
from ..matrix import MAX_EXACT_SEGMENTS
from ..roots import storable
from ..store import AddedVideo, File, Floats, Line, Segments, TextSource, Video
from ..text import index_name, index_text, stems_of
from .rows import (
    ABOUT,
    FILE_COLUMNS,
    FOREVER,
    MAX_TEXT,
    NOTHING,
    Row,
    drawn,
    from_key,
    in_parts,
    key_below,
    listed,
    quoted,
    stamp_of,
    to_key,
)
from .view import EF, WIDE_EF, MilvusView

if TYPE_CHECKING:
    from .database import MilvusDatabase

PIECE = 45_000  # bytes of a value in one row
RECALL_QUERIES, RECALL_TOP = 32, 100


class MilvusStore:
    """A :class:`~centerclip.search.store.Store` on a server.

    Args:
        database: the index.
        width: of the vectors.
        vectors: ``vectors_id`` of the settings that they are made with.
    """

    def __init__(self, database: "MilvusDatabase", width: int, vectors: str) -> None:
        self.database, self.width, self._vectors = database, width, vectors
        self._lock = threading.RLock()
        self._view: MilvusView | None = None

    def view(self) -> MilvusView:
        """What is in the store now; what others have written is seen within some seconds."""
        with self._lock:
            head = self.database.head()
            same = head["vectors"] == self._vectors
            if self._view is None or (same and self._view.stamp != stamp_of(head)):
                self._view = MilvusView(self.database, self.width, head)
            return self._view

    # ---- writing ----------------------------------------------------------------------------------------------

    @contextmanager
    def _step(self) -> Iterator[tuple[int, MilvusView, Row]]:
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
            for part in in_parts(map(to_key, latest)):
                self._end(f'{before.alive} and kind == "file" and key in {listed(part)}', generation, 0)
            self.database.upsert(self._file_row(file, generation) for file in latest.values())
            seconds = sum(video.duration for video, _, _ in fresh.values())
            changes["seconds"] = self.database.head()["seconds"] + seconds

    def replace(self, video: Video, segments: Segments) -> None:
        with self._step() as (generation, before, _):
            if video.id not in before.about([video.id]):
                raise KeyError(video.id)
            this = f"{before.alive} and video == {quoted(video.id)}"
            self._end(f'{this} and kind == "video"', generation, 0)
            self._end(this, generation, self.width)
            self._add_video(video, segments, generation)

    def add_lines(self, video: str, lines: Sequence[Line], source: TextSource) -> None:
        with self._step() as (generation, before, _):
            if video not in before.about([video]):
                raise KeyError(video)
            this = f"{before.alive} and video == {quoted(video)} and key == {quoted(source)}"
            self._end(f'{this} and (kind == "line" or kind == "read")', generation, 0)
            self._add_lines(video, [replace(line, source=source) for line in lines], generation)
            row: Row = {"video": video, "key": source, "born": generation}
            self.database.upsert([self.database.row("read", f"r{video}.{source}.{generation:x}", **row)])

    def remove(self, videos: Collection[str], paths: Collection[str]) -> None:
        with self._step() as (generation, before, changes):
            seconds = self.database.head()["seconds"]
            for part in in_parts(videos):
                for width in (self.width, 0):
                    gone = self._end(f"{before.alive} and video in {listed(part)}", generation, width)
                    seconds -= sum(row["duration"] for row in gone)
            for part in in_parts(map(to_key, paths)):
                self._end(f'{before.alive} and kind == "file" and key in {listed(part)}', generation, 0)
            changes["seconds"] = max(0.0, seconds)

    def move(self, old: str, new: str) -> int:
        with self._step() as (generation, before, changes):
            below = f'{before.alive} and kind == "file" and {key_below(to_key(old))}'
            moved = [before.file_of(row) for page in self.database.pages(below, FILE_COLUMNS) for row in page]
            elsewhere = [replace(file, path=new + file.path[len(old) :]) for file in moved]
            for part in in_parts(to_key(file.path) for file in [*moved, *elsewhere]):
                self._end(f'{before.alive} and kind == "file" and key in {listed(part)}', generation, 0)
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
                "draw": drawn(f"{video.id}.{number:x}"),
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
        return self.database.value(name)

    def set_value(self, name: str, value: bytes) -> None:
        pieces = [value[at : at + PIECE] for at in range(0, max(1, len(value)), PIECE)]
        mark: Row = {"key": name, "modified": zlib.crc32(value), "born": -self.database.head()["since"]}
        self.database.upsert(
            self.database.row("value", f"value/{name}/{n}", size=n, content=b64encode(piece).decode(), **mark)
            for n, piece in enumerate(pieces)
        )
        self.database.delete(f'kind == "value" and key == {quoted(name)} and size >= {len(pieces)}')

    def tidy(self, queries: Floats) -> None:
        """Delete for good what is gone, and see how much a search misses, after many changes."""
        generation = self.database.head()["generation"]
        for width in (0, self.width):
            if self.database.count(f"died <= {generation}", width=width):
                self.database.delete(f"died <= {generation}", width=width)
        view = self.view()
        measured, _ = self.database.measured_recall()
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
