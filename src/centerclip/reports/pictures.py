"""Pictures of clustering itself: tokens as a map with patches of their clusters, and the patches of the centres."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from .drawing import COLOURS, MARKERS, new_figure, save_figure
from .errors import ReportError

SHOWN = 7  # clusters with a colour of their own; more cannot be told apart
PATCHES = 8  # shown of each
DIM = 0.25  # brightness of what is not kept
SEED = 42


def draw_token_map(
    squares: Tensor, tokens: Tensor, assignment: Tensor, ids: Tensor, path: Path, *, caption: str
) -> list[Path]:
    """t-SNE of a segment's tokens, the largest clusters in colour, and patches of each of those.

    Args:
        squares: uint8 ``[T, size, size, 3]``, the frames of the segment.
        tokens: ``[N, D]``, its patch tokens, frame by frame.
        assignment: ``[N]``, the cluster of each.
        ids: ``[K]``, the centres.
        path: of the figure, without suffix.
        caption: what was drawn.
    """
    from sklearn.manifold import TSNE

    if len(tokens) < 4:
        raise ReportError(f"a map needs at least 4 tokens, the segment has {len(tokens)}; take more frames or segments")
    labels, centres = assignment.numpy(), ids.numpy()
    spread = TSNE(perplexity=min(30.0, (len(tokens) - 1) / 3), init="pca", random_state=SEED)
    places = spread.fit_transform(tokens.float().numpy())  # [N, 2]
    sizes = np.bincount(labels, minlength=len(centres))
    largest = np.argsort(-sizes, kind="stable")[:SHOWN]
    figure = new_figure(width=9, height=4.6)
    left, right = figure.subplots(1, 2, width_ratios=(1.15, 1))
    others = ~np.isin(labels, largest)
    left.scatter(*places[others].T, s=9, color="#BBBBBB", label="other clusters")
    for number, cluster in enumerate(largest):
        own = labels == cluster
        left.scatter(
            *places[own].T, s=16, color=COLOURS[number], marker=MARKERS[number], label=f"{sizes[cluster]} tokens"
        )
    left.scatter(*places[centres].T, s=40, facecolors="none", edgecolors="black", linewidths=0.8, label="centres")
    left.set_xticks([])
    left.set_yticks([])
    left.legend(fontsize=7, frameon=False, loc="best")
    _draw_patches(right, squares.numpy(), labels, centres, largest)
    return save_figure(figure, path, caption=caption)


class Kept(NamedTuple):
    """What one setting keeps of a video's first segment."""

    title: str
    frames: int  # of the segment
    places: Tensor  # [K, 3]: frame, row, column


def draw_centres(squares: Tensor, kept: Sequence[Kept], path: Path, *, side: int, caption: str) -> list[Path]:
    """The frames of a segment with kept patches bright and the others dimmed, one line for each segment length.

    Args:
        squares: uint8 ``[T, size, size, 3]``, the frames of the video.
        kept: for each segment length.
        path: of the figure, without suffix.
        side: patches along a side.
        caption: what was drawn.
    """
    columns = max(each.frames for each in kept)
    figure = new_figure(width=1.25 * columns + 0.6, height=1.35 * len(kept) + 0.3)
    panels: Any = figure.subplots(len(kept), columns, squeeze=False)
    for line, each in zip(panels, kept, strict=True):
        for frame, panel in enumerate(line):
            panel.set_axis_off()
            if frame < each.frames:
                panel.imshow(
                    _dimmed(squares[frame].numpy(), each.places[each.places[:, 0] == frame], side), interpolation="none"
                )
        line[0].set_title(each.title, fontsize=8, loc="left")
    return save_figure(figure, path, caption=caption)


def _dimmed(square: np.ndarray, places: Tensor, side: int) -> np.ndarray:
    cell = square.shape[0] // side
    light = np.full((side, side), DIM)
    for _, row, column in places.tolist():
        light[row, column] = 1
    grown = np.kron(light, np.ones((cell, cell)))[..., None]
    whole = np.full((*square.shape[:2], 1), DIM)
    whole[: grown.shape[0], : grown.shape[1]] = grown
    return (square * whole).astype(np.uint8)


def _draw_patches(
    panel: Any, squares: np.ndarray, labels: np.ndarray, centres: np.ndarray, clusters: np.ndarray
) -> None:
    """A line of patches for each cluster, its centre first."""
    length = len(labels) // len(squares)
    side = round(length**0.5)
    cell = squares.shape[1] // side
    gap = max(2, cell // 8)
    sheet = np.full((len(clusters) * (cell + gap), PATCHES * (cell + gap), 3), 255, dtype=np.uint8)
    for line, cluster in enumerate(clusters):
        members = [centres[cluster], *(m for m in np.flatnonzero(labels == cluster) if m != centres[cluster])]
        for column, member in enumerate(members[:PATCHES]):
            frame, patch = divmod(int(member), length)
            row, place = divmod(patch, side)
            part = squares[frame, row * cell : (row + 1) * cell, place * cell : (place + 1) * cell]
            top, left = line * (cell + gap), column * (cell + gap)
            sheet[top : top + cell, left : left + cell] = part
    panel.imshow(sheet, interpolation="none")  # as it is into the SVG
    panel.set_axis_off()
    for line in range(len(clusters)):
        panel.plot(-0.35 * cell, line * (cell + gap) + cell / 2, MARKERS[line], color=COLOURS[line], clip_on=False)
    panel.set_title("patches of these clusters, the centre first", fontsize=8)
