"""Draws planned clips and images of the same world, and writes them as MP4 files, each whole or not there."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from random import Random

import av
import numpy as np
from av.video.reformatter import VideoReformatter
from PIL import Image, ImageEnhance

from ...errors import DataError
from .backgrounds import background
from .plan import ClipPlan, Pose, draw_course, draw_size, poses
from .sentences import picture_captions
from .sprites import Sprites, sprites
from .world import PLACES, Kind, Place, Split, Thing, World, world

MARGIN = 0.12  # of the short side: what the camera may drift to each side
DISTRACTORS = (0, 1, 2, 3)
QUALITY = {"crf": "28", "preset": "veryfast", "threads": "1"}  # one thread: the same bytes every time
KEYFRAME_SECONDS = 4


@dataclass(frozen=True)
class RenderJob:
    """One clip to draw and write."""

    plan: ClipPlan
    target: Path
    seed: int
    kind: Kind
    font: Path | None


def render_clip(job: RenderJob) -> int:
    """Write the clip of a job and return its size in bytes."""
    write_video(job.target, clip_frames(job), job.plan.fps)
    return job.target.stat().st_size


def clip_frames(job: RenderJob) -> Iterator[Image.Image]:
    """The frames of a clip. A change of place is a cut; in the same place the view goes on."""
    plan, looks, those = job.plan, sprites(job.kind, job.font), world(job.kind)
    rng = Random(f"minivtt pixels {job.seed} {plan.id}")
    short = min(plan.width, plan.height)
    view = None
    for number, event in enumerate(plan.events):
        if view is None or event.place != plan.events[number - 1].place:
            stay = [later.place == event.place for later in plan.events[number:]]
            together = stay.index(False) if False in stay else len(stay)
            frames = sum(later.frames for later in plan.events[number : number + together])
            view = _View(rng, those, looks, plan, event.place, frames)
        rolls = event.thing.manner == "roll"
        course = draw_course(rng, event.motion, seconds=event.frames / plan.fps, rolls=rolls)
        for frame in range(event.frames):
            picture = view.next()
            for pose in poses(course, frame / max(1, event.frames - 1)):
                thing = event.partner if pose.partner and event.partner else event.thing
                paste(picture, looks.of(thing), pose, short)
            yield picture


class _View:
    """A painted place with small distractors, seen by a camera that drifts."""

    def __init__(self, rng: Random, those: World, looks: Sprites, plan: ClipPlan, place: Place, frames: int) -> None:
        self.width, self.height, self.frames = plan.width, plan.height, frames
        self.margin = round(MARGIN * min(plan.width, plan.height))
        paint = np.random.default_rng(rng.getrandbits(64))
        size = plan.width + 2 * self.margin, plan.height + 2 * self.margin
        self.picture = background(place.name, *size, paint)
        place_distractors(self.picture, rng, those, looks, plan.split, place, plan.things, rng.choice(DISTRACTORS))
        self.path = [(rng.uniform(0, 2 * self.margin), rng.uniform(0, 2 * self.margin)) for _ in range(2)]
        self.frame = 0

    def next(self) -> Image.Image:
        """The background of the next frame."""
        share = self.frame / max(1, self.frames - 1)
        left, top = (round((1 - share) * self.path[0][axis] + share * self.path[1][axis]) for axis in (0, 1))
        self.frame += 1
        return self.picture.crop((left, top, left + self.width, top + self.height))


def place_distractors(
    picture: Image.Image,
    rng: Random,
    those: World,
    looks: Sprites,
    split: Split,
    place: Place,
    named: Iterable[Thing],
    count: int,
) -> None:
    """Paint small dim things, which no sentence names, towards the edges of a picture."""
    mentioned = set(named)
    others = [thing for thing in those.things_at(place, split) if thing not in mentioned]
    short = min(picture.size)
    for thing in rng.sample(others, min(count, len(others))):
        dim = ImageEnhance.Brightness(looks.of(thing)).enhance(0.75)
        x, y = rng.uniform(-0.4, 0.4) * picture.width / short, rng.uniform(-0.4, 0.4) * picture.height / short
        if max(abs(x), abs(y)) < 0.3:
            x = 0.36 if x > 0 else -0.36
        paste(picture, dim, Pose(x, y, rng.uniform(0.1, 0.13), rng.uniform(-20, 20), clear=0.6), short)


def paste(picture: Image.Image, sprite: Image.Image, pose: Pose, short: int) -> None:
    """Draw a sprite into a picture where and how a pose says."""
    side = max(2, round(pose.size * short))
    if pose.clear <= 0:
        return
    look = sprite.resize((side, side), Image.Resampling.BILINEAR, reducing_gap=2.0)
    if pose.flipped:
        look = look.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    if pose.angle:
        look = look.rotate(pose.angle, Image.Resampling.BILINEAR, expand=True)
    mask = look.getchannel("A")
    if pose.clear < 1:
        mask = mask.point(lambda value: int(value * pose.clear))
    left = round(picture.width / 2 + pose.x * short - look.width / 2)
    top = round(picture.height / 2 + pose.y * short - look.height / 2)
    picture.paste(look, (left, top), mask)


def write_video(target: Path, frames: Iterable[Image.Image], fps: int) -> None:
    """Encode pictures of one size as H.264 in MP4: whole or not there, and the same bytes every time."""
    partial = target.with_name(f".{target.name}.{os.getpid()}.part")
    to_yuv = VideoReformatter()  # one for all frames: setting it up costs more than a small frame does
    options = {"movflags": "+faststart", "fflags": "+bitexact"}
    try:
        with av.open(str(partial), "w", format="mp4", options=options) as output:
            stream = output.add_stream("libx264", rate=fps)
            stream.pix_fmt, stream.time_base = "yuv420p", Fraction(1, fps)
            stream.options = {**QUALITY, "g": str(KEYFRAME_SECONDS * fps)}
            for number, picture in enumerate(frames):
                if number == 0:
                    stream.width, stream.height = picture.size
                frame = av.VideoFrame.from_ndarray(np.asarray(picture), format="rgb24")
                frame = to_yuv.reformat(frame, stream.width, stream.height, "yuv420p", threads=1)
                frame.pts, frame.time_base = number, Fraction(1, fps)
                output.mux(stream.encode(frame))
            output.mux(stream.encode())
        partial.replace(target)
    except av.FFmpegError as error:
        raise DataError(f"{target} cannot be written: {error.strerror}") from error
    finally:
        partial.unlink(missing_ok=True)


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
