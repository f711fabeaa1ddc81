"""Token grids as coloured text and as pictures."""

import colorsys

import numpy as np
from PIL import Image
from rich.text import Text
from torch import Tensor

GOLDEN = 0.618034  # steps of this over the colour circle keep neighbouring clusters apart
CELL = 8  # pixels of a token


def kept_tokens(places: Tensor, assignment: Tensor | None, *, frames: int, side: int, width: int = 80) -> Text:
    """Draw the patch grids of all frames as text, kept tokens bright, the others dim.

    Args:
        places: ``[S, K, 3]``, frame, row and column of each kept token.
        assignment: ``[S, N]``, the cluster of every token; without it all are grey.
        frames: frames of the video.
        side: rows (and columns) of a frame.
        width: characters of a line.
    """
    kept, colours = _kept(places, frames, side), _colours(assignment, frames, side)
    across = max(1, (width + 2) // (side + 2))
    text = Text()
    for first in range(0, frames, across):
        shown = range(first, min(first + across, frames))
        text.append("  ".join(f"{f'frame {frame}':<{side}}" for frame in shown) + "\n", style="bold")
        for row in range(side):
            for frame in shown:
                for column in range(side):
                    bright = kept[frame, row, column]
                    red, green, blue = (colours[frame, row, column] * (1.0 if bright else 0.45)).astype(int)
                    text.append("█" if bright else "·", style=f"rgb({red},{green},{blue})")
                text.append("  " if frame != shown[-1] else "\n")
    return text


def kept_tokens_picture(places: Tensor, assignment: Tensor | None, *, frames: int, side: int) -> Image.Image:
    """The drawing of :func:`kept_tokens` as a picture, six frames a line."""
    kept, colours = _kept(places, frames, side), _colours(assignment, frames, side)
    cells = colours * np.where(kept, 1.0, 0.35)[..., None]
    gap, across = 1, 6
    lines = -(-frames // across)
    sheet = np.full((lines * (side + gap) - gap, across * (side + gap) - gap, 3), 255.0)
    for frame in range(frames):
        line, position = divmod(frame, across)
        top, left = line * (side + gap), position * (side + gap)
        sheet[top : top + side, left : left + side] = cells[frame]
    picture = Image.fromarray(sheet.astype(np.uint8))
    return picture.resize((picture.width * CELL, picture.height * CELL), Image.Resampling.NEAREST)


def _kept(places: Tensor, frames: int, side: int) -> np.ndarray:
    """bool ``[frames, side, side]``."""
    kept = np.zeros((frames, side, side), dtype=bool)
    kept[tuple(places.reshape(-1, 3).cpu().numpy().T)] = True
    return kept


def _colours(assignment: Tensor | None, frames: int, side: int) -> np.ndarray:
    """A colour for every token by its cluster, ``[frames, side, side, 3]`` from 0 to 255."""
    if assignment is None:
        return np.full((frames, side, side, 3), 220.0)
    clusters = assignment.reshape(frames, side, side).cpu().numpy()
    palette = [colorsys.hsv_to_rgb(cluster * GOLDEN % 1, 0.7, 1.0) for cluster in range(clusters.max() + 1)]
    return 255 * np.array(palette)[clusters]
