"""From a query vector to hits: videos with their best moments, best first, and whether they are worth showing.

A score alone says little: some segments score high with every sentence, some models score everything high. So the mean
of many unrelated sentences is taken off the query, and what is left finds something convincing when its best hit beats
those of most of these sentences. Some of them do fit the collection, so that "most" need not be nearly all."""

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from .query import Encoder
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


SENTENCES = (
    "a dog runs across the grass",
    "a cat sleeps on a sofa",
    "a horse jumps over a fence",
    "birds fly over a lake at sunset",
    "a fish swims in an aquarium",
    "an elephant drinks at a river",
    "a bee collects nectar from a flower",
    "a snake moves through the sand",
    "a child blows out candles on a cake",
    "a baby crawls on the carpet",
    "a woman dances on a stage",
    "a man plays the guitar and sings",
    "a couple gets married in a church",
    "old people play cards at a table",
    "a crowd cheers in a stadium",
    "a teacher writes on a blackboard",
    "students sit in a lecture hall",
    "a doctor examines a patient",
    "a dentist works on a tooth",
    "a firefighter sprays water on a burning house",
    "a policeman stops a car",
    "soldiers march on a square",
    "a chef chops onions",
    "someone pours coffee into a cup",
    "a pizza bakes in an oven",
    "people eat dinner in a restaurant",
    "a man drinks beer in a bar",
    "a woman puts on make-up in front of a mirror",
    "a barber cuts hair",
    "a boy brushes his teeth",
    "someone washes the dishes",
    "a woman irons a shirt",
    "a man repairs a bicycle",
    "a mechanic changes a tyre",
    "a carpenter saws a plank",
    "a painter paints a wall",
    "a potter shapes a bowl on a wheel",
    "a gardener waters the plants",
    "a farmer drives a tractor on a field",
    "a fisherman pulls a net from the water",
    "a man climbs a steep rock",
    "a skier goes down a snowy slope",
    "a surfer rides a big wave",
    "a swimmer dives into a pool",
    "a football player scores a goal",
    "a tennis player serves the ball",
    "a gymnast swings on the bars",
    "boxers fight in a ring",
    "a golfer hits a ball from the sand",
    "cyclists race through a village",
    "runners cross a finishing line",
    "a skateboarder slides down a rail",
    "a man lifts weights in a gym",
    "people do yoga on mats",
    "a racing car drives around a track",
    "a motorcycle speeds along a coast road",
    "a train arrives at a station",
    "a bus stops in the rain",
    "an aeroplane takes off from a runway",
    "a helicopter lands on a roof",
    "a ship leaves the harbour",
    "a rocket rises from its launch pad",
    "an astronaut floats in a space station",
    "traffic moves through a city at night",
    "a lift goes up in a glass tower",
    "workers build a brick wall",
    "a crane lifts a container",
    "robots weld cars in a factory",
    "an underground mine with lamps",
    "a waterfall in a rainforest",
    "waves break on a beach",
    "a volcano spits lava",
    "lightning over a dark city",
    "snow falls on a quiet forest",
    "clouds move over mountains, fast",
    "a desert with sand dunes",
    "autumn leaves fall in a park",
    "a tulip field in bloom",
    "the full moon between branches",
    "fireworks over a bridge",
    "a campfire burns at night",
    "a candle flickers in the dark",
    "an orchestra plays in a concert hall",
    "a drummer plays a solo",
    "a pianist's hands on the keys",
    "a DJ plays records in a club",
    "a magician shows a card trick",
    "a clown juggles with balls",
    "a puppet show for children",
    "children play on a playground slide",
    "a girl flies a kite",
    "a boy builds a tower of blocks",
    "a man reads a newspaper on a bench",
    "a woman types on a laptop",
    "hands play chess",
    "a person signs a paper with a pen",
    "someone opens a parcel",
    "a shop window with dresses",
    "people stand in a queue at a supermarket till",
    "a market stall with fruit",
    "a politician gives a speech",
    "a news presenter in a studio",
    "a weather map with arrows",
    "a cartoon mouse runs away",
    "a video game with a spaceship",
    "text scrolls over a black screen",
    "a chart with growing bars",
    "bacteria move under a microscope",
    "a surgeon operates on a heart",
    "a scientist pours a liquid into a test tube",
    "a telescope turns to the stars",
    "a museum hall with dinosaur bones",
    "a castle on a hill",
    "a monk prays in a temple",
    "a carnival parade with masks",
    "a bride throws a bouquet",
    "a mother feeds her baby",
    "a man shaves his beard",
    "someone ties their shoes",
    "an empty corridor with many doors",
)
CALIBRATION = "calibration.npz"
CONVINCING = 0.6  # share of the unrelated sentences, or of the collection's own segments, that a query has to beat
LOOKED_AT = 10  # hits of a query that are judged
NEIGHBOURS = 64  # segments that are compared with the rest of the collection


class Calibration:
    """What unrelated queries find in a collection.

    Attributes:
        vectors: ``[B, D]`` of unrelated sentences; empty before the first run of the indexer.
        texts: ``[B]`` the best score of each, less what any sentence scores.
        images: ``[P]`` how alike segments are to the nearest one of another video.
    """

    def __init__(self, folder: Path, width: int) -> None:
        self.path = folder / CALIBRATION
        self.vectors: Floats = np.zeros((0, width), np.float32)
        self.texts: Floats = np.zeros(0, np.float32)
        self.images: Floats = np.zeros(0, np.float32)
        try:
            with np.load(self.path) as saved:
                if saved["vectors"].shape[1:] == (width,):
                    self.vectors, self.texts, self.images = saved["vectors"], saved["texts"], saved["images"]
        except (OSError, ValueError, KeyError):
            pass  # not made yet, or damaged: the next run of the indexer makes it again

    def encode(self, encoder: Encoder) -> None:
        """Encode the sentences, once in the life of an index."""
        if len(self.vectors) != len(SENTENCES):
            self.vectors = encoder.texts(list(SENTENCES))

    def measure(self, view: View) -> None:
        """Look at what unrelated queries find now, and keep it."""
        self.texts = np.array([self._stands_out(v, rank(view, v, LOOKED_AT)) for v in self.vectors], np.float32)
        sample = view.sample(NEIGHBOURS)[:NEIGHBOURS]
        self.images = np.array([_nearest_other(view, vector) for vector in sample], np.float32)
        partial = self.path.with_name(f".{CALIBRATION}.{os.getpid()}.npz")
        np.savez(partial, vectors=self.vectors, texts=self.texts, images=self.images)
        partial.replace(self.path)

    def confidence(self, query: Floats, found: list[Ranked], *, has_text: bool = True) -> float:
        """How many unrelated queries a query ``[D]`` beats with what it found, 0 to 1.

        Args:
            query: a sentence, or a picture or clip: those are compared with how alike the collection's own videos are.
            found: the best ``LOOKED_AT`` videos, or more.
            has_text: whether there is a sentence in it.
        """
        others = self.texts if has_text else self.images
        if not len(others) or not found:
            return 0.0
        return float((others <= (self._stands_out(query, found) if has_text else found[0].score)).mean())

    def _stands_out(self, query: Floats, found: list[Ranked]) -> float:
        """The best score of what was found, less what any sentence scores there."""
        rest = query - self.vectors.mean(axis=0)
        return max((float(entry.vector @ rest) for entry in found[:LOOKED_AT]), default=0.0)


def _nearest_other(view: View, vector: Floats) -> float:
    """The best score of a segment's vector in another video than its own; -1 when there is none near."""
    hits = view.search(vector, 256)
    return next((float(s) for v, s in zip(hits.videos, hits.scores, strict=True) if v != hits.videos[0]), -1.0)
