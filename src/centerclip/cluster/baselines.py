"""What clustering is compared with: the paper's baselines, and two beyond it.

The paper's are pooling (the mean over a segment's frames at each position), sparse sampling (tokens at fixed places)
and two shifts (some channels come from the frame before or after). Beyond it: random tokens, which any way of choosing
has to beat, and the tokens that get most attention.
"""

from typing import Any

import numpy as np

from ..errors import ClusterError
from .arrays import Array, arange, cast, detached, from_numpy, moved, namespace, order, softmax, sort, uniform
from .distances import check_tokens
from .setting import divisors

SHIFT_PARTS = 8  # an eighth of the channels comes from the next frame, an eighth from the one before
EVALUATION_SEED = 42  # of the random tokens that every evaluation keeps


def pooling(hidden: Array, *, frames: int, segments: int) -> Array:
    """Average the frames of each segment, token by token, [CLASS] included.

    Args:
        hidden: ``[videos * frames, tokens, D]``.
        frames: frames of a video.
        segments: segments of a video; divides ``frames``.

    Returns:
        ``[videos * segments, tokens, D]``.
    """
    check_frames(hidden, frames, segments)
    return hidden.reshape(-1, frames // segments, *hidden.shape[1:]).mean(1)


def sparse_sampling(tokens: Array, k: int, *, training: bool = False, generator: Any = None) -> Array:
    """Choose one token from each of ``k`` equal bins.

    Args:
        tokens: ``[B, N, D]``; only the shape matters.
        k: how many to keep, at most N.
        training: a random token per bin, drawn anew for each batch item; otherwise the centre of the bin.
        generator: of the random tokens: a ``torch.Generator`` of the CPU for a tensor, or a ``numpy.random.Generator``.

    Returns:
        ids ``[B, K]``, ascending and unique.
    """
    check_tokens(tokens, k)
    batch, count, _ = tokens.shape
    xp = namespace(tokens)
    if not training:
        return xp.broadcast_to((2 * arange(k, tokens) + 1) * count // (2 * k), (batch, k))
    drawn = uniform((batch, k), "float64", generator, tokens)
    # A bin is the whole numbers from its start up to the next one's.
    edges = arange(k + 1, drawn) * count // k
    start, size = edges[:-1], edges[1:] - edges[:-1]
    return moved(start + xp.minimum(cast(drawn * size, "int64"), size - 1), tokens)


def token_shift(hidden: Array, *, frames: int, prefix: int = 1) -> Array:
    """Shift channels of the [CLASS] tokens over time; patch tokens stay as they are.

    Args:
        hidden: ``[videos * frames, prefix + patches, D]``.
        frames: frames of a video.
        prefix: how many tokens in front are not patches; the first of them is [CLASS].

    Returns:
        A new array of the same shape.
    """
    check_frames(hidden, frames)
    if prefix == 0:
        return hidden
    return namespace(hidden).concatenate([_shift(hidden[:, :1], frames), hidden[:, 1:]], 1)


def temporal_shift(hidden: Array, *, frames: int, prefix: int = 1) -> Array:
    """Shift channels of the patch tokens over time; [CLASS] stays as it is. Arguments as in :func:`token_shift`."""
    check_frames(hidden, frames)
    return namespace(hidden).concatenate([hidden[:, :prefix], _shift(hidden[:, prefix:], frames)], 1)


def _shift(tokens: Array, frames: int) -> Array:
    """tokens ``[videos * frames, L, D]``: the first D/8 channels one frame back, the next D/8 one forward."""
    part = tokens.shape[-1] // SHIFT_PARTS
    video = tokens.reshape(-1, frames, *tokens.shape[1:])  # [V, T, L, D]
    shifted = namespace(tokens).zeros_like(video)
    shifted[:, :-1, :, :part] = video[:, 1:, :, :part]
    shifted[:, 1:, :, part : 2 * part] = video[:, :-1, :, part : 2 * part]
    shifted[..., 2 * part :] = video[..., 2 * part :]
    return shifted.reshape(tokens.shape)


def random_tokens(tokens: Array, k: int, *, training: bool = False, generator: Any = None) -> Array:
    """Choose ``k`` tokens at random.

    Args:
        tokens: ``[B, N, D]``; only the shape matters.
        k: how many to keep, at most N.
        training: new ones for every batch item; otherwise the same for all, and the same every time.
        generator: of the new ones, as in :func:`sparse_sampling`.

    Returns:
        ids ``[B, K]``, ascending and unique.
    """
    check_tokens(tokens, k)
    batch, count, _ = tokens.shape
    if training:
        return moved(sort(order(uniform((batch, count), "float32", generator, tokens))[:, :k]), tokens)
    chosen = np.sort(_permutation(count)[:k])
    return namespace(tokens).broadcast_to(from_numpy(chosen, tokens), (batch, k))


def _permutation(count: int) -> np.ndarray[Any, Any]:
    """The numbers below ``count`` shuffled: those of ``torch.randperm`` with a CPU generator of ``EVALUATION_SEED``."""
    numbers = np.arange(count)
    drawn = np.random.RandomState(EVALUATION_SEED).randint(0, 2**32, size=count, dtype=np.uint32)
    for place, swap in enumerate(np.arange(count) + drawn % np.arange(count, 0, -1)):
        numbers[place], numbers[swap] = numbers[swap], numbers[place]
    return numbers


def class_attention(queries: Array, keys: Array, *, head_dim: int, prefix: int = 1) -> Array:
    """How much attention each patch gets: from [CLASS], or from all tokens where there is no [CLASS].

    Args:
        queries: ``[B, prefix + L, heads * head_dim]``, as a block's query layer gives them.
        keys: the same of its key layer.
        head_dim: width of a head.
        prefix: tokens in front that are not patches; the first is [CLASS].

    Returns:
        ``[B, L]`` float32, the mean over the heads.
    """
    asked = _heads(queries[:, :1] if prefix else queries, head_dim)
    weights = softmax(asked @ _heads(keys, head_dim).mT * head_dim**-0.5)  # [B, heads, asked, tokens]
    return weights.mean((1, 2))[:, prefix:]


def _heads(values: Array, head_dim: int) -> Array:
    """values ``[B, tokens, heads * head_dim]`` -> ``[B, heads, tokens, head_dim]`` float32."""
    return cast(values, "float32").reshape(*values.shape[:2], -1, head_dim).swapaxes(1, 2)


def highest(scores: Array, k: int) -> Array:
    """The ids ``[B, K]``, ascending, of the ``k`` highest of scores ``[B, N]``; ties go to the lowest id."""
    if scores.ndim != 2 or not 1 <= k <= scores.shape[1]:
        raise ClusterError(f"k must be between 1 and the number of scores, got {k} of {list(scores.shape)}")
    return moved(sort(order(detached(scores), descending=True)[:, :k]), scores)


def check_frames(hidden: Array, frames: int, segments: int = 1) -> None:
    """Raise ClusterError unless ``hidden`` holds whole videos of ``frames`` that ``segments`` divide."""
    namespace(hidden)
    if hidden.ndim != 3:
        raise ClusterError(f"hidden states must be [videos * frames, tokens, width], got {list(hidden.shape)}")
    if frames < 1 or len(hidden) % frames:
        raise ClusterError(f"{len(hidden)} sequences are not a whole number of videos of {frames} frames")
    if segments < 1 or frames % segments:
        raise ClusterError(f"{frames} frames cannot be cut into {segments} equal segments; {divisors(frames)}")
