"""Draws planned clips, and images of the same world, and writes them as MP4 files, each complete or absent.

Images show one or two things in a place: they are quick to draw, and a model learns names from them first. Things look
like colour emoji from a font, or like drawn shapes, with a light rim.
"""

import hashlib
import math
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random

import numpy as np
from PIL import Image, ImageDraw, ImageEnhance, ImageFilter, ImageFont

from ...errors import DataError
from ...video.encode import write_video
from .backgrounds import background
from .plan import ClipPlan, ImagePlan, Pose, draw_course, draw_size, poses
from .world import COLOURS, Kind, Place, Split, Thing, World, world

MARGIN = 0.12  # of the short side: how far the camera may drift to each side
DISTRACTORS = (0, 1, 2, 3)  # things of a clip that no sentence names
IMAGE_SHORT_SIDES = (112, 128)
QUALITY = {"crf": "28", "preset": "veryfast"}
FONT_FILE = "NotoColorEmoji.ttf"
FONT_SIZES = (109, 136, 160, 128, 96, 64)  # bitmap fonts only open at the size they were made in; 109 is Noto's
SIDE = 128  # pixels of a sprite
RIM = 5  # pixels of the light rim, without which dark things cannot be seen at night
INSTALL_FONT = "install it (Debian, Ubuntu: apt install fonts-noto-color-emoji), or name its file with --font"


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
    scenery = world(job.kind), job.font
    for plan in job.plans:
        if isinstance(plan, ClipPlan):
            frames, fps = clip_frames(plan, job.seed, *scenery), plan.fps
        else:
            frames, fps = iter([draw_image(plan, job.seed, *scenery)]), 1
        write_video(job.folder / f"{plan.id}.mp4", map(np.asarray, frames), fps, QUALITY)


def clip_frames(plan: ClipPlan, seed: int, world: World, font: Path | None) -> Iterator[Image.Image]:
    """The frames of a clip. A change of place is a cut; in the same place the camera moves on."""
    rng = Random(f"minivtt pixels {seed} {plan.id}")
    short = min(plan.width, plan.height)
    view = None
    for number, event in enumerate(plan.events):
        if view is None or event.place != plan.events[number - 1].place:
            same_place = [later.place == event.place for later in plan.events[number:]] + [False]
            frames = sum(later.frames for later in plan.events[number : number + same_place.index(False)])
            view = _View(rng, world, font, plan, event.place, frames)
        rolls = event.thing.manner == "roll"
        course = draw_course(rng, event.motion, seconds=event.frames / plan.fps, rolls=rolls)
        for frame in range(event.frames):
            image = view.next()
            for pose in poses(course, frame / max(1, event.frames - 1)):
                thing = event.partner if pose.partner and event.partner else event.thing
                paste(image, sprite(thing, font), pose, short)
            yield image


class _View:
    """A painted place with small distractors, seen by a camera that drifts."""

    def __init__(self, rng: Random, world: World, font: Path | None, plan: ClipPlan, place: Place, frames: int) -> None:
        self.width, self.height, self.frames = plan.width, plan.height, frames
        self.margin = round(MARGIN * min(plan.width, plan.height))
        paint = np.random.default_rng(rng.getrandbits(64))
        size = plan.width + 2 * self.margin, plan.height + 2 * self.margin
        self.image = background(place.name, *size, paint)
        place_distractors(self.image, rng, world, font, plan.split, place, plan.things, rng.choice(DISTRACTORS))
        self.path = [(rng.uniform(0, 2 * self.margin), rng.uniform(0, 2 * self.margin)) for _ in range(2)]
        self.frame = 0

    def next(self) -> Image.Image:
        """The background of the next frame."""
        share = self.frame / max(1, self.frames - 1)
        left, top = (round((1 - share) * self.path[0][axis] + share * self.path[1][axis]) for axis in (0, 1))
        self.frame += 1
        return self.image.crop((left, top, left + self.width, top + self.height))


def place_distractors(
    image: Image.Image, rng: Random, world: World, font: Path | None, split: Split, place: Place,
    named: Iterable[Thing], count: int,
) -> None:  # fmt: skip
    """Paint small dim things, which no sentence names, towards the edges of an image."""
    mentioned = set(named)
    others = [thing for thing in world.things_at(place, split) if thing not in mentioned]
    short = min(image.size)
    for thing in rng.sample(others, min(count, len(others))):
        dim = ImageEnhance.Brightness(sprite(thing, font)).enhance(0.75)
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


def draw_image(plan: ImagePlan, seed: int, world: World, font: Path | None) -> Image.Image:
    """An image of one or two things in a place."""
    rng = Random(f"minivtt picture pixels {seed} {plan.id}")
    width, height = draw_size(rng, IMAGE_SHORT_SIDES)
    image = background(plan.place.name, width, height, np.random.default_rng(rng.getrandbits(64)))
    count = rng.choice((0, 0, 1, 2))
    place_distractors(image, rng, world, font, "train", plan.place, plan.things, count)
    for thing, pose in zip(plan.things, _image_poses(rng, len(plan.things)), strict=True):
        paste(image, sprite(thing, font), pose, min(width, height))
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


def find_font() -> Path | None:
    """The Noto Color Emoji font of this computer, or None."""
    home = Path.home()
    folders = [home / ".fonts", home / ".local/share/fonts", Path("/usr/share/fonts"), Path("/usr/local/share/fonts")]
    if sys.platform == "darwin":
        folders = [home / "Library/Fonts", Path("/Library/Fonts"), Path("/opt/homebrew/share/fonts")]
    elif sys.platform == "win32":
        user, system = os.environ.get("LOCALAPPDATA", home), os.environ.get("WINDIR", "C:/Windows")
        folders = [Path(user) / "Microsoft/Windows/Fonts", Path(system) / "Fonts"]
    return next((font for folder in folders if folder.is_dir() for font in sorted(folder.rglob(FONT_FILE))), None)


def font_fingerprint(font: Path) -> str:
    """Twelve hex digits of a font file: other versions of a font draw other images."""
    return hashlib.sha256(font.read_bytes()).hexdigest()[:12]


def check_font(font: Path) -> None:
    """Raise DataError unless every emoji of the world can be drawn."""
    opened = _open_font(font)
    for thing in world("emoji").things:
        if _glyph(opened, thing.look).getbbox() is None:
            raise DataError(f"{font} has no colour emoji {thing.look} ({thing.name}); use Noto Color Emoji.")


@cache
def sprite(thing: Thing, font: Path | None) -> Image.Image:
    """A thing as an RGBA image of ``SIDE`` x ``SIDE`` pixels: an emoji of the font, or without one a shape."""
    return _with_rim(_glyph(_open_font(font), thing.look) if font else _shape(*thing.look.split()))


@cache
def _open_font(font: Path) -> ImageFont.FreeTypeFont:
    for size in FONT_SIZES:
        try:
            return ImageFont.truetype(str(font), size)
        except OSError:
            continue
    raise DataError(f"{font} cannot be opened as a colour emoji font; {INSTALL_FONT}.")


def _glyph(font: ImageFont.FreeTypeFont, emoji: str) -> Image.Image:
    canvas = Image.new("RGBA", (round(1.6 * font.size), round(1.6 * font.size)))
    ImageDraw.Draw(canvas).text((0.1 * font.size, 0.1 * font.size), emoji, font=font, embedded_color=True)
    return canvas


def _with_rim(image: Image.Image) -> Image.Image:
    """A thing cropped, fitted into a square, with a half transparent white rim around it."""
    image = image.crop(image.getbbox())
    inside = SIDE - 2 * RIM
    scale = inside / max(image.size)
    image = image.resize((max(1, round(image.width * scale)), max(1, round(image.height * scale))))
    square = Image.new("RGBA", (SIDE, SIDE))
    square.paste(image, ((SIDE - image.width) // 2, (SIDE - image.height) // 2))
    wide = square.getchannel("A").filter(ImageFilter.MaxFilter(2 * RIM - 1)).filter(ImageFilter.GaussianBlur(1.5))
    rim = Image.new("RGBA", (SIDE, SIDE), (255, 255, 255, 0))
    rim.putalpha(wide.point(lambda value: int(0.7 * value)))
    return Image.alpha_composite(rim, square)


def _shape(shape: str, colour: str) -> Image.Image:
    """A drawn shape, four times too large and then reduced, for smooth edges."""
    side = 4 * SIDE
    mask = Image.new("L", (side, side))
    draw = ImageDraw.Draw(mask)
    centre, radius = side / 2, 0.45 * side

    def disc(x: float, y: float, r: float, fill: int = 255) -> None:
        draw.ellipse((centre + x - r, centre + y - r, centre + x + r, centre + y + r), fill=fill)

    def polygon(points: list[tuple[float, float]]) -> None:
        draw.polygon([(centre + radius * x, centre + radius * y) for x, y in points], fill=255)

    match shape:
        case "circle":
            disc(0, 0, radius)
            disc(0, -0.62 * radius, 0.16 * radius, fill=0)  # a hole that shows how it turns
        case "ring":
            disc(0, 0, radius)
            disc(0, 0, 0.5 * radius, fill=0)
            disc(0, -0.75 * radius, 0.14 * radius, fill=0)
        case "crescent":
            disc(0, 0, radius)
            disc(0.45 * radius, -0.2 * radius, 0.8 * radius, fill=0)
        case "flower":
            for petal in range(5):
                angle = 2 * math.pi * petal / 5
                disc(0.55 * radius * math.sin(angle), -0.55 * radius * math.cos(angle), 0.42 * radius)
            disc(0, 0, 0.22 * radius, fill=0)
        case "heart":
            disc(-0.45 * radius, -0.35 * radius, 0.5 * radius)
            disc(0.45 * radius, -0.35 * radius, 0.5 * radius)
            polygon([(-0.9, -0.14), (0.9, -0.14), (0, 0.95)])
        case "star":
            spikes = [(1.0 if point % 2 == 0 else 0.42, math.pi * point / 5) for point in range(10)]
            polygon([(length * math.sin(angle), -length * math.cos(angle)) for length, angle in spikes])
        case "square":
            polygon([(-0.8, -0.8), (0.8, -0.8), (0.8, 0.8), (-0.8, 0.8)])
        case "triangle":
            polygon([(0, -0.9), (0.95, 0.8), (-0.95, 0.8)])
        case "diamond":
            polygon([(0, -1), (0.62, 0), (0, 1), (-0.62, 0)])
        case "arrow":
            polygon([(-1, 0), (0, -0.8), (0, -0.32), (1, -0.32), (1, 0.32), (0, 0.32), (0, 0.8)])
        case "bolt":
            polygon([(0.15, -1), (-0.6, 0.15), (-0.05, 0.15), (-0.25, 1), (0.6, -0.25), (0.05, -0.25)])
        case _:
            polygon([(-0.3, -0.9), (0.3, -0.9), (0.3, 0.9), (-0.3, 0.9)])
            polygon([(-0.9, -0.3), (0.9, -0.3), (0.9, 0.3), (-0.9, 0.3)])
    shade = np.linspace(1.1, 0.8, SIDE)[:, None, None] * np.array(COLOURS[colour])  # light from above
    image = Image.fromarray(np.broadcast_to(shade.clip(0, 255).astype(np.uint8), (SIDE, SIDE, 3)).copy())
    image.putalpha(mask.resize((SIDE, SIDE), Image.Resampling.BOX))
    return image
