"""Sentences about scenes: grammatical, in varied wording, some of them with less detail."""

from random import Random
from typing import TYPE_CHECKING

from .world import Place, Thing

if TYPE_CHECKING:
    from .plan import ClipPlan, Event

CLIP_CAPTIONS = 5
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


def a(noun: str) -> str:
    """A noun with its article, by sound: an apple, a unicorn, a UFO."""
    vowel = noun[0].lower() in "aeiou" and not noun.startswith(("uni", "UFO", "one"))
    return f"{'an' if vowel else 'a'} {noun}"


def clip_captions(plan: "ClipPlan", seed: int) -> list[str]:
    """Five different sentences about a clip.

    The first mentions everything. Of clips with several events some leave out the motions or the places, but all name
    every thing in its order.
    """
    rng = Random(f"minivtt captions {seed} {plan.id}")
    several = len(plan.events) > 1
    details = ["all", "all", "all", "motion", "place"] if several else ["all"] * CLIP_CAPTIONS
    captions: list[str] = []
    while len(captions) < CLIP_CAPTIONS:
        sentence = _sequence(rng, plan.events, details[len(captions)])
        if sentence not in captions:
            captions.append(sentence)
    return captions


def event_captions(plan: "ClipPlan", seed: int) -> list[str]:
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


def _sequence(rng: Random, events: "tuple[Event, ...]", detail: str) -> str:
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


def _clause(rng: Random, event: "Event", where: str) -> str:
    """``a cat jumps over a dog on the grass``."""
    if event.motion in ("left", "right"):
        verb = rng.choice(SIDEWAYS[event.thing.manner]) + rng.choice((" ", " to the ")) + event.motion
    else:
        verb = rng.choice(VERBS[event.motion])
    if event.partner:
        verb += f" {_noun(rng, event.partner)}"
    return f"{_noun(rng, event.thing)} {verb} {where}".rstrip()


def _nouns(rng: Random, event: "Event", where: str) -> str:
    return f"{' and '.join(_noun(rng, thing) for thing in event.things)} {where}".rstrip()


def _noun(rng: Random, thing: Thing) -> str:
    others = thing.names[1:]
    return a(rng.choice(others) if others and rng.random() < SYNONYM_RATE else thing.name)


def _where(rng: Random, place: Place) -> str:
    return rng.choice(place.phrases)
