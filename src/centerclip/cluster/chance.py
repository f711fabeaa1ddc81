"""Random tokens: what any way of choosing has to beat."""

import torch
from torch import Tensor

from .distances import check_tokens

SEED = 42


def random_tokens(
    tokens: Tensor, k: int, *, training: bool = False, generator: torch.Generator | None = None
) -> Tensor:
    """Choose ``k`` tokens without looking at them.

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
        drawn = torch.randperm(count, generator=torch.Generator().manual_seed(SEED)).expand(batch, count)
    return drawn[:, :k].sort(dim=1).values.to(tokens.device)
