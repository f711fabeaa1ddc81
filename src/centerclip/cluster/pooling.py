"""Pooling: the mean over a segment's frames at each position (a baseline of the paper)."""

from torch import Tensor

from .errors import ClusterError


def pooling(hidden: Tensor, *, frames: int, segments: int) -> Tensor:
    """Average the frames of each segment, token by token, [CLASS] included.

    Args:
        hidden: ``[videos * frames, tokens, D]``.
        frames: frames of a video.
        segments: segments of a video; divides ``frames``.

    Returns:
        ``[videos * segments, tokens, D]``.
    """
    check_frames(hidden, frames, segments)
    return hidden.unflatten(0, (-1, frames // segments)).mean(dim=1)


def check_frames(hidden: Tensor, frames: int, segments: int = 1) -> None:
    """Raise ClusterError unless ``hidden`` holds whole videos of ``frames`` that ``segments`` divide."""
    if hidden.dim() != 3:
        raise ClusterError(f"hidden states must be [videos * frames, tokens, width], got {list(hidden.shape)}")
    if frames < 1 or len(hidden) % frames:
        raise ClusterError(f"{len(hidden)} sequences are not a whole number of videos of {frames} frames")
    if segments < 1 or frames % segments:
        valid = ", ".join(str(s) for s in range(1, frames + 1) if frames % s == 0)
        raise ClusterError(f"{frames} frames cannot be cut into {segments} equal segments; valid are {valid}")
