"""Pictures of clustering itself: which patches are kept, and tokens as a map with the patches of their centres."""

import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from ..errors import CenterClipError, ReportError
from .figures import COLOURS, MARKERS, new_figure, save_figure
from .patches import Seen

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


TOKEN_MARKERS = "os^Dv<>pPX"  # colours come again after eight clusters, and then with another marker
PATCH_PIXELS = 26
CROWDED = 24  # more centres than this get smaller patches


def token_map(seen: Seen, segment: int) -> Image.Image:
    """The tokens of one segment of the first stage by t-SNE, coloured by cluster, its centres with their patches."""
    try:
        import matplotlib
        from sklearn.manifold import TSNE
    except ImportError as error:
        raise CenterClipError("--tsne needs matplotlib and scikit-learn: pip install 'centerclip[research]'") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.offsetbox import AnnotationBbox, OffsetImage

    stage, ids = seen.first.stage, seen.first.ids[segment].tolist()
    merged, patches = len(seen.tokens) // stage.segments, seen.tokens.shape[1]
    tokens = seen.tokens[segment * merged : (segment + 1) * merged].reshape(merged * patches, -1).numpy()
    if len(tokens) < 4:
        raise CenterClipError(f"a map needs at least 4 tokens, and a segment has {len(tokens)}; take more frames.")
    spread = TSNE(perplexity=min(30.0, (len(tokens) - 1) / 3), init="pca", random_state=0).fit_transform(tokens)
    assignment = seen.first.assignment
    clusters = assignment[segment].cpu().numpy() if assignment is not None else np.full(len(tokens), len(PALETTE) - 1)
    figure, axes = pyplot.subplots(figsize=(9, 9), dpi=120)
    axes.set_facecolor((0.25, 0.25, 0.25))
    for cluster in np.unique(clusters):
        members = spread[clusters == cluster]
        colour = np.array(PALETTE[cluster % len(PALETTE)]) / 255
        marker = TOKEN_MARKERS[cluster // len(PALETTE) % len(TOKEN_MARKERS)]
        axes.scatter(members[:, 0], members[:, 1], s=26, color=[colour], marker=marker, linewidths=0)
    axes.scatter(spread[ids, 0], spread[ids, 1], s=110, facecolors="none", edgecolors="white", linewidths=1.6)
    middle = spread.mean(axis=0)
    for token in ids:
        picture = OffsetImage(
            _patch(seen, segment * merged + token // patches, token % patches), zoom=0.6 if len(ids) > CROWDED else 1.0
        )
        away = np.where(spread[token] >= middle, 24, -24)
        axes.add_artist(
            AnnotationBbox(
                picture,
                tuple(spread[token]),
                xybox=tuple(away),
                boxcoords="offset points",
                pad=0.1,
                arrowprops={"arrowstyle": "-", "color": "white", "linewidth": 0.6},
            )
        )
    axes.margins(0.12)
    axes.set_xticks([])
    axes.set_yticks([])
    start, end = seen.times[segment * merged], seen.times[(segment + 1) * merged - 1]
    axes.set_title(
        f"{len(tokens)} tokens after block {stage.block}, frames from {start:.1f} to {end:.1f} s: "
        f"{len(ids)} centres (circles) and their patches"
    )
    file = io.BytesIO()
    figure.savefig(file, format="png", bbox_inches="tight")
    pyplot.close(figure)
    return Image.open(file).convert("RGB")


def _patch(seen: Seen, frame: int, patch: int) -> np.ndarray:
    """The picture of one patch, ``[PATCH_PIXELS, PATCH_PIXELS, 3]``."""
    side = round(seen.tokens.shape[1] ** 0.5)
    size = seen.squares.shape[1] // side
    row, column = divmod(patch, side)
    part = seen.squares[frame, row * size : (row + 1) * size, column * size : (column + 1) * size].numpy()
    return np.asarray(Image.fromarray(part).resize((PATCH_PIXELS, PATCH_PIXELS), Image.Resampling.BICUBIC))


SHOWN = 7  # clusters with a colour of their own; more cannot be told apart
PATCHES = 8  # shown of each
DIMMED = 0.25  # brightness of what is not kept
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
    light = np.full((side, side), DIMMED)
    for _, row, column in places.tolist():
        light[row, column] = 1
    grown = np.kron(light, np.ones((cell, cell)))[..., None]
    whole = np.full((*square.shape[:2], 1), DIMMED)
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
