"""Runs of one setting that differ in their seed alone: the mean, how sure it is, and how far the seeds lie apart."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from . import bootstrap
from .compare import check_same, paired_samples
from .errors import EvaluationError
from .metrics import DIRECTIONS, NAMES, Metrics
from .result import Evaluation, Intervals


@dataclass(frozen=True, eq=False)
class Seeds:
    """Evaluations of the same queries, one a seed, in the order of the seeds."""

    results: tuple[Evaluation, ...]

    def __post_init__(self) -> None:
        if not self.results:
            raise EvaluationError("a mean over seeds needs at least one evaluation.")
        for other in self.results[1:]:
            check_same(self.results[0], other)

    @cached_property
    def metrics(self) -> Metrics:
        """The mean of every figure over the seeds."""
        return {
            direction: {name: float(np.mean(self.values(direction, name))) for name in NAMES}
            for direction in DIRECTIONS
        }

    def values(self, direction: str, metric: str) -> list[float]:
        """One figure of every seed."""
        return [result.metrics[direction][metric] for result in self.results]

    @cached_property
    def intervals(self) -> Intervals:
        """95 % intervals of the means over other videos of the same kind; the seeds stay as they are."""
        return {
            direction: bootstrap.named(*bootstrap.interval(paired_samples(self.results, direction).mean(axis=1)))
            for direction in DIRECTIONS
        }


@dataclass(frozen=True)
class Gain:
    """How much one figure is better (or worse) than that of another setting."""

    mean: float
    low: float  # of the 95 % interval over videos
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
            f"{len(first.results)} seeds cannot be compared with {len(second.results)}; run both with as many."
        )
    check_same(first.results[0], second.results[0])
    both = paired_samples((*first.results, *second.results), direction)[:, :, NAMES.index(metric)]  # [draws, 2 * seeds]
    count = len(first.results)
    low, high = bootstrap.interval(both[:, count:].mean(axis=1) - both[:, :count].mean(axis=1))
    differences = [
        b - a for a, b in zip(first.values(direction, metric), second.values(direction, metric), strict=True)
    ]
    return Gain(float(np.mean(differences)), float(low), float(high), tuple(differences))
