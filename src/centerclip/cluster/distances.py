"""Token distances in exact arithmetic, so that every machine finds the same centres.

A matrix product in floating point depends, in its last bits, on the batch size, the number of threads and
the library that computes it. Ties between tokens (a static video is full of them) then fall one way or the
other. Here tokens are first rounded to whole numbers so that every product and every partial sum stays
below 2^53: float64 holds them exactly, in whatever order they are added. The rounding step is 2^-25 of the
largest token norm, finer than what a float32 matrix product resolves.

Most GPUs multiply float64 at 1/64 of the speed of float32. There the whole numbers are split into three limbs of a
few bits each, whose products float32 holds exactly (:func:`limb_products`): the same matrix, bit for bit.
"""

import math
from itertools import combinations_with_replacement, pairwise
from typing import NamedTuple

from ..errors import ClusterError
from .arrays import (
    Array,
    cast,
    detached,
    empty,
    exponent_of,
    full,
    full_precision,
    is_floating,
    is_numpy,
    is_synchronous,
    namespace,
    power_of_two,
)

NORM_BITS = 25  # whole-number tokens have a norm of at most 2^25, squared distances then fit into 2^52
DISTANCE_BITS = 24  # distances are whole numbers of at most 2^24: exact in float32, their sums in float64
STRIPS = 4  # the matrix is symmetric: four strips compute 5/8 of it
LIMIT_BITS = 20  # resolution of the per-channel limits that bound the norms
# Limbs of norms up to 2^11 and, over at most 4096 channels of 7 bits with sign, 2^12: by Cauchy-Schwarz no partial sum
# of a product passes 2^24. No limb is above 2^11, so even TF32 (11 bits) holds it and no precision has to be set.
LIMB_SHIFTS = (14, 7, 0)
LIMB_CHANNELS = 4096


def check_tokens(tokens: Array, k: int) -> None:
    """Raise ClusterError unless ``tokens`` is a floating ``[B, N, D]`` array with at least ``k`` tokens."""
    namespace(tokens)
    if tokens.ndim != 3:
        raise ClusterError(f"tokens must be [batch, tokens, width], got shape {list(tokens.shape)}")
    if not is_floating(tokens):
        raise ClusterError(f"tokens must be floating point, got {tokens.dtype}")
    if tokens.shape[2] == 0:
        raise ClusterError("tokens have width 0: there is nothing to compare")
    if not 1 <= k <= tokens.shape[1]:
        raise ClusterError(f"k must be between 1 and the number of tokens ({tokens.shape[1]}), got {k}")


class Distances(NamedTuple):
    """Exact distances of ``[B, N, D]`` tokens, in whole numbers of each video's own unit."""

    matrix: Array  # [B, N, N] float32 whole numbers up to 2^24; symmetric, zero diagonal
    norms: Array  # [B, N] float64: squared norms, to compare within a video only
    unit: Array  # [B, 1, 1] float64: matrix * unit are the distances as tokens measure them


def exact_distances(tokens: Array, *, squared: bool = False, into: Array | None = None) -> Distances:
    """Distances (or squared distances) between tokens ``[B, N, D]`` of any float type.

    float64 adds up thousands of the float32 whole numbers without rounding, so sums of them do not depend
    on the order either. Only the upper half is computed where that is quicker, in strips. The matrix is written
    ``into [B, N, N]`` float32, if that is given.
    """
    xp = namespace(tokens)
    whole, exponent = whole_numbers(tokens)
    batch, count, _ = whole.shape
    strips = _products(whole)
    norms = xp.concatenate([xp.diagonal(strip, 0, 1, 2) for _, strip in strips], 1)
    halves = 0.5 * norms
    for row, strip in strips:  # -1/2 of the squared distances: one pass over the matrix less
        strip -= halves[:, row, None]
        strip -= halves[:, None, row.start :]
    largest = -2 * xp.amin(xp.stack([xp.amin(strip, (1, 2)) for _, strip in strips]), 0)[:, None, None]
    shift = DISTANCE_BITS - exponent_of(largest if squared else xp.sqrt(largest))  # [B, 1, 1]
    # A power of four passes through the root as a power of two, without rounding.
    scale = -2 * power_of_two(shift if squared else 2 * shift)
    matrix = empty((batch, count, count), "float32", whole) if into is None else into
    for row, strip in strips:
        strip *= scale
        if not squared:
            xp.sqrt(strip, out=strip)
        matrix[:, row, row.start :] = xp.round(strip, out=strip)
        matrix[:, row.stop :, row] = matrix[:, row, row.stop :].mT
    return Distances(matrix, norms, power_of_two(-shift - exponent * (2 if squared else 1)))


def whole_numbers(tokens: Array) -> tuple[Array, Array]:
    """Tokens ``[B, N, D]`` times a power of two, rounded to whole numbers with norms of at most 2^25.

    Each video gets a power of its own, so a batch never changes a result. NaN and infinity are refused; on a GPU,
    where looking for them would make the host wait, a video that holds them counts as all zeros.

    Returns:
        ``[B, N, D]`` float64 and the exponents ``[B, 1, 1]`` of the powers.
    """
    xp = namespace(tokens)
    tokens = detached(tokens)
    limits = cast(channel_limits(tokens), "float64")  # [B, D]
    if is_synchronous(tokens):
        if not xp.isfinite(limits).all():
            raise ClusterError(_where_not_finite(tokens))
    else:
        finite = xp.isfinite(limits).all(1)[:, None]
        tokens, limits = xp.where(finite[:, :, None], tokens, 0), xp.where(finite, limits, 0)
    top = exponent_of(xp.amax(limits, 1)[:, None])  # [B, 1]
    # The norm of every token is below the norm of the limits. Round those up to whole numbers first: their
    # sum of squares, and with it the power of two, is then exact too.
    rough = xp.ceil(_times_power(limits, LIMIT_BITS - top))
    bits = exponent_of(xp.sqrt(xp.square(rough).sum(1)[:, None]))
    exponent = (NORM_BITS - bits + LIMIT_BITS - top)[:, :, None]
    whole = _times_power(tokens, exponent)
    return xp.round(whole, out=whole), exponent


def channel_limits(tokens: Array) -> Array:
    """The largest magnitude ``[B, D]`` of every channel of tokens ``[B, N, D]``; NaN and infinity survive it."""
    xp = namespace(tokens)
    return xp.maximum(xp.amax(tokens, 1), -xp.amin(tokens, 1))


def unit_tokens(tokens: Array) -> Array:
    """Tokens ``[B, N, D]`` divided by their l2 norms, float64; a zero token stays zero."""
    xp = namespace(tokens)
    tokens = detached(tokens)
    top = exponent_of(xp.amax(xp.abs(tokens), 2)[:, :, None])  # [B, N, 1]
    whole, _ = whole_numbers(_times_power(tokens, -top))
    lengths = xp.sqrt(xp.square(whole).sum(-1)[:, :, None])
    whole /= xp.clip(lengths, 1, None)
    return whole


def limb_products(whole: Array) -> Array:
    """The products ``[B, N, N]`` of whole-number tokens ``[B, N, D]`` with each other, by float32 matrix products."""
    xp = namespace(whole)
    batch, count, width = whole.shape
    total = full((batch, count, count), 0, "float64", whole)
    for start in range(0, width, LIMB_CHANNELS):
        limbs = split_limbs(whole[:, :, start : start + LIMB_CHANNELS])
        for (i, left), (j, right) in combinations_with_replacement(enumerate(limbs), 2):
            with full_precision(whole):
                product = cast(xp.matmul(left, right.mT), "float64")
            product *= 2.0 ** (LIMB_SHIFTS[i] + LIMB_SHIFTS[j])
            total += product
            if i != j:
                total += product.mT
    return total


def split_limbs(whole: Array) -> list[Array]:
    """Whole numbers ``[B, N, D]`` as float32 limbs of the same shape: ``sum(limb * 2**shift)`` gives them back."""
    xp = namespace(whole)
    limbs = []
    for shift in LIMB_SHIFTS:
        limb = xp.round(whole * 2.0**-shift)
        whole = whole - limb * 2.0**shift
        limbs.append(cast(limb, "float32"))
    return limbs


def _products(whole: Array) -> list[tuple[slice, Array]]:
    """The products of tokens ``[B, N, D]`` as strips of the upper half: rows, and ``[B, rows, N - start]`` float64."""
    xp = namespace(whole)
    count = whole.shape[1]
    everything = slice(0, count)
    if not is_synchronous(whole):
        return [(everything, limb_products(whole))]
    if is_numpy(whole) or count < 32 * STRIPS:  # NumPy sees that both factors are one and computes half (BLAS syrk)
        return [(everything, xp.matmul(whole, whole.mT))]
    edges = [round(count * i / STRIPS) for i in range(STRIPS + 1)]
    rows = [slice(start, stop) for start, stop in pairwise(edges)]
    return [(row, xp.matmul(whole[:, row], whole[:, row.start :].mT)) for row in rows]


def _times_power(values: Array, exponent: Array) -> Array:
    """``values * 2**exponent`` in float64, in two steps where the power itself could overflow."""
    if values.dtype != namespace(values).float64:
        if is_numpy(values):
            return values * power_of_two(exponent)
        product = cast(values, "float64")  # a copy; torch multiplies two types at half the speed
        product *= power_of_two(exponent)
        return product
    half = exponent // 2
    product = values * power_of_two(half)
    product *= power_of_two(exponent - half)
    return product


def _where_not_finite(tokens: Array) -> str:
    video, token, channel = (int(ids[0]) for ids in namespace(tokens).where(~namespace(tokens).isfinite(tokens)))
    value = float(tokens[video, token, channel])
    name = "NaN" if math.isnan(value) else "infinity"
    return f"tokens contain {name} (first at batch item {video}, token {token}, channel {channel})"
