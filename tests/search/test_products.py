"""Queries of several threads share products with the matrix, and each gets its own scores."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from centerclip.search import matrix
from centerclip.search.matrix import MAX_SHARED, Products


def test_queries_that_wait_share_a_product(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(matrix, "SHARED_ROWS", 64)
    random = np.random.default_rng(0)
    vectors, queries = (random.standard_normal(shape).astype(np.float32) for shape in ((1000, 32), (40, 32)))
    products, sizes, multiply = Products(vectors), [], Products._multiply

    def count(self: Products, job: matrix.Job) -> None:
        before = len(self._waiting)
        multiply(self, job)
        sizes.append(before - len(self._waiting))

    monkeypatch.setattr(Products, "_multiply", count)
    everyone = threading.Barrier(len(queries) + 1)

    def ask(query: np.ndarray) -> np.ndarray:
        everyone.wait(60)
        return products.scores(query)

    with ThreadPoolExecutor(len(queries)) as pool:
        with products._turn:  # until all wait
            asked = [pool.submit(ask, query) for query in queries]
            everyone.wait(60)
            while len(products._waiting) < len(queries):
                threading.Event().wait(0.001)
        scores = [each.result(60) for each in asked]
    np.testing.assert_allclose(np.stack(scores), queries @ vectors.T, atol=1e-4)
    assert sum(sizes) == len(queries)
    assert max(sizes) >= MAX_SHARED - 1
    assert len(sizes) <= 3


def test_a_query_that_fails_fails_alone():
    products = Products(np.eye(8, dtype=np.float32))
    with pytest.raises(ValueError, match="mismatch"):
        products.scores(np.ones(9, np.float32))
    np.testing.assert_array_equal(products.scores(np.ones(8, np.float32)), np.ones(8))
