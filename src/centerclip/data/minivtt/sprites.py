"""The looks of things: colour emoji from a font, or drawn shapes, as small images with a light rim."""

import hashlib
import math
import os
import sys
from functools import lru_cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from ...errors import DataError
from .world import COLOURS, Kind, Thing, world

FONT_FILE = "NotoColorEmoji.ttf"
FONT_SIZES = (109, 136, 160, 128, 96, 64)  # bitmap fonts only open at the size they were made in; 109 is Noto's
SIDE = 128  # pixels of a sprite
RIM = 5  # pixels of the light rim, without which dark things cannot be seen at night
INSTALL_FONT = "install it (Debian, Ubuntu: apt install fonts-noto-color-emoji), or name its file with --font"


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


class Sprites:
    """The looks of all things of a world, drawn when first needed; shapes need no font."""

    def __init__(self, kind: Kind, font: Path | None) -> None:
        self.font = _open_font(font) if kind == "emoji" and font else None
        self.drawn: dict[str, Image.Image] = {}

    def of(self, thing: Thing) -> Image.Image:
        """A thing as an RGBA image of ``SIDE`` x ``SIDE`` pixels."""
        if thing.name not in self.drawn:
            plain = _glyph(self.font, thing.look) if self.font else _shape(*thing.look.split())
            self.drawn[thing.name] = _with_rim(plain)
        return self.drawn[thing.name]


@lru_cache(maxsize=4)
def sprites(kind: Kind, font: Path | None) -> Sprites:
    """The sprites of this process; a worker draws each thing once."""
    return Sprites(kind, font)


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
