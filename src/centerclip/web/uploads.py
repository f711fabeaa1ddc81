"""Pictures and clips that people search with: looked at before anything is decoded, and never trusted."""

from pathlib import Path

from ..video.errors import NotAVideo, NoVideoStream, TooLarge, VideoError
from ..video.limits import Limits
from .problems import Problem
from .settings import ServeSettings

# Formats whose readers do no more than read; some that Pillow knows run other programs.
PICTURES = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
SIDE = 1024  # pixels; the model sees less
FRAMES = 20_000  # of a clip
READING = 30.0  # seconds for looking through a clip


def check_upload(path: Path, settings: ServeSettings) -> str:
    """Whether a file is an ``"image"`` or a ``"video"``; a picture is replaced by a small plain copy of itself."""
    if path.stat().st_size == 0:
        raise Problem("wrong-type", "The file is empty.")
    if _shrink_picture(path, settings.upload_pixels):
        return "image"
    from ..video import probe

    limits = Limits(pixels=settings.upload_pixels, duration=settings.upload_seconds, frames=FRAMES, seconds=READING)
    try:
        probe(path, limits=limits)
    except TooLarge as error:
        raise Problem(
            "too-large", f"Clips may be {settings.upload_seconds:g} seconds long; this one: {error.detail}."
        ) from error
    except (NotAVideo, NoVideoStream) as error:
        raise Problem("wrong-type", "Give a picture (JPEG, PNG, WebP, GIF) or a short video clip.") from error
    except VideoError as error:
        raise Problem("unreadable-video", f"{error.detail}. {error.advice}", reason=error.reason) from error
    return "video"


def _shrink_picture(path: Path, most_pixels: int) -> bool:
    """Replace a picture by a small upright PNG; False when it is none."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        picture = Image.open(path, formats=PICTURES)
    except UnidentifiedImageError:
        return False
    except Image.DecompressionBombError as error:
        raise Problem("too-large", f"The picture has more than {most_pixels:,} pixels.") from error
    except (OSError, ValueError, SyntaxError) as error:
        raise Problem("wrong-type", "The picture is damaged.") from error
    with picture:
        if picture.width * picture.height > most_pixels:
            raise Problem(
                "too-large",
                f"The picture has {picture.width} x {picture.height} pixels; {most_pixels:,} are the limit.",
            )
        try:
            picture.draft("RGB", (SIDE, SIDE))  # JPEG: decoded smaller at once
            upright = ImageOps.exif_transpose(picture).convert("RGB")
        except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError) as error:
            raise Problem("wrong-type", "The picture is damaged.") from error
    upright.thumbnail((SIDE, SIDE))
    upright.save(path, "PNG")
    return True
