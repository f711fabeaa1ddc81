"""Ranks in both directions, from scores that come block by block: the whole similarity matrix need not exist.

Scores of vectors are exact, so that ranks never depend on block sizes, threads, processes or machines.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..errors import EvaluationError

# captions [n] -> (videos a:b -> a fresh block [n, b - a]): what the captions need is made ready once.
Scores = Callable[[Tensor], Callable[[slice], Tensor]]
BLOCK_CAPTIONS = 1024  # captions of a block; a video with more of them makes a block of its own
BLOCK_SCORES = BLOCK_CAPTIONS * 1024  # scores of a block: 8 MB as float64, which fit the caches while they are counted
# Norms up to sqrt(2) at 2^-26 a step: every product is a whole number of 2^-52, and so is every sum of them. By
# Cauchy and Schwarz no sum reaches 2, so float64 with its 53 bits adds them without error, in any order.
STEP_BITS = 26


@dataclass(frozen=True, eq=False)
class Top:
    """The best candidates of every query, best first; of equal ones the first counts as better."""

    ids: np.ndarray  # [queries, top]; fewer columns where there are fewer candidates
    scores: np.ndarray  # [queries, top]


@dataclass(frozen=True, eq=False)
class Ranks:
    """The ranks of the right answers.

    A rank is 1 + the number of strictly better candidates + half the number of equal ones.
    """

    t2v: np.ndarray  # [captions] float64: of a caption's video among all videos
    v2t: np.ndarray  # [captioned] float64: of a video's best caption among the best captions of all captioned videos
    captioned: np.ndarray  # [captioned] the videos of ``v2t``: all that have a caption
    top_t2v: Top | None = None  # videos by caption
    top_v2t: Top | None = None  # captions by captioned video, the best one of each video


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
        top: also keep this many of the best candidates of every query.
    """
    scores = ExactScores(texts, videos)
    owners = owners_of(video_of_caption, len(texts), len(videos)).to(texts.device)
    pairs, scale = scores.pairs(owners), dual_softmax_scale
    offsets = None if scale is None else dual_softmax(scores, len(texts), len(videos), scale=scale, like=pairs)
    return rank(scores, pairs, owners, len(videos), offsets=offsets, top=top)


def rank(
    scores: Scores,
    pairs: Tensor,
    video_of_caption: Tensor,
    videos: int,
    *,
    offsets: tuple[Tensor, Tensor] | None = None,
    top: int = 0,
) -> Ranks:
    """Rank in both directions, with memory for one block of scores.

    Args:
        scores: gives any block of the matrix ``[C, V]``; a pair's score must not depend on its block.
        pairs: ``[C]``, the score of every caption with its own video.
        video_of_caption: ``[C]``.
        videos: number of videos.
        offsets: ``[V]`` and ``[C]``: subtracted from the scores, by video when videos are ranked for a caption, and by
            caption when captions are ranked for a video (see :func:`dual_softmax`).
        top: also keep this many of the best candidates of every query.
    """
    groups = _Groups.of(video_of_caption)
    device, count = pairs.device, len(pairs)
    by_video, by_caption = offsets or (None, None)
    right_t2v = pairs if by_video is None else pairs - by_video[video_of_caption]
    right_v2t = pairs if by_caption is None else pairs - by_caption
    unbeatable = torch.full((videos,), torch.inf, dtype=pairs.dtype, device=device)  # videos without captions
    best_right = unbeatable.clone().neg_().scatter_reduce_(0, video_of_caption, right_v2t, "amax")
    best_right = torch.where(best_right.isneginf(), unbeatable, best_right)  # [V]
    # Twice the number of better candidates plus the number of equal ones.
    ahead_t2v = torch.zeros(count, dtype=torch.int64, device=device)
    ahead_v2t = torch.zeros(videos, dtype=torch.int64, device=device)
    top_t2v = _Best(count, min(top, videos), pairs) if top else None
    top_v2t = _Best(videos, min(top, len(groups.captioned)), pairs) if top else None

    for group_span, span in groups.blocks():
        captions, own_video = groups.order[span], groups.video[span]
        captioned = groups.captioned[group_span]
        place = torch.searchsorted(captioned, own_video)  # [n] which of the block's groups
        step = max(1, BLOCK_SCORES // len(captions))
        block_of = scores(captions)
        for first in range(0, videos, step):
            columns = slice(first, min(first + step, videos))
            block = block_of(columns)  # [n, m]
            for_captions = block if by_video is None else block - by_video[columns]
            for_videos = _group_best(
                block if by_caption is None else block - by_caption[captions, None], place, len(captioned)
            )
            if top_t2v and top_v2t:
                top_t2v.add(captions, for_captions, first_id=first)
                wide = for_videos.T.contiguous()
                top_v2t.add(torch.arange(first, columns.stop, device=device), wide, first_id=group_span.start)
            # The right answer is excluded by its position, not by its value: others may have the same value.
            _leave_out(for_captions, own_video, columns)
            _leave_out(for_videos, captioned, columns)
            ahead_t2v[captions] += _ahead(for_captions, right_t2v[captions, None], dim=1)
            ahead_v2t[columns] += _ahead(for_videos, best_right[columns], dim=0)
    return Ranks(
        t2v=1 + ahead_t2v.cpu().numpy() / 2,
        v2t=1 + ahead_v2t[groups.captioned].cpu().numpy() / 2,
        captioned=groups.captioned.cpu().numpy(),
        top_t2v=top_t2v.result() if top_t2v else None,
        top_v2t=_captions_of(top_v2t, groups, scores, by_caption) if top_v2t else None,
    )


def dual_softmax(scores: Scores, captions: int, videos: int, *, scale: float, like: Tensor) -> tuple[Tensor, Tensor]:
    """Offsets that turn ranking by score into ranking by dual softmax.

    The score of a pair becomes ``softmax over videos x softmax over captions`` of ``scale * score``. In logarithms, and
    for one query, that is ``score - logsumexp(scale * scores of the candidate with all queries) / (2 * scale)``. It
    uses all queries at once, which a search for one sentence cannot do.

    Returns:
        ``[V]`` and ``[C]``, for :func:`rank`.
    """
    by_video = torch.full((videos,), -torch.inf, dtype=like.dtype, device=like.device)
    by_caption = torch.full((captions,), -torch.inf, dtype=like.dtype, device=like.device)
    step = max(1, BLOCK_SCORES // BLOCK_CAPTIONS)
    for first_row in range(0, captions, BLOCK_CAPTIONS):
        rows = torch.arange(first_row, min(first_row + BLOCK_CAPTIONS, captions), device=like.device)
        block_of = scores(rows)
        for first in range(0, videos, step):
            columns = slice(first, min(first + step, videos))
            block = block_of(columns).mul_(scale)
            by_caption[rows] = torch.logaddexp(by_caption[rows], block.logsumexp(1))
            by_video[columns] = torch.logaddexp(by_video[columns], block.logsumexp(0))
    return by_video / (2 * scale), by_caption / (2 * scale)


class ExactScores:
    """Dot products of captions and videos whose numbers are rounded to a grid first.

    The grid is finer than what float32 resolves at the norm of a vector, and on it float64 is exact: a product does not
    depend on block shapes, threads or machines, and equal vectors have equal scores. Texts are ``[C, D]``, videos
    ``[V, D]``.
    """

    def __init__(self, texts: Tensor, videos: Tensor) -> None:
        if texts.dim() != 2 or videos.dim() != 2 or texts.shape[1] != videos.shape[1]:
            raise EvaluationError(
                f"captions must be [C, D] and videos [V, D], got {list(texts.shape)} and {list(videos.shape)}."
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
        blocks = zip(self.texts.split(BLOCK_CAPTIONS), video_of_caption.split(BLOCK_CAPTIONS), strict=True)
        parts = [
            _rounded(texts, self._text_step).mul_(_rounded(self.videos[videos], self._video_step)).sum(1)
            for texts, videos in blocks
        ]
        return torch.cat(parts)


def owners_of(video_of_caption: object, captions: int, videos: int) -> Tensor:
    """The video of each caption as int64 ``[C]``, checked; the diagonal when it is None."""
    if not captions or not videos:
        raise EvaluationError(f"nothing to rank: {captions} captions, {videos} videos.")
    if video_of_caption is None:
        if captions != videos:
            counts = f"{captions:,} captions and {videos:,} videos"
            raise EvaluationError(f"{counts} are not one to one; pass video_of_caption.")
        return torch.arange(captions)
    owners = torch.as_tensor(video_of_caption)
    if owners.shape != (captions,) or owners.dtype.is_floating_point or owners.dtype == torch.bool:
        raise EvaluationError(
            f"video_of_caption must be {captions:,} integers, one for each caption; "
            f"got {owners.dtype} {list(owners.shape)}."
        )
    (wrong,) = torch.where((owners < 0) | (owners >= videos))
    if len(wrong):
        first, video = int(wrong[0]), int(owners[wrong[0]])
        raise EvaluationError(f"caption {first} belongs to video {video}, but there are {videos:,} videos.")
    return owners.long()


@dataclass(frozen=True, eq=False)
class _Groups:
    """Captions put in the order of their videos, so that those of one video are neighbours."""

    order: Tensor  # [C] captions
    video: Tensor  # [C] video of each, ascending
    captioned: Tensor  # [G] videos that have captions, ascending
    ends: Tensor  # [G] where the captions of each end in ``order``

    @classmethod
    def of(cls, video_of_caption: Tensor) -> "_Groups":
        """Group the captions of each video; ``video_of_caption`` is ``[C]``."""
        order = video_of_caption.argsort(stable=True)
        video = video_of_caption[order]
        captioned, counts = torch.unique_consecutive(video, return_counts=True)
        return cls(order, video, captioned, counts.cumsum(0))

    def blocks(self) -> Iterator[tuple[slice, slice]]:
        """The groups, and the places in ``order``, of each block: whole groups, about ``BLOCK_CAPTIONS`` captions."""
        first = start = 0
        while first < len(self.ends):
            last = max(first + 1, int(torch.searchsorted(self.ends, start + BLOCK_CAPTIONS, right=True)))
            end = int(self.ends[last - 1])
            yield slice(first, last), slice(start, end)
            first, start = last, end


def _group_best(block: Tensor, place: Tensor, groups: int) -> Tensor:
    """The best row of each group: block ``[n, m]``, place ``[n]`` -> ``[groups, m]``; the block if each has one row."""
    if groups == len(block):
        return block
    best = block.new_full((groups, block.shape[1]), -torch.inf)
    return best.scatter_reduce_(0, place[:, None].expand_as(block), block, "amax")


def _leave_out(block: Tensor, video: Tensor, columns: slice) -> None:
    """Exclude the right answers of a block's rows: ``video [n]`` are their videos."""
    (rows,) = torch.where((video >= columns.start) & (video < columns.stop))
    block[rows, video[rows] - columns.start] = -torch.inf


def _ahead(block: Tensor, right: Tensor, *, dim: int) -> Tensor:
    """Twice the better ones plus the equal ones: each better one is both ``>`` and ``>=``."""
    better = (block > right).view(torch.uint8).sum(dim, dtype=torch.int64)
    return better.add_((block >= right).view(torch.uint8).sum(dim, dtype=torch.int64))


class _Best:
    """The best candidates of every query so far."""

    def __init__(self, queries: int, count: int, like: Tensor) -> None:
        self.count = count
        self.values = torch.full((queries, count), -torch.inf, dtype=like.dtype, device=like.device)
        self.ids = torch.full((queries, count), -1, dtype=torch.int64, device=like.device)

    def add(self, queries: Tensor, block: Tensor, *, first_id: int) -> None:
        """Take in a block ``[n, m]`` of candidates ``first_id`` to ``first_id + m`` for queries ``[n]``."""
        values, ids = block.topk(min(self.count + 1, block.shape[1]), dim=1)
        if values.shape[1] > self.count:
            # topk takes any of equal ones; where the cut goes through them, sort in order.
            (cut,) = torch.where(values[:, self.count - 1] == values[:, self.count])
            values, ids = values[:, : self.count].clone(), ids[:, : self.count].clone()
            if len(cut):
                ordered = block[cut].sort(dim=1, descending=True, stable=True)
                values[cut], ids[cut] = ordered.values[:, : self.count], ordered.indices[:, : self.count]
        values = torch.cat([self.values[queries], values], dim=1)
        ids = torch.cat([self.ids[queries], ids + first_id], dim=1)
        ids, order = ids.sort(dim=1)
        values, order = values.gather(1, order).sort(dim=1, descending=True, stable=True)
        self.values[queries] = values[:, : self.count]
        self.ids[queries] = ids.gather(1, order)[:, : self.count]

    def result(self) -> Top:
        """As arrays."""
        return Top(self.ids.cpu().numpy(), self.values.cpu().numpy())


def _captions_of(best: _Best, groups: _Groups, scores: Scores, by_caption: Tensor | None) -> Top:
    """The best caption of each of the best groups of every captioned video; of equal ones the first."""
    best_groups = best.ids[groups.captioned]  # [G, top]
    starts = torch.cat([groups.ends.new_zeros(1), groups.ends[:-1]])
    captions = groups.order[starts[best_groups]]
    if len(groups.captioned) < len(groups.order):
        for query, video in enumerate(groups.captioned.tolist()):
            members = [groups.order[starts[group] : groups.ends[group]] for group in best_groups[query]]
            column = scores(torch.cat(members))(slice(video, video + 1))[:, 0]
            if by_caption is not None:
                column = column - by_caption[torch.cat(members)]
            parts = column.split([len(each) for each in members])
            captions[query] = torch.stack([each[part.argmax()] for each, part in zip(members, parts, strict=True)])
    return Top(captions.cpu().numpy(), best.values[groups.captioned].cpu().numpy())


def _step(vectors: Tensor, what: str) -> float:
    """The distance of the grid's points for these vectors."""
    if not len(vectors):
        return 1.0
    norms = torch.cat([part.double().norm(dim=1) for part in vectors.split(BLOCK_CAPTIONS)])
    (wrong,) = torch.where(~torch.isfinite(norms))
    if len(wrong):
        raise EvaluationError(f"the vector of {what} {int(wrong[0])} holds NaN or infinity, so it cannot be ranked.")
    longest = float(norms.max())
    return 2.0 ** (math.ceil(math.log2(longest / 1.4)) - STEP_BITS) if longest else 1.0


def _rounded(vectors: Tensor, step: float) -> Tensor:
    """float64 copy on the grid; dividing by a power of two is exact."""
    return vectors.double().div_(step).round_().mul_(step)
