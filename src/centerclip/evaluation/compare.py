"""Two evaluations of the same queries, side by side: is the difference more than luck?"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from . import bootstrap
from .errors import EvaluationError
from .metrics import DIRECTIONS, NAMES, Metrics
from .result import Evaluation, Intervals


@dataclass(frozen=True, eq=False)
class Comparison:
    """``second`` minus ``first``, in both directions."""

    first: Evaluation
    second: Evaluation
    difference: Metrics
    intervals: Intervals  # 95 % bootstrap intervals of the differences, over the same draws for both

    def clear(self, direction: str, metric: str) -> bool:
        """Whether the interval of a difference leaves out zero."""
        low, high = self.intervals[direction][metric]
        return low > 0 or high < 0


def compare(first: Evaluation, second: Evaluation) -> Comparison:
    """Compare two evaluations of the same split, data and gallery by a paired bootstrap over videos.

    Raises:
        EvaluationError: they are of different data; it says what differs.
    """
    check_same(first, second)
    difference: Metrics = {}
    intervals: Intervals = {}
    for direction in DIRECTIONS:
        samples = paired_samples([first, second], direction)
        intervals[direction] = bootstrap.named(*bootstrap.interval(samples[:, 1] - samples[:, 0]))
        difference[direction] = {
            name: second.metrics[direction][name] - first.metrics[direction][name] for name in NAMES
        }
    return Comparison(first, second, difference, intervals)


def check_same(first: Evaluation, second: Evaluation) -> None:
    """Raise EvaluationError, with what differs, unless both are of the same split, gallery and data."""
    pairs = (
        ("split", first.split, second.split),
        ("gallery", f"{first.gallery:,} videos", f"{second.gallery:,} videos"),
        ("captions", f"{first.captions:,}", f"{second.captions:,}"),
        ("data", first.fingerprint, second.fingerprint),
    )
    differing = [f"{name} {a} against {b}" for name, a, b in pairs if a != b]
    if differing:
        raise EvaluationError(
            f"these evaluations cannot be compared, they are of different data: {'; '.join(differing)}."
        )


def paired_samples(results: Sequence[Evaluation], direction: str) -> np.ndarray:
    """Figures of resampled benchmarks, ``[draws, results, 5]``; all results see the same draws of videos."""
    first = results[0]
    ranks = [_aligned(first, each, direction) for each in results]
    return bootstrap.resampled(ranks, first.video_of_query(direction), first.gallery)


def _aligned(first: Evaluation, second: Evaluation, direction: str) -> np.ndarray:
    """The ranks of ``second`` in the order of the queries of ``first``: annotation files may list videos otherwise."""
    own, others = (each.caption_ids if direction == "t2v" else each.video_ids for each in (first, second))
    place = {query: position for position, query in enumerate(others)}
    if place.keys() != set(own):
        raise EvaluationError("these evaluations cannot be compared: their queries.csv list different queries.")
    ranks: np.ndarray = getattr(second.ranks, direction)[[place[query] for query in own]]
    return ranks
