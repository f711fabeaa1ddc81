"""Beyond the paper: what changes from frame to frame decides which tokens are kept, and how many of each segment.

- :func:`run_lengths`: run-length tokenization (RLT; Choudhury et al., "Don't Look Twice", NeurIPS 2024). A patch whose
  pixels are those of the frame before is not encoded again; the token before stands for both. The paper drops patches
  below a threshold. Here the K that changed most are kept, so that the shape of a batch never depends on its content.
- :func:`allot`: budgets that follow the content: as many tokens in all, more for segments that change more.
- :func:`pack`: the segments of a video as one sequence, so that a batch keeps its shape. Layers cost what those of
  equal segments do; attention costs more, since it is computed over the whole video and masked between segments.
"""

from collections.abc import Sequence

import numpy as np

from ..errors import ClusterError
from .arrays import Array, arange, cast, from_numpy, full, gather, namespace, order, put, sort
from .distances import whole_numbers
from .kmedoids import Clusters

PIXEL_STEPS = 2.0**10  # of a normalised colour's unit: finer than a level of 8 bits, and sums of them are exact
LEAST_SHARE = 2  # a segment gets at least K / 2 tokens, however still it is


def patch_changes(pixels: Array, patch: int) -> Array:
    """How much the pixels of every patch differ from those of the frame before.

    Args:
        pixels: ``[N, channels, H, W]``, floating, frame after frame.
        patch: side of a patch in pixels. What is left over at the right and at the bottom is not compared.

    Returns:
        ``[N, L]`` float64: summed absolute differences in whole steps, the same in any batch; infinity for the first.
    """
    xp = namespace(pixels)
    count, channels = pixels.shape[:2]
    rows, columns = pixels.shape[2] // patch, pixels.shape[3] // patch
    steps = xp.round(cast(pixels[:, :, : rows * patch, : columns * patch], "float32") * PIXEL_STEPS)
    apart = xp.abs(steps[1:] - steps[:-1]).reshape(count - 1, channels, rows, patch, columns, patch)
    changes = xp.sum(apart, (1, 3, 5), dtype=xp.float64).reshape(count - 1, rows * columns)
    return xp.concatenate([full((1, rows * columns), float("inf"), "float64", pixels), changes])


def run_lengths(changes: Array, k: int, *, frame: int) -> Clusters:
    """Keep the ``k`` patches of a segment that changed most; the first frame is kept as a whole.

    Args:
        changes: ``[B, frames * frame]`` of :func:`patch_changes`, frame by frame; those of the first do not matter.
        k: how many to keep, at least a frame.
        frame: patches of a frame.

    Returns:
        ``ids [B, K]`` ascending (of equal changes the earlier), and ``assignment [B, N]``: every patch belongs to the
        last one that was kept at its place.
    """
    batch, count = changes.shape
    if count % frame or not frame <= k <= count:
        raise ClusterError(f"k must be between the {frame} patches of a frame and {count} of whole frames, got {k}")
    xp = namespace(changes)
    position = arange(count, changes)
    changes = xp.where(position < frame, float("inf"), changes)
    ids = sort(order(changes, descending=True)[:, :k])
    kept = put(full((batch, count), 0, "int64", changes), ids, 1).reshape(batch, -1, frame)
    last = [xp.zeros_like(kept[:, 0])]  # the frame in which each place was kept last
    for number in range(1, kept.shape[1]):
        last.append(xp.where(kept[:, number] > 0, number, last[-1]))
    runs = xp.concatenate(last, 1) * frame + position % frame  # [B, N]: the token that stands for each
    places = put(full((batch, count), 0, "int64", changes), ids, xp.broadcast_to(arange(k, ids), ids.shape))
    return Clusters(ids, gather(places, runs))


def segment_changes(patches: Array, segments: int) -> Array:
    """How far the tokens of each segment are, in sum, from those at their places one frame earlier.

    Args:
        patches: ``[V, frames, L, D]``.
        segments: of a video; divides ``frames``.

    Returns:
        ``[V, segments]`` float64 in whole numbers of each video's own unit; 0 for segments of one frame.
    """
    xp = namespace(patches)
    videos, frames, length, width = patches.shape
    whole = whole_numbers(patches.reshape(videos, frames * length, width))[0]
    whole = whole.reshape(videos * segments, frames // segments, length, width)
    apart = xp.round(xp.sqrt(xp.square(whole[:, 1:] - whole[:, :-1]).sum(3)))
    return apart.sum((1, 2)).reshape(videos, segments)


def allot(changes: Array, k: int, most: int, least: int = 1) -> Array:
    """Share ``segments * k`` tokens among the segments of each video, in proportion to their changes.

    Every segment gets half of ``k`` (``LEAST_SHARE``), or ``least``; the others go, one by one, to the segment with the
    largest change for each token that it would then have (D'Hondt's rule).

    Args:
        changes: ``[V, segments]``, not negative.
        k: tokens of a segment on average.
        most: tokens that a segment has.
        least: tokens that every segment needs, at most ``k``.

    Returns:
        ``[V, segments]`` int64; rows sum to ``segments * k``. Of equal segments the first gets what is left over.
    """
    videos, segments = changes.shape
    least = max(least, k // LEAST_SHARE)
    divisors = arange(most - least, changes) + 1
    quotients = (changes[:, None, :] / divisors[:, None]).reshape(videos, -1)  # [V, (most - least) * segments]
    given = order(quotients, descending=True)[:, : segments * (k - least)] % max(1, segments)
    return least + (given[:, :, None] == arange(segments, given)).sum(1)


def pack(segments: Sequence[Array], sizes: Sequence[Array], *, per_video: int, prefix: int) -> tuple[Array, Array]:
    """The segments of each video as one sequence, in which every segment attends to itself alone.

    Args:
        segments: one for each segment of each video, ``[prefix + K_s, D]``; the K_s of a video have the same sum.
        sizes: of each, ``[prefix + K_s]``: what is added to the attention scores of its keys.
        per_video: segments of a video.
        prefix: tokens in front that are not patches.

    Returns:
        tokens ``[V, per_video * (prefix + K), D]``, the prefixes of all segments first; and ``[V, N, N]``, what is
        added to attention scores: the sizes inside a segment, minus infinity between two.
    """
    xp = namespace(segments[0])
    tokens, biases = [], []
    for first in range(0, len(segments), per_video):
        group = segments[first : first + per_video]
        owners = [number for number in range(per_video) for _ in range(prefix)]
        owners += [number for number, each in enumerate(group) for _ in range(len(each) - prefix)]
        owner = from_numpy(np.array(owners), group[0])
        keys = [each[:prefix] for each in sizes[first : first + per_video]]
        keys += [each[prefix:] for each in sizes[first : first + per_video]]
        tokens.append(xp.concatenate([*(each[:prefix] for each in group), *(each[prefix:] for each in group)]))
        biases.append(xp.where(owner[:, None] == owner, xp.concatenate(keys), float("-inf")))
    return xp.stack(tokens), xp.stack(biases)
