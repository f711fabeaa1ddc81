"""Tokens that stand for a whole cluster: its mean, and how much attention it should get for its size."""

import torch
from torch import Tensor


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
