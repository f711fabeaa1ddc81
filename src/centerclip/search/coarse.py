"""Vectors in 8 bits, to find out which of them may be among the best of a query.

That reads a quarter of the bytes, and several queries are multiplied at once. The largest error of the scores is known:
what may be among the best is scored again with the vectors themselves, so that nothing is missed."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..parallel import usable_cores
from .store import Floats

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

BLOCK_ROWS = 16_384  # rows are only appended, so that a full block stays as it is
LARGEST, QUERY_LARGEST = 127, 63  # 8 and 7 bits: two products of them fit into 16 bits, on every processor
ROUNDING = 1e-5  # of float32

Blocks = dict[int, "CoarseBlock"]  # by their place


def grow(blocks: Blocks, vectors: Floats) -> int:
    """Make the next block of vectors ``[N, D]``, if it is full; returns how many rows are in blocks."""
    whole = len(vectors) // BLOCK_ROWS
    for place in range(whole):
        if place not in blocks:
            blocks[place] = CoarseBlock.of(vectors[BLOCK_ROWS * place :][:BLOCK_ROWS])
            return BLOCK_ROWS * (place + 1)
    return BLOCK_ROWS * whole


def coarse_scores(blocks: Blocks, queries: Floats, scores: Floats) -> Floats:
    """Write the scores of queries ``[Q, D]`` into ``[Q, rows]``; returns the largest error of each query's, ``[Q]``."""
    coarse, places = _CoarseQueries.of(queries), range(scores.shape[1] // BLOCK_ROWS)
    parts = (scores[:, BLOCK_ROWS * place :][:, :BLOCK_ROWS] for place in places)
    errors = _threads().map(lambda place, part: blocks[place].multiply(coarse, part), places, parts)
    return np.max(list(errors), axis=0)


@dataclass(frozen=True)
class _CoarseQueries:
    """Queries as whole numbers of 7 bits in two digits: ``steps * (first + second / (2 * QUERY_LARGEST))``."""

    exact: Floats  # [Q, D]
    digits: NDArray[np.uint8]  # [2 * Q, D]: the first ones, then the second ones
    steps: Floats  # [Q, 1]
    norms: Floats  # [Q]
    errors: Floats  # [Q]: norms of what is rounded away

    @classmethod
    def of(cls, queries: Floats) -> "_CoarseQueries":
        steps = np.maximum(np.abs(queries).max(axis=1, keepdims=True), 1e-12) / QUERY_LARGEST
        first = np.rint(queries / steps)
        second = np.rint((queries / steps - first) * 2 * QUERY_LARGEST)
        left = queries - steps * (first + second / (2 * QUERY_LARGEST))
        digits = (np.concatenate([first, second]) + QUERY_LARGEST).astype(np.uint8)
        return cls(queries, digits, steps, *(np.linalg.norm(each, axis=1) for each in (queries, left)))


@dataclass(frozen=True)
class CoarseBlock:
    """Rows ``mean + steps * whole numbers``."""

    session: "InferenceSession"  # digits [M, D] -> products with the whole numbers [M, R]
    mean: Floats  # [D]: all vectors of a CLIP have a large part in common
    steps: Floats  # [R]
    norm: float  # of a row without the mean, the largest
    error: float  # norm of what is rounded away of a row, the largest

    @classmethod
    def of(cls, vectors: Floats) -> "CoarseBlock":
        """Round vectors ``[R, D]``."""
        mean = vectors.mean(axis=0)
        rest = vectors - mean
        steps = np.maximum(np.abs(rest).max(axis=1, keepdims=True), 1e-12) / LARGEST
        whole = np.rint(rest / steps)
        left = np.linalg.norm(rest - steps * whole, axis=1).max()
        norm = np.linalg.norm(rest, axis=1).max()
        return cls(_products(whole.astype(np.int8).T), mean, steps[:, 0], float(norm), float(left))

    def multiply(self, queries: _CoarseQueries, scores: Floats) -> Floats:
        """The scores ``[Q, R]``, and the largest error of each query's, ``[Q]``."""
        first, second = np.split(self.session.run(None, {"digits": queries.digits})[0], 2)
        np.multiply(second, np.float32(1 / (2 * QUERY_LARGEST)), out=scores, casting="unsafe")
        scores += first
        scores *= queries.steps
        scores *= self.steps
        scores += (queries.exact @ self.mean)[:, None]
        errors = self.error * queries.norms + (self.norm + self.error) * queries.errors + ROUNDING
        return errors.astype(np.float32)


def _products(weights: NDArray[np.int8]) -> "InferenceSession":
    """ONNX Runtime's products with ``[D, R]``: it lays them out for the processor once."""
    from onnx import TensorProto, helper, numpy_helper
    from onnxruntime import InferenceSession, SessionOptions

    zero = numpy_helper.from_array(np.array(QUERY_LARGEST, np.uint8), "zero")
    constants = [numpy_helper.from_array(np.ascontiguousarray(weights), "weights"), zero]
    node = helper.make_node("MatMulInteger", ["digits", "weights", "zero"], ["products"])
    digits = helper.make_tensor_value_info("digits", TensorProto.UINT8, ["M", len(weights)])
    products = helper.make_tensor_value_info("products", TensorProto.INT32, ["M", weights.shape[1]])
    graph = helper.make_graph([node], "products", [digits], [products], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)
    options = SessionOptions()
    options.intra_op_num_threads = 1  # several blocks are multiplied at a time
    options.log_severity_level = 3
    return InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


@cache
def _threads() -> ThreadPoolExecutor:
    """The threads that multiply."""
    return ThreadPoolExecutor(usable_cores(), thread_name_prefix="products")
