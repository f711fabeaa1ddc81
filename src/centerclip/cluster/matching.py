"""Token merging by bipartite soft matching, as in ToMe (Bolya et al., 2023), until K tokens are left."""

import torch
from torch import Tensor

from .distances import check_tokens, unit_tokens, whole_numbers
from .kmedoids import Clusters, groups, join


@torch.no_grad()
def soft_matching(tokens: Tensor, k: int, *, frame: int | None = None) -> Clusters:
    """Merge the most alike tokens, round by round, until ``k`` groups are left.

    In a round every second token looks for the most alike (cosine) among the others, and the most alike pairs become
    one; at most half of the tokens go in a round. A group is alike as its mean is.

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
        alike = torch.bmm(whole[:, 0::2], whole[:, 1::2].mT)  # [B, A, M - A] exact
        best, partner = alike.max(dim=2)  # the lowest of equals
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
