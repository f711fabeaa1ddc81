"""Spectral clustering: k-medoids++ on the eigenvectors of a similarity graph.

Eigenvectors are defined up to their signs, and up to a rotation where eigenvalues meet. What is used here is
not: distances between rows and the row norms depend only on the space that the eigenvectors span. They are
rounded to a grid far coarser than the error of any solver, so every solver leads to the same centres.
"""

import warnings
from typing import Any, Literal

from ..errors import ClusterError
from .arrays import Array, arange, cast, kth_smallest, namespace
from .distances import check_tokens, exact_distances, unit_tokens
from .kmedoids import Clusters, groups, join, medoids, pieces

Graph = Literal["knn", "dense"]
Solver = Literal["eigh", "svd"]
GRID_BITS = 20  # squared distances of embedded tokens are rounded to 2^-20
EIGENGAP = 1e-8  # eigenvalues closer than this are one: their vectors come together or not at all
WEAKEST_EDGE = 2.0**-24  # below float32's resolution next to the self loop of weight 1: as good as no edge


class SigmaWarning(UserWarning):
    """``sigma`` is far too small for the tokens: their similarity graph has no edges left."""


def spectral(
    tokens: Array,
    k: int,
    *,
    neighbours: int = 15,
    sigma: float | Literal["median"] = 2.0,
    graph: Graph = "knn",
    normalise: bool = False,
    iterations: int = 100,
    solver: Solver = "eigh",
) -> Clusters:
    """Cluster tokens by the normalised Laplacian of their similarity graph.

    Args:
        tokens: ``[B, N, D]``, any float type; each batch item is clustered on its own.
        k: number of clusters, at most N.
        neighbours: edges that every token asks for, itself included (the paper: 5 x frames in a segment).
        sigma: width of the heat kernel ``exp(-d^2 / (2 sigma^2))``, or ``"median"`` for the median distance.
            A number so small that the graph falls apart is replaced by the median, with a SigmaWarning.
        graph: ``"knn"`` keeps an edge that either side asked for, ``"dense"`` keeps all.
        normalise: divide tokens by their norm first.
        iterations: at most this many rounds of k-medoids.
        solver: ``"eigh"``, or ``"svd"`` as in the paper: the same centres, slower.

    Returns:
        ``ids [B, K]`` ascending and ``assignment [B, N]``.
    """
    check_tokens(tokens, k)
    parts = []
    for group in groups(tokens):
        rows, strength = spectral_embedding(
            group, k, neighbours=neighbours, sigma=sigma, graph=graph, normalise=normalise, solver=solver
        )
        # Rows have norm 1, so KKZ starts from the row that was longest before: the token that the K
        # eigenvectors describe best.
        first = namespace(tokens).round(strength * 2**GRID_BITS).argmax(1)
        parts.append(medoids(_row_distances(rows), first, k, iterations))
    return join(parts, tokens)


def spectral_embedding(
    tokens: Array,
    k: int,
    *,
    neighbours: int = 15,
    sigma: float | Literal["median"] = 2.0,
    graph: Graph = "knn",
    normalise: bool = False,
    solver: Solver = "eigh",
) -> tuple[Array, Array]:
    """The K eigenvectors of smallest eigenvalue, as one row of norm 1 for every token.

    Arguments are those of :func:`spectral`.

    Returns:
        rows ``[B, N, K]`` (float64) and their squared norms before normalisation ``[B, N]``. Where the K-th
        eigenvalue equals the next, no solver can say which vectors to take: those columns are left zero.
    """
    check_tokens(tokens, k)
    laplacians = [
        laplacian(similarity_graph(piece, neighbours=neighbours, sigma=sigma, graph=graph, normalise=normalise))
        for piece in pieces(tokens)
    ]
    xp = namespace(tokens)
    values, vectors = _smallest(xp.concatenate(laplacians), solver)
    vectors = vectors[:, :, :k] * _complete(values, k)[:, None, :]
    strength = xp.square(vectors).sum(2)
    strong = strength > EIGENGAP
    rows = vectors / xp.sqrt(xp.where(strong, strength, 1))[:, :, None]
    return xp.where(strong[:, :, None], rows, 0), strength


def similarity_graph(
    tokens: Array,
    *,
    neighbours: int = 15,
    sigma: float | Literal["median"] = 2.0,
    graph: Graph = "knn",
    normalise: bool = False,
) -> Array:
    """Weights ``[B, N, N]`` (float64, symmetric, self loops of 1) between tokens ``[B, N, D]``."""
    if graph not in ("knn", "dense"):
        raise ClusterError(f'graph must be "knn" or "dense", got {graph!r}')
    if neighbours < 1:
        raise ClusterError(f"neighbours must be at least 1 (the token itself), got {neighbours}")
    if sigma != "median" and (isinstance(sigma, str) or not sigma > 0):
        raise ClusterError(f'sigma must be a positive number or "median", got {sigma!r}')
    matrix, _, unit = exact_distances(unit_tokens(tokens) if normalise else tokens)
    keep = None
    if graph == "knn" and neighbours < matrix.shape[1]:
        # Everything up to the distance of the last neighbour: ties come together, so their order does not matter.
        keep = matrix <= kth_smallest(matrix, neighbours)
        keep = keep | keep.mT
    distances = cast(matrix, "float64") * unit
    if sigma == "median":
        weights = _heat(distances, _median(distances))
    else:
        weights = _heat(distances, float(sigma))
        broken = _falls_apart(weights)
        if bool(broken.any()):
            typical = _median(distances)
            middle = kth_smallest(typical[broken][:, 0, 0], (int(broken.sum()) + 1) // 2)
            warnings.warn(
                f"sigma={sigma:g} is too small for {int(broken.sum())} of {len(tokens)} sets of tokens "
                f"(median distance {float(middle[0]):.3g}): no edge of the graph is left. "
                'Used sigma="median" for them; pass sigma="median" to choose it yourself.',
                SigmaWarning,
                stacklevel=2,
            )
            weights[broken] = _heat(distances[broken], typical[broken])
    return weights if keep is None else weights * keep


def laplacian(weights: Array) -> Array:
    """The normalised Laplacian ``[B, N, N]`` of a graph's weights ``[B, N, N]`` with self loops."""
    scale = 1 / namespace(weights).sqrt(weights.sum(2))  # self loops keep every degree at 1 or more
    return cast(_eye(weights), weights.dtype) - weights * scale[:, :, None] * scale[:, None, :]


def sign_flip(matrix: Array, left: Array, values: Array, right: Array | None = None) -> Array:
    """The paper's Algorithm 2: turn singular vectors towards the side where most of the data lies.

    Args:
        matrix: ``[B, M, N]``, the decomposed matrix.
        left: ``[B, M, K]``, left singular vectors.
        values: ``[B, K]``, singular values.
        right: ``[B, N, K]``, right singular vectors; ``left`` when the matrix is symmetric.

    Returns:
        ``left`` with signs changed, ``[B, M, K]``. Euclidean clustering of its rows does not notice.
    """
    right = left if right is None else right
    between = left.mT @ left  # [B, K, K]
    between = between * ~_eye(between)
    # Row k is u_k^T (matrix - the other K-1 terms of the decomposition).
    projected = left.mT @ matrix - (between * values[:, None, :]) @ right.mT  # [B, K, N]
    towards = (projected * abs(projected)).sum(2)  # [B, K]
    return left * (1 - 2 * cast(towards < 0, left.dtype))[:, None, :]


def _eye(matrix: Array) -> Array:
    """Where the diagonal of ``[B, N, N]`` is: ``[N, N]`` bool."""
    ids = arange(matrix.shape[-1], matrix)
    return ids[:, None] == ids


def _heat(distances: Array, sigma: Any) -> Array:
    xp = namespace(distances)
    return xp.exp(-xp.square(distances / (sigma * 2**0.5)))


def _median(distances: Array) -> Array:
    """The median distance ``[B, 1, 1]`` between different tokens; tiny, not zero, where all are equal."""
    xp = namespace(distances)
    batch, count, _ = distances.shape
    pairs = xp.where(_eye(distances), float("inf"), distances).reshape(batch, count * count)
    median = kth_smallest(pairs, max(1, (count * count - count + 1) // 2))[:, :, None]
    return xp.clip(xp.where(xp.isfinite(median), median, 0), 1e-300, None)


def _falls_apart(weights: Array) -> Array:
    """Whether ``[B]`` most tokens have no edge but their self loop."""
    count = weights.shape[1]
    if count == 1:
        return weights[:, 0, 0] < 0
    strongest = namespace(weights).amax(weights * ~_eye(weights), 2)
    return kth_smallest(strongest, (count + 1) // 2)[:, 0] < WEAKEST_EDGE


def _smallest(matrix: Array, solver: Solver) -> tuple[Array, Array]:
    """Eigenvalues ``[B, N]`` ascending and eigenvectors ``[B, N, N]`` in that order."""
    xp = namespace(matrix)
    if solver == "eigh":
        values, vectors = xp.linalg.eigh(matrix)
        return values, vectors
    if solver == "svd":
        left, values, _ = xp.linalg.svd(matrix)
        return xp.flip(values, (1,)), xp.flip(left, (2,))
    raise ClusterError(f'solver must be "eigh" or "svd", got {solver!r}')


def _complete(values: Array, k: int) -> Array:
    """Which ``[B, K]`` of the first K eigenvectors to keep: up to the last one that a gap follows."""
    xp = namespace(values)
    gaps = xp.concatenate([values[:, 1:] - values[:, :-1], values[:, :1] * 0 + float("inf")], 1)[:, :k] > EIGENGAP
    return xp.flip(xp.cumsum(xp.flip(gaps, (1,)), 1), (1,)) > 0


def _row_distances(rows: Array) -> Array:
    """Distances ``[B, N, N]`` of rows ``[B, N, K]`` of norm 1 (or 0), as whole numbers up to 2^24."""
    xp = namespace(rows)
    norms = xp.round(xp.square(rows).sum(2))
    squared = xp.matmul(rows, rows.mT)
    squared *= -2
    squared += norms[:, :, None]
    squared += norms[:, None, :]
    squared = xp.clip(xp.round(squared * 2**GRID_BITS), 0, None) * 2.0**-GRID_BITS
    squared = xp.where(_eye(squared), 0, xp.maximum(squared, squared.mT))  # symmetric to the bit
    return cast(xp.round(xp.sqrt(squared) * 2**23), "float32")
