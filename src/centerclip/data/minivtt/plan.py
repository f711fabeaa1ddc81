"""What happens in each clip and image, drawn by seed: places, things, motions, where things are when, and the sentences
about it: grammatical, in varied wording, some of them with less detail. No pixels yet.

Positions and sizes are in units of the frame's short side, from its centre.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

from ...errors import DataError
from .world import PLACES, WITH_PARTNER, Place, Split, Thing, World

EVENT_COUNTS = (1, 2, 2, 3)  # of a clip, each equally likely
FPS = (6, 8, 10)
SHORT_SIDES = (112, 120, 128, 136, 144, 160)
ASPECTS = ((1, 1), (4, 3), (16, 9), (3, 4))
MIN_SECONDS, MAX_SECONDS, USUAL_SECONDS = 2.5, 10.0, 3.5  # of an event
MIN_CLIP_SECONDS = 3.0
MAX_ATTEMPTS = 10_000  # at a clip that differs from all others, before the split counts as full
CLIP_CAPTIONS = 5
PAIR_CAPTIONS = 3
# Motions that look alike in any one frame. Only what rolls goes left or right: other things face where they go.
OPPOSITES = (("up", "down"), ("grow", "shrink"), ("appear", "disappear"), ("left", "right"))
IMAGE_CAPTIONS = 3
SYNONYM_RATE = 0.25  # how often a thing is called by another of its names
SIDEWAYS = {
    "walk": ("walks", "runs", "goes"),
    "fly": ("flies", "floats", "glides"),
    "swim": ("swims", "glides", "moves"),
    "drive": ("drives", "rides", "moves"),
    "sail": ("sails", "moves", "glides"),
    "roll": ("rolls", "moves"),
    "slide": ("slides", "moves", "glides"),
}
VERBS = {
    "up": ("flies up", "rises", "goes up", "moves upwards"),
    "down": ("falls down", "drops", "falls", "comes down"),
    "spin": ("spins", "turns around and around", "spins around", "rotates"),
    "grow": ("grows", "gets bigger", "becomes larger"),
    "shrink": ("shrinks", "gets smaller", "becomes smaller"),
    "bounce": ("bounces", "bounces up and down", "hops up and down"),
    "shake": ("shakes", "wobbles", "trembles"),
    "zigzag": ("zigzags", "moves in a zigzag", "zigzags down"),
    "circle": ("moves in a circle", "circles around", "goes round in a circle"),
    "appear": ("appears", "comes into view", "slowly appears"),
    "disappear": ("disappears", "fades away", "vanishes"),
    "chase": ("chases", "runs after", "follows"),
    "jump over": ("jumps over", "leaps over", "hops over"),
    "hide behind": ("hides behind", "disappears behind", "goes behind"),
}


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
        """All things that the sentence names."""
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
    paired: bool = False  # whether it has a twin, from which only order or motion tells it apart

    @property
    def things(self) -> tuple[Thing, ...]:
        """All things in the order in which they appear."""
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
        for _ in range(MAX_ATTEMPTS):
            events, fps = _draw_events(rng, world, split)
            marks, conflicts = _marks(events, strict=split != "train")
            if taken.isdisjoint(conflicts):
                break
        else:
            raise DataError(f"there are fewer than {count:,} different clips for {split}; ask for fewer.")
        taken |= marks
        width, height = draw_size(rng)
        yield ClipPlan(f"{split}{number:05d}", split, events, fps, width, height)


def plan_pairs(world: World, count: int, seed: int) -> Iterator[ClipPlan]:
    """``count`` clips of the test split (an even number) in which order and motion decide: every second is the twin.

    In turn, the two show the same two events in either order; a thing that moves in opposite ways; two things that
    exchange their roles (who chases whom). Both show the same things in the same places for the same time, so the mean
    of frames that are looked at one by one can hardly tell them apart. Every sentence has one right answer.
    """
    taken: set[object] = set()
    for number in range(0, count - count % 2, 2):
        rng = Random(f"minivtt pairs {seed} {number}")
        for attempt in range(MAX_ATTEMPTS):
            # There are few things whose opposite motions are both in the test split; order comes in when they run out.
            kind = ("order", "motion", "roles")[number // 2 % 3] if attempt < MAX_ATTEMPTS // 10 else "order"
            twins, fps = _draw_twins(rng, world, kind)
            found = [_marks(events, strict=True) for events in twins]
            if found and all(taken.isdisjoint(conflicts) for _, conflicts in found):
                break
        else:
            raise DataError(f"there are fewer than {count:,} different clips for pairs; ask for fewer.")
        taken.update(*(marks for marks, _ in found))
        width, height = draw_size(rng)
        for place, events in enumerate(twins):
            yield ClipPlan(f"pair{number + place:05d}", "test", events, fps, width, height, paired=True)


def _draw_twins(rng: Random, world: World, kind: str) -> tuple[list[tuple[Event, ...]], int]:
    """The events of two clips of one kind and their frames a second; none where what was drawn has no twin."""
    fps, place = rng.choice(FPS), rng.choice(PLACES)
    first = _draw_event(rng, world, "test", place, set(), fps, shortest=MIN_CLIP_SECONDS)
    if first is None:
        return [], fps
    if kind == "order":
        second = _draw_event(rng, world, "test", place, set(first.things), fps, shortest=MIN_CLIP_SECONDS)
        return ([(first, second), (second, first)] if second else []), fps
    if kind == "roles":
        if first.partner is None:
            return [], fps
        return [(first,), (replace(first, thing=first.partner, partner=first.thing),)], fps
    thing = rng.choice(world.things_at(place, "test"))
    motions = world.motions_of(thing, "test")
    for one, other in OPPOSITES:
        if one in motions and other in motions and (one != "left" or thing.manner == "roll"):
            event = replace(first, thing=thing, partner=None, motion=one)
            return [(event,), (replace(event, motion=other),)], fps
    return [], fps


@dataclass(frozen=True)
class ImagePlan:
    """An image before it is drawn."""

    id: str
    split: Split
    things: tuple[Thing, ...]
    place: Place
    captions: tuple[str, ...]


def plan_images(world: World, split: Split, count: int, seed: int) -> Iterator[ImagePlan]:
    """The first ``count`` images of a split. All splits show the pairs of thing and place that training clips show."""
    for number in range(count):
        rng = Random(f"minivtt picture {seed} {split} {number}")
        place = rng.choice(PLACES)
        things = tuple(rng.sample(world.things_at(place, "train"), 1 if rng.random() < 0.6 else 2))
        yield ImagePlan(f"{split}{number:06d}", split, things, place, tuple(image_captions(rng, things, place)))


def _marks(events: tuple[Event, ...], *, strict: bool) -> tuple[set[object], set[object]]:
    """What a clip marks as taken, and what must not be taken yet: an event is ``part`` of a clip or ``all`` of it."""
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
    count = rng.choice(EVENT_COUNTS)
    place = rng.choice(PLACES)
    while len(events) < count:
        if events and not one_place:
            place = rng.choice([other for other in PLACES if other != events[-1].place])
        used = {thing for event in events for thing in event.things}
        shortest = MIN_CLIP_SECONDS if count == 1 else MIN_SECONDS
        event = _draw_event(rng, world, split, place, used, fps, shortest=shortest)
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
    frames = round(fps * rng.triangular(shortest, MAX_SECONDS, USUAL_SECONDS))
    return Event(thing, partner, motion, place, max(frames, round(shortest * fps + 0.49)))


def draw_size(rng: Random, short_sides: tuple[int, ...] = SHORT_SIDES) -> tuple[int, int]:
    """Width and height of a clip: both even, as H.264 needs them."""
    short = rng.choice(short_sides)
    across, down = rng.choice(ASPECTS)
    scale = short / min(across, down)
    return 2 * round(across * scale / 2), 2 * round(down * scale / 2)


@dataclass(frozen=True)
class Pose:
    """How one thing is shown in one frame."""

    x: float  # of its centre, to the right
    y: float  # of its centre, downwards
    size: float  # of its longer side
    angle: float = 0.0  # degrees, counter-clockwise
    clear: float = 1.0  # opacity, 0 to 1
    flipped: bool = False  # mirrored; unflipped things face left
    partner: bool = False  # whether it is the second thing of a motion with two


@dataclass(frozen=True)
class Course:
    """The random parameters of one motion."""

    motion: str
    size: float
    x: float
    y: float
    sign: int
    turns: float
    tilt: float
    rolls: bool
    flipped: bool


def draw_course(rng: Random, motion: str, *, seconds: float, rolls: bool) -> Course:
    """A course for a motion that lasts so many seconds; ``rolls`` when the thing turns as it moves sideways."""
    two = motion in WITH_PARTNER
    return Course(
        motion=motion,
        size=rng.uniform(0.28, 0.36) if two else rng.uniform(0.32, 0.5),
        x=rng.uniform(-0.1, 0.1),
        y=rng.uniform(-0.1, 0.1),
        sign=rng.choice((-1, 1)),
        turns=max(1.0, seconds * rng.uniform(0.35, 0.6)),
        tilt=rng.uniform(-8, 8),
        rolls=rolls,
        flipped=rng.random() < 0.5,
    )


def poses(course: Course, time: float) -> list[Pose]:
    """Where things are at ``time``, from 0 (start of the event) to 1 (its end); the rearmost first."""
    c = course
    reach = 0.6 - c.size / 2  # from the centre to where a part of the thing leaves the middle square
    along = (2 * time - 1) * reach  # from -reach to reach
    still = Pose(c.x, c.y, c.size, c.tilt, flipped=c.flipped)
    match c.motion:
        case "up" | "down":
            return [replace(still, y=along if c.motion == "down" else -along)]
        case "left" | "right":
            sign = 1 if c.motion == "right" else -1
            turned = -sign * 360 * c.turns * time if c.rolls else c.tilt
            return [replace(still, x=sign * along, angle=turned, flipped=sign > 0)]
        case "spin":
            return [replace(still, angle=c.sign * 360 * c.turns * time)]
        case "grow" | "shrink":
            share = time if c.motion == "grow" else 1 - time
            return [replace(still, size=0.14 + 0.46 * share)]
        case "bounce":
            return [replace(still, y=0.28 - 0.5 * abs(math.sin(math.pi * c.turns * 1.1 * time)))]
        case "shake":
            swing = math.sin(2 * math.pi * c.turns * 3.1 * time)
            return [replace(still, x=c.x + 0.06 * swing, angle=20 * swing)]
        case "zigzag":
            legs = 4 * time
            across = abs(legs % 2 - 1) * 2 - 1  # 1 -> -1 -> 1 -> ...
            return [replace(still, x=c.sign * across * 0.26, y=along)]
        case "circle":
            angle = 2 * math.pi * c.turns * 0.7 * time * c.sign
            return [replace(still, x=0.26 * math.sin(angle), y=-0.26 * math.cos(angle), size=min(c.size, 0.38))]
        case "appear" | "disappear":
            share = time if c.motion == "appear" else 1 - time
            return [replace(still, clear=min(1.0, max(0.0, 1.6 * share - 0.3)))]
    facing = c.sign > 0
    standing = Pose(c.x, 0.2, c.size, partner=True, flipped=not facing)
    match c.motion:
        case "chase":
            ahead = c.sign * (2 * time - 1) * 0.28
            gap = c.sign * (0.3 + 0.08 * math.sin(2 * math.pi * c.turns * time))
            return [
                Pose(ahead + gap * 0.6, c.y, c.size * 0.9, partner=True, flipped=facing),
                Pose(ahead - gap * 0.6, c.y, c.size, flipped=facing),
            ]
        case "jump over":
            x = c.x + c.sign * (2 * time - 1) * 0.36
            return [standing, Pose(x, 0.2 - 0.46 * math.sin(math.pi * time), c.size, flipped=facing)]
        case "hide behind":
            share = min(1.0, 1.3 * time)
            x = c.x - c.sign * 0.36 * (1 - share)
            return [
                Pose(x, 0.18, c.size * 0.95, clear=1.0 if share < 1 else 0.0, flipped=facing),
                replace(standing, y=0.15, size=c.size * 1.2),
            ]
    raise ValueError(f"unknown motion {c.motion}")


def a(noun: str) -> str:
    """A noun with its article, by sound: an apple, a unicorn, a UFO."""
    vowel = noun[0].lower() in "aeiou" and not noun.startswith(("uni", "UFO", "one"))
    return f"{'an' if vowel else 'a'} {noun}"


def clip_captions(plan: ClipPlan, seed: int) -> list[str]:
    """Five different sentences about a clip, three about one of a pair.

    The first mentions everything. Of clips with several events some leave out the motions or the places, but all name
    every thing in its order. Those of a pair leave out nothing.
    """
    rng = Random(f"minivtt captions {seed} {plan.id}")
    several = len(plan.events) > 1 and not plan.paired
    details = ["all", "all", "all", "motion", "place"] if several else ["all"] * CLIP_CAPTIONS
    captions: list[str] = []
    while len(captions) < (PAIR_CAPTIONS if plan.paired else CLIP_CAPTIONS):
        sentence = _sequence(rng, plan.events, details[len(captions)])
        if sentence not in captions:
            captions.append(sentence)
    return captions


def event_captions(plan: ClipPlan, seed: int) -> list[str]:
    """One short sentence for each event of a clip."""
    rng = Random(f"minivtt events {seed} {plan.id}")
    return [_clause(rng, event, _where(rng, event.place) if rng.random() < 0.4 else "") for event in plan.events]


def image_captions(rng: Random, things: tuple[Thing, ...], place: Place) -> list[str]:
    """Three different sentences about an image of one or two things in a place."""
    captions: list[str] = []
    while len(captions) < IMAGE_CAPTIONS:
        noun, where = " and ".join(_noun(rng, thing) for thing in things), _where(rng, place)
        ways = [f"{noun} {where}", f"{noun} {where}", f"there is {noun} {where}", f"{where}, {noun}"]
        sentence = rng.choice([*ways, f"{where} there is {noun}", f"we see {noun} {where}", noun])
        if sentence not in captions:
            captions.append(sentence)
    return captions


def _sequence(rng: Random, events: tuple[Event, ...], detail: str) -> str:
    """One sentence about all events; ``detail`` is ``all``, or the only detail: ``motion`` or ``place``."""
    places = {event.place for event in events}
    shared = _where(rng, events[0].place) if len(places) == 1 and detail != "motion" else ""
    parts = []
    for event in events:
        where = "" if shared or detail == "motion" else _where(rng, event.place)
        parts.append(_nouns(rng, event, where) if detail == "place" else _clause(rng, event, where))
    sentence = _joined(rng, parts, sentences=detail != "place")
    if not shared:
        return sentence
    return f"{shared}, {sentence}" if rng.random() < 0.5 or len(events) > 1 else f"{sentence} {shared}"


def _joined(rng: Random, parts: list[str], *, sentences: bool) -> str:
    first, *rest = parts
    if not rest:
        return first
    if len(rest) == 1:
        (second,) = rest
        ways = [f"{first}, then {second}", f"{first} and then {second}", f"first {first}, then {second}"]
        if sentences:
            ways += [f"{first}; after that, {second}", f"{first} before {second}"]
            ways += [f"after {first}, {second}", f"{first}, and afterwards {second}"]
        return rng.choice(ways)
    second, third = rest
    ways = [
        f"{first}, then {second}, then {third}",
        f"first {first}, then {second}, and finally {third}",
        f"{first}, then {second} and at last {third}",
    ]
    if sentences:
        ways += [
            f"{first}; after that, {second}, and in the end {third}",
            f"{first} before {second}, and then {third}",
            f"after {first}, {second}, and then {third}",
        ]
    return rng.choice(ways)


def _clause(rng: Random, event: Event, where: str) -> str:
    """``a cat jumps over a dog on the grass``."""
    if event.motion in ("left", "right"):
        verb = rng.choice(SIDEWAYS[event.thing.manner]) + rng.choice((" ", " to the ")) + event.motion
    else:
        verb = rng.choice(VERBS[event.motion])
    if event.partner:
        verb += f" {_noun(rng, event.partner)}"
    return f"{_noun(rng, event.thing)} {verb} {where}".rstrip()


def _nouns(rng: Random, event: Event, where: str) -> str:
    return f"{' and '.join(_noun(rng, thing) for thing in event.things)} {where}".rstrip()


def _noun(rng: Random, thing: Thing) -> str:
    others = thing.names[1:]
    return a(rng.choice(others) if others and rng.random() < SYNONYM_RATE else thing.name)


def _where(rng: Random, place: Place) -> str:
    return rng.choice(place.phrases)
