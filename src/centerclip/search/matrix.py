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

WORTH_IT = 250_000  # segments; below, the product with all of them takes no longer
FEW = 100_000  # rows that a filter leaves; so many are all looked at
RECALL = 0.97  # of the best TOP segments, aimed at on the trial queries; 0.95 is what the documentation promises
TOP = 32
TRIALS = 64
ROUNDS = 8  # of k-means; more moves few centres and finds no more
SAMPLES_A_LIST = 48  # rows that k-means looks at
PIECE = 65_536  # rows that are assigned at a time, to bound the memory


@dataclass(frozen=True)
class Lists:
    """Which rows are neighbours. Rows are stored list by list.

    Attributes:
        centres: ``[L, D]``.
        begins: ``[L + 1]`` first row of each list.
        probes: lists that a query looks into.
        recall: share of the best segments that were found with so many, on the trial queries.
    """

    centres: Floats
    begins: NDArray[np.int64]
    probes: int
    recall: float

    def best(
        self, vectors: Floats, query: Floats, top: int, allowed: NDArray[np.bool_] | None
    ) -> tuple[NDArray[np.int64], Floats]:
        """Up to ``top`` rows with the largest scores in the nearest lists, and these scores.

        Args:
            vectors: ``[N, D]`` in the order of the lists.
            query: ``[D]``.
            top: how many.
            allowed: ``[N]`` which rows count; None for all. Then more lists are looked into.
        """
        probes = self.probes if allowed is None else int(self.probes * len(allowed) / max(1, int(allowed.sum())))
        nearest = np.argsort(-(self.centres @ query))
        rows, scores, found = [], [], 0
        for place, number in enumerate(nearest):
            if place >= probes and found >= top:
                break
            begin, end = self.begins[number], self.begins[number + 1]
            part = np.arange(begin, end)
            values = vectors[begin:end] @ query
            if allowed is not None:
                kept = allowed[begin:end]
                part, values = part[kept], values[kept]
            rows.append(part)
            scores.append(values)
            found += len(part)
        all_rows, all_scores = np.concatenate(rows), np.concatenate(scores)
        if len(all_rows) <= top:
            return all_rows, all_scores
        chosen = np.argpartition(all_scores, -top)[-top:]
        return all_rows[chosen], all_scores[chosen]


def train_centres(vectors: Floats, seed: int = 0) -> Floats:
    """Centres ``[L, D]`` of norm 1 for rows ``[N, D]`` of norm 1: spherical k-means on a sample, L about 2 sqrt(N)."""
    count = max(1, int(2 * len(vectors) ** 0.5))
    random = np.random.default_rng(seed)
    chosen = np.sort(random.permutation(len(vectors))[: count * SAMPLES_A_LIST])
    sample = np.ascontiguousarray(vectors[chosen], dtype=np.float32)
    centres = sample[random.permutation(len(sample))[:count]]
    for _ in range(ROUNDS):
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
    for begin in range(0, len(vectors), PIECE):
        nearest[begin : begin + PIECE] = np.argmax(vectors[begin : begin + PIECE] @ centres.T, axis=1)
    return nearest


def make_lists(vectors: Floats, centres: Floats, begins: NDArray[np.int64], trials: Floats) -> Lists:
    """Find the number of lists to look into: the fewest with which the trial queries ``[Q, D]`` reach the recall."""
    queries = trials[np.linspace(0, len(trials) - 1, min(TRIALS, len(trials))).astype(int)]
    best = _best_rows(vectors, queries, min(TOP, len(vectors)))  # [Q, TOP]
    list_of_row = np.searchsorted(begins, best, side="right") - 1
    ranks = np.argsort(np.argsort(-(queries @ centres.T), axis=1), axis=1)  # place of each list for each query
    needed = np.sort(np.take_along_axis(ranks, list_of_row, axis=1).ravel()) + 1
    probes = int(needed[min(len(needed) - 1, int(np.ceil(RECALL * len(needed))) - 1)])
    return Lists(centres, begins, probes, float((needed <= probes).mean()))


def _best_rows(vectors: Floats, queries: Floats, top: int) -> NDArray[np.int64]:
    """The exact best rows of each query, ``[Q, top]``."""
    rows = np.zeros((len(queries), 0), np.int64)
    scores = np.zeros((len(queries), 0), np.float32)
    for begin in range(0, len(vectors), PIECE):
        piece = queries @ vectors[begin : begin + PIECE].T
        numbers = np.broadcast_to(np.arange(begin, begin + piece.shape[1]), piece.shape)
        rows, scores = np.concatenate([rows, numbers], axis=1), np.concatenate([scores, piece], axis=1)
        if scores.shape[1] > top:
            best = np.argpartition(scores, -top, axis=1)[:, -top:]
            rows, scores = np.take_along_axis(rows, best, axis=1), np.take_along_axis(scores, best, axis=1)
    return rows


Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Block:
    """Rows that were loaded together.

    Attributes:
        ids: ids of ``V`` videos.
        owners: ``[N]`` place in ``ids`` of each row's video.
        spans: ``[N, 2]`` start and end, seconds.
        vectors: ``[N, D]`` float32, often mapped from a file.
        lists: rows by neighbourhood, when there are so many that looking at all would take long.
    """

    ids: list[str]
    owners: NDArray[np.int32]
    spans: Floats
    vectors: Floats
    lists: Lists | None = None

    @classmethod
    def of(cls, parts: Iterable[tuple[str, Segments]], width: int) -> "Block":
        """Stack the segments of videos."""
        given = list(parts)
        counts = [len(segments) for _, segments in given]
        spans = [np.stack([segments.starts, segments.ends], axis=1) for _, segments in given]
        return cls(
            [video for video, _ in given],
            np.repeat(np.arange(len(given), dtype=np.int32), counts),
            np.concatenate(spans) if spans else np.zeros((0, 2), np.float32),
            np.concatenate([s.vectors for _, s in given]) if given else np.zeros((0, width), np.float32),
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
        if self.lists is None:
            scores = self.vectors @ query
            if wanted is not None:
                scores[~wanted[self.owners]] = -np.inf
            rows = np.arange(len(scores)) if len(scores) <= top else np.argpartition(scores, -top)[-top:]
            return _finite(rows, scores[rows])
        if wanted is not None:
            allowed = wanted[self.owners]
            chosen = np.flatnonzero(allowed)
            if len(chosen) <= FEW:
                pieces = [self.vectors[chosen[i : i + PIECE]] @ query for i in range(0, len(chosen), PIECE)]
                return _largest(chosen, np.concatenate(pieces), top)
            return self.lists.best(self.vectors, query, top, allowed)
        return self.lists.best(self.vectors, query, top, None)


def _finite(rows: Rows, scores: Floats) -> tuple[Rows, Floats]:
    kept = np.isfinite(scores)
    return (rows, scores) if kept.all() else (rows[kept], scores[kept])


def _largest(rows: Rows, scores: Floats, top: int) -> tuple[Rows, Floats]:
    if len(rows) <= top:
        return rows, scores
    best = np.argpartition(scores, -top)[-top:]
    return rows[best], scores[best]


@dataclass(frozen=True, eq=False)
class Matrix:
    """A :class:`~centerclip.search.store.View`: blocks, less the videos that are gone since those were made."""

    width: int
    videos: Mapping[str, Video]
    files: Mapping[str, File]
    blocks: Sequence[Block]
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
        lists = [block.lists for block in self.blocks if block.lists is not None]
        return min((part.recall for part in lists), default=1.0)

    def _holding(self, video: str) -> Iterable[Block]:
        return (block for block in self.blocks if video in block.places)

    def _wanted(self, number: int, block: Block, among: Collection[str] | None) -> NDArray[np.bool_] | None:
        """``[V]`` which videos of a block count; None for all."""
        if among is not None:
            wanted = np.zeros(len(block.ids), dtype=bool)
            wanted[[block.places[v] for v in among if v in block.places and v not in self.gone]] = True
            return wanted
        if number not in self._alive:
            alive = np.array([video not in self.gone for video in block.ids], dtype=bool)
            self._alive[number] = None if alive.all() else alive
        return self._alive[number]
