"""What comes out of the model for a video, and how videos and sentences are compared."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import normalize

Rule = Literal["mean", "renormalise"]


@dataclass(frozen=True)
class EncodedVideo:
    """A video as vectors. Segments that hold nothing but padding are left out."""

    segments: Tensor  # [S, D], each of norm 1
    spans: list[tuple[float, float]]  # start and end of every segment, in seconds
    vector: Tensor  # [D]: the mean of the segments, of norm 1 if the model's rule is "renormalise"


def video_vectors(segments: Tensor, mask: Tensor | None = None, *, rule: Rule = "mean") -> Tensor:
    """One vector a video, such that its dot product with a sentence is their similarity.

    Args:
        segments: ``[V, S, D]``, each of norm 1.
        mask: ``[V, S]``, True where a segment is real.
        rule: ``"mean"`` is the paper's formula, the mean of the segments' similarities; ``"renormalise"`` gives the
            mean vector norm 1 again, as the paper's reported numbers do.

    Returns:
        ``[V, D]``.
    """
    if rule not in ("mean", "renormalise"):
        raise ValueError(f'the similarity rule must be "mean" or "renormalise", got {rule!r}')
    if mask is None:
        vectors = segments.mean(dim=1)
    else:
        weight = mask.to(segments.dtype)
        weight = weight / weight.sum(dim=1, keepdim=True).clamp(min=1)
        vectors = (segments * weight[:, :, None]).sum(dim=1)
    return normalize(vectors, dim=1) if rule == "renormalise" else vectors


def similarity(text: Tensor, videos: Sequence[EncodedVideo], *, rule: Rule = "mean") -> Tensor:
    """text ``[B, D]`` (norm 1) against videos -> ``[B, V]``."""
    if not videos:
        return text.new_zeros(len(text), 0)
    vectors = torch.stack([video_vectors(video.segments[None], rule=rule)[0] for video in videos])
    return text @ vectors.to(text.device, text.dtype).T
