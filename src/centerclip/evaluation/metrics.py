"""Recall and rank metrics of text-video retrieval, and their uncertainty: the bootstrap over videos."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ..errors import EvaluationError
from .ranking import Ranks, owners_of, rank

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

DIRECTIONS = ("t2v", "v2t")
RECALLS = (1, 5, 10)
HEADINGS = {"R1": "R@1", "R5": "R@5", "R10": "R@10", "MdR": "MdR", "MnR": "MnR"}
NAMES = tuple(HEADINGS)
RESAMPLES = 1000
SEED = 42
LEVEL = 0.95  # of the intervals
CHUNK = 4_000_000  # numbers that the bootstrap holds at a time: 32 MB
Metrics = dict[str, dict[str, float]]


def retrieval_metrics(
    similarity: "Tensor | ArrayLike", video_of_caption: "Tensor | ArrayLike | None" = None
) -> Metrics:
    """R@1, R@5, R@10 (per cent), median and mean rank, in both directions.

    Text to video ranks all videos for every caption. Video to text ranks, for every video that has captions, the
    best caption of each video: a video with many captions counts once, as a query and as a candidate. A rank is
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
    if not isinstance(similarity, Tensor):
        similarity = torch.from_numpy(np.require(similarity, requirements=("C", "W")))
    matrix = similarity.detach()
    if matrix.dim() != 2:
        raise EvaluationError(f"similarity must be [captions, videos], got {list(matrix.shape)}.")
    if matrix.dtype not in (torch.float32, torch.float64):
        matrix = matrix.double()
    owners = owners_of(video_of_caption, *matrix.shape).to(matrix.device)
    _check_finite(matrix)
    pairs = matrix[torch.arange(len(matrix), device=matrix.device), owners]
    return rank(lambda captions: lambda videos: matrix[:, videos][captions], pairs, owners, matrix.shape[1], top=top)


def summaries(ranks: Ranks) -> Metrics:
    """The metrics of both directions."""
    return {"t2v": summary(ranks.t2v), "v2t": summary(ranks.v2t)}


def summary(ranks: np.ndarray) -> dict[str, float]:
    """R@1, R@5, R@10 in per cent, median and mean of ranks ``[queries]``."""
    recalls = {f"R{k}": 100 * float(np.mean(ranks <= k)) for k in RECALLS}
    return recalls | {"MdR": float(np.median(ranks)), "MnR": float(np.mean(ranks))}


def resampled(
    ranks: Sequence[np.ndarray], video: np.ndarray, videos: int, *, resamples: int = RESAMPLES, seed: int = SEED
) -> np.ndarray:
    """The metrics of resampled benchmarks: videos are drawn with replacement, the gallery stays as it is.

    Captions of one video succeed and fail together, so they are drawn together: drawing single captions would give
    intervals that are too narrow.

    Args:
        ranks: one or more sets of ranks ``[N]`` of the same queries; all see the same draws, so that their differences
            are paired.
        video: ``[N]``, the video of each query.
        videos: number of videos.
        resamples: how many draws.
        seed: the same seed gives the same draws.

    Returns:
        ``[resamples, sets, 5]`` in the order of ``NAMES``.
    """
    counts = np.bincount(video, minlength=videos).astype(np.float64)
    parts = [
        np.stack([_sample_metrics(each, video, weights, weights @ counts) for each in ranks], axis=1)
        for weights in _draws(videos, resamples, seed, chunk=max(1, CHUNK // max(videos, len(video))))
    ]
    return np.concatenate(parts)


def interval(samples: np.ndarray, level: float = LEVEL) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper bound by percentiles along the first axis."""
    low, high = np.quantile(samples, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return low, high


def _check_finite(similarity: Tensor) -> None:
    low, high = torch.aminmax(similarity)
    if not bool(torch.isfinite(low) & torch.isfinite(high)):
        row, column = (~torch.isfinite(similarity)).nonzero()[0].tolist()
        raise EvaluationError(
            f"the similarity matrix holds {similarity[row, column].item()} at row {row}, column {column}, so it cannot "
            "be ranked."
        )


def _draws(videos: int, resamples: int, seed: int, chunk: int) -> Iterator[np.ndarray]:
    """How often each video is drawn: float64 ``[draws, videos]``, a chunk of draws at a time."""
    random = np.random.default_rng(seed)
    for first in range(0, resamples, chunk):
        size = min(chunk, resamples - first)
        drawn = random.integers(0, videos, (size, videos)) + videos * np.arange(size)[:, None]
        yield np.bincount(drawn.ravel(), minlength=size * videos).reshape(size, videos).astype(np.float64)


def _sample_metrics(ranks: np.ndarray, video: np.ndarray, weights: np.ndarray, total: np.ndarray) -> np.ndarray:
    """ranks ``[N]``, weights ``[draws, videos]``, total ``[draws]`` queries -> metrics ``[draws, 5]``."""
    videos = weights.shape[1]
    sums = [np.bincount(video, ranks <= k, minlength=videos) for k in RECALLS]
    sums.append(np.bincount(video, ranks, minlength=videos))
    means = weights @ np.stack(sums, axis=1) / total[:, None]  # [draws, 4]
    median = _median(ranks, video, weights, total)
    return np.concatenate([100 * means[:, :3], median[:, None], means[:, 3:]], axis=1)


def _median(ranks: np.ndarray, video: np.ndarray, weights: np.ndarray, total: np.ndarray) -> np.ndarray:
    """The median of each draw, ``[draws]``: the mean of the two in the middle when their number is even."""
    order = np.argsort(ranks, kind="stable")
    ordered = ranks[order]
    upto = weights[:, video[order]].cumsum(axis=1)  # [draws, N] queries up to each
    lower = (upto < np.ceil(total / 2)[:, None]).sum(axis=1)
    upper = (upto < np.floor(total / 2 + 1)[:, None]).sum(axis=1)
    middle: np.ndarray = (ordered[lower] + ordered[upper]) / 2
    return middle
