"""Hits as pictures: one sheet with a row for each query, or thumbnails in a terminal."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image, ImageDraw, ImageFont

from ..video import VideoError, read_times
from . import clock

if TYPE_CHECKING:
    from rich.text import Text

    from ..search import Hit


FRAME = (192, 144)
GAP, LINE, MARGIN = 12, 18, 16
INK, PALE, PAPER = "#202124", "#70757a", "#ffffff"


def hits_sheet(rows: "Sequence[tuple[str, Sequence[Hit], bool]]") -> Image.Image:
    """A picture of queries, each with its hits and whether they are convincing."""
    across = max((len(hits) for _, hits, _ in rows), default=1) or 1
    height = FRAME[1] + 3 * LINE + GAP
    sheet = Image.new("RGB", (2 * MARGIN + across * (FRAME[0] + GAP) - GAP, 2 * MARGIN + len(rows) * height), PAPER)
    draw = ImageDraw.Draw(sheet)
    heading, small = ImageFont.load_default(15), ImageFont.load_default(12)
    for row, (query, hits, convincing) in enumerate(rows):
        top = MARGIN + row * height
        draw.text((MARGIN, top), query, fill=INK, font=heading)
        if not convincing:
            left = MARGIN + draw.textlength(query, font=heading) + GAP
            draw.text((left, top + 2), "nothing convincing found; the nearest are", fill=PALE, font=small)
        for column, hit in enumerate(hits):
            left = MARGIN + column * (FRAME[0] + GAP)
            frame = _frame(hit)
            corner = (left + (FRAME[0] - frame.width) // 2, top + LINE + 4 + (FRAME[1] - frame.height) // 2)
            sheet.paste(frame, corner)
            text = f"{hit.score:.2f}  {hit.title}  {clock(hit.start)}-{clock(hit.end)}"
            draw.text((left, top + LINE + FRAME[1] + 8), text, fill=INK if convincing else PALE, font=small)
    return sheet


def _frame(hit: "Hit") -> Image.Image:
    """The frame in the middle of a hit's moment; an empty one where the file has gone since."""
    try:
        rgb = read_times(hit.path, [(hit.start + hit.end) / 2]).rgb[0].numpy()
    except VideoError:
        return Image.new("RGB", FRAME, PALE)
    frame = Image.fromarray(rgb)
    frame.thumbnail((FRAME[0], 10_000))
    if frame.height > FRAME[1]:
        frame.thumbnail(FRAME)
    return frame


WIDTH, HEIGHT = 28, 16  # pixels; half as many lines
COLUMN_GAP = 2


def print_thumbnails(hits: "Sequence[Hit]", *, force: bool = False) -> None:
    """Print a picture from the middle of each hit, as many beside each other as fit."""
    from rich.console import Console
    from rich.text import Text

    console = Console(force_terminal=True, color_system="truecolor") if force else Console()
    beside = max(1, console.width // (WIDTH + COLUMN_GAP))
    for first in range(0, len(hits), beside):
        part = hits[first : first + beside]
        pictures = [_picture(hit.path, (hit.start + hit.end) / 2) for hit in part]
        console.print(
            Text((" " * COLUMN_GAP).join(str(first + n).ljust(WIDTH) for n in range(1, len(part) + 1)).rstrip())
        )
        for row in range(HEIGHT // 2):
            console.print(Text(" " * COLUMN_GAP).join(picture[row] for picture in pictures))


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
