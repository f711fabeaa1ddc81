"""The store on a server conforms. Here with Milvus Lite, a file; ``make test-cluster`` uses a server."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

pytest.importorskip("milvus_lite", reason="an extra: make test-cluster installs it")

from centerclip.search import IndexNotFound, SearchError
from centerclip.search.folder import IndexSettings
from centerclip.search.milvus import MilvusDatabase, database, rows
from centerclip.search.milvus import view as reading
from centerclip.search.store import Store
from tests.search.conformance import WIDTH, StoreConformance, file, unit, video

SETTINGS = IndexSettings("a model", "1", "none", 4, 1, 1.0, WIDTH)


class MilvusConformance(StoreConformance):
    """Of a server at an address."""

    begun = False

    @pytest.fixture(autouse=True)
    def writer(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        monkeypatch.setattr(database, "SETTLE_SECONDS", 0.0)
        with ExitStack() as self.held:
            yield

    def address(self, folder: Path) -> str:
        raise NotImplementedError

    def make(self, folder: Path) -> Store:
        database = MilvusDatabase(self.address(folder))
        self.held.enter_context(database.writing())
        database.save_settings(SETTINGS, clear=True)
        return database.store(SETTINGS)

    def test_another_process_sees_it(self, store: Store, tmp_path: Path) -> None:
        store.add([video(30)], [file("/v/30.mp4", 30)])
        store.remove([video(0)[0].id], [])
        other = MilvusDatabase(self.address(tmp_path)).store(SETTINGS).view()
        assert other.count() == 40
        assert other.search(video(30)[1].vectors[2], 1).videos == [video(30)[0].id]
        assert video(0)[0].id not in other.videos

    def test_what_a_killed_writer_left_is_undone(
        self, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = store.view()

        def killed(**changes: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(store.database, "commit", killed)
            with pytest.raises(KeyboardInterrupt):
                store.add([video(30)], [file("/v/30.mp4", 30), file("/v/3.mp4", 30)])
            with pytest.raises(KeyboardInterrupt):
                store.remove([video(1)[0].id], ["/v/2.mp4"])
        other = MilvusDatabase(self.address(tmp_path)).store(SETTINGS).view()
        for view in (before, store.view(), other):
            assert view.count() == 40
            assert dict(view.files) == {f"/v/{n}.mp4": file(f"/v/{n}.mp4", n) for n in range(8)}
        store.add([video(30)], [file("/v/30.mp4", 30)])
        assert store.view().count() == 45
        assert store.database.count("id != ''", width=WIDTH) == 45  # nothing is there twice

    def test_one_writer_at_a_time(self, store: Store, tmp_path: Path) -> None:
        other = MilvusDatabase(self.address(tmp_path))
        assert other.is_busy()
        with pytest.raises(SearchError, match="is writing to the index"), other.writing():
            pass
        self.held.close()
        assert not other.is_busy()
        with other.writing():
            other.store(SETTINGS).add([video(30)], [])
        with pytest.raises(SearchError, match="another process has taken over"):
            store.add([video(31)], [])

    def test_an_index_made_again_forgets_all(self, store: Store, tmp_path: Path) -> None:
        database, view = store.database, store.view()
        store.set_value("a", b"1")
        database.save_settings(IndexSettings("another", "2", "none", 4, 1, 1.0, 8), clear=True)
        assert store.view() is view
        fresh = database.store(database.settings())
        assert (fresh.view().count(), len(fresh.view().files), fresh.value("a")) == (0, 0, None)
        database.remove()
        with pytest.raises(IndexNotFound):
            database.settings()

    def test_a_filter_that_many_pass_is_checked_afterwards(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(reading, "MAX_IDS", 1)
        monkeypatch.setattr(rows, "PAGE_ROWS", 3)
        from centerclip.search.filters import Filters

        hits = store.view().search(unit(1, 78)[0], 12, among=Filters(name="[1-3]*"))
        assert len(hits.videos) == 12
        assert set(hits.videos) == {video(n)[0].id for n in (1, 2, 3)}

    def test_a_large_value_comes_back(self, store: Store) -> None:
        for number in range(3):
            large = bytes(range(256)) * 1000 + bytes([number])
            store.set_value("a", large)
            assert store.value("a") == large
            store.set_value("a", b"small")
            assert store.value("a") == b"small"


class TestMilvusLite(MilvusConformance):
    def address(self, folder: Path) -> str:
        return f"milvus://{folder}/milvus.db/conformance"


@pytest.mark.parametrize(
    "address", ["milvus://", "milvus://host:1/", "milvus://host:1/a b", "milvus:///name", "milvus://host:1/a_512"]
)
def test_a_wrong_address_is_said_to_be(address: str) -> None:
    with pytest.raises(SearchError, match="write it as milvus://host:19530/name"):
        MilvusDatabase(address)


def test_a_server_that_is_not_there_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "READ_SECONDS", 0.5)
    with pytest.raises(SearchError, match=r"milvus://127.0.0.1:1/a cannot be used: .* Is it running"):
        MilvusDatabase("milvus://user:secret@127.0.0.1:1/a").settings()
