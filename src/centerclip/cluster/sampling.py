"""Sparse sampling: keep tokens at fixed places, without looking at them (a baseline of the paper)."""

import torch
from torch import Tensor

from .distances import check_tokens


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
