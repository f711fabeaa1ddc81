"""What NumPy and torch spell differently, so that every method is written once for both.

Most of what a method needs has one name in both (``sqrt``, ``where``, ``matmul``, slices, operators in place):
:func:`namespace` gives the module. The functions here cover the rest. Nothing imports torch: a tensor brings it along.
"""

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from ..errors import ClusterError

Array = Any  # a NumPy array or a torch tensor; a function returns the kind that it was given
# Devices on which a result exists when its call returns. On others (GPUs) a look at a value would make the host wait.
SYNCHRONOUS: tuple[str, ...] = ("cpu",)


def namespace(array: Array) -> Any:
    """The module that an array belongs to: ``numpy`` or ``torch``."""
    if isinstance(array, np.ndarray):
        return np
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(array, torch.Tensor):
        raise ClusterError(f"expected a NumPy array or a torch tensor, got {type(array).__name__}")
    return torch


def is_numpy(array: Array) -> bool:
    """Whether it is NumPy's; False for a tensor."""
    return namespace(array) is np


def is_floating(array: Array) -> bool:
    """Whether values are floating point of any width."""
    return bool(array.dtype.kind == "f") if is_numpy(array) else array.is_floating_point()


def is_synchronous(array: Array) -> bool:
    """Whether a program may look at values without making it wait for a GPU."""
    return is_numpy(array) or array.device.type in SYNCHRONOUS


def detached(array: Array) -> Array:
    """The array without its gradients, on a device that knows float64 (Apple's GPUs do not)."""
    if is_numpy(array):
        return array
    return array.detach().cpu() if array.device.type == "mps" else array.detach()


def moved(array: Array, like: Array) -> Array:
    """The array on the device of another."""
    return array if is_numpy(array) else array.to(like.device)


def no_gradients(array: Array) -> AbstractContextManager[Any]:
    """Inside, torch records no gradients."""
    return nullcontext() if is_numpy(array) else namespace(array).no_grad()


def full_precision(array: Array) -> AbstractContextManager[Any]:
    """Inside, torch's autocast leaves matrix products in the type of their inputs."""
    return nullcontext() if is_numpy(array) else namespace(array).autocast(array.device.type, enabled=False)


# ---- making arrays ------------------------------------------------------------------------------------------


def arange(count: int, like: Array) -> Array:
    """``[count]`` int64: 0, 1, 2 ..., of the kind and on the device of ``like``."""
    return np.arange(count) if is_numpy(like) else namespace(like).arange(count, device=like.device)


def full(shape: tuple[int, ...], value: float, dtype: str, like: Array) -> Array:
    """An array filled with one value, of the kind and on the device of ``like``."""
    xp = namespace(like)
    dtype = getattr(xp, dtype)
    return np.full(shape, value, dtype) if xp is np else xp.full(shape, value, dtype=dtype, device=like.device)


def empty(shape: tuple[int, ...], dtype: str, like: Array) -> Array:
    """An array to be filled, of the kind and on the device of ``like``."""
    xp = namespace(like)
    dtype = getattr(xp, dtype)
    return np.empty(shape, dtype) if xp is np else xp.empty(shape, dtype=dtype, device=like.device)


def from_numpy(array: np.ndarray[Any, Any], like: Array) -> Array:
    """A NumPy array as the kind and on the device of ``like``."""
    return array if is_numpy(like) else namespace(like).from_numpy(array).to(like.device)


def uniform(shape: tuple[int, ...], dtype: str, generator: Any, like: Array) -> Array:
    """Random numbers in [0, 1), of the kind of ``like``, on the CPU.

    ``generator`` is a ``torch.Generator`` of the CPU, a ``numpy.random.Generator``, or None.
    """
    xp = namespace(like)
    if xp is np:
        generator = generator or np.random.default_rng()
        return generator.random(shape, dtype=dtype)
    return xp.rand(*shape, generator=generator, dtype=getattr(xp, dtype))


def cast(array: Array, dtype: Any) -> Array:
    """The array in another type, given by its name or as the module has it."""
    xp = namespace(array)
    if isinstance(dtype, str):
        dtype = getattr(xp, dtype)
    return array.astype(dtype, copy=False) if xp is np else array.to(dtype)


# ---- along the second axis ----------------------------------------------------------------------------------


def gather(values: Array, ids: Array) -> Array:
    """values ``[B, N]``, ids ``[B, M]`` -> ``[B, M]``."""
    return np.take_along_axis(values, ids, 1) if is_numpy(values) else values.gather(1, ids)


def gather_rows(values: Array, ids: Array) -> Array:
    """values ``[B, N, D]``, ids ``[B, M]`` -> ``[B, M, D]``."""
    if is_numpy(values):
        return values[np.arange(len(values))[:, None], ids]
    return values.gather(1, ids[:, :, None].expand(-1, -1, values.shape[2]))


def take(values: Array, ids: Array, out: Array | None = None) -> Array:
    """values ``[N, D]``, ids ``[M]`` -> ``[M, D]``, written into ``out`` if given."""
    if is_numpy(values):
        return values.take(ids, axis=0, out=out, mode="clip")  # "raise" would go through a copy of ``out``
    return namespace(values).index_select(values, 0, ids, out=out)


def put(into: Array, ids: Array, values: Array) -> Array:
    """``into [B, N]`` with ``values`` (``[B, M]``, or one) at ids ``[B, M]``, changed in place."""
    if is_numpy(into):
        np.put_along_axis(into, ids, values, 1)
        return into
    return into.scatter_(1, ids, values)


def add_rows(into: Array, ids: Array, rows: Array) -> None:
    """Add rows ``[B, M, D]`` to ``into [B, N, D]`` at ids ``[B, M]``, which may repeat."""
    if not is_numpy(into):
        into.scatter_add_(1, ids[:, :, None].expand(rows.shape), rows)
    elif ids.size:
        flat = (ids + np.arange(len(into))[:, None] * into.shape[1]).ravel()
        sorting = np.argsort(flat, kind="stable")
        places, starts = np.unique(flat[sorting], return_index=True)
        sums = np.add.reduceat(rows.reshape(len(flat), -1)[sorting], starts, axis=0)
        into[places // into.shape[1], places % into.shape[1]] += sums


def sort(values: Array) -> Array:
    """``[B, N]``, ascending."""
    return np.sort(values, axis=1) if is_numpy(values) else values.sort(dim=1).values


def order(values: Array, *, descending: bool = False) -> Array:
    """The ids ``[B, N]`` (or ``[N]``) that sort values; equal ones stay in the order of their ids."""
    if is_numpy(values):
        return np.argsort(-values if descending else values, axis=-1, kind="stable")
    return values.argsort(dim=-1, descending=descending, stable=True)


def kth_smallest(values: Array, k: int) -> Array:
    """The ``k``-th smallest (from 1) along the last axis, which stays with length 1."""
    if is_numpy(values):
        return np.partition(values, k - 1, axis=-1)[..., k - 1 : k]
    return values.kthvalue(k, dim=-1, keepdim=True).values


def smallest(values: Array, count: int) -> Array:
    """The ``count`` smallest along the last axis, in any order."""
    if is_numpy(values):
        return np.partition(values, count - 1, axis=-1)[..., :count]
    return values.topk(count, dim=-1, largest=False).values


def argmin(values: Array) -> Array:
    """values ``[B, K, N]`` -> the place ``[B, N]`` of the lowest along K, the first of equals."""
    return values.argmin(axis=1) if is_numpy(values) else values.min(dim=1).indices  # torch's argmin is slower


def lowest_by_label(values: Array, labels: Array, k: int, start: float) -> Array:
    """values ``[B, N]``, labels ``[B, N]`` below k -> the lowest value ``[B, K]`` of each label; ``start`` for none."""
    batch = len(values)
    if not is_numpy(values):
        return values.new_full((batch, k), start).scatter_reduce_(1, labels, values, "amin")
    lowest = np.full((batch, k), start, values.dtype)
    np.minimum.at(lowest.reshape(-1), (labels + np.arange(batch)[:, None] * k).ravel(), values.ravel())
    return lowest


def sums_by_label(values: Array, labels: Array, k: int) -> Array:
    """values ``[B, N]``, labels ``[B, N]`` below k -> the sum ``[B, K]`` of each label."""
    batch = len(values)
    if not is_numpy(values):
        return values.new_zeros(batch, k).scatter_add_(1, labels, values)
    flat = (labels + np.arange(batch)[:, None] * k).ravel()
    return np.bincount(flat, weights=values.ravel(), minlength=batch * k).reshape(batch, k).astype(values.dtype)


def repeat(values: Array, times: Array) -> Array:
    """values ``[M]``, each as many times as ``times [M]`` says."""
    return np.repeat(values, times) if is_numpy(values) else namespace(values).repeat_interleave(values, times)


# ---- numbers ------------------------------------------------------------------------------------------------


def exponent_of(values: Array) -> Array:
    """The least e (int32) with ``abs(value) < 2**e``; 0 for 0."""
    return namespace(values).frexp(values)[1]


def power_of_two(exponent: Array) -> Array:
    """``2**exponent`` in float64, exactly."""
    xp = namespace(exponent)
    if xp is not np:
        return xp.ldexp(xp.ones_like(exponent, dtype=xp.float64), exponent)
    with np.errstate(over="ignore"):
        return np.ldexp(1.0, exponent)


def softmax(scores: Array) -> Array:
    """Softmax over the last axis."""
    xp = namespace(scores)
    if xp is not np:
        return xp.softmax(scores, dim=-1)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


class LateAnswer:
    """A yes or no on its way from a GPU to the host. Nobody waits for it until it is read."""

    def __init__(self, flag: Array) -> None:
        self.event = None
        if flag.device.type != "cpu":
            self.event = namespace(flag).Event(flag.device)
        self.host = flag.to("cpu", non_blocking=True)  # into pinned memory
        if self.event is not None:
            self.event.record()

    def read(self) -> bool:
        """The answer; waits for the work that came before the question, and for nothing after it."""
        if self.event is not None:
            self.event.synchronize()
        return bool(self.host.numpy())
