"""Beyond the paper: cluster means, token merging, density peaks, and attention that knows how large clusters are.

- :func:`soft_matching`: bipartite soft matching as in ToMe (Bolya et al., 2023), repeated until K tokens are left.
- :func:`density_peaks`: DPC-KNN (Du, Ding and Jia, 2016): tokens in dense places, far from every denser one.
- :func:`size_bias`: ToMe's proportional attention.
"""

import torch
from torch import Tensor

from ..errors import ClusterError
from .distances import check_tokens, exact_distances, unit_tokens, whole_numbers
from .kmedoids import Clusters, groups, join, nearest_centres


def cluster_means(tokens: Tensor, assignment: Tensor, k: int, sizes: Tensor | None = None) -> tuple[Tensor, Tensor]:
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
        sizes = torch.ones(assignment.shape, device=tokens.device)
    members = torch.nn.functional.one_hot(assignment, k).mT * sizes[:, None, :]  # [B, K, N]
    totals = members.sum(dim=2)
    with torch.autocast(tokens.device.type, enabled=False):
        means = torch.bmm(members / totals[:, :, None], tokens.float())
    return means.to(tokens.dtype), totals


def cluster_sizes(assignment: Tensor, k: int, sizes: Tensor | None = None) -> Tensor:
    """How many tokens are in each cluster, ``[B, K]``; the arguments are those of :func:`cluster_means`."""
    weights = torch.ones(assignment.shape, device=assignment.device) if sizes is None else sizes
    return weights.new_zeros(len(assignment), k).scatter_add_(1, assignment, weights)


def size_bias(sizes: Tensor, frames: float, prefix: int) -> Tensor:
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
    return torch.cat([sizes.new_zeros(len(sizes), prefix), torch.log(sizes / frames)], dim=1)


@torch.no_grad()
def soft_matching(tokens: Tensor, k: int, *, frame: int | None = None) -> Clusters:
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
    order = torch.arange(tokens.shape[1], device=tokens.device)
    if frame is not None and frame % 2 == 0:
        order = order ^ (order // frame % 2)  # neighbours change places in every second frame
    ids, assignment = join([_merge(group, k) for group in groups(tokens[:, order])], tokens.device)
    ids, places = order[ids].sort(dim=1)
    return Clusters(ids, places.argsort(dim=1).gather(1, assignment)[:, order])  # ``order`` is its own inverse


def _merge(tokens: Tensor, k: int) -> Clusters:
    sums, _ = whole_numbers(tokens)  # [B, M, D]: the sum of each group; a sum points where the mean does
    batch, count, width = sums.shape
    ids = torch.arange(count, device=sums.device).expand(batch, count)  # [B, M]: the token that stands for a group
    assignment = ids  # [B, N]: the group of every token
    while (left := sums.shape[1]) > k:
        merged = min(left - k, left // 2)
        whole, _ = whole_numbers(unit_tokens(sums))
        similarity = torch.bmm(whole[:, 0::2], whole[:, 1::2].mT)  # [B, A, M - A] exact
        best, partner = similarity.max(dim=2)  # the lowest of equals
        going = torch.argsort(best, dim=1, descending=True, stable=True)[:, :merged]  # [B, merged]
        source, target = 2 * going, 2 * partner.gather(1, going) + 1  # places in the old order
        sums = sums.scatter_add(1, _wide(target, width), sums.gather(1, _wide(source, width)))
        stays = torch.ones(batch, left, dtype=torch.bool, device=sums.device).scatter_(1, source, False)
        kept = stays.nonzero()[:, 1].view(batch, left - merged)
        place = (stays.cumsum(dim=1) - 1).scatter(1, source, -1)  # old place -> new place
        place = place.scatter(1, source, place.gather(1, target))
        assignment = place.gather(1, assignment)
        sums, ids = sums.gather(1, _wide(kept, width)), ids.gather(1, kept)
    return Clusters(ids, assignment)


def _wide(places: Tensor, width: int) -> Tensor:
    """Places ``[B, M]`` as an index ``[B, M, width]`` for gather and scatter."""
    return places[:, :, None].expand(-1, -1, width)


@torch.no_grad()
def density_peaks(tokens: Tensor, k: int, *, neighbours: int = 5) -> Clusters:
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
    return join([_peaks(group, k, neighbours) for group in groups(tokens)], tokens.device)


def _peaks(tokens: Tensor, k: int, neighbours: int) -> Clusters:
    squared, _, unit = exact_distances(tokens, squared=True)  # [B, N, N] whole numbers, [B, 1, 1]
    count = squared.shape[1]
    near = min(neighbours, count - 1)
    # The token itself is among the nearest, at 0. Whole numbers add up the same in any order.
    spread = squared.topk(near + 1, dim=2, largest=False).values.sum(dim=2, dtype=torch.float64)  # [B, N]
    order = torch.argsort(spread, dim=1, stable=True)  # densest first, copies in the order of their ids
    place = torch.empty_like(order).scatter_(1, order, torch.arange(count, device=order.device).expand_as(order))
    denser = place[:, None, :] < place[:, :, None]  # [B, N, N]: whether the column is denser than the row
    gap = torch.where(denser, squared, torch.inf).amin(dim=2)
    gap = torch.where(place == 0, squared.amax(dim=2), gap)
    # log(density * distance): neither underflows on wide tokens, and the order is the same.
    width = tokens.shape[2]
    score = 0.5 * torch.log(gap.double()) - spread / max(near, 1) * unit[:, :, 0] / width
    ids = torch.argsort(score, dim=1, descending=True, stable=True)[:, :k].sort(dim=1).values
    return Clusters(ids, nearest_centres(squared, ids))
