"""The paper's visualisation: frames of each segment in a row, kept patches bright, clusters in colours."""

import os
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from .seen import Seen

# Okabe and Ito's colours, which colour-blind people tell apart; without black, which would be lost on dark patches.
PALETTE = (
    (230, 159, 0),
    (86, 180, 233),
    (0, 158, 115),
    (240, 228, 66),
    (0, 114, 178),
    (213, 94, 0),
    (204, 121, 167),
    (235, 235, 235),
)
SQUARE = 224  # pixels of a frame, at least
DIM, TINT = 0.42, 0.16  # of patches that are not kept: their light, and how much of the cluster's colour
GAP, LINE = 8, 20


def colour_of(cluster: int) -> tuple[int, int, int]:
    """A cluster's colour; after eight they come again."""
    return PALETTE[cluster % len(PALETTE)]


def centre_sheet(seen: Seen) -> Image.Image:
    """One row for each segment, with its times; kept patches have their own colours and an outline."""
    rows, across = len(seen.spans), len(seen.squares) // len(seen.spans)
    side = round(seen.tokens.shape[1] ** 0.5)
    cell = -(-SQUARE // side)
    square = cell * side
    sheet = Image.new("RGB", (across * (square + GAP) + GAP, rows * (square + 2 * LINE) + GAP), "white")
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(13)
    for row, (start, end) in enumerate(seen.spans):
        top = row * (square + 2 * LINE)
        draw.text((GAP, top + 4), f"segment {row + 1}: {start:.1f} to {end:.1f} s", fill="black", font=font)
        for column in range(across):
            frame = row * across + column
            left = GAP + column * (square + GAP)
            sheet.paste(_frame(seen, frame, row, side, cell), (left, top + LINE))
            real = bool(seen.mask[frame])
            caption = f"{float(seen.times[frame]):.2f} s" if real else "repeats the last frame"
            draw.text((left, top + LINE + square + 2), caption, fill=(90, 90, 90), font=font)
    return sheet


def _frame(seen: Seen, frame: int, segment: int, side: int, cell: int) -> Image.Image:
    """A frame with what is not kept dimmed and tinted."""
    picture = Image.fromarray(seen.squares[frame].numpy()).resize((cell * side, cell * side), Image.Resampling.BICUBIC)
    bright = np.asarray(picture, dtype=np.float32)
    kept = np.zeros((side, side), dtype=bool)
    places = seen.places[segment]
    for _, row, column in places[places[:, 0] == frame].tolist():
        kept[row, column] = True
    dim = bright * DIM
    if seen.clusters is not None:
        palette = np.array(PALETTE, dtype=np.float32)
        colours = palette[seen.clusters[frame].numpy().reshape(side, side) % len(PALETTE)]
        dim += TINT * np.repeat(np.repeat(colours, cell, axis=0), cell, axis=1)
    mask = np.repeat(np.repeat(kept, cell, axis=0), cell, axis=1)[..., None]
    drawn = Image.fromarray(np.where(mask, bright, dim).clip(0, 255).astype(np.uint8))
    draw = ImageDraw.Draw(drawn)
    for row, column in np.argwhere(kept):
        outline = (255, 255, 255)
        if seen.clusters is not None:
            outline = colour_of(int(seen.clusters[frame, row * side + column]))
        box = (column * cell, row * cell, (column + 1) * cell - 1, (row + 1) * cell - 1)
        draw.rectangle(box, outline=outline, width=max(1, cell // 12))
    return drawn


def save_picture(picture: Image.Image, path: Path) -> None:
    """Write a picture whole or not at all; its suffix says the format."""
    from ..errors import CenterClipError

    partial = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        picture.save(partial)
        partial.replace(path)
    except OSError as error:
        raise CenterClipError(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        partial.unlink(missing_ok=True)
