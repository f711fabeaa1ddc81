"""k-medoids++: k-medoids from the deterministic KKZ start (the paper's Algorithm 1).

Everything is read from one distance matrix ``[B, N, N]``. A cluster's new medoid needs each token's summed
distance to the members of its own cluster only, so a round costs O(N^2) and no ``[B, K, N, N]`` tensor exists.
"""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from ..errors import ClusterError
from .distances import check_tokens, exact_distances, unit_tokens, whole_numbers

Metric = Literal["euclidean", "cosine"]
Centre = Literal["medoid", "nearest-to-mean"]
# Batch items are taken in groups whose distance matrices fit into this. Groups never change a result.
GROUP_BYTES = 256 * 2**20
BYTES_PER_PAIR = 24  # float64 products, float32 distances, masks
CACHE_BYTES = 8 * 2**20  # float64 copies of tokens at a time on a CPU: small ones are reused, large ones are not


class Clusters(NamedTuple):
    """The result of a clustering; unpacks as ``ids, assignment``."""

    ids: Tensor  # [B, K] int64, ascending: the centre tokens
    assignment: Tensor  # [B, N] int64: for every token, the position in ``ids`` of its centre


@torch.no_grad()
def kkz(tokens: Tensor, k: int, *, metric: Metric = "euclidean", normalise: bool = False) -> Tensor:
    """Choose ``k`` spread-out tokens: the one with the largest norm, then always the farthest from those chosen.

    Args:
        tokens: ``[B, N, D]``, any float type.
        k: how many to choose, at most N.
        metric: ``"euclidean"`` or ``"cosine"`` distance.
        normalise: divide tokens by their norm first. The first choice still goes by the norm before that.

    Returns:
        ids ``[B, K]`` in the order they were chosen. Ties go to the lowest id; no id comes twice.
    """
    check_tokens(tokens, k)
    ids = [_kkz(*_prepare(group, metric, normalise, "medoid"), k) for group in groups(tokens)]
    return torch.cat(ids).to(tokens.device)


@torch.no_grad()
def kmedoids(
    tokens: Tensor,
    k: int,
    *,
    metric: Metric = "euclidean",
    normalise: bool = False,
    centre: Centre = "medoid",
    iterations: int = 100,
) -> Clusters:
    """Cluster tokens around ``k`` of them, starting from :func:`kkz`.

    Args:
        tokens: ``[B, N, D]``, any float type; each batch item is clustered on its own.
        k: number of clusters, at most N.
        metric: ``"euclidean"`` or ``"cosine"`` distance.
        normalise: divide tokens by their norm first.
        centre: ``"medoid"`` takes the member with the smallest summed distance to its cluster,
            ``"nearest-to-mean"`` the member nearest to the cluster's mean.
        iterations: at most this many rounds; it stops earlier when nothing moves.

    Returns:
        ``ids [B, K]`` ascending and ``assignment [B, N]``. The same tokens give the same ids with any
        batch size and thread count: distances are exact (see ``distances.py``).
    """
    check_tokens(tokens, k)
    if iterations < 0:
        raise ClusterError(f"iterations must not be negative, got {iterations}")
    parts = [medoids(*_prepare(group, metric, normalise, centre), k, iterations) for group in groups(tokens)]
    return join(parts, tokens.device)


def medoids(distances: Tensor, first: Tensor, k: int, iterations: int = 100) -> Clusters:
    """k-medoids++ on given distances.

    Args:
        distances: ``[B, N, N]`` from the ``matrix`` of :func:`~centerclip.cluster.distances.exact_distances`.
        first: ``[B]``, the token that KKZ starts from.
        k: number of clusters.
        iterations: at most this many rounds.

    Returns:
        ``ids [B, K]`` ascending and ``assignment [B, N]``.
    """
    batch, count, _ = distances.shape
    rows = distances.view(batch * count, count)
    ids = _kkz(distances, first, k)
    assignment = nearest_centres(distances, ids)
    costs = distances.new_zeros(batch * count, dtype=torch.float64)
    stale = torch.arange(batch * count, device=distances.device)  # tokens whose cluster has changed
    for _ in range(iterations):
        costs[stale] = _summed_within(rows, assignment, stale)
        new_ids = _cheapest_members(costs.view(batch, count), assignment, k)
        if torch.equal(new_ids, ids):
            break
        new_assignment = nearest_centres(distances, new_ids)
        stale = _in_changed_clusters(assignment, new_assignment, k)
        ids, assignment = new_ids, new_assignment
    ids = ids.sort(dim=1).values
    return Clusters(ids, nearest_centres(distances, ids))


def nearest_centres(distances: Tensor, ids: Tensor) -> Tensor:
    """distances ``[B, N, N]``, ids ``[B, K]`` -> the nearest centre ``[B, N]``; a centre belongs to itself."""
    batch, count, _ = distances.shape
    k = ids.shape[1]
    offset = torch.arange(batch, device=ids.device)[:, None] * count
    rows = distances.view(batch * count, count).index_select(0, (ids + offset).flatten())
    assignment = rows.view(batch, k, count).min(dim=1).indices
    return assignment.scatter_(1, ids, torch.arange(k, device=ids.device).expand(batch, k))


def groups(tokens: Tensor) -> tuple[Tensor, ...]:
    """Split ``[B, N, D]`` along B so that the distance matrices of a group fit into ``GROUP_BYTES``."""
    bytes_per_item = tokens.shape[1] * (tokens.shape[1] * BYTES_PER_PAIR + tokens.shape[2] * 16)
    return tokens.split(max(1, GROUP_BYTES // bytes_per_item))


def pieces(tokens: Tensor) -> tuple[Tensor, ...]:
    """Split ``[B, N, D]`` along B so that float64 copies stay in a CPU's cache."""
    limit = CACHE_BYTES if tokens.device.type == "cpu" else GROUP_BYTES
    return tokens.split(max(1, limit // (8 * tokens.shape[1] * tokens.shape[2])))


def join(parts: list[Clusters], device: torch.device) -> Clusters:
    """One :class:`Clusters` for all groups, on the device the tokens came from."""
    return Clusters(*(torch.cat(tensors).to(device) for tensors in zip(*parts, strict=True)))


def _kkz(distances: Tensor, first: Tensor, k: int) -> Tensor:
    """distances ``[B, N, N]``, first ``[B]`` -> ids ``[B, K]`` in the order chosen."""
    batch, count, _ = distances.shape
    # A chosen token is at -1 from itself, so it can never again be the farthest, not even among copies.
    diagonal = distances.diagonal(dim1=1, dim2=2).fill_(-1)
    rows = distances.view(batch * count, count)
    offset = torch.arange(batch, device=rows.device) * count
    ids = [first]
    nearest = rows.index_select(0, first + offset)  # [B, N] distance to the nearest chosen token
    while len(ids) < k:
        farthest = nearest.argmax(dim=1)  # the first one where several are
        ids.append(farthest)
        torch.minimum(nearest, rows.index_select(0, farthest + offset), out=nearest)
    diagonal.fill_(0)
    return torch.stack(ids, dim=1)


def _summed_within(rows: Tensor, assignment: Tensor, which: Tensor) -> Tensor:
    """The summed distance ``[M]`` of each token in ``which [M]`` to the members of its own cluster."""
    count = rows.shape[1]
    labels = assignment.to(torch.int16 if count < 2**15 else torch.int32)
    to_all = rows if len(which) == len(rows) else rows.index_select(0, which)  # [M, N]
    same_cluster = labels.flatten()[which][:, None] == labels[which // count]  # [M, N]
    return torch.where(same_cluster, to_all, 0).sum(dim=1, dtype=torch.float64)


def _cheapest_members(costs: Tensor, assignment: Tensor, k: int) -> Tensor:
    """costs ``[B, N]``, assignment ``[B, N]`` -> the member of lowest cost of each cluster ``[B, K]``."""
    batch, count = costs.shape
    lowest = costs.new_full((batch, k), torch.inf).scatter_reduce_(1, assignment, costs, "amin")
    position = torch.arange(count, device=costs.device).expand(batch, count)
    candidates = torch.where(costs == lowest.gather(1, assignment), position, count)
    return position.new_full((batch, k), count).scatter_reduce_(1, assignment, candidates, "amin")


def _in_changed_clusters(before: Tensor, after: Tensor, k: int) -> Tensor:
    """The tokens ``[M]`` (flat ids) that are, after a move, in a cluster that lost or gained a member."""
    moved = before != after
    changed = torch.zeros(before.shape[0], k, dtype=torch.bool, device=before.device)
    video = torch.arange(before.shape[0], device=before.device)[:, None].expand_as(before)
    changed[video[moved], before[moved]] = True
    changed[video[moved], after[moved]] = True
    return changed.gather(1, after).flatten().nonzero().squeeze(1)


def _prepare(tokens: Tensor, metric: Metric, normalise: bool, centre: Centre) -> tuple[Tensor, Tensor]:
    """tokens ``[B, N, D]`` -> summable distances ``[B, N, N]`` and the token of largest norm ``[B]``.

    The member nearest to the mean is the one with the smallest sum of squared distances to the members
    (the two differ by a constant), so both kinds of centre run through the same loop.
    """
    if metric not in ("euclidean", "cosine"):
        raise ClusterError(f'metric must be "euclidean" or "cosine", got {metric!r}')
    if centre not in ("medoid", "nearest-to-mean"):
        raise ClusterError(f'centre must be "medoid" or "nearest-to-mean", got {centre!r}')
    # On unit tokens 1 - cos is half the squared distance: no root there either.
    squared = metric == "cosine" or centre == "nearest-to-mean"
    matrices, first = [], []
    for piece in pieces(tokens):
        if normalise or metric == "cosine":
            norms = whole_numbers(piece)[0].square().sum(dim=2)  # of the tokens as they came
            matrix = exact_distances(unit_tokens(piece), squared=squared).matrix
        else:
            matrix, norms, _ = exact_distances(piece, squared=squared)
        first.append(norms.max(dim=1).indices)
        matrices.append(matrix)
    return torch.cat(matrices), torch.cat(first)
