"""Both stores conform; the one on disk also outlives its process and is shared between them."""

from pathlib import Path

from centerclip.search.sqlite import SqliteStore
from centerclip.search.store import Store
from tests.search.conformance import WIDTH, StoreConformance, file, unit, video
from tests.search.memory import MemoryStore


class TestMemoryStore(StoreConformance):
    def make(self, folder: Path) -> Store:
        return MemoryStore(WIDTH)


class TestSqliteStore(StoreConformance):
    def make(self, folder: Path) -> Store:
        return SqliteStore(folder, WIDTH)

    def test_another_process_sees_it(self, store: Store, tmp_path: Path) -> None:
        other = SqliteStore(tmp_path, WIDTH)
        assert other.view().count() == 40
        store.add([video(30)], [file("/v/30.mp4", 30)])
        assert other.view().count() == 45
        store.remove([video(0)[0].id], [])
        assert other.view().count() == 40
        store.tidy(unit(4, 1))
        assert other.view().search(video(30)[1].vectors[2], 1).videos == [video(30)[0].id]
