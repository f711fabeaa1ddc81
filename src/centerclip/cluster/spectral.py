"""Spectral clustering: k-medoids++ on the eigenvectors of a similarity graph.

Eigenvectors are defined up to their signs, and up to a rotation where eigenvalues meet. What is used here is
not: distances between rows and the row norms depend only on the space that the eigenvectors span. They are
rounded to a grid far coarser than the error of any solver, so every solver leads to the same centres.
"""

import warnings
from typing import Literal

import torch
from torch import Tensor

from ..errors import ClusterError
from .distances import check_tokens, exact_distances, unit_tokens
from .kmedoids import Clusters, groups, join, medoids, pieces

Graph = Literal["knn", "dense"]
Solver = Literal["eigh", "svd"]
GRID_BITS = 20  # squared distances of embedded tokens are rounded to 2^-20
EIGENGAP = 1e-8  # eigenvalues closer than this are one: their vectors come together or not at all
WEAKEST_EDGE = 2.0**-24  # below float32's resolution next to the self loop of weight 1: as good as no edge


class SigmaWarning(UserWarning):
    """``sigma`` is far too small for the tokens: their similarity graph has no edges left."""


@torch.no_grad()
def spectral(
    tokens: Tensor,
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
        first = (strength * 2**GRID_BITS).round_().argmax(dim=1)
        parts.append(medoids(_row_distances(rows), first, k, iterations))
    return join(parts, tokens.device)


@torch.no_grad()
def spectral_embedding(
    tokens: Tensor,
    k: int,
    *,
    neighbours: int = 15,
    sigma: float | Literal["median"] = 2.0,
    graph: Graph = "knn",
    normalise: bool = False,
    solver: Solver = "eigh",
) -> tuple[Tensor, Tensor]:
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
    values, vectors = _smallest(torch.cat(laplacians), solver)
    vectors = vectors[:, :, :k] * _complete(values, k)[:, None, :]
    strength = vectors.square().sum(dim=2)
    rows = vectors / strength.sqrt()[:, :, None]
    return torch.where((strength > EIGENGAP)[:, :, None], rows, 0), strength


@torch.no_grad()
def similarity_graph(
    tokens: Tensor,
    *,
    neighbours: int = 15,
    sigma: float | Literal["median"] = 2.0,
    graph: Graph = "knn",
    normalise: bool = False,
) -> Tensor:
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
        reach = matrix.kthvalue(neighbours, dim=-1, keepdim=True).values
        keep = matrix <= reach
        keep = keep | keep.mT
    distances = matrix.double().mul_(unit)
    if sigma == "median":
        weights = _heat(distances, _median(distances))
    else:
        weights = _heat(distances, distances.new_tensor(float(sigma)))
        broken = _falls_apart(weights)
        if bool(broken.any()):
            typical = _median(distances)
            warnings.warn(
                f"sigma={sigma:g} is too small for {int(broken.sum())} of {len(tokens)} sets of tokens "
                f"(median distance {typical[broken].median().item():.3g}): no edge of the graph is left. "
                'Used sigma="median" for them; pass sigma="median" to choose it yourself.',
                SigmaWarning,
                stacklevel=2,
            )
            weights[broken] = _heat(distances[broken], typical[broken])
    return weights if keep is None else weights.mul_(keep)


def laplacian(weights: Tensor) -> Tensor:
    """The normalised Laplacian ``[B, N, N]`` of a graph's weights ``[B, N, N]`` with self loops."""
    scale = weights.sum(dim=2).rsqrt()  # self loops keep every degree at 1 or more
    similar = weights * scale[:, :, None] * scale[:, None, :]
    return torch.eye(weights.shape[1], dtype=weights.dtype, device=weights.device) - similar


def sign_flip(matrix: Tensor, left: Tensor, values: Tensor, right: Tensor | None = None) -> Tensor:
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
    between = between - torch.diag_embed(between.diagonal(dim1=1, dim2=2))
    # Row k is u_k^T (matrix - the other K-1 terms of the decomposition).
    projected = left.mT @ matrix - (between * values[:, None, :]) @ right.mT  # [B, K, N]
    towards = (projected.sign() * projected.square()).sum(dim=2)  # [B, K]
    return left * torch.where(towards < 0, -1.0, 1.0)[:, None, :].to(left.dtype)


def _heat(distances: Tensor, sigma: Tensor) -> Tensor:
    return distances.div(sigma * 2**0.5).square_().neg_().exp_()


def _median(distances: Tensor) -> Tensor:
    """The median distance ``[B, 1, 1]`` between different tokens; tiny, not zero, where all are equal."""
    batch, count, _ = distances.shape
    pairs = distances.masked_fill(torch.eye(count, dtype=torch.bool, device=distances.device), torch.nan)
    return pairs.view(batch, count * count).nanmedian(dim=1).values.nan_to_num(0.0).clamp(min=1e-300)[:, None, None]


def _falls_apart(weights: Tensor) -> Tensor:
    """Whether ``[B]`` most tokens have no edge but their self loop."""
    count = weights.shape[1]
    if count == 1:
        return torch.zeros(len(weights), dtype=torch.bool, device=weights.device)
    strongest = weights.masked_fill(torch.eye(count, dtype=torch.bool, device=weights.device), 0).amax(dim=2)
    return strongest.median(dim=1).values < WEAKEST_EDGE


def _smallest(matrix: Tensor, solver: Solver) -> tuple[Tensor, Tensor]:
    """Eigenvalues ``[B, N]`` ascending and eigenvectors ``[B, N, N]`` in that order."""
    if solver == "eigh":
        values, vectors = torch.linalg.eigh(matrix)
        return values, vectors
    if solver == "svd":
        left, values, _ = torch.linalg.svd(matrix)
        return values.flip(1), left.flip(2)
    raise ClusterError(f'solver must be "eigh" or "svd", got {solver!r}')


def _complete(values: Tensor, k: int) -> Tensor:
    """Which ``[B, K]`` of the first K eigenvectors to keep: up to the last one that a gap follows."""
    gaps = torch.diff(values, dim=1, append=values.new_full((len(values), 1), torch.inf))[:, :k] > EIGENGAP
    return gaps.flip(1).cummax(dim=1).values.flip(1)


def _row_distances(rows: Tensor) -> Tensor:
    """Distances ``[B, N, N]`` of rows ``[B, N, K]`` of norm 1 (or 0), as whole numbers up to 2^24."""
    norms = rows.square().sum(dim=2).round_()
    squared = torch.bmm(rows, rows.mT).mul_(-2).add_(norms[:, :, None]).add_(norms[:, None, :])
    squared = squared.mul_(2**GRID_BITS).round_().clamp_(min=0).mul_(2.0**-GRID_BITS)
    squared.diagonal(dim1=1, dim2=2).fill_(0)
    squared = torch.maximum(squared, squared.mT)  # to the bit
    return squared.sqrt_().mul_(2**23).round_().float()
