"""An approximate index for collections whose segments are too many for one product: faiss, IVF with product
quantisation, from the extra ``centerclip[large]``.

It keeps 64 bytes a segment in a file that is mapped, not read, and gives candidates; their exact scores come from the
database. It covers the videos up to a key of the database. What is newer is searched exactly, what is gone is left
out, so that neither adding nor removing a video touches the file."""

import json
import os
import shutil
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..files import scratch_folder
from ..parallel import usable_cores
from .matrix import MAX_EXACT_SEGMENTS, Rows
from .sqlite import Contents, SqliteStore, SqliteView, connect, decoded
from .store import Floats, SegmentHits, Segments

Selection = tuple[NDArray[np.uint8], float]  # a bit for each row, and the share of them that are set
Batch = tuple[Rows, Rows, Floats]  # keys [V] and sizes [V] of videos, vectors [sum, D]
NAME = "approximate"  # of the value in the database that names the folder in use, and how that begins
FORMAT = 1
VIDEOS_PER_BATCH = 2000  # read at a time
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


@dataclass(frozen=True)
class Description:
    """What is kept beside the index.

    Attributes:
        trained_rows: segments that there were when the lists were made.
        probes: lists to look through for a query.
        recall: share of the best ten that the tuning queries found.
    """

    trained_rows: int
    probes: int
    recall: float
    format: int = FORMAT


class ApproximateIndex:
    """Segments by number, in the order of their videos' keys. Safe to use from several threads.

    Args:
        folder: of one that :func:`build` or :func:`extend` has written.
    """

    def __init__(self, folder: Path) -> None:
        faiss = _faiss()
        self.folder = folder
        self.description = Description(**json.loads((folder / "description.json").read_text(encoding="utf-8")))
        if self.description.format != FORMAT:
            raise ValueError("another format")
        self.keys: Rows = np.load(folder / "keys.npy")  # [V] ascending
        self.begins: Rows = np.load(folder / "begins.npy")  # [V + 1] first row of each video
        self.sample: Floats = np.load(folder / "sample.npy").astype(np.float32)
        self._index = faiss.read_index(str(folder / "lists.faiss"), faiss.IO_FLAG_MMAP | faiss.IO_FLAG_READ_ONLY)
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
        probes, named = self.description.probes, {}
        if selection is not None:
            bits, share = selection
            # The rows that pass are spread over more lists than the nearest rows are.
            probes = int(min(self.lists, probes * max(1.0, max(share, 1e-6) ** -0.5)))
            named["sel"] = faiss.IDSelectorBitmap(bits)
        parameters = faiss.SearchParametersIVF(nprobe=probes, **named)
        with self._lock:
            _, rows = self._index.search(query[None].astype(np.float32), count, params=parameters)
        return rows[0][rows[0] >= 0]

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
        """The segments of a video; KeyError when it is not there."""
        query = "SELECT starts, ends, vectors FROM segments JOIN video ON video = key WHERE id = ?"
        with self._database.read() as connection:
            row = connection.execute(query, (video,)).fetchone() if video in self.videos else None
        if row is None:
            raise KeyError(video)
        starts, ends, vectors = decoded(self._database, self.width, video, *row)
        return Segments(starts, ends, vectors.astype(np.float32))

    def search(self, query: Floats, top: int, *, among: Collection[str] | None = None) -> SegmentHits:
        """About the ``top`` segments with the largest scores, of the videos ``among``; the scores are exact."""
        if top < 1:
            return SegmentHits([], np.zeros(0, np.float32))
        newer = super().search(query, top, among=among)
        rows, scores = self._scored(self._candidates(query, top, among), query)
        videos = [*(self._ids[place] for place in self.index.places_of(rows).tolist()), *newer.videos]
        scores = np.concatenate([scores, newer.scores])
        order = np.argsort(-scores, kind="stable")[:top]
        return SegmentHits([str(videos[place]) for place in order.tolist()], scores[order])

    def sample(self, count: int) -> Floats:
        """Vectors ``[N, D]`` of about ``count`` rows, at most those that were kept when the index was made."""
        return self.index.sample[:: max(1, len(self.index.sample) // max(count, 1))]

    def recall(self) -> float:
        """As it was when the index was made."""
        return self.index.description.recall

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

    def _scored(self, rows: Rows, query: Floats) -> tuple[Rows, Floats]:
        """The exact scores of rows, without those whose video went after this view was made."""
        rows = np.sort(rows)
        places = self.index.places_of(rows)
        numbers, size = rows - self.index.begins[places], 2 * self.width
        vectors, found = bytearray(), np.ones(len(rows), dtype=bool)
        with self._database.read() as connection:
            first = 0
            while first < len(rows):
                last = first + int(np.searchsorted(places[first:], places[first], side="right"))
                try:
                    with connection.blobopen(
                        "segments", "vectors", int(self.index.keys[places[first]]), readonly=True
                    ) as blob:
                        for number in numbers[first:last].tolist():
                            blob.seek(number * size)
                            vectors += blob.read(size)
                except sqlite3.OperationalError:
                    found[first:last] = False
                first = last
        values = np.frombuffer(vectors, "<f2").reshape(-1, self.width).astype(np.float32)
        return rows[found], values @ query


def open_index(store: SqliteStore, name: str) -> ApproximateIndex | None:
    """The approximate index of a store by its folder's name; None when it, or faiss, is not there."""
    try:
        return ApproximateIndex(store.database.folder / name)
    except (ImportError, OSError, ValueError, TypeError, KeyError, RuntimeError):
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
        if (
            index is None
            or rows > RETRAIN_GROWTH * index.description.trained_rows
            or index.rows - alive > MAX_DEAD * index.rows
        ):
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
        while rows := list(islice(cursor, VIDEOS_PER_BATCH)):
            vectors = np.frombuffer(b"".join(row[2] for row in rows), "<f2").reshape(-1, store.width)
            keys, sizes = (np.array([row[column] for row in rows], np.int64) for column in (0, 1))
            yield keys, sizes, vectors.astype(np.float32)


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
    index.train(np.ascontiguousarray(training, dtype=np.float32))
    keys, sizes = _add(index, batches())
    probes, recall = _tune(index, queries, batches()) if len(queries) else (1, 1.0)
    _write(target, index, keys, sizes, training, Description(rows, probes, recall))


def extend(old: ApproximateIndex, fresh: Iterator[Batch], target: Path) -> None:
    """Add videos that are newer to an index: its lists stay as they were trained."""
    index = _faiss().read_index(str(old.folder / "lists.faiss"))
    keys, sizes = _add(index, fresh)
    keys, sizes = np.concatenate([old.keys, keys]), np.concatenate([np.diff(old.begins), sizes])
    _write(target, index, keys, sizes, old.sample, old.description)


def _add(index: Any, batches: Iterator[Batch]) -> tuple[Rows, Rows]:
    """Add videos to an index of faiss; their keys and sizes."""
    keys, sizes = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for batch_keys, batch_sizes, vectors in batches:
        if len(vectors):
            index.add(np.ascontiguousarray(vectors, dtype=np.float32))
        keys.append(batch_keys)
        sizes.append(batch_sizes)
    return np.concatenate(keys), np.concatenate(sizes)


def _write(target: Path, index: Any, keys: Rows, sizes: Rows, training: Floats, description: Description) -> None:
    """Write an index of the videos with these keys and sizes, with a sample of its vectors, whole or not at all."""
    with scratch_folder(target) as scratch:
        _faiss().write_index(index, str(scratch / "lists.faiss"))
        np.save(scratch / "keys.npy", keys)
        np.save(scratch / "begins.npy", np.concatenate([[0], np.cumsum(sizes)]))
        step = max(1, len(training) // SAMPLE_ROWS)
        np.save(scratch / "sample.npy", training[::step].astype(np.float16))
        (scratch / "description.json").write_text(json.dumps(asdict(description)), encoding="utf-8")
        scratch.rename(target)


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
