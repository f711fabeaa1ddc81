"""The world of MiniVTT: its things, places and motions, and which pairs of them each split may show."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

Kind = Literal["emoji", "shapes"]
Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = ("train", "val", "test")


@dataclass(frozen=True)
class Thing:
    """Something with a name and a look."""

    names: tuple[str, ...]  # the usual name first, then others
    look: str  # an emoji, or a shape and its colour
    manner: str  # how it gets about: walk, fly, swim, drive, sail, roll or slide

    @property
    def name(self) -> str:
        """The usual name."""
        return self.names[0]


@dataclass(frozen=True)
class Place:
    """A background with the words that say where something is."""

    name: str
    phrases: tuple[str, ...]


# Emoji that differ at 40 pixels, have been in every emoji font since 2019, and have a common name in the singular.
_EMOJI = {
    "walk": "cat 🐈, dog 🐕, horse 🐎, cow 🐄, pig 🐖, elephant 🐘, giraffe 🦒, rabbit/bunny 🐇, tiger 🐅, panda 🐼, "
    "fox 🦊, monkey 🐒, penguin 🐧, zebra 🦓, turtle 🐢, snail 🐌, spider 🕷, crab 🦀, dinosaur 🦖, frog 🐸, "
    "rooster 🐓, hedgehog 🦔, camel 🐫, mouse 🐁, snake 🐍, crocodile 🐊, unicorn 🦄, flamingo 🦩, kangaroo 🦘, "
    "robot 🤖, sheep 🐑, peacock 🦚",
    "fly": "owl 🦉, parrot 🦜, butterfly 🦋, bee 🐝, bat 🦇, ghost 👻, kite 🪁, balloon 🎈, helicopter 🚁, "
    "airplane/plane ✈, rocket 🚀, flying saucer/UFO 🛸",
    "swim": "duck 🦆, fish 🐠, whale 🐳, shark 🦈, octopus 🐙, swan 🦢",
    "drive": "car 🚗, bus 🚌, truck 🚚, tractor 🚜, train 🚂, bicycle/bike 🚲, motorcycle/motorbike 🏍, scooter 🛴, "
    "fire engine/fire truck 🚒",
    "sail": "sailboat ⛵, ship 🚢",
    "roll": "soccer ball/football ⚽, basketball 🏀, doughnut/donut 🍩, globe 🌍, skateboard 🛹",
    "slide": "umbrella ☂, guitar 🎸, drum 🥁, trumpet 🎺, piano 🎹, camera 📷, television/TV 📺, "
    "telephone/phone ☎, alarm clock/clock ⏰, key 🔑, hammer 🔨, book 📕, pencil ✏, "
    "envelope/letter ✉, gift/present 🎁, top hat/hat 🎩, crown 👑, shoe 👟, dress 👗, ring 💍, "
    "diamond 💎, pizza 🍕, hamburger/burger 🍔, hot dog 🌭, ice cream 🍦, cake 🎂, egg 🥚, apple 🍎, "
    "banana 🍌, lemon 🍋, pineapple 🍍, watermelon 🍉, strawberry 🍓, carrot 🥕, mushroom 🍄, "
    "avocado 🥑, cactus 🌵, sunflower 🌻, rose 🌹, star ⭐, snowman ⛄, heart ❤, house 🏠, "
    "castle 🏰, tent ⛺, pumpkin 🎃, trophy 🏆, bell 🔔, magnet 🧲, chair 🪑, bathtub 🛁, axe 🪓, "
    "backpack 🎒, lollipop 🍭, anchor ⚓, traffic light 🚦",
}
SHAPES = ("circle", "square", "triangle", "star", "heart", "cross", "ring", "crescent", "arrow", "diamond", "bolt",
          "flower")  # fmt: skip
COLOURS = {
    "red": (214, 40, 40),
    "orange": (247, 127, 0),
    "yellow": (250, 220, 40),
    "green": (46, 160, 67),
    "blue": (40, 90, 220),
    "purple": (130, 60, 190),
    "pink": (255, 130, 190),
    "white": (245, 245, 245),
    "black": (25, 25, 25),
}
PLACES = (
    Place("sea", ("over the sea", "at sea", "on the ocean")),
    Place("city", ("in the city", "in front of tall buildings", "in a big city")),
    Place("night", ("at night", "under the moon", "in the dark of the night")),
    Place("grass", ("on the grass", "in a green meadow", "on a lawn")),
    Place("desert", ("in the desert", "among the sand dunes", "in a hot desert")),
    Place("snow", ("in the snow", "in the snowy mountains", "in a winter landscape")),
    Place("forest", ("in the forest", "among the trees", "in the woods")),
    Place("beach", ("on the beach", "at the seaside", "on a sandy beach")),
    Place("space", ("in space", "in outer space", "among the planets")),
    Place("kitchen", ("in the kitchen", "in front of the kitchen tiles", "on the kitchen counter")),
    Place("road", ("on the road", "on the highway", "on a wide road")),
    Place("underwater", ("under water", "at the bottom of the sea", "deep under the waves")),
)
MOTIONS = ("up", "down", "left", "right", "spin", "grow", "shrink", "bounce", "shake", "zigzag", "circle", "appear",
           "disappear", "chase", "jump over", "hide behind")  # fmt: skip
WITH_PARTNER = frozenset({"chase", "jump over", "hide behind"})
HELD_OUT: dict[Split, int] = {"val": 1, "test": 3}  # of each thing's motions, and again of its places


@dataclass(frozen=True)
class World:
    """Everything a scene can be made of, divided among the splits.

    A pair (thing, motion) or (thing, place) belongs to one split alone. The division depends on the names and on
    nothing else, so images and clips of any seed have the same one.
    """

    kind: Kind
    things: tuple[Thing, ...]

    @cached_property
    def _split_of(self) -> dict[tuple[str, str], Split]:
        pairs: dict[tuple[str, str], Split] = {}
        for thing in self.things:
            for others in (MOTIONS, tuple(place.name for place in PLACES)):
                pairs |= _divided(thing.name, others)
        return pairs

    def split_of(self, thing: Thing, other: str) -> Split:
        """The split that a thing belongs to together with a motion or a place."""
        return self._split_of[thing.name, other]

    @cached_property
    def _things_at(self) -> dict[tuple[Split, str], tuple[Thing, ...]]:
        return {
            (split, place.name): tuple(t for t in self.things if self.split_of(t, place.name) == split)
            for split in SPLITS
            for place in PLACES
        }

    def things_at(self, place: Place, split: Split) -> tuple[Thing, ...]:
        """The things that a split may show in a place."""
        return self._things_at[split, place.name]

    def motions_of(self, thing: Thing, split: Split) -> tuple[str, ...]:
        """What a split may show a thing doing."""
        return tuple(motion for motion in MOTIONS if self.split_of(thing, motion) == split)


@lru_cache
def world(kind: Kind) -> World:
    """The world of emoji, or of drawn shapes."""
    if kind == "emoji":
        entries = [(manner, *entry.rsplit(" ", 1)) for manner, each in _EMOJI.items() for entry in each.split(", ")]
        return World(kind, tuple(Thing(tuple(names.split("/")), look, manner) for manner, names, look in entries))
    coloured = [(shape, hue) for shape in SHAPES for hue in COLOURS]
    manners = dict.fromkeys(SHAPES, "slide") | {"circle": "roll", "ring": "roll"}
    return World(kind, tuple(Thing((f"{hue} {shape}",), f"{shape} {hue}", manners[shape]) for shape, hue in coloured))


def _divided(thing: str, others: Sequence[str]) -> dict[tuple[str, str], Split]:
    """One pair for validation, a few for test and the others for training, by a hash of both names."""
    ranked = sorted(others, key=lambda other: hashlib.sha256(f"{thing}|{other}".encode()).digest())
    held_out: list[Split] = [split for split, count in HELD_OUT.items() for _ in range(count)]
    training: list[Split] = ["train"] * (len(others) - len(held_out))
    return {(thing, other): split for other, split in zip(ranked, held_out + training, strict=True)}
