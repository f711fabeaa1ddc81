"""k-medoids++: k-medoids from the deterministic KKZ start (the paper's Algorithm 1).

Everything is read from one distance matrix ``[B, N, N]``. A cluster's new medoid needs each token's summed
distance to the members of its own cluster only, so a round costs O(N^2) and no ``[B, K, N, N]`` tensor exists.
"""

from typing import Literal, NamedTuple

from ..errors import ClusterError
from .arrays import (
    Array,
    LateAnswer,
    arange,
    argmin,
    cast,
    detached,
    empty,
    gather,
    is_synchronous,
    lowest_by_label,
    moved,
    namespace,
    order,
    put,
    repeat,
    sort,
    sums_by_label,
    take,
)
from .distances import check_tokens, exact_distances, unit_tokens, whole_numbers

Metric = Literal["euclidean", "cosine"]
Centre = Literal["medoid", "nearest-to-mean"]
# Batch items are taken in groups whose distance matrices fit into this. Groups never change a result.
GROUP_BYTES = 256 * 2**20
BYTES_PER_PAIR = 48  # the most that a round holds for two tokens of one cluster: places, ids, distances
CACHE_BYTES = 4 * 2**20  # float64 copies of tokens at a time on a CPU: small ones are reused, large ones are not
ROUNDS_BETWEEN_CHECKS = 4  # on a GPU; rounds after the last change do nothing


class Clusters(NamedTuple):
    """The result of a clustering; unpacks as ``ids, assignment``."""

    ids: Array  # [B, K] int64, ascending: the centre tokens
    assignment: Array  # [B, N] int64: for every token, the position in ``ids`` of its centre


def kkz(tokens: Array, k: int, *, metric: Metric = "euclidean", normalise: bool = False) -> Array:
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
    return moved(namespace(tokens).concatenate(ids), tokens)


def kmedoids(
    tokens: Array,
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
    return join(parts, tokens)


def medoids(distances: Array, first: Array, k: int, iterations: int = 100) -> Clusters:
    """k-medoids++ on given distances.

    Args:
        distances: ``[B, N, N]`` from the ``matrix`` of :func:`~centerclip.cluster.distances.exact_distances`.
        first: ``[B]``, the token that KKZ starts from.
        k: number of clusters.
        iterations: at most this many rounds.

    Returns:
        ``ids [B, K]`` ascending and ``assignment [B, N]``.
    """
    ids = _kkz(distances, first, k)
    assignment = nearest_centres(distances, ids)
    check = _LateCheck() if not is_synchronous(distances) else _same
    for _ in range(iterations):
        new_ids = _cheapest_members(_costs(distances, assignment, k), assignment, k)
        if check(new_ids, ids):
            break
        ids, assignment = new_ids, nearest_centres(distances, new_ids)
    ids = sort(ids)
    return Clusters(ids, nearest_centres(distances, ids))


def nearest_centres(distances: Array, ids: Array) -> Array:
    """distances ``[B, N, N]``, ids ``[B, K]`` -> the nearest centre ``[B, N]``; a centre belongs to itself."""
    batch, count, _ = distances.shape
    k = ids.shape[1]
    flat = (ids + arange(batch, ids)[:, None] * count).reshape(-1)
    rows = take(distances.reshape(batch * count, count), flat).reshape(batch, k, count)
    return put(argmin(rows), ids, namespace(ids).broadcast_to(arange(k, ids), ids.shape))


def groups(tokens: Array) -> list[Array]:
    """Split ``[B, N, D]`` along B so that the distance matrices of a group fit into ``GROUP_BYTES``."""
    return _split(tokens, GROUP_BYTES // (tokens.shape[1] * (tokens.shape[1] * BYTES_PER_PAIR + tokens.shape[2] * 16)))


def pieces(tokens: Array) -> list[Array]:
    """Split ``[B, N, D]`` along B so that float64 copies stay in a CPU's cache."""
    limit = CACHE_BYTES if is_synchronous(tokens) else GROUP_BYTES
    return _split(tokens, limit // (8 * tokens.shape[1] * tokens.shape[2]))


def join(parts: list[Clusters], like: Array) -> Clusters:
    """One :class:`Clusters` for all groups, on the device the tokens came from."""
    return Clusters(*(moved(namespace(like).concatenate(arrays), like) for arrays in zip(*parts, strict=True)))


def _split(tokens: Array, size: int) -> list[Array]:
    """Parts of at most ``size`` batch items, at least one item each; an empty batch is one part."""
    size = max(1, size)
    return [tokens[start : start + size] for start in range(0, max(1, len(tokens)), size)]


def _kkz(distances: Array, first: Array, k: int) -> Array:
    """distances ``[B, N, N]``, first ``[B]`` -> ids ``[B, K]`` in the order chosen."""
    xp = namespace(distances)
    batch, count, _ = distances.shape
    # A chosen token is at -1 from itself, so it can never again be the farthest, not even among copies.
    diagonal = distances.reshape(batch, count * count)[:, :: count + 1]
    diagonal[:] = -1
    rows = distances.reshape(batch * count, count)
    offset = arange(batch, distances) * count
    ids = [first]
    nearest = take(rows, first + offset)  # [B, N] distance to the nearest chosen token
    to_farthest = xp.empty_like(nearest)
    while len(ids) < k:
        farthest = xp.argmax(nearest, 1)  # the first one where several are
        ids.append(farthest)
        xp.minimum(nearest, take(rows, farthest + offset, to_farthest), out=nearest)
    diagonal[:] = 0
    return xp.stack(ids, 1)


def _costs(distances: Array, assignment: Array, k: int) -> Array:
    """The summed distance ``[B, N]`` float64 of each token to the members of its own cluster ``assignment [B, N]``."""
    xp = namespace(distances)
    batch, count = assignment.shape
    if not is_synchronous(distances):  # shapes must not depend on values
        labels = cast(assignment, "int16" if count < 2**15 else "int32")
        same_cluster = labels[:, :, None] == labels[:, None, :]
        return xp.sum(xp.where(same_cluster, distances, 0), 2, dtype=xp.float64)
    # Pairs of members only: far fewer than all pairs of tokens. With tokens sorted by cluster, the members of a
    # cluster follow each other; every token is repeated beside all members of its own.
    labels = (assignment + arange(batch, assignment)[:, None] * k).reshape(-1)
    by_cluster = order(labels)
    sizes = xp.bincount(labels, minlength=batch * k)
    starts, sizes = (xp.cumsum(sizes, 0) - sizes)[labels], sizes[labels]  # of the cluster of every token
    ends = xp.cumsum(sizes, 0)
    token = repeat(arange(batch * count, distances), sizes)  # [pairs]
    member = by_cluster[arange(len(token), distances) + repeat(starts - ends + sizes, sizes)]
    between = cast(distances.reshape(-1)[token * count + member % count], "float64")
    return sums_by_label(between[None], token[None], batch * count).reshape(batch, count)


def _cheapest_members(costs: Array, assignment: Array, k: int) -> Array:
    """costs ``[B, N]``, assignment ``[B, N]`` -> the member of lowest cost of each cluster ``[B, K]``."""
    count = costs.shape[1]
    lowest = lowest_by_label(costs, assignment, k, float("inf"))
    position = arange(count, costs)
    candidates = namespace(costs).where(costs == gather(lowest, assignment), position, count)
    return lowest_by_label(candidates, assignment, k, count)


def _same(new_ids: Array, ids: Array) -> bool:
    return bool((new_ids == ids).all())


class _LateCheck:
    """Whether ids have settled, as of the question before: the GPU has further rounds to do while the host waits."""

    def __init__(self) -> None:
        self.round = 0
        self.asked: LateAnswer | None = None

    def __call__(self, new_ids: Array, ids: Array) -> bool:
        self.round += 1
        if self.round % ROUNDS_BETWEEN_CHECKS:
            return False
        asked, self.asked = self.asked, LateAnswer((new_ids == ids).all())
        return asked is not None and asked.read()


def _prepare(tokens: Array, metric: Metric, normalise: bool, centre: Centre) -> tuple[Array, Array]:
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
    xp = namespace(tokens)
    tokens = detached(tokens)
    batch, count, _ = tokens.shape
    matrix = empty((batch, count, count), "float32", tokens)
    first: list[Array] = []
    for part in pieces(tokens):
        into = matrix[sum(len(ids) for ids in first) :][: len(part)]
        if normalise or metric == "cosine":
            norms = xp.square(whole_numbers(part)[0]).sum(2)  # of the tokens as they came
            exact_distances(unit_tokens(part), squared=squared, into=into)
        else:
            norms = exact_distances(part, squared=squared, into=into).norms
        first.append(xp.argmax(norms, 1))
    return matrix, xp.concatenate(first)
