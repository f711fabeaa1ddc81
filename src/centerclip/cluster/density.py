"""Density peaks (DPC-KNN): centres are tokens in dense places, far from every denser one (Du, Ding and Jia, 2016)."""

import torch
from torch import Tensor

from .distances import check_tokens, exact_distances
from .errors import ClusterError
from .kmedoids import Clusters, groups, join, nearest_centres


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
