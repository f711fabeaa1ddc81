"""Beyond the paper: cluster means, token merging, density peaks, and attention that knows how large clusters are.

- :func:`soft_matching`: bipartite soft matching as in ToMe (Bolya et al., 2023), repeated until K tokens are left.
- :func:`temporal_matching`: the merging of a stage of TempMe (Shen et al., ICLR 2025): across frames, then inside.
- :func:`density_peaks`: DPC-KNN (Du, Ding and Jia, 2016): tokens in dense places, far from every denser one.
- :func:`size_bias`: ToMe's proportional attention.
"""

import numpy as np

from ..errors import ClusterError
from .arrays import (
    Array,
    add_rows,
    arange,
    cast,
    full,
    full_precision,
    gather,
    gather_rows,
    namespace,
    order,
    put,
    smallest,
    sort,
    sums_by_label,
)
from .distances import check_tokens, exact_distances, unit_tokens, whole_numbers
from .kmedoids import Clusters, groups, join, nearest_centres


def cluster_means(tokens: Array, assignment: Array, k: int, sizes: Array | None = None) -> tuple[Array, Array]:
    """The mean of every cluster. Gradients flow to all of its members.

    Args:
        tokens: ``[B, N, D]``.
        assignment: ``[B, N]``, the cluster of every token, 0 to ``k`` - 1; no cluster is empty.
        k: number of clusters.
        sizes: ``[B, N]``, how many tokens each one stands for already; 1 by default.

    Returns:
        means ``[B, K, D]`` in the type of the tokens, and sizes ``[B, K]`` float32.
    """
    if sizes is None:
        sizes = full(assignment.shape, 1, "float32", tokens)
    members = (assignment[:, None, :] == arange(k, tokens)[:, None]) * sizes[:, None, :]  # [B, K, N]
    totals = members.sum(2)
    with full_precision(tokens):
        means = namespace(tokens).matmul(members / totals[:, :, None], cast(tokens, "float32"))
    return cast(means, tokens.dtype), totals


def cluster_sizes(assignment: Array, k: int, sizes: Array | None = None) -> Array:
    """How many tokens are in each cluster, ``[B, K]``; the arguments are those of :func:`cluster_means`."""
    sizes = full(assignment.shape, 1, "float32", assignment) if sizes is None else sizes
    return sums_by_label(sizes, assignment, k)


def size_bias(sizes: Array, frames: float, prefix: int) -> Array:
    """What proportional attention adds to the keys: the logarithm of how many tokens each stands for.

    A cluster of 5 tokens then gets the attention that its 5 members would have got. The averaged prefix tokens stand
    for one of each frame; since attention ignores a constant, they get 0 and a cluster log(size / frames). For a video
    that stands still nothing changes at all.

    Args:
        sizes: ``[B, K]``, tokens in each cluster.
        frames: frames of a segment.
        prefix: tokens in front that are not patches.

    Returns:
        ``[B, prefix + K]`` float32.
    """
    xp = namespace(sizes)
    return xp.concatenate([full((len(sizes), prefix), 0, "float32", sizes), xp.log(sizes / frames)], 1)


def soft_matching(tokens: Array, k: int, *, frame: int | None = None) -> Clusters:
    """Merge the most similar tokens, round by round, until ``k`` groups are left.

    In a round every second token is paired with the most similar (cosine) of the others, and the most similar pairs
    become one; at most half of the tokens go in a round. A group is compared by its mean.

    Args:
        tokens: ``[B, N, D]``, any float type; each batch item on its own.
        k: number of groups, at most N.
        frame: tokens of a frame, where N are those of several. The two sides of the first round then alternate over
            time too; without it, an even number would put a patch and its copy in the next frame on the same side.

    Returns:
        ``ids [B, K]`` ascending, one token of each group (the one the others joined), and ``assignment [B, N]``. The
        merged tokens are the means of the groups, :func:`~centerclip.cluster.cluster_means`.
    """
    check_tokens(tokens, k)
    if frame is not None and (frame < 1 or tokens.shape[1] % frame):
        raise ClusterError(f"{tokens.shape[1]} tokens are not a whole number of frames of {frame}")
    sides = arange(tokens.shape[1], tokens)
    if frame is not None and frame % 2 == 0:
        sides = sides ^ (sides // frame % 2)  # neighbours change places in every second frame
    ids, assignment = join([_merge(group, k) for group in groups(tokens[:, sides])], tokens)
    ids = sides[ids]
    places = order(order(ids))  # of each group once ids ascend
    return Clusters(sort(ids), gather(places, assignment)[:, sides])  # ``sides`` is its own inverse


def temporal_matching(tokens: Array, k: int, *, frame: int, across: float = 0.7) -> Clusters:
    """Merge similar tokens of neighbouring frames first, then similar tokens of what is left, until ``k`` are left.

    A stage of TempMe that joins clips merges across them before it merges inside the new clip; one whose segments are
    single frames is soft matching alone. Several stages are the paper's image merging and clip merging:
    ``tempme:B2-12,40 B4-6,56 B8-3,72``. Its adapters and clip positions, which are trained, are not part of this.

    Args:
        tokens: ``[B, N, D]``, any float type; N are those of one or more frames.
        k: number of groups, at most N.
        frame: tokens of a frame, or of what an earlier stage left of one.
        across: the share of the tokens that the first step leaves, as in the paper; at least ``k`` are left. In it
            every second frame's tokens join the most similar of the other frames.

    Returns:
        As :func:`soft_matching`.
    """
    check_tokens(tokens, k)
    if frame < 1 or tokens.shape[1] % frame:
        raise ClusterError(f"{tokens.shape[1]} tokens are not a whole number of frames of {frame}")
    if not 0 < across <= 1:
        raise ClusterError(f"across is a share of the tokens, more than 0 and at most 1, not {across:g}")
    count = tokens.shape[1]
    if count == frame:
        return soft_matching(tokens, k)
    stays = count // frame // 2 * frame  # tokens of the second, fourth ... frame; the first, third ... join them
    joining, staying = arange(count - stays, tokens), arange(stays, tokens)
    sides = joining + joining // frame * frame, staying + (staying // frame + 1) * frame
    between = max(k, round(across * count), stays)
    return join([_merge(group, k, sides, between) for group in groups(tokens)], tokens)


def _merge(tokens: Array, k: int, sides: tuple[Array, Array] | None = None, left_first: int = 0) -> Clusters:
    """Rounds of soft matching; in the first, ``sides`` may say which join which, until ``left_first`` are left."""
    xp = namespace(tokens)
    sums, _ = whole_numbers(tokens)  # [B, M, D]: the sum of each group; a sum points where the mean does
    batch, count, _ = sums.shape
    ids = xp.broadcast_to(arange(count, sums), (batch, count))  # [B, M]: the token that stands for a group
    assignment = ids  # [B, N]: the group of every token
    while (left := sums.shape[1]) > k:
        every = arange(left, sums)
        sources, targets = (every[0::2], every[1::2]) if sides is None else sides
        merged = min(left - k, left // 2) if sides is None else left - left_first
        sides = None
        if not merged:
            continue
        whole, _ = whole_numbers(unit_tokens(sums))
        similarity = xp.matmul(whole[:, sources], whole[:, targets].mT)  # [B, A, M - A] exact
        partner = xp.argmax(similarity, 2)  # the lowest of equals
        going = order(xp.amax(similarity, 2), descending=True)[:, :merged]  # [B, merged]
        source, target = sources[going], targets[gather(partner, going)]  # places in the old order
        add_rows(sums, target, gather_rows(sums, source))
        goes = put(full((batch, left), 0, "int64", sums), source, 1)
        kept = order(goes)[:, : left - merged]
        place = xp.cumsum(1 - goes, 1) - 1  # old place -> new place
        place = put(place, source, gather(place, target))
        assignment = gather(place, assignment)
        sums, ids = gather_rows(sums, kept), gather(ids, kept)
    return Clusters(ids, assignment)


def density_peaks(tokens: Array, k: int, *, neighbours: int = 5) -> Clusters:
    """Choose ``k`` tokens by density times the distance to the nearest denser token.

    The density of a token is ``exp(-mean squared distance to its nearest neighbours / width)``; the densest token of
    all counts the distance to the farthest one.

    Args:
        tokens: ``[B, N, D]``, any float type; each batch item is clustered on its own.
        k: number of centres, at most N.
        neighbours: how many nearest tokens, without the token itself, the density is measured over.

    Returns:
        ``ids [B, K]`` ascending and ``assignment [B, N]`` to the nearest centre. Ties go to the lowest id.
    """
    check_tokens(tokens, k)
    if neighbours < 1:
        raise ClusterError(f"neighbours must be at least 1, got {neighbours}")
    return join([_peaks(group, k, neighbours) for group in groups(tokens)], tokens)


def _peaks(tokens: Array, k: int, neighbours: int) -> Clusters:
    xp = namespace(tokens)
    squared, _, unit = exact_distances(tokens, squared=True)  # [B, N, N] whole numbers, [B, 1, 1]
    count = squared.shape[1]
    near = min(neighbours, count - 1)
    # The token itself is among the nearest, at 0. Whole numbers add up the same in any order.
    spread = xp.sum(smallest(squared, near + 1), 2, dtype=xp.float64)  # [B, N]
    place = order(order(spread))  # [B, N]: densest first, copies in the order of their ids
    denser = place[:, None, :] < place[:, :, None]  # [B, N, N]: whether the column is denser than the row
    gap = xp.amin(xp.where(denser, squared, float("inf")), 2)
    gap = xp.where(place == 0, xp.amax(squared, 2), gap)
    # log(density * distance): neither underflows on wide tokens, and the order is the same.
    width = tokens.shape[2]
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):  # copies are at 0 from each other
        crowding = xp.where(spread > 0, spread / max(near, 1) * unit[:, :, 0] / width, 0)
        score = 0.5 * xp.log(cast(gap, "float64")) - crowding
    ids = sort(order(score, descending=True)[:, :k])
    return Clusters(ids, nearest_centres(squared, ids))
