"""Draws planned clips, and images of the same world, and writes them as MP4 files, each complete or absent.

Images show one or two things in a place: they are quick to draw, and a model learns names from them first.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np
from PIL import Image, ImageEnhance

from ...video.encode import write_video
from .backgrounds import background
from .plan import ClipPlan, ImagePlan, Pose, draw_course, draw_size, poses
from .sprites import Sprites, sprites
from .world import Kind, Place, Split, Thing, World, world

MARGIN = 0.12  # of the short side: how far the camera may drift to each side
DISTRACTORS = (0, 1, 2, 3)  # things of a clip that no sentence names
IMAGE_SHORT_SIDES = (112, 128)
QUALITY = {"crf": "28", "preset": "veryfast"}


@dataclass(frozen=True)
class RenderJob:
    """Clips or images to draw and write."""

    plans: Sequence[ClipPlan | ImagePlan]
    folder: Path
    seed: int
    kind: Kind
    font: Path | None


def render(job: RenderJob) -> None:
    """Write the clips and images of a job; an image is a video of one frame."""
    scenery = world(job.kind), sprites(job.kind, job.font)
    for plan in job.plans:
        if isinstance(plan, ClipPlan):
            frames, fps = clip_frames(plan, job.seed, *scenery), plan.fps
        else:
            frames, fps = iter([draw_image(plan, job.seed, *scenery)]), 1
        write_video(job.folder / f"{plan.id}.mp4", map(np.asarray, frames), fps, QUALITY)


def clip_frames(plan: ClipPlan, seed: int, world: World, sprite_set: Sprites) -> Iterator[Image.Image]:
    """The frames of a clip. A change of place is a cut; in the same place the camera moves on."""
    rng = Random(f"minivtt pixels {seed} {plan.id}")
    short = min(plan.width, plan.height)
    view = None
    for number, event in enumerate(plan.events):
        if view is None or event.place != plan.events[number - 1].place:
            same_place = [later.place == event.place for later in plan.events[number:]] + [False]
            frames = sum(later.frames for later in plan.events[number : number + same_place.index(False)])
            view = _View(rng, world, sprite_set, plan, event.place, frames)
        rolls = event.thing.manner == "roll"
        course = draw_course(rng, event.motion, seconds=event.frames / plan.fps, rolls=rolls)
        for frame in range(event.frames):
            image = view.next()
            for pose in poses(course, frame / max(1, event.frames - 1)):
                thing = event.partner if pose.partner and event.partner else event.thing
                paste(image, sprite_set.of(thing), pose, short)
            yield image


class _View:
    """A painted place with small distractors, seen by a camera that drifts."""

    def __init__(
        self, rng: Random, world: World, sprite_set: Sprites, plan: ClipPlan, place: Place, frames: int
    ) -> None:
        self.width, self.height, self.frames = plan.width, plan.height, frames
        self.margin = round(MARGIN * min(plan.width, plan.height))
        paint = np.random.default_rng(rng.getrandbits(64))
        size = plan.width + 2 * self.margin, plan.height + 2 * self.margin
        self.image = background(place.name, *size, paint)
        place_distractors(self.image, rng, world, sprite_set, plan.split, place, plan.things, rng.choice(DISTRACTORS))
        self.path = [(rng.uniform(0, 2 * self.margin), rng.uniform(0, 2 * self.margin)) for _ in range(2)]
        self.frame = 0

    def next(self) -> Image.Image:
        """The background of the next frame."""
        share = self.frame / max(1, self.frames - 1)
        left, top = (round((1 - share) * self.path[0][axis] + share * self.path[1][axis]) for axis in (0, 1))
        self.frame += 1
        return self.image.crop((left, top, left + self.width, top + self.height))


def place_distractors(
    image: Image.Image, rng: Random, world: World, sprite_set: Sprites, split: Split, place: Place,
    named: Iterable[Thing], count: int,
) -> None:  # fmt: skip
    """Paint small dim things, which no sentence names, towards the edges of an image."""
    mentioned = set(named)
    others = [thing for thing in world.things_at(place, split) if thing not in mentioned]
    short = min(image.size)
    for thing in rng.sample(others, min(count, len(others))):
        dim = ImageEnhance.Brightness(sprite_set.of(thing)).enhance(0.75)
        x, y = rng.uniform(-0.4, 0.4) * image.width / short, rng.uniform(-0.4, 0.4) * image.height / short
        if max(abs(x), abs(y)) < 0.3:
            x = 0.36 if x > 0 else -0.36
        paste(image, dim, Pose(x, y, rng.uniform(0.1, 0.13), rng.uniform(-20, 20), clear=0.6), short)


def paste(image: Image.Image, sprite: Image.Image, pose: Pose, short: int) -> None:
    """Draw a sprite into an image, as a pose says."""
    side = max(2, round(pose.size * short))
    if pose.clear <= 0:
        return
    sprite = sprite.resize((side, side), Image.Resampling.BILINEAR, reducing_gap=2.0)
    if pose.flipped:
        sprite = sprite.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    if pose.angle:
        sprite = sprite.rotate(pose.angle, Image.Resampling.BILINEAR, expand=True)
    mask = sprite.getchannel("A")
    if pose.clear < 1:
        mask = mask.point(lambda value: int(value * pose.clear))
    left = round(image.width / 2 + pose.x * short - sprite.width / 2)
    top = round(image.height / 2 + pose.y * short - sprite.height / 2)
    image.paste(sprite, (left, top), mask)


def draw_image(plan: ImagePlan, seed: int, world: World, sprite_set: Sprites) -> Image.Image:
    """An image of one or two things in a place."""
    rng = Random(f"minivtt picture pixels {seed} {plan.id}")
    width, height = draw_size(rng, IMAGE_SHORT_SIDES)
    image = background(plan.place.name, width, height, np.random.default_rng(rng.getrandbits(64)))
    count = rng.choice((0, 0, 1, 2))
    place_distractors(image, rng, world, sprite_set, "train", plan.place, plan.things, count)
    for thing, pose in zip(plan.things, _image_poses(rng, len(plan.things)), strict=True):
        paste(image, sprite_set.of(thing), pose, min(width, height))
    return image


def _image_poses(rng: Random, count: int) -> list[Pose]:
    """The pose of one thing, or of two side by side: the sizes, angles and positions that occur in motions."""
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
    drawn = []
    for spot in spots:
        angle = rng.uniform(0, 360) if rng.random() < 0.2 else rng.uniform(-20, 20)
        clear = 1.0 if rng.random() < 0.9 else rng.uniform(0.5, 1.0)
        drawn.append(Pose(*spot, angle, clear, flipped=rng.random() < 0.5))
    return drawn
