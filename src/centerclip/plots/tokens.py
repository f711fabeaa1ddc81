"""Pictures of clustering itself: which patches are kept, and tokens as a map with the patches of their clusters.

`centerclip show` draws both of a video; `centerclip report run centres tsne` as figures of the paper.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor, nn

from ..errors import ModelError, ReportError, extras_named
from ..model import CenterCLIP, KeptTokens
from ..video import read_frames
from .figures import COLOURS, DPI, MARKERS, new_figure

# Okabe and Ito's colours, which colour-blind people can tell apart; without black, which is lost on dark patches.
PALETTE = ((230, 159, 0), (86, 180, 233), (0, 158, 115), (240, 228, 66), (0, 114, 178), (213, 94, 0), (204, 121, 167),
           (235, 235, 235))  # fmt: skip
SQUARE = 224  # pixels of a frame on the sheet, at least
GAP, LINE = 8, 20  # pixels between frames, and of a line of text
DIM, TINT = 0.42, 0.16  # patches that are not kept: their brightness, and how much of the cluster's colour
LARGEST_CLUSTERS = 7  # get a colour on the map; more cannot be told apart
CLUSTER_PATCHES = 8  # shown of each of them
SEED = 42  # of t-SNE


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
    first = attachment.setting.stages[0].block
    block = attachment.blocks[first - 1] if first else model.backbone.vision_model.embeddings
    handle = block.register_forward_hook(keep, prepend=True)
    try:
        with torch.inference_mode(), attachment.record() as steps:
            pixels = model.preprocess.normalise(torch.from_numpy(squares))
            model.video_features(pixels[None], torch.from_numpy(frames.mask)[None])
    finally:
        handle.remove()
    if len(steps) != len(attachment.setting.stages):  # a stage that pools, or whose segments keep different numbers
        raise ModelError(
            f'"{attachment.setting}" cannot be drawn: every stage must keep patches, as many of each segment; write it '
            "without pooling and budget=change"
        )
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


def centre_sheet(patches: KeptPatches) -> Image.Image:
    """All frames of a video, one row for each segment, as :func:`segment_rows` draws them."""
    return segment_rows(
        [(f"segment {n + 1}: {start:.1f} to {end:.1f} s", patches, n) for n, (start, end) in enumerate(patches.spans)]
    )


def segment_rows(rows: Sequence[tuple[str, KeptPatches, int]]) -> Image.Image:
    """Frames with kept patches in their own colours and outlined, the others dimmed.

    Args:
        rows: a title, what was kept of a video, and the segment (from 0) whose frames the row shows.
    """
    lengths = [len(patches.squares) // len(patches.spans) for _, patches, _ in rows]
    side = round(rows[0][1].tokens.shape[1] ** 0.5)
    cell = -(-SQUARE // side)
    square = cell * side
    sheet = Image.new("RGB", (max(lengths) * (square + GAP) + GAP, len(rows) * (square + 2 * LINE) + GAP), "white")
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(13)
    for row, ((title, patches, segment), length) in enumerate(zip(rows, lengths, strict=True)):
        top = row * (square + 2 * LINE)
        draw.text((GAP, top + 4), title, fill="black", font=font)
        for column in range(length):
            frame = segment * length + column
            left = GAP + column * (square + GAP)
            sheet.paste(_sheet_frame(patches, frame, segment, side, cell), (left, top + LINE))
            caption = f"{float(patches.times[frame]):.2f} s" if patches.mask[frame] else "repeats the last frame"
            draw.text((left, top + LINE + square + 2), caption, fill=(90, 90, 90), font=font)
    return sheet


def sheet_figure(sheet: Image.Image) -> Any:
    """A sheet as a figure that can be saved with a caption."""
    figure = new_figure(width=sheet.width / DPI, height=sheet.height / DPI, layout=None)
    panel = figure.add_axes((0, 0, 1, 1))
    panel.imshow(sheet, interpolation="none")  # its own pixels, also in the SVG
    panel.set_axis_off()
    return figure


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


def token_map(segment: SegmentTokens) -> Any:
    """A figure of a segment's tokens by t-SNE: the largest clusters in colour, with patches of each beside the map."""
    figure = new_figure(width=9, height=4.6)  # says so where there is no matplotlib
    places, centres = _tsne(segment.tokens), segment.ids.numpy()
    left, right = figure.subplots(1, 2, width_ratios=(1.15, 1))
    # A method without clusters keeps tokens that stand for themselves alone.
    clusters = np.full(len(places), -1) if segment.clusters is None else segment.clusters.numpy()
    if segment.clusters is None:
        clusters[centres] = np.arange(len(centres))
    sizes = np.bincount(clusters[clusters >= 0], minlength=len(centres))
    largest = np.argsort(-sizes, kind="stable")[:LARGEST_CLUSTERS]
    left.scatter(*places[~np.isin(clusters, largest)].T, s=9, color="#BBBBBB", label="others")
    for number, cluster in enumerate(largest):
        members = places[clusters == cluster].T
        left.scatter(*members, s=16, color=COLOURS[number], marker=MARKERS[number], label=f"{sizes[cluster]} tokens")
    left.scatter(*places[centres].T, s=40, facecolors="none", edgecolors="black", linewidths=0.8, label="centres")
    left.set_xticks([])
    left.set_yticks([])
    left.legend(fontsize=7, frameon=False, loc="best")
    _draw_clusters(right, segment, clusters, largest)
    return figure


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


def _tsne(tokens: Tensor) -> np.ndarray:
    """Tokens ``[N, D]`` -> places ``[N, 2]``."""
    with extras_named():
        from sklearn.manifold import TSNE
    if len(tokens) < 4:
        raise ReportError(f"a map needs at least 4 tokens, but a segment has {len(tokens)}; use more frames.")
    tsne = TSNE(perplexity=min(30.0, (len(tokens) - 1) / 3), init="pca", random_state=SEED)
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
