"""Hits as images: one sheet with a row for each query, or thumbnails in a terminal."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from PIL import Image, ImageDraw, ImageFont

from ..video.cut import thumbnail
from ..video.errors import VideoError
from . import clock

if TYPE_CHECKING:
    from rich.text import Text

    from ..search import Hit

CELL = (192, 144)  # pixels of a hit's frame on a sheet
GAP, LINE, MARGIN = 12, 18, 16
TERMINAL_CELL = (28, 16)  # pixels of a hit's frame in a terminal, where a line shows two rows
TERMINAL_GAP = 2
INK, PALE, PAPER = "#202124", "#70757a", "#ffffff"


def hits_sheet(rows: "Sequence[tuple[str, Sequence[Hit], bool]]") -> Image.Image:
    """An image with a row for each query: its hits, and whether they are convincing."""
    across = max((len(hits) for _, hits, _ in rows), default=1) or 1
    height = CELL[1] + 3 * LINE + GAP
    sheet = Image.new("RGB", (2 * MARGIN + across * (CELL[0] + GAP) - GAP, 2 * MARGIN + len(rows) * height), PAPER)
    draw = ImageDraw.Draw(sheet)
    heading, small = ImageFont.load_default(15), ImageFont.load_default(12)
    for row, (query, hits, convincing) in enumerate(rows):
        top = MARGIN + row * height
        draw.text((MARGIN, top), query, fill=INK, font=heading)
        if not convincing:
            left = MARGIN + draw.textlength(query, font=heading) + GAP
            draw.text((left, top + 2), "nothing convincing found; the nearest are", fill=PALE, font=small)
        for column, hit in enumerate(hits):
            left = MARGIN + column * (CELL[0] + GAP)
            frame = _frame(hit, CELL) or Image.new("RGB", CELL, PALE)
            corner = (left + (CELL[0] - frame.width) // 2, top + LINE + 4 + (CELL[1] - frame.height) // 2)
            sheet.paste(frame, corner)
            text = f"{hit.score:.2f}  {hit.title}  {clock(hit.start)}-{clock(hit.end)}"
            draw.text((left, top + LINE + CELL[1] + 8), text, fill=INK if convincing else PALE, font=small)
    return sheet


def print_thumbnails(hits: "Sequence[Hit]", *, force: bool = False) -> None:
    """Print a frame from the middle of each hit, as many beside each other as fit."""
    from rich.console import Console
    from rich.text import Text

    width, height = TERMINAL_CELL
    gap = " " * TERMINAL_GAP
    console = Console(force_terminal=True, color_system="truecolor") if force else Console()
    columns = max(1, console.width // (width + TERMINAL_GAP))
    for first in range(0, len(hits), columns):
        row = hits[first : first + columns]
        thumbnails = [_text_frame(hit) for hit in row]
        console.print(Text(gap.join(str(first + n).ljust(width) for n in range(1, len(row) + 1)).rstrip()))
        for line in range(height // 2):
            console.print(Text(gap).join(lines[line] for lines in thumbnails))


def _frame(hit: "Hit", cell: tuple[int, int]) -> Image.Image | None:
    """The frame in the middle of a hit's moment, fitted into a cell; None when the file can no longer be read."""
    try:
        return thumbnail(hit.path, (hit.start + hit.end) / 2, *cell)
    except VideoError:
        return None


def _text_frame(hit: "Hit") -> "list[Text]":
    """Lines of half blocks that show the frame of a hit; empty ones when there is none."""
    from rich.text import Text

    width, height = TERMINAL_CELL
    frame = _frame(hit, TERMINAL_CELL)
    if frame is None:
        return [Text(" " * width)] * (height // 2)
    canvas = Image.new("RGB", TERMINAL_CELL)
    canvas.paste(frame, ((width - frame.width) // 2, (height - frame.height) // 2))
    lines = []
    for row in range(0, height, 2):
        line = Text()
        for column in range(width):
            upper, lower = (canvas.getpixel((column, row + half)) for half in (0, 1))
            line.append("▀", style=f"rgb{_rgb(upper)} on rgb{_rgb(lower)}")
        lines.append(line)
    return lines


def _rgb(pixel: object) -> str:
    assert isinstance(pixel, tuple)
    return "({},{},{})".format(*pixel)
