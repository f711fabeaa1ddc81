"""What happens in each clip, drawn by seed: places, things, motions, lengths. No pixels yet."""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from ..errors import DataError
from .world import PLACES, WITH_PARTNER, Place, Split, Thing, World

EVENTS = (1, 2, 2, 3)  # how many a clip has, each as likely
FPS = (6, 8, 10)
SHORT_SIDES = (112, 120, 128, 136, 144, 160)
ASPECTS = ((1, 1), (4, 3), (16, 9), (3, 4))
SHORTEST, LONGEST, USUAL = 2.5, 10.0, 3.5  # seconds of an event
SHORTEST_CLIP = 3.0
TRIES = 10_000


@dataclass(frozen=True)
class Event:
    """One thing's motion in a place, for a number of frames."""

    thing: Thing
    partner: Thing | None
    motion: str
    place: Place
    frames: int

    @property
    def things(self) -> tuple[Thing, ...]:
        """All that the sentence names."""
        return (self.thing, self.partner) if self.partner else (self.thing,)

    @property
    def what(self) -> tuple[str, ...]:
        """The event without its length."""
        return (*(thing.name for thing in self.things), self.motion, self.place.name)


@dataclass(frozen=True)
class ClipPlan:
    """A clip before it is drawn."""

    id: str
    split: Split
    events: tuple[Event, ...]
    fps: int
    width: int
    height: int

    @property
    def things(self) -> tuple[Thing, ...]:
        """All things in the order in which they come."""
        return tuple(thing for event in self.events for thing in event.things)

    @property
    def duration(self) -> float:
        """Seconds."""
        return sum(event.frames for event in self.events) / self.fps


def plan_clips(world: World, split: Split, count: int, seed: int) -> Iterator[ClipPlan]:
    """The first ``count`` clips of a split. Asking for more gives the same ones and then others.

    No two clips of a split have the same description. In val and test neither do two clips of several events name the
    same things in the same order, nor is the event of a one-event clip a part of another clip: every sentence then
    has one right answer.
    """
    taken: set[object] = set()
    for number in range(count):
        rng = Random(f"minivtt {seed} {split} {number}")
        for _ in range(TRIES):
            events, fps = _draw_events(rng, world, split)
            marks, clashes = _marks(events, strict=split != "train")
            if taken.isdisjoint(clashes):
                break
        else:
            raise DataError(f"there are not enough different clips for {count:,} of {split}; ask for fewer.")
        taken |= marks
        width, height = draw_size(rng)
        yield ClipPlan(f"{split}{number:05d}", split, events, fps, width, height)


def _marks(events: tuple[Event, ...], *, strict: bool) -> tuple[set[object], set[object]]:
    """What a clip leaves behind, and what it must not find: each event is ``part`` of a clip or ``all`` of it."""
    if not strict:
        described: set[object] = {tuple(event.what for event in events)}
        return described, described
    part: set[object] = {("part", event.what) for event in events}
    if len(events) == 1:
        return part | {("all", events[0].what)}, part
    named = {tuple(thing.name for event in events for thing in event.things)}
    return part | named, named | {("all", event.what) for event in events}


def _draw_events(rng: Random, world: World, split: Split) -> tuple[tuple[Event, ...], int]:
    """The events of a clip and its frames a second; things differ from one another."""
    fps = rng.choice(FPS)
    one_place = rng.random() < 0.5
    events: list[Event] = []
    count = rng.choice(EVENTS)
    place = rng.choice(PLACES)
    while len(events) < count:
        if events and not one_place:
            place = rng.choice([other for other in PLACES if other != events[-1].place])
        used = {thing for event in events for thing in event.things}
        event = _draw_event(rng, world, split, place, used, fps, shortest=SHORTEST_CLIP if count == 1 else SHORTEST)
        if event is None:  # the place is used up
            events.clear()
            place = rng.choice(PLACES)
        else:
            events.append(event)
    return tuple(events), fps


def _draw_event(
    rng: Random, world: World, split: Split, place: Place, used: set[Thing], fps: int, *, shortest: float
) -> Event | None:
    candidates = [thing for thing in world.things_at(place, split) if thing not in used]
    if not candidates:
        return None
    thing = rng.choice(candidates)
    motion = rng.choice(world.motions_of(thing, split))
    partner = None
    if motion in WITH_PARTNER:
        partners = [other for other in candidates if other != thing and world.split_of(other, motion) == split]
        if not partners:
            return None
        partner = rng.choice(partners)
    frames = round(fps * rng.triangular(shortest, LONGEST, USUAL))
    return Event(thing, partner, motion, place, max(frames, round(shortest * fps + 0.49)))


def draw_size(rng: Random, short_sides: tuple[int, ...] = SHORT_SIDES) -> tuple[int, int]:
    """Width and height of a clip: both even, as H.264 needs them."""
    short = rng.choice(short_sides)
    across, down = rng.choice(ASPECTS)
    scale = short / min(across, down)
    return 2 * round(across * scale / 2), 2 * round(down * scale / 2)
