"""From a query vector to hits: videos with their best moments, best first, and whether they are worth showing.

A video's score is that of its best segment. How near two scores are is measured in the deviation of the query's scores
over the collection, so that it does not depend on the model.

A score alone says little: some segments score high with every sentence, some models score everything high. So the mean
of many unrelated sentences is taken off the query, and what is left of a hit's score is compared with what the best
hits of these sentences have left. Some of them do fit the collection, so that a good hit need not beat nearly all. No
cut tells what is there from what is not (``benchmarks/confidence.py``): hits are graded instead."""

import heapq
import io
import itertools
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np

from .query import Encoder
from .store import Among, Floats, Line, Segments, Store, View

FIRST_SEGMENTS = 256  # segments asked for at first; more when they belong to too few videos
SPARE_VIDEOS = 4  # looked at beyond those asked for, since some may be near-duplicates
DEVIATION_SAMPLE = 1024  # segments that show how the scores of a query spread
MIN_DEVIATION = 1e-3  # a collection of one scene must not make every difference count
MERGE_WITHIN = 0.75  # deviations below a peak at which its neighbours still belong to its moment
MOMENTS_WITHIN = 1.5  # deviations below the best moment of a video at which another one is still shown
MAX_MOMENTS = 5  # of a video
DUPLICATE_COSINE = 0.97  # from here on two videos, or moments, show the same

MAX_DUPLICATES = 100  # listed with a hit

CALIBRATION = "calibration"  # its name in the store
CALIBRATED_VIDEOS = 1_000  # looked at for a background sentence, in a collection of near-duplicates
# A large collection is measured again when its number of segments has changed by this share: it takes seconds there.
LARGE_SEGMENTS, REMEASURE_SHARE = 100_000, 0.05
# Shares of the background sentences, or of the collection's own segments, that a hit beats. Chosen on half of the
# queries of benchmarks/confidence.py: 95 % of the right first hits are at least "maybe", few absent things are "sure".
MIN_LIKELY, MIN_SURE = 0.4, 0.85
JUDGED_HITS = 10  # hits of a query that the best is taken of
NEAREST_SAMPLE = 64  # segments that are compared with the rest of the collection
NEAREST_SEGMENTS = 256  # looked through for one of another video


Grade = Literal["sure", "maybe", "unlikely"]
FoundBy = Literal["video", "text"]


@dataclass(frozen=True)
class Moment:
    """A part of a video: neighbouring segments that answer the query alike."""

    start: float
    end: float
    score: float


@dataclass(frozen=True)
class Ranked:
    """A video and the moments of it that answer the query, best first."""

    video: str
    moments: tuple[Moment, ...]
    vector: Floats  # [D] of the best moment, norm 1; empty where it was found by text
    duplicates: tuple[str, ...] = ()  # videos further down that show the same
    confidence: float = 0.0  # 0 to 1, and the same in a word
    grade: Grade = "maybe"
    found_by: FoundBy = "video"  # "text" when it is there for what is said or written
    line: Line | None = None  # that has words of the query

    @property
    def score(self) -> float:
        """The score of the best moment."""
        return self.moments[0].score


def rank(
    view: View,
    query: Floats,
    top: int,
    *,
    among: Among = None,
    by_moment: bool = False,
    collapse: bool = True,
    min_score: float | None = None,
    max_videos: int | None = None,
) -> list[Ranked]:
    """The videos that answer a query best; with ``by_moment`` the moments, each as an entry of its own.

    Args:
        view: the collection.
        query: ``[D]`` of norm 1.
        top: how many.
        among: ids of the videos to look at, or filters that they pass; all by default.
        by_moment: rank moments: a video can come several times.
        collapse: leave out near-duplicates of a better entry, and list the first hundred there.
        min_score: leave out entries below.
        max_videos: look at no more, however many of them are near-duplicates.
    """
    if top < 1 or not view.count():
        return []
    deviation = score_deviation(view, query)
    chosen = _Chosen(top, len(query), collapse=collapse)
    waiting: list[tuple[float, int, Ranked]] = []  # a heap: entries that a video further down may still beat
    numbers = itertools.count()
    for seen, video in enumerate(islice(_best_first(view, query, top, among), max_videos)):
        if len(chosen.entries) >= top and seen >= top + SPARE_VIDEOS:
            break
        try:
            segments = view.segments(video)
        except KeyError:  # it has gone since the view was made
            continue
        scores = segments.vectors @ query
        best = int(scores.argmax())
        if min_score is not None and scores[best] < min_score:
            break
        # Before its moments are worked out: a collection may have thousands of one kind.
        if not by_moment and chosen.is_duplicate(video, segments.vectors[best]):
            continue
        moments = moments_of(segments, scores, deviation)
        for group in [(moment,) for moment in moments] if by_moment else [moments]:
            entry = Ranked(video, group, _vector(segments, group[0]))
            heapq.heappush(waiting, (-entry.score, next(numbers), entry))
        while waiting and -waiting[0][0] >= moments[0].score:
            chosen.add(heapq.heappop(waiting)[2])
    while waiting:
        entry = heapq.heappop(waiting)[2]
        if min_score is None or entry.score >= min_score:
            chosen.add(entry)
    return chosen.result()


def score_deviation(view: View, query: Floats) -> float:
    """Standard deviation of a query's ``[D]`` scores over the collection."""
    scores = np.vecdot(view.sample(DEVIATION_SAMPLE), query)  # in this thread: it takes less time than waking others
    return max(float(scores.std()), MIN_DEVIATION) if len(scores) > 1 else MIN_DEVIATION


def moments_of(segments: Segments, scores: Floats, deviation: float) -> tuple[Moment, ...]:
    """Merge neighbouring segments into moments: a peak, and what lies beside it and scores nearly as much.

    Args:
        segments: of a video, ``S`` of them.
        scores: ``[S]``.
        deviation: of the query's scores over the collection, which says what "nearly" is.
    """
    free = np.ones(len(scores), dtype=bool)
    best = float(scores.max())
    moments: list[Moment] = []
    for peak in np.argsort(-scores, kind="stable"):
        score = float(scores[peak])
        if score < best - MOMENTS_WITHIN * deviation or len(moments) == MAX_MOMENTS:
            break
        if not free[peak]:
            continue
        first = last = int(peak)
        while first > 0 and free[first - 1] and scores[first - 1] >= score - MERGE_WITHIN * deviation:
            first -= 1
        while last + 1 < len(scores) and free[last + 1] and scores[last + 1] >= score - MERGE_WITHIN * deviation:
            last += 1
        # Its neighbours are no moments of their own: they are the slopes of this one.
        free[max(0, first - 1) : last + 2] = False
        moments.append(Moment(float(segments.starts[first]), float(segments.ends[last]), score))
    return tuple(moments)


def _best_first(view: View, query: Floats, top: int, among: Among) -> Iterator[str]:
    """All videos in the order of their best segments."""
    segments = max(FIRST_SEGMENTS, 8 * top)
    given: set[str] = set()
    while True:
        hits = view.search(query, segments, among=among)
        for video in hits.videos:
            if video not in given:
                given.add(video)
                yield video
        if len(hits.videos) < segments:
            return
        segments *= 4


def _vector(segments: Segments, moment: Moment) -> Floats:
    inside = (segments.starts >= moment.start - 1e-3) & (segments.ends <= moment.end + 1e-3)
    mean = segments.vectors[inside].mean(axis=0)
    return mean / max(float(mean @ mean) ** 0.5, 1e-12)


class _Chosen:
    """The first ``top`` entries of those that are added, best first, less near-duplicates of a better one.

    An entry is compared with those that were chosen, not with all: memory is bounded by ``top``.
    """

    def __init__(self, top: int, width: int, *, collapse: bool) -> None:
        self.top, self.collapse = top, collapse
        self.entries: list[Ranked] = []
        self._vectors = np.empty((0, width), np.float32)
        self._duplicates: list[dict[str, None]] = []

    def is_duplicate(self, video: str, vector: Floats) -> bool:
        """Whether a vector ``[D]`` of a video shows what one of another video shows; it is then listed there."""
        for place in np.flatnonzero(self._vectors @ vector >= DUPLICATE_COSINE) if self.collapse else ():
            if self.entries[place].video != video:
                if len(self._duplicates[place]) < MAX_DUPLICATES:
                    self._duplicates[place][video] = None
                return True
        return False

    def add(self, entry: Ranked) -> None:
        if not self.is_duplicate(entry.video, entry.vector) and len(self.entries) < self.top:
            self.entries.append(entry)
            self._vectors = np.concatenate([self._vectors, entry.vector[None]])
            self._duplicates.append({})

    def result(self) -> list[Ranked]:
        pairs = zip(self.entries, self._duplicates, strict=True)
        return sorted((replace(entry, duplicates=tuple(each)) for entry, each in pairs), key=lambda entry: -entry.score)


@cache
def background_sentences() -> tuple[str, ...]:
    """Sentences about many things, which a query is compared with. Changing them changes every confidence."""
    return tuple(Path(__file__).with_name("background.txt").read_text(encoding="utf-8").splitlines())


class Calibration:
    """What unrelated queries find in a collection.

    Attributes:
        vectors: ``[B, D]`` of the background sentences; empty before the first run of the indexer.
        texts: ``[B]`` the best score of each, less what any sentence scores.
        images: ``[P]`` how alike segments are to the nearest one of another video.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.vectors: Floats = np.zeros((0, store.width), np.float32)
        self.texts: Floats = np.zeros(0, np.float32)
        self.images: Floats = np.zeros(0, np.float32)
        self.segments = 0  # of the collection when it was measured
        saved = io.BytesIO(store.value(CALIBRATION) or b"")
        # Where there is none, or it is damaged, the next run of the indexer makes it.
        with suppress(EOFError, OSError, ValueError, KeyError, zipfile.BadZipFile), np.load(saved) as arrays:
            if arrays["vectors"].shape[1:] == (store.width,):
                self.vectors, self.texts, self.images = (arrays[name] for name in ("vectors", "texts", "images"))
                self.segments = int(arrays["segments"])

    def encode(self, encoder: Encoder) -> None:
        """Encode the background sentences, once in the life of an index."""
        sentences = background_sentences()
        if len(self.vectors) != len(sentences):
            self.vectors = encoder.texts(list(sentences))

    def is_due(self) -> bool:
        """Whether a collection that has changed should be measured again."""
        count = self.store.view().count()
        few = abs(count - self.segments) < REMEASURE_SHARE * self.segments
        return not (len(self.texts) and few and self.segments >= LARGE_SEGMENTS)

    def measure(self) -> None:
        """Measure what unrelated queries find now, and save it."""
        view = self.store.view()
        found = (rank(view, vector, JUDGED_HITS, max_videos=CALIBRATED_VIDEOS) for vector in self.vectors)
        margins = [self._margins(vector, ranked) for vector, ranked in zip(self.vectors, found, strict=True)]
        self.texts = np.array([max(each, default=0.0) for each in margins], np.float32)
        sample = view.sample(NEAREST_SAMPLE)[:NEAREST_SAMPLE]
        self.images = np.array([_nearest_other(view, vector) for vector in sample], np.float32)
        content = io.BytesIO()
        self.segments = view.count()
        arrays = {"vectors": self.vectors, "texts": self.texts, "images": self.images, "segments": self.segments}
        np.savez(content, **arrays)  # type: ignore[arg-type]
        self.store.set_value(CALIBRATION, content.getvalue())

    def confidences(self, query: Floats, ranked: list[Ranked], *, has_text: bool = True) -> list[float]:
        """For each hit the share of the unrelated queries that it beats with their best hits, 0 to 1.

        Args:
            query: a sentence, or an image or clip: those are compared with how alike the collection's own videos are.
            ranked: the hits.
            has_text: whether there is a sentence in the query.
        """
        others = self.texts if has_text else self.images
        if not len(others):
            return [0.0] * len(ranked)
        margins = self._margins(query, ranked) if has_text else [entry.score for entry in ranked]
        return [float((others <= margin).mean()) for margin in margins]

    def _margins(self, query: Floats, ranked: list[Ranked]) -> list[float]:
        """The scores of what was found, less what any sentence scores there."""
        rest = query - self.vectors.mean(axis=0)
        return [float(entry.vector @ rest) for entry in ranked]


def grade(confidence: float) -> Grade:
    """What the confidence of a hit says in a word."""
    return "sure" if confidence >= MIN_SURE else "maybe" if confidence >= MIN_LIKELY else "unlikely"


def _nearest_other(view: View, vector: Floats) -> float:
    """The best score of a segment's vector in another video than its own; -1 when there is none near."""
    hits = view.search(vector, NEAREST_SEGMENTS)
    return next((float(s) for v, s in zip(hits.videos, hits.scores, strict=True) if v != hits.videos[0]), -1.0)
