"""Where things are at each moment of a motion. Lengths are in short sides of the frame, from its centre."""

import math
from dataclasses import dataclass, replace
from random import Random


@dataclass(frozen=True)
class Pose:
    """How one thing is shown in one frame.

    Attributes:
        x: of its centre, to the right.
        y: of its centre, downwards.
        size: of its longer side.
        angle: degrees, counter-clockwise.
        clear: 1 is fully there, 0 not seen.
        flipped: mirrored; things face left by themselves.
        partner: it is the other thing of a motion with two.
    """

    x: float
    y: float
    size: float
    angle: float = 0.0
    clear: float = 1.0
    flipped: bool = False
    partner: bool = False


@dataclass(frozen=True)
class Course:
    """The numbers that make one performance of a motion differ from the next."""

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
    two = motion in ("chase", "jump over", "hide behind")
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
    """What stands where at ``time``, from 0 (start of the event) to 1 (its end); the rearmost first."""
    c = course
    reach = 0.6 - c.size / 2  # from the centre to where a part of the thing leaves the middle square
    along = (2 * time - 1) * reach  # from -reach to reach
    still = Pose(c.x, c.y, c.size, c.tilt, flipped=c.flipped)
    match c.motion:
        case "up":
            return [replace(still, y=-along)]
        case "down":
            return [replace(still, y=along)]
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
    there = Pose(c.x, 0.2, c.size, partner=True, flipped=not facing)
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
            return [there, Pose(x, 0.2 - 0.46 * math.sin(math.pi * time), c.size, flipped=facing)]
        case "hide behind":
            share = min(1.0, 1.3 * time)
            x = c.x - c.sign * 0.36 * (1 - share)
            return [
                Pose(x, 0.18, c.size * 0.95, clear=1.0 if share < 1 else 0.0, flipped=facing),
                replace(there, y=0.15, size=c.size * 1.2),
            ]
    raise ValueError(f"unknown motion {c.motion}")
