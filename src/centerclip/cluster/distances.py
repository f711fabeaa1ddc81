"""Token distances in exact arithmetic, so that every machine finds the same centres.

A matrix product in floating point depends, in its last bits, on the batch size, the number of threads and
the library that computes it. Ties between tokens (a static video is full of them) then fall one way or the
other. Here tokens are first rounded to whole numbers so that every product and every partial sum stays
below 2^53: float64 holds them exactly, in whatever order they are added. The rounding step is 2^-25 of the
largest token norm, finer than what a float32 matrix product resolves.
"""

import math
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from ..errors import ClusterError

NORM_BITS = 25  # whole-number tokens have a norm of at most 2^25, squared distances then fit into 2^52
DISTANCE_BITS = 24  # distances are whole numbers of at most 2^24: exact in float32, their sums in float64
STRIPS = 4  # the matrix is symmetric: four strips compute 5/8 of it
LIMIT_BITS = 20  # resolution of the per-channel limits that bound the norms


def check_tokens(tokens: Tensor, k: int) -> None:
    """Raise ClusterError unless ``tokens`` is a floating ``[B, N, D]`` tensor with at least ``k`` tokens."""
    if tokens.dim() != 3:
        raise ClusterError(f"tokens must be [batch, tokens, width], got shape {list(tokens.shape)}")
    if not tokens.is_floating_point():
        raise ClusterError(f"tokens must be floating point, got {tokens.dtype}")
    if tokens.shape[2] == 0:
        raise ClusterError("tokens have width 0: there is nothing to compare")
    if not 1 <= k <= tokens.shape[1]:
        raise ClusterError(f"k must be between 1 and the number of tokens ({tokens.shape[1]}), got {k}")


class Distances(NamedTuple):
    """Exact distances of ``[B, N, D]`` tokens, in whole numbers of each video's own unit."""

    matrix: Tensor  # [B, N, N] float32 whole numbers up to 2^24; symmetric, zero diagonal
    norms: Tensor  # [B, N] float64: squared norms, to compare within a video only
    unit: Tensor  # [B, 1, 1] float64: matrix * unit are the distances as tokens measure them


def exact_distances(tokens: Tensor, *, squared: bool = False) -> Distances:
    """Distances (or squared distances) between tokens ``[B, N, D]`` of any float type.

    float64 adds up thousands of the float32 whole numbers without rounding, so sums of them do not depend
    on the order either. Only the upper half is computed, in strips.
    """
    whole, exponent = whole_numbers(tokens)
    count = whole.shape[1]
    edges = [round(count * i / STRIPS) for i in range(STRIPS + 1)] if count >= 32 * STRIPS else [0, count]
    rows = [slice(start, stop) for start, stop in pairwise(edges)]
    strips = [torch.bmm(whole[:, row], whole[:, row.start :].mT) for row in rows]  # [B, N/STRIPS, N - start]
    norms = torch.cat([strip.diagonal(dim1=1, dim2=2) for strip in strips], dim=1)
    for row, strip in zip(rows, strips, strict=True):
        strip.mul_(-2).add_(norms[:, row, None]).add_(norms[:, None, row.start :])
        if not squared:
            strip.sqrt_()
    largest = torch.stack([strip.amax(dim=(1, 2), keepdim=True) for strip in strips]).amax(dim=0)
    shift = DISTANCE_BITS - torch.frexp(largest).exponent  # [B, 1, 1]
    scale = power_of_two(shift)
    matrix = whole.new_empty(len(whole), count, count, dtype=torch.float32)
    for row, strip in zip(rows, strips, strict=True):
        matrix[:, row, row.start :] = strip.mul_(scale).round_()
        matrix[:, row.stop :, row] = matrix[:, row, row.stop :].mT
    return Distances(matrix, norms, power_of_two(-shift - exponent * (2 if squared else 1)))


def whole_numbers(tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Tokens ``[B, N, D]`` times a power of two, rounded to whole numbers with norms of at most 2^25.

    Each video gets a power of its own, so a batch never changes a result.

    Returns:
        ``[B, N, D]`` float64 and the exponents ``[B, 1, 1]`` of the powers.
    """
    tokens = _on_float64_device(tokens.detach())
    limits = torch.maximum(tokens.amax(dim=1), -tokens.amin(dim=1)).double()  # [B, D]; NaN and infinity survive it
    if not bool(torch.isfinite(limits).all()):
        raise ClusterError(_where_not_finite(tokens))
    _, top = torch.frexp(limits.amax(dim=1, keepdim=True))  # [B, 1]
    # The norm of every token is below the norm of the limits. Round those up to whole numbers first: their
    # sum of squares, and with it the power of two, is then exact too.
    rough = _times_power(limits, LIMIT_BITS - top).ceil()
    _, bits = torch.frexp(rough.square().sum(dim=1, keepdim=True).sqrt())
    exponent = (NORM_BITS - bits + LIMIT_BITS - top)[:, :, None]
    return _times_power(tokens, exponent).round_(), exponent


def unit_tokens(tokens: Tensor) -> Tensor:
    """Tokens ``[B, N, D]`` divided by their l2 norms, float64; a zero token stays zero."""
    tokens = _on_float64_device(tokens.detach())
    _, top = torch.frexp(tokens.abs().amax(dim=2, keepdim=True))  # [B, N, 1]
    whole, _ = whole_numbers(_times_power(tokens, -top))
    return whole / whole.square().sum(dim=-1, keepdim=True).sqrt().clamp_(min=1)


def power_of_two(exponent: Tensor) -> Tensor:
    """``2**exponent`` in float64, exactly."""
    return torch.ldexp(torch.ones_like(exponent, dtype=torch.float64), exponent)


def _times_power(values: Tensor, exponent: Tensor) -> Tensor:
    """``values * 2**exponent`` in float64, in two steps where the power itself could overflow."""
    if values.dtype != torch.float64:
        return values.double().mul_(power_of_two(exponent))
    half = torch.div(exponent, 2, rounding_mode="floor")
    return (values * power_of_two(half)).mul_(power_of_two(exponent - half))


def _on_float64_device(tokens: Tensor) -> Tensor:
    return tokens.cpu() if tokens.device.type == "mps" else tokens  # Apple's GPUs have no float64


def _where_not_finite(tokens: Tensor) -> str:
    video, token, channel = (~torch.isfinite(tokens)).nonzero()[0].tolist()
    value = tokens[video, token, channel].item()
    name = "NaN" if math.isnan(value) else "infinity"
    return f"tokens contain {name} (first at batch item {video}, token {token}, channel {channel})"
