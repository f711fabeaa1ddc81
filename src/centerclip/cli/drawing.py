"""Token grids as coloured text."""

import colorsys

from rich.text import Text
from torch import Tensor

GOLDEN = 0.618034  # steps of this over the colour circle keep neighbouring clusters apart


def kept_tokens(
    places: Tensor, assignment: Tensor | None, ids: Tensor, *, frames: int, side: int, width: int = 80
) -> Text:
    """Draw the patch grids of all frames side by side, kept tokens bright, the others dim.

    Args:
        places: ``[S, K, 3]``, frame, row and column of each kept token.
        assignment: ``[S, N]``, the cluster of every token; all dim tokens are grey without it.
        ids: ``[S, K]``, kept tokens within their segment.
        frames: frames of the video.
        side: rows (and columns) of a frame.
        width: characters of a line.
    """
    segments, per_segment = ids.shape[0], frames // ids.shape[0]
    kept = {tuple(place) for place in places.reshape(-1, 3).tolist()}
    clusters = None if assignment is None else assignment.reshape(segments, per_segment, side, side).tolist()
    across = max(1, (width + 2) // (side + 2))
    text = Text()
    for first in range(0, frames, across):
        shown = range(first, min(first + across, frames))
        names = "  ".join(f"{f'frame {frame}':<{side}}" for frame in shown)
        text.append(names + "\n", style="bold")
        for row in range(side):
            for frame in shown:
                for column in range(side):
                    segment, within = divmod(frame, per_segment)
                    cluster = None if clusters is None else clusters[segment][within][row][column]
                    bright = (frame, row, column) in kept
                    text.append("█" if bright else "·", style=_colour(cluster, bright))
                text.append("  " if frame != shown[-1] else "")
            text.append("\n")
    return text


def _colour(cluster: int | None, bright: bool) -> str:
    if cluster is None:
        return "white" if bright else "bright_black"
    level = 1.0 if bright else 0.45
    red, green, blue = colorsys.hsv_to_rgb(cluster * GOLDEN % 1, 0.7, level)
    return f"rgb({int(255 * red)},{int(255 * green)},{int(255 * blue)})"
