"""Collections too large for one product: candidates from faiss, exact scores from the database."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from centerclip.search import approximate, sqlite
from centerclip.search.approximate import LargeView, build, keep_up
from centerclip.search.folder import DISK_FULL_ERRORS
from centerclip.search.sqlite import SqliteStore
from centerclip.search.store import File, Segments, Video

WIDTH, PER_VIDEO = 32, 5


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    lower_limits(monkeypatch)


def lower_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a thousand segments were many."""
    monkeypatch.setattr(approximate, "MAX_EXACT_SEGMENTS", 1000)
    monkeypatch.setattr(sqlite, "MAX_EXACT_SEGMENTS", 1000)
    monkeypatch.setattr(approximate, "EXTEND_ROWS", 100)
    monkeypatch.setattr(approximate, "MAX_FILTERED", 50)
    monkeypatch.setattr(approximate, "usable_cores", lambda: 1)  # threads that wait for each other are slow under load


def videos(first: int, count: int) -> list[tuple[Video, Segments, list]]:
    random = np.random.default_rng(first)
    made = []
    for number in range(first, first + count):
        vectors = random.normal(size=(PER_VIDEO, WIDTH)).astype(np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        starts = np.arange(PER_VIDEO, dtype=np.float32)
        made.append((Video(f"{number:024x}", 5.0, 64, 48, 0.0), Segments(starts, starts + 1, vectors), []))
    return made


def add(store: SqliteStore, first: int, count: int) -> None:
    store.add(videos(first, count), [File(f"/v/{n}.mp4", 1, 1, f"{n:024x}") for n in range(first, first + count)])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an approximate index."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        lower_limits(patch)
        store = SqliteStore(folder, WIDTH)
        add(store, 0, 400)
        store.tidy(queries())
        store.database.close()
    return folder


@pytest.fixture
def store(made: Path, tmp_path: Path) -> SqliteStore:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    store = SqliteStore(tmp_path, WIDTH)
    assert isinstance(store.view(), LargeView)
    return store


def queries() -> np.ndarray:
    vectors = np.random.default_rng(7).normal(size=(20, WIDTH)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def exact(store: SqliteStore, query: np.ndarray, top: int, among: set[str] | None = None) -> list[str]:
    view = store.view()
    scored = [
        (float(score), video)
        for video in view.videos
        if among is None or video in among
        for score in view.segments(video).vectors @ query
    ]
    return [video for _, video in sorted(scored, key=lambda pair: -pair[0])[:top]]


def test_nearly_everything_is_found_with_exact_scores(store: SqliteStore) -> None:
    view = store.view()
    shares = []
    for query in queries():
        hits = view.search(query, 10)
        assert (np.diff(hits.scores) <= 0).all()
        best = view.segments(hits.videos[0]).vectors @ query
        assert best.max() == pytest.approx(float(hits.scores[0]), abs=1e-6)
        shares.append(len(set(hits.videos) & set(exact(store, query, 10))) / 10)
    assert np.mean(shares) >= 0.95
    assert 0.9 <= view.recall() <= 1
    assert len(view.sample(100)) >= 50


def test_a_new_video_is_found_at_once_and_does_not_touch_the_index(store: SqliteStore, tmp_path: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("approximate-*/*")}
    add(store, 1000, 1)
    store.tidy(queries())
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("approximate-*/*")} == before
    vector = store.view().segments(f"{1000:024x}").vectors[2]
    for reader in (store, SqliteStore(tmp_path, WIDTH)):
        assert reader.view().search(vector, 1).videos == [f"{1000:024x}"]


def test_what_was_removed_never_comes_back(store: SqliteStore, tmp_path: Path) -> None:
    gone = {f"{n:024x}" for n in range(0, 400, 3)}
    vectors = {video: store.view().segments(video).vectors[0] for video in gone}
    old = store.view()
    store.remove(gone, [])
    for reader in (store, SqliteStore(tmp_path, WIDTH)):
        for vector in list(vectors.values())[:20]:
            assert not gone & set(reader.view().search(vector, 300).videos)
    # A view from before finds what is left of it.
    assert not gone & set(old.search(next(iter(vectors.values())), 20).videos)


@pytest.mark.parametrize("step", [2, 50])
def test_a_hit_always_passes_and_few_that_pass_are_all_compared(store: SqliteStore, step: int) -> None:
    among = {f"{n:024x}" for n in range(0, 400, step)}
    found = []
    for query in queries():
        hits, best = store.view().search(query, 8, among=among), set(exact(store, query, 8, among))
        assert set(hits.videos) <= among
        found.append(len(set(hits.videos) & best) / len(best))
    assert np.mean(found) >= (0.9 if step == 2 else 1.0)  # 1000 segments, and 40: MAX_FILTERED is 50 here


def test_batches_are_bounded_by_segments_not_by_videos(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approximate, "ROWS_PER_BATCH", 64)
    batches = list(approximate._batches(store))
    assert [len(vectors) for _, _, vectors in batches] == [65] * 30 + [50]
    keys, sizes = (np.concatenate([batch[place] for batch in batches]) for place in (0, 1))
    assert keys.tolist() == list(range(1, 401))
    assert set(sizes.tolist()) == {PER_VIDEO}


@pytest.mark.parametrize("limit", [50_000, 131_000])  # bytes of a file: those with vectors, and the lists
def test_a_full_disk_leaves_nothing_behind_and_search_as_it_was(store: SqliteStore, tmp_path: Path, limit: int) -> None:
    resource = pytest.importorskip("resource")
    before, size = sorted(tmp_path.rglob("*")), store.bytes()
    most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, most[1]))
    try:
        with pytest.raises(OSError, match="too large") as refused:
            build(tmp_path / "approximate-2", lambda: approximate._batches(store), WIDTH, 2000, queries())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, most)
    assert refused.value.errno in DISK_FULL_ERRORS
    assert sorted(tmp_path.rglob("*")) == before
    assert store.bytes() == size > sum(path.stat().st_size for path in tmp_path.glob("approximate-1/*"))
    assert isinstance(store.view(), LargeView)


def test_growth_is_taken_in_and_shrinking_ends_it(store: SqliteStore, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    add(store, 400, 100)
    store.tidy(queries())
    assert [path.name for path in tmp_path.glob("approximate-*")] == ["approximate-2"]
    view = SqliteStore(tmp_path, WIDTH).view()
    assert isinstance(view, LargeView)
    assert len(view.index.keys) == 500
    assert view.index.folder.stat().st_mode == tmp_path.stat().st_mode  # others may read it where they may the index
    for number in (450, 7):  # of both files of vectors
        vector = view.segments(f"{number:024x}").vectors[1]
        hits = view.search(vector, 1)
        assert hits.videos == [f"{number:024x}"]
        assert hits.scores[0] == pytest.approx(1, abs=1e-2)
    store.remove([f"{n:024x}" for n in range(50, 500)], [])
    store.tidy(queries())
    assert not isinstance(store.view(), LargeView)
    assert not list(tmp_path.glob("approximate-*"))
    assert store.view().search(vector, 1000).videos.count(f"{7:024x}") == PER_VIDEO


def test_without_faiss_or_its_file_search_is_exact(
    store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = queries()[0]
    expected = exact(store, query, 10)
    for name in ("rows.npz", "vectors-*.f2", "lists.faiss"):
        for path in tmp_path.glob(f"approximate-*/{name}"):
            content = path.read_bytes()
            path.write_bytes(content[: len(content) // 2] if name == "vectors-*.f2" else b"")
            view = SqliteStore(tmp_path, WIDTH).view()
            assert not isinstance(view, LargeView)
            assert view.search(query, 10).videos == expected
            path.write_bytes(content if name != "lists.faiss" else b"nonsense")
    monkeypatch.setattr(approximate, "is_available", lambda: False)
    keep_up(store, queries())
