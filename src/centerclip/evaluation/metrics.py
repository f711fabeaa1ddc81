"""Recall and rank figures of text-video retrieval, from ranks or from a similarity matrix."""

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from .errors import EvaluationError
from .ranking import Ranks, check_finite, rank
from .vectors import owners_of

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

DIRECTIONS = ("t2v", "v2t")
RECALLS = (1, 5, 10)
NAMES = ("R1", "R5", "R10", "MdR", "MnR")

Metrics = dict[str, dict[str, float]]


def retrieval_metrics(
    similarity: "Tensor | ArrayLike", video_of_caption: "Tensor | ArrayLike | None" = None
) -> Metrics:
    """R@1, R@5, R@10 (per cent), median and mean rank, in both directions.

    Text to video ranks all videos for every caption. Video to text ranks, for every video that has captions, the
    best caption of each video: a video with many captions counts once, as a question and as an answer. A rank is
    1 + the number of strictly better candidates + half the number of equal ones.

    Args:
        similarity: ``[captions, videos]``.
        video_of_caption: ``[captions]``; caption ``i`` belongs to video ``i`` when it is not given.

    Returns:
        ``{"t2v": {"R1", "R5", "R10", "MdR", "MnR"}, "v2t": {...}}``.

    Raises:
        EvaluationError: a similarity is NaN or infinite, or shapes do not fit.
    """
    return summaries(rank_matrix(similarity, video_of_caption))


def rank_matrix(
    similarity: "Tensor | ArrayLike", video_of_caption: "Tensor | ArrayLike | None" = None, *, top: int = 0
) -> Ranks:
    """The ranks behind :func:`retrieval_metrics`, of a matrix ``[captions, videos]``."""
    matrix = (
        similarity
        if isinstance(similarity, Tensor)
        else torch.from_numpy(np.require(similarity, requirements=("C", "W")))
    )
    if matrix.dim() != 2:
        raise EvaluationError(f"similarity must be [captions, videos], got {list(matrix.shape)}")
    if matrix.dtype not in (torch.float32, torch.float64):
        matrix = matrix.double()
    matrix = matrix.detach()
    owners = owners_of(video_of_caption, *matrix.shape).to(matrix.device)
    check_finite(matrix, "the similarity matrix")
    pairs = matrix[torch.arange(len(matrix), device=matrix.device), owners]
    return rank(lambda captions: lambda videos: matrix[:, videos][captions], pairs, owners, matrix.shape[1], top=top)


def summaries(ranks: Ranks) -> Metrics:
    """The figures of both directions."""
    return {"t2v": summary(ranks.t2v), "v2t": summary(ranks.v2t)}


def summary(ranks: np.ndarray) -> dict[str, float]:
    """R@1, R@5, R@10 in per cent, median and mean of ranks ``[queries]``."""
    figures = {f"R{k}": 100 * float(np.mean(ranks <= k)) for k in RECALLS}
    return figures | {"MdR": float(np.median(ranks)), "MnR": float(np.mean(ranks))}
