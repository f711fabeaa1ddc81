"""Videos in object storage are indexed, found, read and dropped as those of a disk are; here with one in memory."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFile, MemoryFileSystem

from centerclip import VideoIndex
from centerclip.errors import MissingExtra
from centerclip.files import find_videos, is_address, path_of
from centerclip.search import SearchError
from centerclip.search.export import save_clip
from tests.search.collection import clip, content
from tests.server.site import site
from tests.video.subtitled import srt

ROOT = "memory://bucket/films"


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[fsspec.AbstractFileSystem]:
    """A bucket with two clips, one of them with subtitles and in a folder below, and what is no video."""
    system = fsspec.filesystem("memory")
    opened = MemoryFileSystem._open

    def open_separately(self: MemoryFileSystem, path: str, mode: str = "rb", **named: object) -> MemoryFile:
        """All who read a file in memory would share one place in it, and it is hashed while it is decoded."""
        file = opened(self, path, mode, **named)
        return MemoryFile(self, file.path, file.getvalue()) if mode == "rb" else file

    for number, name in enumerate(("a.mp4", "deep/b c.mp4")):
        system.pipe(f"/bucket/films/{name}", clip(tmp_path / "disk" / name, number, seconds=2 + number).read_bytes())
    system.pipe("/bucket/films/deep/b c.srt", srt((0.5, 1.5, "the misplaced ledger")).encode())
    for name in (".hidden/d.mp4", "notes.txt", "skipped/e.mp4"):
        system.pipe(f"/bucket/films/{name}", b"nothing")
    system.pipe("/bucket/films/.centerclipignore", b"skipped\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryFileSystem, "_open", open_separately)
        yield system
    system.rm("/bucket", recursive=True)


def test_what_an_address_is() -> None:
    assert all(map(is_address, ("s3://bucket/a", "gs://b", ROOT)))
    assert not any(map(is_address, ("/a/b", "C:\\a", "a:b", "s3:/b", "http://a/b", "file:///a")))
    film = path_of("s3://bucket/deep") / "film.mp4"
    assert (str(film), str(film.parent), film.name, film.suffix) == (
        "s3://bucket/deep/film.mp4", "s3://bucket/deep", "film.mp4", ".mp4",
    )  # fmt: skip
    assert str(film.with_name("film.srt")) == "s3://bucket/deep/film.srt"


def test_a_bucket_is_indexed_as_a_folder_is(storage: fsspec.AbstractFileSystem, model: Path, tmp_path: Path) -> None:
    index, local = (VideoIndex(tmp_path / name, model=model) for name in ("remote", "local"))
    local.add(tmp_path / "disk")
    report = index.add(ROOT)
    assert (report.added, report.failed) == (2, {})
    by_name = {Path(path).name: each for path, each in content(local).items()}
    assert content(index) == {f"{ROOT}/a.mp4": by_name["a.mp4"], f"{ROOT}/deep/b c.mp4": by_name["b c.mp4"]}
    assert not any(entry.offline for entry in index.videos())
    hit = index.search("ledger", where="text")[0]
    assert (str(hit.path), hit.line.text if hit.line else "") == (f"{ROOT}/deep/b c.mp4", "the misplaced ledger")
    assert len(index.search("a dog", folder=f"{ROOT}/deep", collapse=False)) == 1
    assert save_clip(hit, tmp_path / "saved").stat().st_size > 1000
    again = index.add()
    assert (again.unchanged, again.added) == (2, 0)


def test_what_is_new_changed_and_gone_is_noticed(
    storage: fsspec.AbstractFileSystem, model: Path, tmp_path: Path
) -> None:
    index = VideoIndex(tmp_path / "index", model=model)
    index.add(ROOT)
    storage.pipe("/bucket/films/a.mp4", clip(tmp_path / "other.mp4", 7, seconds=3).read_bytes())
    storage.rm("/bucket/films/deep/b c.mp4")
    report = index.add()
    assert (report.added, report.removed) == (1, 1)
    assert [str(entry.path) for entry in index.videos()] == [f"{ROOT}/a.mp4"]
    storage.rm("/bucket/films/a.mp4")
    assert index.add().not_dropped == [ROOT]  # all of it is gone: it may be the storage
    assert len(index.videos()) == 1
    assert index.remove(f"{ROOT}/a.mp4") == 1


def test_a_list_names_files_and_addresses_and_is_no_part_of_later_runs(
    storage: fsspec.AbstractFileSystem, model: Path, tmp_path: Path
) -> None:
    names = tmp_path / "films.txt"
    names.write_text(f"# two\n{ROOT}/a.mp4\n\n{Path('disk', 'deep', 'b c.mp4')}\n{tmp_path / 'gone.mp4'}\n")
    index = VideoIndex(tmp_path / "index", model=model)
    report = index.add(names)
    assert (report.added, report.failed) == (2, {str(tmp_path / "gone.mp4"): "unreadable: No such file or directory"})
    assert {str(entry.path) for entry in index.videos()} == {f"{ROOT}/a.mp4", str(tmp_path / "disk/deep/b c.mp4")}
    assert index.status().roots == ()
    with pytest.raises(SearchError, match="nothing to index"):
        index.add()
    storage.rm("/bucket/films/a.mp4")
    assert (index.add(names).removed, len(index.videos())) == (1, 1)
    names.write_text(str(tmp_path))
    assert "this is a folder" in index.add(names).failed[str(tmp_path)]


def test_a_storage_that_is_away_says_so_and_loses_nothing(
    storage: fsspec.AbstractFileSystem, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = VideoIndex(tmp_path / "index", model=model)
    index.add(ROOT)

    def fail(*arguments: object, **options: object) -> None:
        raise RuntimeError("cannot connect to the endpoint\nand more")

    for method in ("info", "ls", "open"):
        monkeypatch.setattr(type(storage), method, fail)
    report = index.add()
    assert report.failed == {ROOT: "unreadable: cannot connect to the endpoint"}
    assert len(index.videos()) == 2
    with pytest.raises(SearchError, match=r"memory://bucket/other.* cannot be read: cannot connect"):
        index.add("memory://bucket/other")
    assert list(find_videos(path_of(ROOT))) == []


def test_the_page_plays_it(storage: fsspec.AbstractFileSystem, model: Path, tmp_path: Path) -> None:
    index = VideoIndex(tmp_path / "index", model=model)
    index.add(ROOT)
    ids = {entry.title: entry.video_id for entry in index.videos()}
    whole = storage.cat("/bucket/films/a.mp4")
    with site(tmp_path, index) as served, served.client() as client:
        assert {folder["name"] for folder in client.get("/api/folders").json()["folders"]} == {"films", "films/deep"}
        assert client.get(f"/api/videos/{ids['a']}").json()["file"] == "there"
        assert client.get(f"/api/videos/{ids['a']}/frames/1.jpg").headers["content-type"] == "image/jpeg"
        part = client.get(f"/api/videos/{ids['a']}/stream", headers={"range": "bytes=10-99"})
        assert (part.status_code, part.content) == (206, whole[10:100])
        storage.rm("/bucket/films/deep/b c.mp4")
        assert client.get(f"/api/videos/{ids['b c']}").json()["file"] == "missing"


def test_what_is_not_there_says_so(model: Path, tmp_path: Path) -> None:
    index = VideoIndex(tmp_path / "index", model=model)
    with pytest.raises(SearchError, match=r"there is no file or folder '.*nowhere:/bucket'"):
        index.add("nowhere://bucket")
    with pytest.raises(SearchError, match="there is no file or folder 'memory://no/bucket'"):
        index.add("memory://no/bucket")


@pytest.mark.skipif(find_spec("s3fs") is not None, reason="s3fs is installed")
def test_a_missing_package_says_what_to_type(model: Path, tmp_path: Path) -> None:
    with pytest.raises(MissingExtra, match=r"centerclip\[s3\]"):
        VideoIndex(tmp_path / "index", model=model).add("s3://bucket")
