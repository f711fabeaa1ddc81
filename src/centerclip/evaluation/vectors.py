"""Similarities of vectors, block by block and exact, so that ranks never depend on how the work was cut."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from .errors import EvaluationError
from .ranking import ROWS, Ranks, dual_softmax, rank

# Norms up to sqrt(2) at 2^-26 a step: every product is a whole number of 2^-52, and so is every sum of them. By
# Cauchy and Schwarz no sum reaches 2, so float64 with its 53 bits adds them without error, in any order.
STEP_BITS = 26


class ExactScores:
    """Dot products of captions and videos whose numbers are rounded to a grid first.

    The grid is finer than what float32 resolves at the norm of a vector, and on it float64 is exact: a product does not
    depend on block shapes, threads or machines, and equal vectors have equal scores.

    Args:
        texts: ``[C, D]``.
        videos: ``[V, D]``.
    """

    def __init__(self, texts: Tensor, videos: Tensor) -> None:
        if texts.dim() != 2 or videos.dim() != 2 or texts.shape[1] != videos.shape[1]:
            raise EvaluationError(
                f"captions [C, D] and videos [V, D] were expected, got {list(texts.shape)} and {list(videos.shape)}"
            )
        self.texts, self.videos = texts, videos
        self._text_step = _step(texts, "caption")
        self._video_step = _step(videos, "video")

    def __call__(self, captions: Tensor) -> Callable[[slice], Tensor]:
        """For captions ``[n]``: a function of a range of ``m`` videos that gives their scores, float64 ``[n, m]``."""
        texts = _rounded(self.texts[captions], self._text_step)
        return lambda videos: texts @ _rounded(self.videos[videos], self._video_step).T

    def pairs(self, video_of_caption: Tensor) -> Tensor:
        """float64 ``[C]``: every caption with its own video."""
        parts = [
            _rounded(texts, self._text_step).mul_(_rounded(self.videos[videos], self._video_step)).sum(1)
            for texts, videos in zip(self.texts.split(ROWS), video_of_caption.split(ROWS), strict=True)
        ]
        return torch.cat(parts)


def rank_vectors(
    texts: Tensor,
    videos: Tensor,
    video_of_caption: Tensor | None = None,
    *,
    dual_softmax_scale: float | None = None,
    top: int = 0,
) -> Ranks:
    """Rank captions ``[C, D]`` and videos ``[V, D]`` by their dot products, without the matrix ``[C, V]``.

    Args:
        texts: one vector a caption.
        videos: one vector a video (:func:`centerclip.model.video_vectors` makes it of segments, by either rule).
        video_of_caption: ``[C]``; caption ``i`` belongs to video ``i`` when it is not given.
        dual_softmax_scale: rank by dual softmax with this factor on the scores (the model's ``logit_scale.exp()``).
        top: also keep so many of the best candidates of every query.
    """
    scores = ExactScores(texts, videos)
    owners = owners_of(video_of_caption, len(texts), len(videos)).to(texts.device)
    pairs = scores.pairs(owners)
    offsets = None
    if dual_softmax_scale is not None:
        offsets = dual_softmax(scores, len(texts), len(videos), scale=dual_softmax_scale, like=pairs)
    return rank(scores, pairs, owners, len(videos), offsets=offsets, top=top)


def owners_of(video_of_caption: object, captions: int, videos: int) -> Tensor:
    """The video of each caption as int64 ``[C]``, checked; the diagonal when it is None."""
    if not captions or not videos:
        raise EvaluationError(f"there is nothing to rank: {captions} captions, {videos} videos.")
    if video_of_caption is None:
        if captions != videos:
            raise EvaluationError(
                f"{captions:,} captions and {videos:,} videos are no pairs; say which are with video_of_caption."
            )
        return torch.arange(captions)
    owners = torch.as_tensor(video_of_caption)
    if owners.shape != (captions,) or owners.dtype.is_floating_point or owners.dtype == torch.bool:
        raise EvaluationError(
            f"video_of_caption must hold {captions:,} whole numbers, one a caption; "
            f"got {owners.dtype} {list(owners.shape)}."
        )
    (wrong,) = torch.where((owners < 0) | (owners >= videos))
    if len(wrong):
        first = int(wrong[0])
        raise EvaluationError(
            f"caption {first} belongs to video {int(owners[first])}, but there are {videos:,} videos."
        )
    return owners.long()


def _step(vectors: Tensor, what: str) -> float:
    """The distance of the grid's points for these vectors."""
    if not len(vectors):
        return 1.0
    norms = torch.cat([part.double().norm(dim=1) for part in vectors.split(ROWS)])
    (wrong,) = torch.where(~torch.isfinite(norms))
    if len(wrong):
        raise EvaluationError(f"the vector of {what} {int(wrong[0])} holds NaN or infinity; ranks need numbers.")
    longest = float(norms.max())
    return 2.0 ** (math.ceil(math.log2(longest / 1.4)) - STEP_BITS) if longest else 1.0


def _rounded(vectors: Tensor, step: float) -> Tensor:
    """float64 copy on the grid; dividing by a power of two is exact."""
    return vectors.double().div_(step).round_().mul_(step)
