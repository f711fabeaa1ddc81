"""Hits as one picture: a row for each query, the best frame of each hit beside it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from PIL import Image, ImageDraw, ImageFont

from ..video import VideoError, read_times
from .search import clock

if TYPE_CHECKING:
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
