"""All segments of a collection as one matrix, and an inverted file (IVF) for the largest ones.

The inverted file holds plain vectors. It is ours and not the database's because filters then cost nothing and are
exact, and because how many lists to probe is found by trying: with the sentences that the collection is calibrated
with, which lie apart from images in a CLIP's space, so that trying it with images would promise too much."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from .store import File, Floats, SegmentHits, Segments, Video

Rows = NDArray[np.int64]
MIN_IVF_ROWS = 250_000  # segments; below, the product with all of them takes no longer
MAX_EXHAUSTIVE_ROWS = 100_000  # that a filter leaves; up to so many are all compared
TARGET_RECALL = 0.97  # of the best segments, on the tuning queries; 0.95 is what the documentation promises
RECALL_AT = 32  # best segments of a query that recall is measured on
TUNING_QUERIES = 64
KMEANS_ITERATIONS = 8  # more move few centres and find no more
TRAINING_ROWS_PER_LIST = 48  # for k-means
CHUNK_ROWS = 65_536  # multiplied at a time, to bound the memory


@dataclass(frozen=True, eq=False)
class Matrix:
    """A :class:`~centerclip.search.store.View`: blocks, less the videos that are gone since those were made."""

    width: int
    videos: Mapping[str, Video]
    files: Mapping[str, File]
    blocks: "Sequence[Block]"
    gone: frozenset[str] = frozenset()
    _alive: dict[int, NDArray[np.bool_] | None] = field(default_factory=dict)
    _samples: dict[int, Floats] = field(default_factory=dict)  # every search looks at one

    def count(self) -> int:
        """How many segments there are."""
        alive = [self._wanted(number, block, None) for number, block in enumerate(self.blocks)]
        return sum(
            len(block) if kept is None else int(kept[block.owners].sum())
            for block, kept in zip(self.blocks, alive, strict=True)
        )

    def segments(self, video: str) -> Segments:
        """The segments of a video; KeyError when it is not there."""
        if video not in self.gone:
            for block in self._holding(video):
                return block.segments(video)
        raise KeyError(video)

    def search(self, query: Floats, top: int, *, among: Collection[str] | None = None) -> SegmentHits:
        """The ``top`` segments with the largest scores, of the videos ``among``."""
        videos: list[str] = []
        parts: list[Floats] = []
        for number, block in enumerate(self.blocks):
            wanted = self._wanted(number, block, among)
            if top < 1 or not len(block) or (wanted is not None and not wanted.any()):
                continue
            rows, scores = block.best(query, top, wanted)
            videos += [block.ids[owner] for owner in block.owners[rows].tolist()]
            parts.append(scores)
        if not parts:
            return SegmentHits([], np.zeros(0, np.float32))
        scores = np.concatenate(parts)
        order = np.argsort(-scores, kind="stable")[:top]
        return SegmentHits([videos[row] for row in order.tolist()], scores[order])

    def sample(self, count: int) -> Floats:
        """Vectors of about ``count`` rows, evenly spread."""
        if count not in self._samples:
            self._samples[count] = self._take_sample(count)
        return self._samples[count]

    def _take_sample(self, count: int) -> Floats:
        step = max(1, sum(len(block) for block in self.blocks) // max(count, 1))
        parts = [block.vectors[::step] for block in self.blocks]
        return np.concatenate(parts) if parts else np.zeros((0, self.width), np.float32)

    def recall(self) -> float:
        """Share of the best segments that a search finds."""
        return min((block.ivf.recall for block in self.blocks if block.ivf is not None), default=1.0)

    def _holding(self, video: str) -> "Iterable[Block]":
        return (block for block in self.blocks if video in block.places)

    def _wanted(self, number: int, block: "Block", among: Collection[str] | None) -> NDArray[np.bool_] | None:
        """``[V]`` which videos of a block count; None for all."""
        if among is not None:
            wanted = np.zeros(len(block.ids), dtype=bool)
            wanted[[block.places[v] for v in among if v in block.places and v not in self.gone]] = True
            return wanted
        if number not in self._alive:
            alive = np.array([video not in self.gone for video in block.ids], dtype=bool)
            self._alive[number] = None if alive.all() else alive
        return self._alive[number]


@dataclass(frozen=True)
class Block:
    """Rows that were loaded together.

    Attributes:
        ids: ids of ``V`` videos.
        owners: ``[N]`` place in ``ids`` of each row's video.
        spans: ``[N, 2]`` start and end, seconds.
        vectors: ``[N, D]`` float32, often mapped from a file.
        ivf: the lists that the rows are stored in, when comparing all of them would take long.
    """

    ids: list[str]
    owners: NDArray[np.int32]
    spans: Floats
    vectors: Floats
    ivf: "IVF | None" = None

    @classmethod
    def of(cls, parts: Iterable[tuple[str, Segments]], width: int) -> "Block":
        """Stack the segments of videos."""
        videos = list(parts)
        counts = [len(segments) for _, segments in videos]
        spans = [np.stack([segments.starts, segments.ends], axis=1) for _, segments in videos]
        return cls(
            [video for video, _ in videos],
            np.repeat(np.arange(len(videos), dtype=np.int32), counts),
            np.concatenate(spans) if spans else np.zeros((0, 2), np.float32),
            np.concatenate([s.vectors for _, s in videos]) if videos else np.zeros((0, width), np.float32),
        )

    def __len__(self) -> int:
        return len(self.owners)

    @cached_property
    def places(self) -> dict[str, int]:
        """Place of every id."""
        return {video: place for place, video in enumerate(self.ids)}

    @cached_property
    def _by_video(self) -> tuple[Rows, Rows]:
        """Rows in the order of their videos and of time, and where each video's begin."""
        order = np.lexsort((self.spans[:, 0], self.owners))
        return order, np.searchsorted(self.owners[order], np.arange(len(self.ids) + 1))

    def rows_of(self, place: int) -> Rows:
        """The rows of a video, in the order of time."""
        order, begins = self._by_video
        return order[begins[place] : begins[place + 1]]

    def segments(self, video: str) -> Segments:
        """The segments of a video."""
        rows = self.rows_of(self.places[video])
        if len(rows) and rows[-1] - rows[0] == len(rows) - 1:
            rows = slice(rows[0], rows[-1] + 1)  # type: ignore[assignment]  # neighbours: no copy
        spans = self.spans[rows]
        return Segments(spans[:, 0], spans[:, 1], self.vectors[rows])

    def best(self, query: Floats, top: int, wanted: NDArray[np.bool_] | None) -> tuple[Rows, Floats]:
        """Up to ``top`` rows with the largest scores, in any order, and these scores.

        Args:
            query: ``[D]``.
            top: how many.
            wanted: ``[V]`` which videos count; None for all.
        """
        if self.ivf is None:
            scores = self.vectors @ query
            if wanted is not None:
                scores[~wanted[self.owners]] = -np.inf
            rows = np.arange(len(scores)) if len(scores) <= top else np.argpartition(scores, -top)[-top:]
            return _finite(rows, scores[rows])
        if wanted is not None:
            allowed = wanted[self.owners]
            chosen = np.flatnonzero(allowed)
            if len(chosen) <= MAX_EXHAUSTIVE_ROWS:
                pieces = [self.vectors[chosen[i : i + CHUNK_ROWS]] @ query for i in range(0, len(chosen), CHUNK_ROWS)]
                return _largest(chosen, np.concatenate(pieces), top)
            return self.ivf.best(self.vectors, query, top, allowed)
        return self.ivf.best(self.vectors, query, top, None)


@dataclass(frozen=True)
class IVF:
    """An inverted file: rows are stored list by list, each list around a centre.

    Attributes:
        centres: ``[L, D]``.
        begins: ``[L + 1]`` first row of each list.
        probes: lists that a query is compared with.
        recall: share of the best segments that were found with so many, on the tuning queries.
    """

    centres: Floats
    begins: NDArray[np.int64]
    probes: int
    recall: float

    def best(self, vectors: Floats, query: Floats, top: int, allowed: NDArray[np.bool_] | None) -> tuple[Rows, Floats]:
        """Up to ``top`` rows with the largest scores in the nearest lists, and these scores.

        Args:
            vectors: ``[N, D]`` in the order of the lists.
            query: ``[D]``.
            top: how many.
            allowed: ``[N]`` which rows count; None for all. The fewer count, the more lists are probed.
        """
        probes = self.probes if allowed is None else int(self.probes * len(allowed) / max(1, int(allowed.sum())))
        nearest = np.argsort(-(self.centres @ query))
        rows, scores, count = [], [], 0
        for probed, number in enumerate(nearest):
            if probed >= probes and count >= top:
                break
            begin, end = self.begins[number], self.begins[number + 1]
            part = np.arange(begin, end)
            values = vectors[begin:end] @ query
            if allowed is not None:
                kept = allowed[begin:end]
                part, values = part[kept], values[kept]
            rows.append(part)
            scores.append(values)
            count += len(part)
        return _largest(np.concatenate(rows), np.concatenate(scores), top)


def tune_ivf(vectors: Floats, centres: Floats, begins: NDArray[np.int64], queries: Floats) -> IVF:
    """Find the number of lists to probe: the fewest with which the queries ``[Q, D]`` reach the recall."""
    queries = queries[np.linspace(0, len(queries) - 1, min(TUNING_QUERIES, len(queries))).astype(int)]
    best = _best_rows(vectors, queries, min(RECALL_AT, len(vectors)))  # [Q, RECALL_AT]
    list_of_row = np.searchsorted(begins, best, side="right") - 1
    ranks = np.argsort(np.argsort(-(queries @ centres.T), axis=1), axis=1)  # place of each list for each query
    needed = np.sort(np.take_along_axis(ranks, list_of_row, axis=1).ravel()) + 1
    probes = int(needed[min(len(needed) - 1, int(np.ceil(TARGET_RECALL * len(needed))) - 1)])
    return IVF(centres, begins, probes, float((needed <= probes).mean()))


def train_centres(vectors: Floats, seed: int = 0) -> Floats:
    """Centres ``[L, D]`` of norm 1 for rows ``[N, D]`` of norm 1: spherical k-means on a sample, L about 2 sqrt(N)."""
    count = max(1, int(2 * len(vectors) ** 0.5))
    random = np.random.default_rng(seed)
    chosen = np.sort(random.permutation(len(vectors))[: count * TRAINING_ROWS_PER_LIST])
    sample = np.ascontiguousarray(vectors[chosen], dtype=np.float32)
    centres = sample[random.permutation(len(sample))[:count]]
    for _ in range(KMEANS_ITERATIONS):
        nearest = assign(sample, centres)
        order = np.argsort(nearest, kind="stable")
        begins = np.searchsorted(nearest[order], np.arange(count))
        filled = np.diff(np.append(begins, len(order))) > 0
        sums = np.add.reduceat(sample[order], begins[filled], axis=0)
        centres[filled] = sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-12)
        empty = np.flatnonzero(~filled)
        centres[empty] = sample[random.permutation(len(sample))[: len(empty)]]
    return centres


def assign(vectors: Floats, centres: Floats) -> NDArray[np.int32]:
    """The nearest centre of each row, ``[N]``."""
    nearest = np.empty(len(vectors), np.int32)
    for begin in range(0, len(vectors), CHUNK_ROWS):
        nearest[begin : begin + CHUNK_ROWS] = np.argmax(vectors[begin : begin + CHUNK_ROWS] @ centres.T, axis=1)
    return nearest


def _best_rows(vectors: Floats, queries: Floats, top: int) -> NDArray[np.int64]:
    """The exact best rows of each query, ``[Q, top]``."""
    rows = np.zeros((len(queries), 0), np.int64)
    scores = np.zeros((len(queries), 0), np.float32)
    for begin in range(0, len(vectors), CHUNK_ROWS):
        piece = queries @ vectors[begin : begin + CHUNK_ROWS].T
        numbers = np.broadcast_to(np.arange(begin, begin + piece.shape[1]), piece.shape)
        rows, scores = np.concatenate([rows, numbers], axis=1), np.concatenate([scores, piece], axis=1)
        if scores.shape[1] > top:
            best = np.argpartition(scores, -top, axis=1)[:, -top:]
            rows, scores = np.take_along_axis(rows, best, axis=1), np.take_along_axis(scores, best, axis=1)
    return rows


def _finite(rows: Rows, scores: Floats) -> tuple[Rows, Floats]:
    kept = np.isfinite(scores)
    return (rows, scores) if kept.all() else (rows[kept], scores[kept])


def _largest(rows: Rows, scores: Floats, top: int) -> tuple[Rows, Floats]:
    if len(rows) <= top:
        return rows, scores
    best = np.argpartition(scores, -top)[-top:]
    return rows[best], scores[best]
