"""What clustering is compared with: the paper's baselines, and two beyond it.

The paper's are pooling (the mean over a segment's frames at each position), sparse sampling (tokens at fixed places)
and two shifts (some channels come from the frame before or after). Beyond it: random tokens, which any way of choosing
has to beat, and the tokens that get most attention.
"""

import torch
from torch import Tensor

from ..errors import ClusterError
from .distances import check_tokens
from .setting import divisors

SHIFT_PARTS = 8  # an eighth of the channels comes from the next frame, an eighth from the one before
EVALUATION_SEED = 42  # of the random tokens that every evaluation keeps


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


def sparse_sampling(
    tokens: Tensor, k: int, *, training: bool = False, generator: torch.Generator | None = None
) -> Tensor:
    """Choose one token from each of ``k`` equal bins.

    Args:
        tokens: ``[B, N, D]``; only the shape matters.
        k: how many to keep, at most N.
        training: a random token per bin, drawn from ``generator`` (a CPU one) for each batch item;
            otherwise the centre of the bin.

    Returns:
        ids ``[B, K]``, ascending and unique.
    """
    check_tokens(tokens, k)
    batch, count, _ = tokens.shape
    start = torch.arange(k) * count // k
    if training:
        # A bin is the whole numbers from its start up to the next one's.
        size = (torch.arange(k) + 1) * count // k - start
        inside = torch.rand(batch, k, generator=generator, dtype=torch.float64) * size
        ids = start + inside.long().minimum(size - 1)
    else:
        ids = ((2 * torch.arange(k) + 1) * count // (2 * k)).expand(batch, k)
    return ids.to(tokens.device)


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
    part = tokens.shape[-1] // SHIFT_PARTS
    video = tokens.unflatten(0, (-1, frames))  # [V, T, L, D]
    shifted = torch.zeros_like(video)
    shifted[:, :-1, :, :part] = video[:, 1:, :, :part]
    shifted[:, 1:, :, part : 2 * part] = video[:, :-1, :, part : 2 * part]
    shifted[..., 2 * part :] = video[..., 2 * part :]
    return shifted.flatten(0, 1)


def random_tokens(
    tokens: Tensor, k: int, *, training: bool = False, generator: torch.Generator | None = None
) -> Tensor:
    """Choose ``k`` tokens at random.

    Args:
        tokens: ``[B, N, D]``; only the shape matters.
        k: how many to keep, at most N.
        training: new ones for every batch item, drawn from ``generator`` (a CPU one); otherwise the same for all, and
            the same every time.

    Returns:
        ids ``[B, K]``, ascending and unique.
    """
    check_tokens(tokens, k)
    batch, count, _ = tokens.shape
    if training:
        drawn = torch.rand(batch, count, generator=generator).argsort(dim=1)
    else:
        drawn = torch.randperm(count, generator=torch.Generator().manual_seed(EVALUATION_SEED)).expand(batch, count)
    return drawn[:, :k].sort(dim=1).values.to(tokens.device)


def class_attention(queries: Tensor, keys: Tensor, *, head_dim: int, prefix: int = 1) -> Tensor:
    """How much attention each patch gets: from [CLASS], or from all tokens where there is no [CLASS].

    Args:
        queries: ``[B, prefix + L, heads * head_dim]``, as a block's query layer gives them.
        keys: the same of its key layer.
        head_dim: width of a head.
        prefix: tokens in front that are not patches; the first is [CLASS].

    Returns:
        ``[B, L]`` float32, the mean over the heads.
    """
    asked = (queries[:, :1] if prefix else queries).float().unflatten(2, (-1, head_dim)).transpose(1, 2)
    offered = keys.float().unflatten(2, (-1, head_dim)).transpose(1, 2)  # [B, heads, tokens, head_dim]
    weights = torch.softmax(asked @ offered.mT * head_dim**-0.5, dim=3)  # [B, heads, asked, tokens]
    return weights.mean(dim=(1, 2))[:, prefix:]


@torch.no_grad()
def highest(scores: Tensor, k: int) -> Tensor:
    """The ids ``[B, K]``, ascending, of the ``k`` highest of scores ``[B, N]``; ties go to the lowest id."""
    if scores.dim() != 2 or not 1 <= k <= scores.shape[1]:
        raise ClusterError(f"k must be between 1 and the number of scores, got {k} of {list(scores.shape)}")
    return torch.argsort(scores, dim=1, descending=True, stable=True)[:, :k].sort(dim=1).values


def check_frames(hidden: Tensor, frames: int, segments: int = 1) -> None:
    """Raise ClusterError unless ``hidden`` holds whole videos of ``frames`` that ``segments`` divide."""
    if hidden.dim() != 3:
        raise ClusterError(f"hidden states must be [videos * frames, tokens, width], got {list(hidden.shape)}")
    if frames < 1 or len(hidden) % frames:
        raise ClusterError(f"{len(hidden)} sequences are not a whole number of videos of {frames} frames")
    if segments < 1 or frames % segments:
        raise ClusterError(f"{frames} frames cannot be cut into {segments} equal segments; {divisors(frames)}")
