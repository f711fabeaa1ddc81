"""Queries of several threads share products with the matrix, and each gets its own scores."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from centerclip.search import coarse, matrix
from centerclip.search.matrix import MAX_SHARED, Buffer, Products
from centerclip.search.sqlite import Contents, SqliteStore, SqliteView
from centerclip.search.store import Video


def test_queries_that_wait_share_a_product(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(matrix, "SHARED_ROWS", 64)  # of 1,000: some are left over
    random = np.random.default_rng(0)
    vectors, queries = (random.standard_normal(shape).astype(np.float32) for shape in ((1000, 32), (40, 32)))
    products, sizes, multiply = Products(vectors, {}), [], Products._multiply

    def count(self: Products, job: matrix.Job) -> None:
        before = len(self._waiting)
        multiply(self, job)
        sizes.append(before - len(self._waiting))

    monkeypatch.setattr(Products, "_multiply", count)
    everyone = threading.Barrier(len(queries) + 1)

    def ask(query: np.ndarray) -> np.ndarray:
        everyone.wait(60)
        return products.scores(query)[0]

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
    products = Products(np.eye(8, dtype=np.float32), {})
    with pytest.raises(ValueError, match="mismatch"):
        products.scores(np.ones(9, np.float32))
    np.testing.assert_array_equal(products.scores(np.ones(8, np.float32))[0], np.ones(8))


def filled(vectors: np.ndarray, segments: int = 4) -> tuple[SqliteView, Buffer]:
    """A view of videos of so many segments each, and its memory."""
    store, buffer = SqliteStore(Path("/not/there"), vectors.shape[1]), Buffer(vectors.shape[1])
    buffer.reserve(len(vectors))
    times = np.arange(segments, dtype=np.float32)
    for number, part in enumerate(vectors.reshape(-1, segments, vectors.shape[1])):
        buffer.append(str(number), times, times + 1, part)
    videos = {each: Video(each, float(segments), 1, 1, 0.0) for each in buffer.ids}
    view = SqliteView(store, Contents(videos, {}, dict.fromkeys(videos, segments), has_lines=False))
    view.block = buffer.block(videos)
    return view, buffer


@pytest.mark.parametrize("common", [0.0, 2.0])
def test_what_8_bits_find_is_exactly_what_the_vectors_find(monkeypatch: pytest.MonkeyPatch, common: float):
    """Also among copies, behind filters, and for vectors with a large part in common, as those of a CLIP."""
    monkeypatch.setattr(coarse, "BLOCK_ROWS", 256)
    monkeypatch.setattr(matrix, "WORTH_PRODUCTS", 0)
    random = np.random.default_rng(0)
    vectors = random.standard_normal((1000, 48)).astype(np.float32) + common * np.linspace(-1, 2, 48, dtype=np.float32)
    vectors[300:340] = vectors[0]
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    view, buffer = filled(vectors)
    for number, query in enumerate([vectors[0], *random.standard_normal((4, 48)).astype(np.float32)]):
        for among in (None, [str(number) for number in range(0, 250, 2)], ["3", "4"]):
            rows = (
                np.arange(1000)
                if among is None
                else np.concatenate([np.arange(4 * int(n), 4 * int(n) + 4) for n in among])
            )
            scores = vectors[rows] @ query
            for top in (0, 1, 30, 1000):
                hits = view.search(query, top, among=among)
                order = np.lexsort((rows, -scores))[:top]
                np.testing.assert_allclose(hits.scores, scores[order], atol=1e-6)
                if among is None and not common and number:  # no copies among the best: their scores differ in rounding
                    assert hits.videos == [buffer.ids[row // 4] for row in rows[order].tolist()]
    assert len(buffer._coarse) == 3
    coarse_scores, error = view._products.scores(query)
    assert 0 < np.abs(coarse_scores - vectors @ query).max() <= error


def test_few_queries_make_no_second_copy_of_the_vectors(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(coarse, "BLOCK_ROWS", 64)
    vectors = np.random.default_rng(0).standard_normal((256, 8)).astype(np.float32)
    view, buffer = filled(vectors)
    for _ in range(matrix.WORTH_PRODUCTS):
        view.search(vectors[0], 3)
    assert not buffer._coarse
    for made in range(1, 6):  # then one at a time: no query waits for all
        view.search(vectors[0], 3)
        assert len(buffer._coarse) == min(made, 4)
