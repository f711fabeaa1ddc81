"""Which patches of a video clustering keeps: its frames as the model takes them, their tokens, and what is kept."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..model import CenterCLIP, KeptTokens
from ..video import read_frames


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
