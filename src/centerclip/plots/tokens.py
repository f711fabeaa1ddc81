"""Pictures of clustering itself: which patches are kept, and tokens as a map with the patches of their clusters.

``centre_sheet`` and ``token_map`` are for the screen (`centerclip show`), ``draw_centres`` and ``draw_token_map`` for
print (`centerclip report run centres tsne`).
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor, nn

from ..errors import CenterClipError, ReportError, extras_named
from ..files import write_atomic
from ..model import CenterCLIP, KeptTokens
from ..video import read_frames
from .figures import COLOURS, MARKERS, new_figure, save_figure

# Okabe and Ito's colours, which colour-blind people can tell apart; without black, which is lost on dark patches.
PALETTE = ((230, 159, 0), (86, 180, 233), (0, 158, 115), (240, 228, 66), (0, 114, 178), (213, 94, 0), (204, 121, 167),
           (235, 235, 235))  # fmt: skip
SQUARE = 224  # pixels of a frame on the sheet, at least
GAP, LINE = 8, 20  # pixels between frames, and of a line of text
DIM, TINT = 0.42, 0.16  # patches that are not kept: their brightness, and how much of the cluster's colour
TOKEN_MARKERS = "os^Dv<>pPX"  # colours repeat after eight clusters, with another marker
PATCH_PIXELS = 26  # of a centre's patch on the map
CROWDED = 24  # more centres than this get smaller patches
LARGEST_CLUSTERS = 7  # get a colour in print; more cannot be told apart
CLUSTER_PATCHES = 8  # shown of each of them
PRINT_DIM = 0.25  # brightness in print of what is not kept
SCREEN_SEED, PRINT_SEED = 0, 42  # of t-SNE


class SegmentTokens(NamedTuple):
    """The tokens of one segment of the first stage, ``N`` of them, frame by frame."""

    squares: NDArray[np.uint8]  # [frames, size, size, 3]
    tokens: Tensor  # [N, D]
    clusters: Tensor | None  # [N], or None when the method has no clusters
    ids: Tensor  # [K], the centres


@dataclass(frozen=True)
class KeptPatches:
    """What the drawings are made of. ``T`` frames of ``L`` patches, ``S`` segments, ``K`` kept in each."""

    squares: NDArray[np.uint8]  # [T, size, size, 3], as the model takes them
    times: NDArray[np.float64]  # [T] seconds
    mask: NDArray[np.bool_]  # [T], False where a frame only repeats the last one of a short video
    spans: list[tuple[float, float]]  # start and end of each segment in seconds, S of them
    places: Tensor  # [S, K, 3], frame, row and column of each kept patch
    clusters: Tensor | None  # [T, L], each patch's cluster in its segment, or None when the method has none
    tokens: Tensor  # [T, L, D], what the first stage chooses from
    first: KeptTokens  # what the first stage kept

    def segment(self, number: int) -> SegmentTokens:
        """The tokens of one segment of the first stage, which may have more segments than the last."""
        merged = len(self.tokens) // self.first.stage.segments
        frames = slice(number * merged, (number + 1) * merged)
        assignment, ids = self.first.assignment, self.first.ids[number].cpu()
        clusters = None if assignment is None else assignment[number].cpu()
        return SegmentTokens(self.squares[frames], self.tokens[frames].flatten(0, 1), clusters, ids)


def kept_patches(
    model: CenterCLIP, video: Path, *, start: float | None = None, end: float | None = None
) -> KeptPatches:
    """Encode a video, or a part of it, and record what clustering keeps. The setting must have stages."""
    frames = read_frames(video, model.frames, short_side=model.preprocess.read_size, start=start, end=end)
    squares, attachment = model.preprocess.to_square(frames.rgb), model.attachment
    before: list[Tensor] = []

    def keep(_block: nn.Module, _inputs: object, output: Tensor | tuple[Tensor, ...]) -> None:
        before.append(output[0] if isinstance(output, tuple) else output)

    # First in line, because clustering itself is a hook that replaces the output of the block.
    block = attachment.blocks[attachment.setting.stages[0].block - 1]
    handle = block.register_forward_hook(keep, prepend=True)
    try:
        with torch.inference_mode(), attachment.record() as steps:
            pixels = model.preprocess.normalise(torch.from_numpy(squares))
            model.video_features(pixels[None], torch.from_numpy(frames.mask)[None])
    finally:
        handle.remove()
    segments = len(steps[-1].places)
    begin, finish = start or 0.0, min(end if end is not None else frames.duration, frames.duration)
    length = (finish - begin) / segments
    return KeptPatches(
        squares=squares,
        times=frames.times,
        mask=frames.mask,
        spans=[(round(begin + n * length, 3), round(begin + (n + 1) * length, 3)) for n in range(segments)],
        places=steps[-1].places.cpu(),
        clusters=final_clusters(steps, model.frames),
        tokens=before[0][:, attachment.prefix :].float().cpu(),
        first=steps[0],
    )


def final_clusters(steps: list[KeptTokens], frames: int) -> Tensor | None:
    """The cluster that each patch ends up in after all stages, ``[frames, L]``; None when a stage has no clusters."""
    clusters: Tensor | None = None  # [segments of the stage, patches of a segment]
    for step in steps:
        if step.assignment is None:
            return None
        assignment = step.assignment.cpu()
        if clusters is None:
            clusters = assignment
            continue
        # A later stage takes the centres of ``merged`` segments in a row: the n-th segment's k-th is number n * K + k.
        merged, centres = len(clusters) // len(assignment), assignment.shape[1] * len(assignment) // len(clusters)
        number = (torch.arange(len(clusters)) % merged * centres)[:, None] + clusters
        clusters = assignment.gather(1, number.reshape(len(assignment), -1))
    assert clusters is not None
    return clusters.reshape(frames, -1)


class Kept(NamedTuple):
    """What one setting keeps of a video's first segment."""

    title: str
    frames: int  # of the segment
    places: Tensor  # [K, 3]: frame, row, column


def centre_sheet(patches: KeptPatches) -> Image.Image:
    """One row for each segment, with its times; kept patches have their own colours and an outline."""
    rows, across = len(patches.spans), len(patches.squares) // len(patches.spans)
    side = round(patches.tokens.shape[1] ** 0.5)
    cell = -(-SQUARE // side)
    square = cell * side
    sheet = Image.new("RGB", (across * (square + GAP) + GAP, rows * (square + 2 * LINE) + GAP), "white")
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(13)
    for row, (start, end) in enumerate(patches.spans):
        top = row * (square + 2 * LINE)
        draw.text((GAP, top + 4), f"segment {row + 1}: {start:.1f} to {end:.1f} s", fill="black", font=font)
        for column in range(across):
            frame = row * across + column
            left = GAP + column * (square + GAP)
            sheet.paste(_sheet_frame(patches, frame, row, side, cell), (left, top + LINE))
            caption = f"{float(patches.times[frame]):.2f} s" if patches.mask[frame] else "repeats the last frame"
            draw.text((left, top + LINE + square + 2), caption, fill=(90, 90, 90), font=font)
    return sheet


def _sheet_frame(patches: KeptPatches, frame: int, segment: int, side: int, cell: int) -> Image.Image:
    """A frame with what is not kept dimmed and tinted."""
    image = Image.fromarray(patches.squares[frame])
    bright = np.asarray(image.resize((cell * side, cell * side), Image.Resampling.BICUBIC), dtype=np.float32)
    kept = _kept_mask(patches.places[segment], frame, side)
    dim = bright * DIM
    outlines = np.full((side, side, 3), 255)
    if patches.clusters is not None:
        outlines = np.array(PALETTE)[patches.clusters[frame].numpy().reshape(side, side) % len(PALETTE)]
        dim += TINT * _enlarged(outlines.astype(np.float32), cell)
    drawn = Image.fromarray(np.where(_enlarged(kept, cell)[..., None], bright, dim).clip(0, 255).astype(np.uint8))
    draw = ImageDraw.Draw(drawn)
    for row, column in np.argwhere(kept):
        box = (column * cell, row * cell, (column + 1) * cell - 1, (row + 1) * cell - 1)
        draw.rectangle(box, outline=tuple(outlines[row, column].tolist()), width=max(1, cell // 12))
    return drawn


def draw_centres(
    squares: NDArray[np.uint8], kept: Sequence[Kept], path: Path, *, side: int, caption: str
) -> list[Path]:
    """The frames of a segment with kept patches bright and the others dimmed, one line for each segment length.

    ``squares`` are the frames of the video, uint8 ``[T, size, size, 3]``, with ``side`` patches along a side. ``path``
    has no suffix.
    """
    columns = max(each.frames for each in kept)
    figure = new_figure(width=1.25 * columns + 0.6, height=1.35 * len(kept) + 0.3)
    panels: Any = figure.subplots(len(kept), columns, squeeze=False)
    for line, each in zip(panels, kept, strict=True):
        for frame, panel in enumerate(line):
            panel.set_axis_off()
            if frame < each.frames:
                image = _dimmed(squares[frame], _kept_mask(each.places, frame, side))
                panel.imshow(image, interpolation="none")
        line[0].set_title(each.title, fontsize=8, loc="left")
    return save_figure(figure, path, caption=caption)


def _dimmed(square: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Pixels beyond the last whole patch are dimmed too."""
    bright = _enlarged(np.where(kept, 1.0, PRINT_DIM), square.shape[0] // len(kept))
    light = np.full((*square.shape[:2], 1), PRINT_DIM)
    light[: len(bright), : len(bright), 0] = bright
    return (square * light).astype(np.uint8)


def token_map(patches: KeptPatches, segment: int) -> Image.Image:
    """The tokens of one segment of the first stage by t-SNE, coloured by cluster, its centres with their patches."""
    figure = new_figure(width=9, height=9, layout=None)  # says so where there is no matplotlib
    from matplotlib.offsetbox import AnnotationBbox, OffsetImage

    part, ids = patches.segment(segment), patches.first.ids[segment].tolist()
    spread = _tsne(part.tokens, SCREEN_SEED)
    axes = figure.subplots()
    axes.set_facecolor((0.25, 0.25, 0.25))
    clusters = np.full(len(spread), len(PALETTE) - 1) if part.clusters is None else part.clusters.numpy()
    for cluster in np.unique(clusters):
        members = spread[clusters == cluster]
        colour = np.array(PALETTE[cluster % len(PALETTE)]) / 255
        marker = TOKEN_MARKERS[cluster // len(PALETTE) % len(TOKEN_MARKERS)]
        axes.scatter(members[:, 0], members[:, 1], s=26, color=[colour], marker=marker, linewidths=0)
    axes.scatter(spread[ids, 0], spread[ids, 1], s=110, facecolors="none", edgecolors="white", linewidths=1.6)
    middle = spread.mean(axis=0)
    for token in ids:
        patch = Image.fromarray(_patch(part, token)).resize((PATCH_PIXELS, PATCH_PIXELS), Image.Resampling.BICUBIC)
        image = OffsetImage(np.asarray(patch), zoom=0.6 if len(ids) > CROWDED else 1.0)
        place, beside = tuple(spread[token]), tuple(np.where(spread[token] >= middle, 24, -24))
        line = {"arrowstyle": "-", "color": "white", "linewidth": 0.6}
        axes.add_artist(AnnotationBbox(image, place, beside, boxcoords="offset points", pad=0.1, arrowprops=line))
    axes.margins(0.12)
    axes.set_xticks([])
    axes.set_yticks([])
    merged = len(part.squares)
    start, end = patches.times[segment * merged], patches.times[(segment + 1) * merged - 1]
    axes.set_title(
        f"{len(spread)} tokens after block {patches.first.stage.block}, frames from {start:.1f} to {end:.1f} s: "
        f"{len(ids)} centres (circles) and their patches"
    )
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=120, bbox_inches="tight")
    return Image.open(file).convert("RGB")


def draw_token_map(segment: SegmentTokens, path: Path, *, caption: str) -> list[Path]:
    """t-SNE of a segment's tokens, the largest clusters in colour, and patches of each. ``path`` has no suffix."""
    if segment.clusters is None:
        raise ReportError("this method has no clusters to draw; use k-medoids++ or spectral.")
    places = _tsne(segment.tokens, PRINT_SEED)
    clusters, centres = segment.clusters.numpy(), segment.ids.numpy()
    sizes = np.bincount(clusters, minlength=len(centres))
    largest = np.argsort(-sizes, kind="stable")[:LARGEST_CLUSTERS]
    figure = new_figure(width=9, height=4.6)
    left, right = figure.subplots(1, 2, width_ratios=(1.15, 1))
    left.scatter(*places[~np.isin(clusters, largest)].T, s=9, color="#BBBBBB", label="other clusters")
    for number, cluster in enumerate(largest):
        members = places[clusters == cluster].T
        left.scatter(*members, s=16, color=COLOURS[number], marker=MARKERS[number], label=f"{sizes[cluster]} tokens")
    left.scatter(*places[centres].T, s=40, facecolors="none", edgecolors="black", linewidths=0.8, label="centres")
    left.set_xticks([])
    left.set_yticks([])
    left.legend(fontsize=7, frameon=False, loc="best")
    _draw_clusters(right, segment, clusters, largest)
    return save_figure(figure, path, caption=caption)


def _draw_clusters(panel: Any, segment: SegmentTokens, clusters: np.ndarray, shown: np.ndarray) -> None:
    """A line of patches for each cluster that is shown, its centre first."""
    cell = len(_patch(segment, 0))
    gap = max(2, cell // 8)
    sheet = np.full((len(shown) * (cell + gap), CLUSTER_PATCHES * (cell + gap), 3), 255, dtype=np.uint8)
    for line, cluster in enumerate(shown):
        centre = int(segment.ids[cluster])
        members = [centre, *(m for m in np.flatnonzero(clusters == cluster).tolist() if m != centre)]
        for column, member in enumerate(members[:CLUSTER_PATCHES]):
            top, left = line * (cell + gap), column * (cell + gap)
            sheet[top : top + cell, left : left + cell] = _patch(segment, member)
    panel.imshow(sheet, interpolation="none")  # its own pixels, also in the SVG
    panel.set_axis_off()
    for line in range(len(shown)):
        panel.plot(-0.35 * cell, line * (cell + gap) + cell / 2, MARKERS[line], color=COLOURS[line], clip_on=False)
    panel.set_title("patches of these clusters, the centre first", fontsize=8)


def save_image(image: Image.Image, path: Path) -> None:
    """Write an image atomically; the suffix of ``path`` is its format."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, image.save)
    except OSError as error:
        raise CenterClipError(f"{path} cannot be written: {error.strerror or error}") from error


def _tsne(tokens: Tensor, seed: int) -> np.ndarray:
    """Tokens ``[N, D]`` -> places ``[N, 2]``."""
    with extras_named():
        from sklearn.manifold import TSNE
    if len(tokens) < 4:
        raise ReportError(f"a map needs at least 4 tokens, but a segment has {len(tokens)}; use more frames.")
    tsne = TSNE(perplexity=min(30.0, (len(tokens) - 1) / 3), init="pca", random_state=seed)
    places: np.ndarray = tsne.fit_transform(tokens.float().numpy())
    return places


def _patch(segment: SegmentTokens, token: int) -> np.ndarray:
    """The pixels behind one token, ``[cell, cell, 3]``."""
    patches = len(segment.tokens) // len(segment.squares)
    side = round(patches**0.5)
    cell = segment.squares.shape[1] // side
    frame, patch = divmod(token, patches)
    row, column = divmod(patch, side)
    return segment.squares[frame, row * cell : (row + 1) * cell, column * cell : (column + 1) * cell]


def _kept_mask(places: Tensor, frame: int, side: int) -> np.ndarray:
    """bool ``[side, side]``: which patches of a frame are among places ``[K, 3]``."""
    kept = np.zeros((side, side), dtype=bool)
    _, rows, columns = places[places[:, 0] == frame].T.numpy()
    kept[rows, columns] = True
    return kept


def _enlarged(values: np.ndarray, cell: int) -> np.ndarray:
    """One value a patch -> one value a pixel."""
    return np.repeat(np.repeat(values, cell, axis=0), cell, axis=1)
