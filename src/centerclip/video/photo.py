"""Photographs: read upright and at the wanted size, with when, with what and where they were taken."""

import warnings
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from ..files import is_photo as is_photo
from ..files import path_of
from .container import DEFAULT_LIMITS, Limits, check_file
from .errors import TooLarge, TruncatedVideo, UnreadableVideo, UnsupportedCodec
from .info import Recording, camera_name, date_seconds, valid_place

# Formats whose decoders only decode; some that Pillow knows run other programs.
FORMATS = ("JPEG", "PNG", "WEBP")
HEIF_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"mif1", b"msf1", b"avif")
MAX_ASPECT = 16  # of a longer panorama, or a strip of one pixel, the middle is taken
EXIF_DATES = (
    (0x9003, 0x9011),
    (0x9004, 0x9012),
    (0x0132, 0x9010),
)  # taken, digitised, changed; each with its time zone
EXIF_MAKE, EXIF_MODEL, EXIF_FACTS, EXIF_PLACE = 0x010F, 0x0110, 0x8769, 0x8825
# Ours is the limit that counts, and photographs of phones have more pixels than Pillow warns about.
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)


@dataclass(frozen=True)
class Photo:
    """A photograph.

    Attributes:
        rgb: uint8 ``[H, W, 3]``, upright.
        width: pixels of the file's picture, upright.
        height: pixels of the file's picture, upright.
        format: such as "jpeg".
        note: what was left out of the file; None for most.
        recording: when, with what and where it was taken, by its EXIF.
    """

    rgb: NDArray[np.uint8]
    width: int
    height: int
    format: str
    note: str | None
    recording: Recording


def read_photo(path: str | PathLike[str], *, short_side: int | None = None, limits: Limits = DEFAULT_LIMITS) -> Photo:
    """Read a photograph; transparent parts become white, and of an animation the first picture is taken.

    Args:
        path: a JPEG, PNG or WebP file; HEIC with the extra ``centerclip[heic]``.
        short_side: scale it so that its short side has this many pixels; None keeps the size.
        limits: bounds on what it may cost. Of a JPEG only the size that it is decoded at counts.

    Raises:
        VideoError: the type says why it cannot be read.
    """
    name = fspath(path)
    check_file(name, limits)
    formats = ("HEIF",) if _is_heif(name) else FORMATS
    try:
        with path_of(name).open("rb") as file, Image.open(file, formats=formats) as image:
            recording = _recording(image)
            turned = image.getexif().get(0x0112, 1) in (5, 6, 7, 8)
            width, height = image.size[::-1] if turned else image.size
            note = "an animation: its first picture alone" if getattr(image, "n_frames", 1) > 1 else None
            kind = (image.format or "").lower()
            if short_side is not None:  # a JPEG is decoded at a half, a quarter or an eighth of its size
                scale = short_side / min(image.size)
                image.draft(None, (round(image.width * scale), round(image.height * scale)))
            if image.width * image.height > limits.pixels:
                raise TooLarge(name, f"{width} x {height}, the limit is Limits(pixels={limits.pixels})")
            image.load()
            rgb = _sized(ImageOps.exif_transpose(_as_rgb(image)), short_side)
    except Image.DecompressionBombError as error:
        raise TooLarge(name, f"more pixels than Pillow decodes ({error})") from error
    except UnidentifiedImageError as error:
        raise UnreadableVideo(name, "this is not a JPEG, PNG, WebP or HEIC picture") from error
    except (OSError, EOFError) as error:
        if "truncated" in str(error).lower() or isinstance(error, EOFError):
            raise TruncatedVideo(name, "the end of the picture is missing") from error
        raise UnreadableVideo(name, f"the picture cannot be decoded ({error})") from error
    except (ValueError, SyntaxError, TypeError, IndexError, KeyError, ZeroDivisionError, OverflowError) as error:
        raise UnreadableVideo(name, f"the picture is damaged ({error})") from error
    return Photo(np.asarray(rgb), width, height, "jpeg" if kind == "mpo" else kind, note, recording)


def _is_heif(name: str) -> bool:
    """Whether a file is HEIC; Pillow is taught it then."""
    with path_of(name).open("rb") as file:
        head = file.read(12)
    if head[4:8] != b"ftyp" or head[8:12] not in HEIF_BRANDS:
        return False
    try:
        from pillow_heif import register_heif_opener
    except ImportError as error:
        reason = "HEIC photographs need an extra: pip install 'centerclip[heic]', then index with --retry"
        raise UnsupportedCodec(name, reason) from error
    register_heif_opener()
    return True


def _as_rgb(image: Image.Image) -> Image.Image:
    """The picture in 8 bits of red, green and blue, with its EXIF."""
    exif = image.getexif()
    if image.mode.startswith("I"):  # 16 bits of grey
        image = Image.fromarray((np.asarray(image).astype(np.uint32) // 257).clip(0, 255).astype(np.uint8))
    elif "A" in image.getbands() or "transparency" in image.info:
        layer = image.convert("RGBA")
        image = Image.new("RGB", image.size, "white")
        image.paste(layer, mask=layer.getchannel("A"))
    rgb = image.convert("RGB")
    rgb.getexif().update(exif)
    return rgb


def _sized(image: Image.Image, short_side: int | None) -> Image.Image:
    width, height = (min(side, MAX_ASPECT * min(image.size)) for side in image.size)
    left, top = (image.width - width) // 2, (image.height - height) // 2
    image = image.crop((left, top, left + width, top + height))
    if short_side is None:
        return image
    scale = short_side / min(image.size)
    return image.resize((max(1, round(width * scale)), max(1, round(height * scale))), Image.Resampling.BICUBIC)


def _recording(image: Image.Image) -> Recording:
    """What the EXIF of a photograph says; what is not as it should be counts as not said."""
    try:
        exif = image.getexif()
        facts, place = dict(exif) | exif.get_ifd(EXIF_FACTS), exif.get_ifd(EXIF_PLACE)
    except (OSError, ValueError, SyntaxError, TypeError, KeyError, IndexError):
        return Recording()
    dates = (
        (str(facts.get(date, "")).strip("\0 "), str(facts.get(zone, "")).strip("\0 ")) for date, zone in EXIF_DATES
    )
    # 2024:05:31 12:00:00; without a time zone it is the clock of the place, taken for that of this machine
    taken = (
        date_seconds(date.replace(":", "-", 2) + zone) or date_seconds(date.replace(":", "-", 2))
        for date, zone in dates
    )
    camera = camera_name(*(str(facts.get(tag, "")).strip("\0 ") for tag in (EXIF_MAKE, EXIF_MODEL)))
    latitude, longitude = _degrees(place, 1, "S"), _degrees(place, 3, "W")
    known = (None, None) if latitude is None or longitude is None else valid_place(latitude, longitude)
    return Recording(next(filter(None, taken), None), camera, *known)


def _degrees(place: dict[int, Any], reference: int, negative: str) -> float | None:
    """Degrees, minutes and seconds of a GPS tag, which follows that of its direction."""
    try:
        degrees, minutes, seconds = (float(part) for part in place[reference + 1])
        value = degrees + minutes / 60 + seconds / 3600
        sign = -1 if str(place.get(reference, "")).strip("\0 ").upper() == negative else 1
        return sign * value if value == value else None  # a NaN is what 0/0 becomes
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        return None
