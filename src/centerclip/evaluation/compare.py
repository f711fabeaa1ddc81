"""Two evaluations of the same queries: is the difference more than chance? And the mean of runs with different seeds.

Both sides of a comparison are resampled together: hard queries are hard for both, so their spread cancels out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..errors import EvaluationError
from .metrics import DIRECTIONS, NAMES, Metrics, interval, named, resampled
from .result import Evaluation, Intervals


@dataclass(frozen=True, eq=False)
class Comparison:
    """``second`` minus ``first``, in both directions."""

    first: Evaluation
    second: Evaluation
    difference: Metrics
    intervals: Intervals  # 95 % bootstrap intervals of the differences, from the same samples for both

    def clear(self, direction: str, metric: str) -> bool:
        """Whether the interval of a difference excludes zero."""
        low, high = self.intervals[direction][metric]
        return low > 0 or high < 0


def compare(first: Evaluation, second: Evaluation) -> Comparison:
    """Compare two evaluations of the same split, data and gallery (else EvaluationError) by a paired bootstrap."""
    check_same(first, second)
    difference: Metrics = {}
    intervals: Intervals = {}
    for direction in DIRECTIONS:
        samples, before = paired_samples([first, second], direction), first.metrics[direction]
        intervals[direction] = named(*interval(samples[:, 1] - samples[:, 0]))
        difference[direction] = {name: second.metrics[direction][name] - before[name] for name in NAMES}
    return Comparison(first, second, difference, intervals)


def check_same(first: Evaluation, second: Evaluation) -> None:
    """Raise EvaluationError, with what differs, unless both are of the same split, gallery and data."""
    pairs = (
        ("split", first.split, second.split),
        ("gallery", f"{first.gallery:,} videos", f"{second.gallery:,} videos"),
        ("captions", f"{first.captions:,}", f"{second.captions:,}"),
        ("data", first.fingerprint, second.fingerprint),
    )
    differing = "; ".join(f"{name} {a} against {b}" for name, a, b in pairs if a != b)
    if differing:
        raise EvaluationError(f"these evaluations cannot be compared because their data differ: {differing}.")


def paired_samples(results: Sequence[Evaluation], direction: str) -> np.ndarray:
    """Metrics of resampled benchmarks, ``[samples, results, 5]``; the same videos are drawn for all results."""
    first = results[0]
    ranks = [_aligned(first, each, direction) for each in results]
    return resampled(ranks, first.video_of_query(direction), first.gallery)


def _aligned(first: Evaluation, second: Evaluation, direction: str) -> np.ndarray:
    """The ranks of ``second`` in the query order of ``first``: annotation files may list videos in another order."""
    wanted, given = (each.caption_ids if direction == "t2v" else each.video_ids for each in (first, second))
    place = {query: position for position, query in enumerate(given)}
    if place.keys() != set(wanted):
        raise EvaluationError("these evaluations cannot be compared because their queries differ.")
    ranks: np.ndarray = getattr(second.ranks, direction)[[place[query] for query in wanted]]
    return ranks


@dataclass(frozen=True, eq=False)
class Seeds:
    """Evaluations of the same queries, one for each seed, in the order of the seeds."""

    results: tuple[Evaluation, ...]

    def __post_init__(self) -> None:
        if not self.results:
            raise EvaluationError("a mean over seeds needs at least one evaluation.")
        for other in self.results[1:]:
            check_same(self.results[0], other)

    @cached_property
    def metrics(self) -> Metrics:
        """The mean of every metric over the seeds."""
        return {each: {name: float(np.mean(self.values(each, name))) for name in NAMES} for each in DIRECTIONS}

    def values(self, direction: str, metric: str) -> list[float]:
        """One metric of every seed."""
        return [result.metrics[direction][metric] for result in self.results]

    @cached_property
    def intervals(self) -> Intervals:
        """95 % intervals of the means, over videos; the seeds are not resampled."""
        means = {direction: paired_samples(self.results, direction).mean(axis=1) for direction in DIRECTIONS}
        return {direction: named(*interval(samples)) for direction, samples in means.items()}


@dataclass(frozen=True)
class Gain:
    """The difference of one metric between two settings."""

    mean: float
    low: float  # end of the 95 % interval over videos
    high: float
    seeds: tuple[float, ...]  # the gain of each seed over the same seed

    def __str__(self) -> str:
        text = f"{self.mean:+.1f} [{self.low:+.1f}, {self.high:+.1f}]"
        return text if len(self.seeds) == 1 else f"{text}, seeds {min(self.seeds):+.1f} to {max(self.seeds):+.1f}"


def gain(first: Seeds, second: Seeds, direction: str = "t2v", metric: str = "R1") -> Gain:
    """``second`` minus ``first``, by a paired bootstrap over videos of the means over seeds.

    Raises:
        EvaluationError: they are of different data, or have different numbers of seeds.
    """
    if len(first.results) != len(second.results):
        raise EvaluationError(
            f"{len(first.results)} seeds cannot be compared with {len(second.results)}; run the same number of both."
        )
    check_same(first.results[0], second.results[0])
    samples = paired_samples((*first.results, *second.results), direction)[:, :, NAMES.index(metric)]
    count = len(first.results)  # samples is [samples, 2 * count]
    low, high = interval(samples[:, count:].mean(axis=1) - samples[:, :count].mean(axis=1))
    values = zip(first.values(direction, metric), second.values(direction, metric), strict=True)
    differences = [b - a for a, b in values]
    return Gain(float(np.mean(differences)), float(low), float(high), tuple(differences))
