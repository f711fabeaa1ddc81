"""An approximate index for collections whose segments are too many for one product: faiss, IVF with product
quantisation, from the extra ``centerclip[large]``.

It keeps 64 bytes a segment and gives candidates; their exact scores come from a copy of the vectors in the order of
their rows, since finding a place inside a blob of the database means reading the blob up to there. Both are files that
are mapped, not read. They cover the videos up to a key of the database. What is newer is searched exactly, what is gone
is left out, so that neither adding nor removing a video touches them."""

import json
import os
import shutil
import threading
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..files import move_into_place, scratch_folder
from ..parallel import usable_cores
from .matrix import MAX_EXACT_SEGMENTS, Rows
from .sqlite import Contents, SqliteStore, SqliteView, connect, decoded
from .store import Among, Floats, SegmentHits, Segments

Selection = tuple[NDArray[np.uint8], float]  # a bit for each row, and the share of them that are set
Batch = tuple[Rows, Rows, Floats]  # keys [V] and sizes [V] of videos, vectors [sum, D]
NAME = "approximate"  # of the value in the database that names the folder in use, and how that begins
ROWS, LISTS = "rows.npz", "lists.faiss"  # its files beside the vectors
ROWS_PER_BATCH = 50_000  # read at a time: 100 MB, however long the videos are
MAX_FILTERED = 20_000  # segments that a filter leaves; so few are compared one by one
EXTEND_SHARE, EXTEND_ROWS = 0.1, 50_000  # of newer rows, of which both are reached when they are taken in
RETRAIN_GROWTH = 2.0  # lists are made anew when there are so many times the rows
MAX_DEAD = 0.25  # of the rows; with more, too
CODE_BYTES = 64  # of a segment
TRAINING_ROWS_PER_LIST = 40
KMEANS_ITERATIONS = 8
SAMPLE_ROWS = 4096
TUNING_QUERIES = 128
TARGET_RECALL = 0.98  # of the best ten, among the tuning queries
RECALL_AT = 10
CANDIDATES = 400  # at least so many get exact scores
FACTS = ("sample", "trained_rows", "probes", "recall")  # that stay when an index is extended


class ApproximateIndex:
    """Segments by number, in the order of their videos' keys. Safe to use from several threads.

    Args:
        folder: of one that :func:`build` or :func:`extend` has written.

    Attributes:
        keys: ``[V]`` of its videos, ascending.
        begins: ``[V + 1]`` first row of each video.
        sample: ``[N, D]`` vectors, evenly spread over the collection.
        trained_rows: segments that there were when the lists were made.
        probes: lists to look through for a query.
        recall: share of the best ten that the tuning queries found.
    """

    def __init__(self, folder: Path) -> None:
        faiss = _faiss()
        self.folder = folder
        with np.load(folder / ROWS) as kept:
            self.keys: Rows = kept["keys"]
            self.begins: Rows = kept["begins"]
            self.sample: Floats = kept["sample"].astype(np.float32)
            self.trained_rows, self.probes = int(kept["trained_rows"]), int(kept["probes"])
            self.recall = float(kept["recall"])
        self.parts = sorted(folder.glob("vectors-*.f2"))
        width = self.sample.shape[1]
        self._vectors = [np.memmap(part, "<f2", "r").reshape(-1, width) for part in self.parts]
        if sum(map(len, self._vectors)) != self.rows:
            raise ValueError("vectors are missing")
        self._index = faiss.read_index(str(folder / LISTS), faiss.IO_FLAG_MMAP | faiss.IO_FLAG_READ_ONLY)
        self._lock = threading.Lock()

    @property
    def last_key(self) -> int:
        """The greatest key of a covered video."""
        return int(self.keys[-1])

    @property
    def rows(self) -> int:
        """How many segments are covered, also those that are gone since."""
        return int(self.begins[-1])

    @property
    def lists(self) -> int:
        """How many lists the rows are divided into."""
        return int(self._index.nlist)

    def selection(self, wanted: NDArray[np.bool_]) -> Selection:
        """For :meth:`candidates`: the rows of the videos that are ``wanted`` ``[V]``."""
        rows = np.repeat(wanted, np.diff(self.begins))
        return np.packbits(rows, bitorder="little"), float(rows.mean())

    def candidates(self, query: Floats, count: int, selection: Selection | None = None) -> Rows:
        """About ``count`` rows whose vectors are near ``query`` ``[D]``, of a selection; of all by default."""
        faiss = _faiss()
        probes, named = self.probes, {}
        if selection is not None:
            bits, share = selection
            # The rows that pass are spread over more lists than the nearest rows are.
            probes = int(min(self.lists, probes * max(1.0, max(share, 1e-6) ** -0.5)))
            named["sel"] = faiss.IDSelectorBitmap(bits)
        parameters = faiss.SearchParametersIVF(nprobe=probes, **named)
        with self._lock:
            _, rows = self._index.search(query[None].astype(np.float32), count, params=parameters)
        return rows[0][rows[0] >= 0]

    def scores(self, rows: Rows, query: Floats) -> Floats:
        """The exact scores of ascending ``rows`` ``[N]``."""
        scores, first = [np.zeros(0, np.float32)], 0
        for part in self._vectors:
            inside = rows[slice(*np.searchsorted(rows, (first, first + len(part))))]
            scores.append(part[inside - first].astype(np.float32) @ query)
            first += len(part)
        return np.concatenate(scores)

    def places_of(self, rows: Rows) -> Rows:
        """The video of each row, as a place in ``keys``."""
        return np.searchsorted(self.begins, rows, side="right") - 1


class LargeView(SqliteView):
    """A view whose older rows are in an approximate index and in the database, and only the newer ones in memory."""

    def __init__(self, store: SqliteStore, contents: Contents, index: ApproximateIndex, ids: Mapping[int, str]) -> None:
        super().__init__(store, contents, index)
        self.index = index
        self._ids = [ids.get(key) for key in index.keys.tolist()]  # None where the video is gone

    @cached_property
    def _still_there(self) -> Selection | None:
        """What every search that has no filter looks through; None for all."""
        there = np.array([each is not None for each in self._ids], dtype=bool)
        return None if there.all() else self.index.selection(there)

    @property
    def covered(self) -> Collection[str]:
        """Ids of the videos in the approximate index."""
        return self._places.keys()

    @cached_property
    def _places(self) -> dict[str, int]:
        return {video: place for place, video in enumerate(self._ids) if video is not None}

    def segments(self, video: str) -> Segments:
        query = "SELECT starts, ends, vectors FROM segments JOIN video ON video = key WHERE id = ?"
        with self._database.read() as connection:
            row = connection.execute(query, (video,)).fetchone() if video in self.videos else None
        if row is None:
            raise KeyError(video)
        starts, ends, vectors = decoded(self._database, self.width, video, *row)
        return Segments(starts, ends, vectors.astype(np.float32))

    def search(self, query: Floats, top: int, *, among: Among = None) -> SegmentHits:
        """About the ``top`` segments with the largest scores, of the videos ``among``; the scores are exact."""
        if top < 1:
            return SegmentHits([], np.zeros(0, np.float32))
        among = self.passing(among)
        newer = super().search(query, top, among=among)
        rows = np.sort(self._candidates(query, top, among))
        scores = np.concatenate([self.index.scores(rows, query), newer.scores])
        order = np.argsort(-scores, kind="stable")[:top]
        older = order[order < len(rows)]
        places = dict(zip(older.tolist(), self.index.places_of(rows[older]).tolist(), strict=True))
        there = self._existing({int(self.index.keys[place]) for place in places.values()})
        kept = [at for at in order.tolist() if at not in places or int(self.index.keys[places[at]]) in there]
        videos = [str(self._ids[places[at]]) if at in places else newer.videos[at - len(rows)] for at in kept]
        return SegmentHits(videos, scores[kept])

    def _existing(self, keys: Collection[int]) -> set[int]:
        """Those of the keys whose videos have not gone since this view was made."""
        query = "SELECT key FROM video WHERE key IN (SELECT value FROM json_each(?))"
        with self._database.read() as connection:
            return {key for (key,) in connection.execute(query, (json.dumps(list(keys)),))}

    def sample(self, count: int) -> Floats:
        """Vectors ``[N, D]`` of about ``count`` rows, at most those that were kept when the index was made."""
        return self.index.sample[:: max(1, len(self.index.sample) // max(count, 1))]

    def recall(self) -> float:
        """As it was when the index was made."""
        return self.index.recall

    def _candidates(self, query: Floats, top: int, among: Collection[str] | None) -> Rows:
        count = max(CANDIDATES, 2 * top)
        if among is None:
            return self.index.candidates(query, count, self._still_there)
        wanted = np.zeros(len(self._ids), dtype=bool)
        wanted[[self._places[video] for video in among if video in self._places]] = True
        begins, ends = self.index.begins[:-1][wanted], self.index.begins[1:][wanted]
        if (ends - begins).sum() <= MAX_FILTERED:
            return np.concatenate([np.arange(*span) for span in zip(begins, ends, strict=True)] or [np.zeros(0, int)])
        return self.index.candidates(query, count, self.index.selection(wanted))


def open_index(store: SqliteStore, name: str) -> ApproximateIndex | None:
    """The approximate index of a store by its folder's name; None when it, or faiss, is not there."""
    try:
        return ApproximateIndex(store.database.folder / name)
    except (ImportError, OSError, EOFError, ValueError, KeyError, RuntimeError, zipfile.BadZipFile):
        return None


def keep_up(store: SqliteStore, queries: Floats) -> None:
    """Make the approximate index of a store, extend it or remove it, if that is due. The caller writes alone."""
    folder = store.database.folder
    for path in folder.glob(f".{NAME}-*"):  # of a run that was killed
        shutil.rmtree(path, ignore_errors=True)
    view = store.view()
    index = view.index if isinstance(view, LargeView) else None
    rows, target = view.count(), folder / f"{NAME}-{_next_number(folder)}"
    if rows <= MAX_EXACT_SEGMENTS:
        if store.value(NAME):
            store.set_value(NAME, b"")
    elif is_available():
        alive = sum(view.size(video) for video in view.covered) if isinstance(view, LargeView) else 0
        if index is None or rows > RETRAIN_GROWTH * index.trained_rows or index.rows - alive > MAX_DEAD * index.rows:
            build(target, lambda: _batches(store), store.width, rows, queries)
        elif rows - alive >= max(EXTEND_ROWS, EXTEND_SHARE * index.rows):
            extend(index, _batches(store, after=index.last_key), target)
        if target.exists():
            store.set_value(NAME, target.name.encode())
    used = (store.value(NAME) or b"").decode()
    for path in folder.glob(f"{NAME}-*"):
        if path.name != used:
            shutil.rmtree(path, ignore_errors=True)


def _next_number(folder: Path) -> int:
    numbers = [path.name.rpartition("-")[2] for path in folder.glob(f"{NAME}-*")]
    return max((int(number) for number in numbers if number.isdecimal()), default=0) + 1


def _batches(store: SqliteStore, after: int = 0) -> Iterator[Batch]:
    """All videos in the order of their keys, over a connection of its own: searches need not wait."""
    with closing(connect(store.database.path, "mode=ro")) as connection:
        cursor = connection.execute(
            "SELECT video, count, vectors FROM segments WHERE video > ? ORDER BY video", (after,)
        )
        batch, rows = list[Any](), 0
        for row in cursor:
            batch.append(row)
            rows += row[1]
            if rows >= ROWS_PER_BATCH:
                yield _arrays(batch, store.width)
                batch, rows = [], 0
        if batch:
            yield _arrays(batch, store.width)


def _arrays(rows: list[tuple[int, int, bytes]], width: int) -> Batch:
    keys, sizes = (np.array([row[column] for row in rows], np.int64) for column in (0, 1))
    vectors = np.frombuffer(b"".join(row[2] for row in rows), "<f2").reshape(-1, width)
    return keys, sizes, vectors.astype(np.float32)


def is_available() -> bool:
    """Whether faiss is installed."""
    try:
        _faiss()
    except ImportError:
        return False
    return True


def build(target: Path, batches: Callable[[], Iterator[Batch]], width: int, rows: int, queries: Floats) -> None:
    """Make the index anew.

    Args:
        target: its folder, replaced when everything is written.
        batches: gives all videos in the order of their keys, each time it is called.
        width: of the vectors.
        rows: how many there are in all, about.
        queries: ``[Q, D]`` such as people ask, to choose the number of probes with.
    """
    faiss = _faiss()
    faiss.omp_set_num_threads(usable_cores())
    lists = max(1, int(4 * rows**0.5))
    share = min(1.0, max(TRAINING_ROWS_PER_LIST * lists, SAMPLE_ROWS) / max(rows, 1))
    random = np.random.default_rng(0)
    training = np.concatenate([vectors[random.random(len(vectors)) < share] for _, _, vectors in batches()])
    lists = max(1, min(lists, len(training) // TRAINING_ROWS_PER_LIST or 1))
    index = faiss.index_factory(width, f"IVF{lists},PQ{_codes(width)}np", faiss.METRIC_INNER_PRODUCT)
    index.cp.niter, index.cp.spherical = KMEANS_ITERATIONS, True
    index.train(training)
    sample = training[:: max(1, len(training) // SAMPLE_ROWS)].copy()
    del training  # a gigabyte of a large collection
    with scratch_folder(target) as scratch:
        keys, sizes = _add(index, batches(), scratch / _part(0))
        probes, recall = _tune(index, queries, batches()) if len(queries) else (1, 1.0)
        facts = {"sample": sample, "trained_rows": rows, "probes": probes, "recall": recall}
        _write(scratch, index, keys, sizes, facts)
        move_into_place(scratch, target)  # its vectors cannot be checked later


def extend(old: ApproximateIndex, fresh: Iterator[Batch], target: Path) -> None:
    """Add videos that are newer to an index: its lists stay as they were trained."""
    index = _faiss().read_index(str(old.folder / LISTS))
    with scratch_folder(target) as scratch:
        for part in old.parts:
            try:
                (scratch / part.name).hardlink_to(part)
            except OSError:  # a disk that has no links
                shutil.copyfile(part, scratch / part.name)
        keys, sizes = _add(index, fresh, scratch / _part(old.rows))
        keys, sizes = np.concatenate([old.keys, keys]), np.concatenate([np.diff(old.begins), sizes])
        _write(scratch, index, keys, sizes, {name: getattr(old, name) for name in FACTS})
        move_into_place(scratch, target)  # its vectors cannot be checked later


def _part(first: int) -> str:
    """The name of a file with vectors, in the order of their rows from ``first`` on."""
    return f"vectors-{first:012}.f2"


def _add(index: Any, batches: Iterator[Batch], part: Path) -> tuple[Rows, Rows]:
    """Add videos to an index of faiss, and their vectors to a file; their keys and sizes."""
    keys, sizes = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    with part.open("wb") as file:
        for batch_keys, batch_sizes, vectors in batches:
            if len(vectors):
                index.add(np.ascontiguousarray(vectors, dtype=np.float32))
            file.write(vectors.astype("<f2").tobytes())  # tofile would not say that the disk is full
            keys.append(batch_keys)
            sizes.append(batch_sizes)
    return np.concatenate(keys), np.concatenate(sizes)


def _write(folder: Path, index: Any, keys: Rows, sizes: Rows, facts: dict[str, Any]) -> None:
    """Write what an index has beside its vectors: of the videos with these keys and sizes, and the FACTS about it."""
    # Not by faiss itself, which leaves half a file where the disk is full.
    (folder / LISTS).write_bytes(_faiss().serialize_index(index))
    sample = np.asarray(facts["sample"], np.float16)
    np.savez(folder / ROWS, keys=keys, begins=np.concatenate([[0], np.cumsum(sizes)]), **{**facts, "sample": sample})


def _tune(index: Any, queries: Floats, batches: Iterator[Batch]) -> tuple[int, float]:
    """The fewest lists to look through with which the tuning queries find their best rows among the candidates."""
    queries = queries[np.linspace(0, len(queries) - 1, min(TUNING_QUERIES, len(queries))).astype(int)]
    best, probes = _best_rows(batches, queries), 1
    while True:
        _, rows = index.search(queries, CANDIDATES, params=_faiss().SearchParametersIVF(nprobe=probes))
        recall = float(np.mean([np.isin(each, row).mean() for each, row in zip(best, rows, strict=True)]))
        if recall >= TARGET_RECALL or probes >= index.nlist:
            return probes, recall
        probes = min(index.nlist, max(probes + 1, int(probes * 1.4)))


def _best_rows(batches: Iterator[Batch], queries: Floats) -> Rows:
    """The exact best rows of each query, ``[Q, RECALL_AT]``."""
    rows, scores, first = np.zeros((len(queries), 0), np.int64), np.zeros((len(queries), 0), np.float32), 0
    for _, _, vectors in batches:
        piece = queries @ vectors.T
        numbers = np.broadcast_to(np.arange(first, first + len(vectors)), piece.shape)
        rows, scores = np.concatenate([rows, numbers], axis=1), np.concatenate([scores, piece], axis=1)
        order = np.argsort(-scores, axis=1, kind="stable")[:, :RECALL_AT]
        rows, scores = np.take_along_axis(rows, order, axis=1), np.take_along_axis(scores, order, axis=1)
        first += len(vectors)
    return rows


def _codes(width: int) -> int:
    """Bytes of a code: they must divide the width."""
    return next(count for count in range(min(CODE_BYTES, width), 0, -1) if width % count == 0)


def _faiss() -> Any:
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # threads that spin take the processor from each other
    import faiss

    return faiss
