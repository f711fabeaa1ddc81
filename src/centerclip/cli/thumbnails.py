"""Pictures of hits in a terminal: two pixels a letter, upper and lower half of a block."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text

    from ..search import Hit

WIDTH, HEIGHT = 28, 16  # pixels; half as many lines
GAP = 2


def print_thumbnails(hits: "Sequence[Hit]", *, force: bool = False) -> None:
    """Print a picture from the middle of each hit, as many beside each other as fit."""
    from rich.console import Console
    from rich.text import Text

    console = Console(force_terminal=True, color_system="truecolor") if force else Console()
    beside = max(1, console.width // (WIDTH + GAP))
    for first in range(0, len(hits), beside):
        part = hits[first : first + beside]
        pictures = [_picture(hit.path, (hit.start + hit.end) / 2) for hit in part]
        console.print(Text((" " * GAP).join(str(first + n).ljust(WIDTH) for n in range(1, len(part) + 1)).rstrip()))
        for row in range(HEIGHT // 2):
            console.print(Text(" " * GAP).join(picture[row] for picture in pictures))


def _picture(path: Path, time: float) -> "list[Text]":
    """``HEIGHT / 2`` lines; empty ones when the file cannot be read."""
    from PIL import Image
    from rich.text import Text

    from ..video import VideoError, read_times

    try:
        frame = read_times(path, [time], short_side=2 * HEIGHT).rgb[0].numpy()
    except VideoError:
        return [Text(" " * WIDTH)] * (HEIGHT // 2)
    fitted = Image.fromarray(frame)
    fitted.thumbnail((WIDTH, HEIGHT))
    canvas = Image.new("RGB", (WIDTH, HEIGHT))
    canvas.paste(fitted, ((WIDTH - fitted.width) // 2, (HEIGHT - fitted.height) // 2))
    lines = []
    for row in range(0, HEIGHT, 2):
        line = Text()
        for column in range(WIDTH):
            upper, lower = (canvas.getpixel((column, row + half)) for half in (0, 1))
            line.append("▀", style=f"rgb{_rgb(upper)} on rgb{_rgb(lower)}")
        lines.append(line)
    return lines


def _rgb(pixel: object) -> str:
    assert isinstance(pixel, tuple)
    return "({},{},{})".format(*pixel)
