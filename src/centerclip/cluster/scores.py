"""Keep the tokens that attention looks at most: [CLASS] attention as a score, and the highest K."""

import torch
from torch import Tensor

from .errors import ClusterError


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
