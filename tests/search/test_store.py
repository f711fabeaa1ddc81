"""Both stores conform; the one on disk also outlives its process and is shared between them."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from centerclip.search import lance
from centerclip.search.lance import LanceStore
from centerclip.search.store import Store
from tests.search.conformance import WIDTH, StoreConformance, file, unit, video
from tests.search.memory import MemoryStore


class TestMemoryStore(StoreConformance):
    def make(self, folder: Path) -> Store:
        return MemoryStore(WIDTH)


class TestLanceStore(StoreConformance):
    def make(self, folder: Path) -> Store:
        return LanceStore(folder, WIDTH)

    def test_another_process_sees_it(self, store: Store, tmp_path: Path) -> None:
        other = LanceStore(tmp_path, WIDTH)
        assert other.view().count() == 40
        store.add([video(30)], [file("/v/30.mp4", 30)])
        assert other.view().count() == 45
        store.remove([video(0)[0].id], [])
        assert other.view().count() == 40
        store.tidy(unit(4, 1))
        assert other.view().search(video(30)[1].vectors[2], 1).videos == [video(30)[0].id]

    def test_a_tidy_store_opens_without_the_database(self, store: Store, tmp_path: Path) -> None:
        store.tidy(unit(4, 1))
        other = LanceStore(tmp_path, WIDTH)
        assert other.view().count() == 40
        assert other._database is None

    def test_a_damaged_snapshot_is_passed_over(self, store: Store, tmp_path: Path) -> None:
        store.tidy(unit(4, 1))
        (place,) = tmp_path.glob("snapshot-*")
        for name in ("tables.json", "owners.npy", "vectors.npy"):
            content = (place / name).read_bytes()
            (place / name).write_bytes(content[: len(content) // 2])
            assert LanceStore(tmp_path, WIDTH).view().count() == 40
            (place / name).write_bytes(content)

    def test_many_changes_are_merged(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("centerclip.search.lance.COMPACT_EVERY", 10)
        store = LanceStore(tmp_path, WIDTH)
        for number in range(25):
            store.add([video(number, segments=1)], [])
        assert len(list((tmp_path / "videos.lance" / "data").iterdir())) >= 5
        assert store.view().count() == 25


def test_a_large_store_is_searched_approximately_and_filters_stay_exact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same store as an inverted file: recall as promised, nothing that a filter forbids."""
    monkeypatch.setattr(lance, "save_snapshot", partial(lance.save_snapshot, min_ivf_rows=1000))
    random = np.random.default_rng(0)
    middles = unit(40, 1)
    store = LanceStore(tmp_path, WIDTH)
    videos = []
    for number in range(400):
        known, segments = video(number)
        near = middles[random.integers(40, size=5)] + 0.3 * unit(5, 1000 + number)
        segments.vectors[:] = near / np.linalg.norm(near, axis=1, keepdims=True)
        videos.append((known, segments))
    store.add(videos, [])
    queries = unit(32, 7)
    store.tidy(queries)
    view = store.view()
    assert 0.95 <= view.recall() <= 1
    rows = np.concatenate([s.vectors for _, s in videos]).astype(np.float16).astype(np.float32)
    found = []
    for query in unit(50, 8):
        exact = set(np.sort(rows @ query)[-20:].round(4).tolist())
        found.append(len(exact & set(view.search(query, 20).scores.round(4).tolist())) / len(exact))
    assert np.mean(found) >= 0.9
    # New videos are found at once, removed ones no more, also after the next tidy.
    store.add([video(900)], [])
    store.remove([videos[0][0].id], [])
    for _ in range(2):
        view = store.view()
        assert view.search(video(900)[1].vectors[0], 1).videos == [video(900)[0].id]
        assert videos[0][0].id not in view.search(videos[0][1].vectors[0], 2000).videos
        chosen = {videos[n][0].id for n in range(1, 300)}
        assert set(view.search(queries[0], 500, among=chosen).videos) <= chosen
        assert len(view.search(queries[0], 5000, among=list(chosen)[:3]).videos) == 15
        np.testing.assert_allclose(view.segments(videos[5][0].id).starts, [0, 1, 2, 3, 4])
        store.tidy(queries)
