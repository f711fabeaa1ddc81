"""Reading: videos, files and lines as they are looked up, searches and filters."""

import json
import os
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, ItemsView, Iterable, Iterator, Mapping, ValuesView
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic

import numpy as np

from ...files import is_below, valid_text
from ...video.sampling import ORDER
from ..filters import KEPT_FILTERS, Filters, Totals, offline_check
from ..store import Among, File, Floats, Line, LineHit, SegmentHits, Segments, TextSource, Video
from ..text import index_name, index_text, match_texts
from .rows import (
    DRAWS,
    FILE_COLUMNS,
    INFIX,
    MAX_ROWS,
    NOTHING,
    Row,
    Value,
    from_key,
    in_parts,
    in_range,
    key_below,
    like,
    listed,
    quoted,
    stamp_of,
    to_key,
)

if TYPE_CHECKING:
    from .database import MilvusDatabase

MAX_IDS = 10_000  # videos that a filter may leave to be named in a search; where more pass, hits are checked instead
KEPT_VIDEOS = 10_000  # looked up last
KEPT_SEGMENTS = 256  # videos whose segments were read last
AHEAD = 16  # videos of a search whose segments are read together
EF, WIDE_EF = 256, 4_096  # how widely a graph is searched; and to see how much that misses


class MilvusView:
    """A :class:`~centerclip.search.store.View` of one generation. Only what was looked up last is in memory."""

    is_listed = False

    def __init__(self, database: "MilvusDatabase", width: int, head: Row) -> None:
        self.database, self.width, self.stamp = database, width, stamp_of(head)
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
        for part in in_parts(video for video in videos if video not in known):
            where = f'{self.alive} and kind == "video" and video in {listed(part)}'
            found = {row["video"]: row for row in self.database.query(where, ["video", "content", "size"])}
            known |= {video: (Video(*json.loads(row["content"])), row["size"]) for video, row in found.items()}
        with self._lock:
            _remember(self._about, known, KEPT_VIDEOS)
        return known

    def with_files(self, videos: Collection[str]) -> dict[str, tuple[Video, list[File]]]:
        files: dict[str, list[File]] = {}
        for part in in_parts(videos):
            for row in self.database.query(
                f'{self.alive} and kind == "file" and video in {listed(part)}', FILE_COLUMNS
            ):
                files.setdefault(row["video"], []).append(self.file_of(row))
        about = self.about(files.keys())
        return {video: (about[video][0], files[video]) for video in videos if video in files and video in about}

    def files_at(self, paths: Iterable[str]) -> dict[str, File]:
        found: dict[str, File] = {}
        for part in in_parts(map(to_key, paths)):
            where = f'{self.alive} and kind == "file" and key in {listed(part)}'
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
            offline=sum(self.database.count(f"{files} and {key_below(to_key(root))}") for root in gone),
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
        columns, where = ["video", "number", "start", "end", "vector"], f"{self.alive} and video in {listed(videos)}"
        parts: dict[str, list[Row]] = {}
        for row in sorted(self.database.query(where, columns, width=self.width), key=lambda row: row["number"]):
            parts.setdefault(row["video"], []).append(row)
        return {
            video: Segments(*(np.array([row[name] for row in part], np.float32) for name in ("start", "end", "vector")))
            for video, part in parts.items()
        }

    def lines(self, video: str) -> list[Line]:
        where = f'{self.alive} and kind == "line" and video == {quoted(video)}'
        rows = [row for page in self.database.pages(where, ["size", "content"]) for row in page]
        lines = [Line(*json.loads(row["content"])) for row in sorted(rows, key=lambda row: row["size"])]
        return sorted(lines, key=lambda line: line.start)

    def read_videos(self, source: TextSource) -> set[str]:
        where = f'{self.alive} and kind == "read" and key == {quoted(source)}'
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
        return self.database.measured_recall()[1]

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
            where += f" and video in {listed(among)}"
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
            return f"video in {listed(among)}", None
        where, exact = self._about_video(among)
        if exact and not self._about_file(among):
            return where, None
        if among not in self._passing:
            if len(self._passing) >= KEPT_FILTERS:
                self._passing.clear()
            self._passing[among] = self._few_passing(among, where, exact)
        few = self._passing[among]
        return (where, self._passing_of(among)) if few is None else (f"video in {listed(few)}", None)

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
        conditions += in_range("duration", filters.min_duration, filters.max_duration, "<=")
        if filters.recorded_after is not None or filters.recorded_before is not None:
            conditions.append(f"recorded > {NOTHING}")
        conditions += in_range("recorded", filters.recorded_after, filters.recorded_before)
        conditions += [f"video != {quoted(filters.without)}"] if filters.without else []
        if filters.near is not None:
            around = filters.near[2] / 110.5 + 0.01  # degrees
            conditions += in_range("latitude", filters.near[0] - around, filters.near[0] + around)
        if filters.camera and self.database.server_version >= INFIX:
            conditions += like(filters.camera)
        return " and ".join(conditions), not filters.camera and filters.near is None

    def _about_file(self, filters: Filters) -> str:
        """A condition that all files meet which pass a filter; empty when it says nothing about files."""
        conditions = [] if filters.folder is None else [key_below(to_key(filters.folder))]
        after, before = (None if when is None else round(when * 1e9) for when in (filters.after, filters.before))
        conditions += in_range("modified", after, before)
        if filters.name is not None:
            conditions += ["failed == false", *(like(filters.name) if self.database.server_version >= INFIX else [])]
        return " and ".join(conditions)


class _Paged(Mapping[str, Value], Generic[Value]):
    """Rows of a kind, looked up one by one, or all some at a time."""

    def __init__(self, view: MilvusView, kind: str, value: Callable[[Row], Value]) -> None:
        self._view, self._value = view, value
        self._key = "video" if kind == "video" else "key"
        self._where = f'{view.alive} and kind == "{kind}"'

    def __getitem__(self, key: str) -> Value:
        found = self._view.database.query(
            f"{self._where} and {self._key} == {quoted(to_key(key))}", FILE_COLUMNS, limit=1
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


def _remember(kept: OrderedDict[str, Any], new: Mapping[str, Any], limit: int) -> None:
    for key, value in new.items():
        kept[key] = value
        kept.move_to_end(key)
    while len(kept) > max(limit, len(new)):
        kept.popitem(last=False)


def _kept(found: Iterable[tuple[str, Value]], passing: set[str]) -> list[tuple[str, Value]]:
    return [(video, each) for video, each in found if video in passing]
