"""Pictures of the same world, one or two things in a place: quick to draw, and what a model learns names from."""

from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np

from .backgrounds import background
from .motion import Pose
from .plan import draw_size
from .render import paste, place_distractors, write_video
from .sentences import picture_captions
from .sprites import sprites
from .world import PLACES, Kind, Place, Split, Thing, World, world

SHORT_SIDES = (112, 128)
BATCH = 64  # pictures that a process draws before it reports: one takes milliseconds


@dataclass(frozen=True)
class PicturePlan:
    """A picture before it is drawn."""

    id: str
    things: tuple[Thing, ...]
    place: Place
    captions: tuple[str, ...]


@dataclass(frozen=True)
class PictureJob:
    """Some pictures to draw and write."""

    plans: tuple[PicturePlan, ...]
    folder: Path
    seed: int
    kind: Kind
    font: Path | None


def plan_picture(those: World, split: Split, number: int, seed: int) -> PicturePlan:
    """Picture ``number`` of a split. All splits show the pairs of thing and place that training clips show."""
    rng = Random(f"minivtt picture {seed} {split} {number}")
    place = rng.choice(PLACES)
    things = tuple(rng.sample(those.things_at(place, "train"), 1 if rng.random() < 0.6 else 2))
    return PicturePlan(f"{split}{number:06d}", things, place, tuple(picture_captions(rng, things, place)))


def render_pictures(job: PictureJob) -> int:
    """Write the pictures of a job as videos of one frame and return their size in bytes."""
    return sum(_render(job, plan) for plan in job.plans)


def _render(job: PictureJob, plan: PicturePlan) -> int:
    rng = Random(f"minivtt picture pixels {job.seed} {plan.id}")
    looks, those = sprites(job.kind, job.font), world(job.kind)
    width, height = draw_size(rng, SHORT_SIDES)
    picture = background(plan.place.name, width, height, np.random.default_rng(rng.getrandbits(64)))
    place_distractors(picture, rng, those, looks, "train", plan.place, plan.things, rng.choice((0, 0, 1, 2)))
    for thing, pose in zip(plan.things, _poses(rng, len(plan.things)), strict=True):
        paste(picture, looks.of(thing), pose, min(width, height))
    target = job.folder / f"{plan.id}.mp4"
    write_video(target, [picture], fps=1)
    return target.stat().st_size


def _poses(rng: Random, count: int) -> list[Pose]:
    """Where one thing stands, or two side by side: the sizes, turns and places that motions lead through."""
    if count == 1:
        size = rng.uniform(0.2, 0.55)
        free = 0.55 - size / 2
        spots = [(rng.uniform(-free, free), rng.uniform(-free, free), size)]
    else:
        sign = rng.choice((-1, 1))
        sizes = rng.uniform(0.24, 0.42), rng.uniform(0.24, 0.42)
        spots = [
            (sign * side * rng.uniform(0.16, 0.3), rng.uniform(-0.25, 0.25), size)
            for side, size in zip((-1, 1), sizes, strict=True)
        ]
    return [
        Pose(
            x,
            y,
            size,
            angle=rng.uniform(0, 360) if rng.random() < 0.2 else rng.uniform(-20, 20),
            clear=1.0 if rng.random() < 0.9 else rng.uniform(0.5, 1.0),
            flipped=rng.random() < 0.5,
        )
        for x, y, size in spots
    ]
