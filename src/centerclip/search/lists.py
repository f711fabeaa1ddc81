"""Approximate search: rows in lists of neighbours, of which a query looks only into the nearest.

An inverted file with plain vectors. It is ours and not the database's because filters then cost nothing and are exact,
and because how many lists to look into is found by trying: with the sentences that the collection is calibrated with,
which lie apart from pictures in a CLIP's space, so that trying it with pictures would promise too much.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .store import Floats

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
