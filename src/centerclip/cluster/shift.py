"""Shifts: some channels come from the frame before or after (two baselines of the paper)."""

import torch
from torch import Tensor

from .pooling import check_frames

PART = 8  # an eighth of the channels comes from the next frame, an eighth from the one before


def token_shift(hidden: Tensor, *, frames: int, prefix: int = 1) -> Tensor:
    """Shift channels of the [CLASS] tokens over time; patch tokens stay as they are.

    Args:
        hidden: ``[videos * frames, prefix + patches, D]``.
        frames: frames of a video.
        prefix: how many tokens in front are not patches; the first of them is [CLASS].

    Returns:
        A new tensor of the same shape.
    """
    check_frames(hidden, frames)
    if prefix == 0:
        return hidden
    return torch.cat([_shift(hidden[:, :1], frames), hidden[:, 1:]], dim=1)


def temporal_shift(hidden: Tensor, *, frames: int, prefix: int = 1) -> Tensor:
    """Shift channels of the patch tokens over time; [CLASS] stays as it is. Arguments as in :func:`token_shift`."""
    check_frames(hidden, frames)
    return torch.cat([hidden[:, :prefix], _shift(hidden[:, prefix:], frames)], dim=1)


def _shift(tokens: Tensor, frames: int) -> Tensor:
    """tokens ``[videos * frames, L, D]``: the first D/8 channels one frame back, the next D/8 one forward."""
    part = tokens.shape[-1] // PART
    video = tokens.unflatten(0, (-1, frames))  # [V, T, L, D]
    shifted = torch.zeros_like(video)
    shifted[:, :-1, :, :part] = video[:, 1:, :, :part]
    shifted[:, 1:, :, part : 2 * part] = video[:, :-1, :, part : 2 * part]
    shifted[..., 2 * part :] = video[..., 2 * part :]
    return shifted.flatten(0, 1)
