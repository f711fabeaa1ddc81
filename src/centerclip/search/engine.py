"""From a query vector to hits: videos with their best moments, best first."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

import numpy as np

from .store import Floats, Segments, View

FIRST_LOOK = 256  # segments asked for at first; more when they are of too few videos
SPARE = 4  # videos looked at beyond those asked for, since some may show the same
SAMPLE = 1024  # segments that show how the scores of a query spread
MERGE = 0.75  # neighbours within so many spreads of a peak belong to its moment
FURTHER = 1.5  # another moment of a video is shown when it comes within so many spreads of the best
MOMENTS = 5  # most moments of a video
SAME = 0.97  # cosine of two videos, or moments, that show the same


@dataclass(frozen=True)
class Moment:
    """A part of a video: neighbouring segments that answer the query alike."""

    start: float
    end: float
    score: float


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation of a query's scores over the collection."""

    mean: float
    deviation: float


@dataclass(frozen=True)
class Ranked:
    """A video and the moments of it that answer the query, best first."""

    video: str
    moments: tuple[Moment, ...]
    vector: Floats  # [D] of the best moment, norm 1
    same: tuple[str, ...] = ()  # videos further down that show the same

    @property
    def score(self) -> float:
        """The score of the best moment."""
        return self.moments[0].score


def spread_of(view: View, query: Floats) -> Spread:
    """How the scores of a query ``[D]`` spread over the collection."""
    scores = view.sample(SAMPLE) @ query
    if len(scores) < 2:
        return Spread(float(scores.mean()) if len(scores) else 0.0, 1e-3)
    return Spread(float(scores.mean()), max(float(scores.std()), 1e-3))


def rank(
    view: View,
    query: Floats,
    top: int,
    *,
    among: Collection[str] | None = None,
    by_moment: bool = False,
    collapse: bool = True,
    min_score: float | None = None,
) -> list[Ranked]:
    """The videos that answer a query best; with ``by_moment`` the moments, each as an entry of its own.

    Args:
        view: the collection.
        query: ``[D]`` of norm 1.
        top: how many.
        among: ids of the videos to look at; all by default.
        by_moment: rank moments: a video can come several times.
        collapse: leave out entries that show the same as a better one, and name them there.
        min_score: leave out entries below.
    """
    if top < 1 or not view.count():
        return []
    spread = spread_of(view, query)
    found: list[Ranked] = []
    for candidates, complete in _candidates(view, query, top, among):
        found = [_describe(view, video, query, spread) for video in candidates]
        unseen = min((entry.score for entry in found), default=0.0)  # no other video scores more
        if by_moment:
            found = [_single(view, entry, moment) for entry in found for moment in entry.moments]
        found.sort(key=lambda entry: -entry.score)
        if min_score is not None:
            complete = complete or bool(found and found[-1].score < min_score)
            found = [entry for entry in found if entry.score >= min_score]
        if collapse:
            found = _collapsed(found)
        if complete or (len(found) >= top and found[top - 1].score >= unseen):
            break
    return found[:top]


def moments_of(segments: Segments, scores: Floats, deviation: float) -> tuple[Moment, ...]:
    """Merge neighbouring segments into moments: a peak, and what lies beside it and scores nearly as much.

    Args:
        segments: of a video, ``S`` of them.
        scores: ``[S]``.
        deviation: spread of the query's scores over the collection, which says what "nearly" is.
    """
    free = np.ones(len(scores), dtype=bool)
    best = float(scores.max())
    found: list[Moment] = []
    for peak in np.argsort(-scores, kind="stable"):
        score = float(scores[peak])
        if score < best - FURTHER * deviation or len(found) == MOMENTS:
            break
        if not free[peak]:
            continue
        first = last = int(peak)
        while first > 0 and free[first - 1] and scores[first - 1] >= score - MERGE * deviation:
            first -= 1
        while last + 1 < len(scores) and free[last + 1] and scores[last + 1] >= score - MERGE * deviation:
            last += 1
        # Its neighbours are no moments of their own: they are the slopes of this one.
        free[max(0, first - 1) : last + 2] = False
        found.append(Moment(float(segments.starts[first]), float(segments.ends[last]), score))
    return tuple(found)


def _candidates(view: View, query: Floats, top: int, among: Collection[str] | None) -> Iterator[tuple[list[str], bool]]:
    """Videos with the best segments, more and more of them: (videos, whether these are all)."""
    segments = max(FIRST_LOOK, 8 * top)
    while True:
        hits = view.search(query, segments, among=among)
        found = list(dict.fromkeys(hits.videos))
        complete = len(hits.videos) < segments
        for videos in (top + SPARE, 4 * top):  # a few at first: each costs time, and few are left out again
            if top <= videos < len(found):
                yield found[:videos], False
        yield found, complete
        if complete:
            return
        segments *= 4


def _describe(view: View, video: str, query: Floats, spread: Spread) -> Ranked:
    segments = view.segments(video)
    moments = moments_of(segments, segments.vectors @ query, spread.deviation)
    return Ranked(video, moments, _vector(segments, moments[0]))


def _single(view: View, entry: Ranked, moment: Moment) -> Ranked:
    return Ranked(entry.video, (moment,), _vector(view.segments(entry.video), moment))


def _vector(segments: Segments, moment: Moment) -> Floats:
    inside = (segments.starts >= moment.start - 1e-3) & (segments.ends <= moment.end + 1e-3)
    mean = segments.vectors[inside].mean(axis=0)
    return mean / max(float(mean @ mean) ** 0.5, 1e-12)


def _collapsed(found: list[Ranked]) -> list[Ranked]:
    """Leave out entries that show the same as a better one of another video."""
    alike = np.array([entry.vector for entry in found]).reshape(len(found), -1)
    alike = alike @ alike.T >= SAME  # [F, F]
    kept: list[int] = []
    same: dict[int, list[str]] = {}
    for number, entry in enumerate(found):
        twin = next((k for k in kept if alike[number, k] and found[k].video != entry.video), None)
        if twin is None:
            kept.append(number)
        else:
            same.setdefault(twin, []).append(entry.video)
    return [replace(found[number], same=tuple(dict.fromkeys(same.get(number, ())))) for number in kept]
