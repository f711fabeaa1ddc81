"""Files that change, grow, vanish or are replaced while they are read; names and kinds of files nobody expects."""

import os
import shutil
import socket
import threading
from pathlib import Path

import pytest

from centerclip import VideoIndex
from centerclip.files import find_videos, move_into_place, write_atomic
from centerclip.search import indexer
from centerclip.server.media import DiskCache
from tests.search.collection import clip, save_model, titles

pytestmark = pytest.mark.skipif(os.name == "nt", reason="file kinds of POSIX")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("clips")
    return [clip(folder / f"{number}.mp4", number, seconds=1) for number in range(3)]


def change(path: Path) -> None:
    path.write_bytes(path.read_bytes()[::-1])


def grow(path: Path) -> None:
    with path.open("ab") as file:
        file.write(bytes(1000))


def replace(path: Path) -> None:
    shutil.copy(path, path.with_suffix(".new"))
    path.unlink()
    path.with_suffix(".new").rename(path)


def lock(path: Path) -> None:
    path.chmod(0)
    os.utime(path, (0, 0))


@pytest.mark.parametrize("fault", [change, grow, replace, Path.unlink, lock])
def test_a_file_that_changes_while_it_is_read_is_not_indexed_as_another(
    clips: list[Path], model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: object
) -> None:
    """It is a failure of this run with a reason, the others are indexed, and the next run takes it as it is then."""
    for path in clips:
        shutil.copy(path, tmp_path)
    target = tmp_path / "1.mp4"
    hashed = indexer.content_id

    def change_after_hashing(path: Path, *rest: object) -> str:
        result = hashed(path, *rest)  # type: ignore[arg-type]
        if path == target:
            fault(path)  # type: ignore[operator]
        return result

    with monkeypatch.context() as patch:
        patch.setattr(indexer, "content_id", change_after_hashing)
        index = VideoIndex(tmp_path / "index", model=model)
        report = index.add(tmp_path)
    assert titles(index) == ["0", "2"]
    assert "changed while it was read" in report.failed[str(target)]
    if target.exists():
        target.chmod(0o600)
    shutil.copy(clips[1], target)
    assert index.add().added == 1
    assert titles(index) == ["0", "1", "2"]


def test_odd_files_and_names_stop_nothing(clips: list[Path], model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "videos"
    (folder / "loop").mkdir(parents=True)
    (folder / "loop" / "again").symlink_to(folder)
    (folder / "self.mp4").symlink_to(folder / "self.mp4")
    (folder / "nowhere.mp4").symlink_to(tmp_path / "nowhere")
    os.mkfifo(folder / "pipe.mp4")
    (folder / "device.mp4").symlink_to("/dev/zero")
    (folder / "folder.mp4").mkdir()
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(folder / "socket.mp4"))
    names = [b"\xff\xfe latin.mp4", "日本.mp4".encode(), b"line\nbreak.mp4", b"%s%n{0}.mp4", b"a" * 251 + b".mp4"]
    for name in names:
        shutil.copy(clips[0], os.fsdecode(os.fsencode(folder) + b"/" + name))
    future = shutil.copy(clips[1], folder / "future.mp4")
    os.utime(future, (4e9, 4e9))
    past = shutil.copy(clips[2], folder / "past.mp4")
    os.utime(past, (-1e9, -1e9))
    index = VideoIndex(tmp_path / "index", model=model)
    report = index.add(folder)
    assert sum(len(entry.copies) + 1 for entry in index.videos()) == len(names) + 2
    kinds = {Path(path).name for path in report.failed}
    assert kinds == {"self.mp4", "nowhere.mp4", "pipe.mp4", "device.mp4", "socket.mp4"}
    assert all(report.failed.values())
    assert (index.add().unchanged, index.status().videos) == (len(names) + 2, 3)
    assert index.search("a dog", collapse=False)


def test_a_clock_that_goes_back_loses_nothing(
    clips: list[Path], model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(clips[0], tmp_path)
    index = VideoIndex(tmp_path / "index", model=model)
    index.add(tmp_path)
    shutil.copy(clips[1], tmp_path)
    monkeypatch.setattr("time.time", lambda: 0.0)
    assert index.add().added == 1
    os.utime(tmp_path / "0.mp4", (1.0, 1.0))  # older than when it was indexed
    assert (index.add().recognised, titles(index)) == (1, ["0", "1"])


def test_a_share_that_stalls_holds_up_only_its_own_files(
    clips: list[Path], model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are indexed and kept meanwhile; the stalled one follows when the share answers."""
    for path in clips:
        shutil.copy(path, tmp_path)
    answers, hashed = threading.Event(), indexer.content_id

    def stalled(path: Path, *rest: object) -> str:
        if path.name == "0.mp4":
            assert answers.wait(120)
        return hashed(path, *rest)  # type: ignore[arg-type]

    def tell(progress: indexer.Progress) -> None:
        if progress.finished == 2 and not answers.is_set():
            done.append(titles(VideoIndex(tmp_path / "index")))
            answers.set()

    done: list[list[str]] = []
    monkeypatch.setattr(indexer, "content_id", stalled)
    monkeypatch.setattr(indexer, "COMMIT_SECONDS", 0.0)
    VideoIndex(tmp_path / "index", model=model).add(tmp_path, decoders=2, on_progress=tell)
    assert done == [["1", "2"]]
    assert titles(VideoIndex(tmp_path / "index")) == ["0", "1", "2"]


def test_folders_that_link_to_each_other_are_walked_once(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / f"{number}.mp4").touch()
        (tmp_path / str(number) / "next").symlink_to(tmp_path / str((number + 1) % 3))
    assert [path.name for path in find_videos(tmp_path)] == ["0.mp4", "1.mp4", "2.mp4"]


def test_content_is_on_the_disk_before_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    fsync, rename = os.fsync, os.replace

    def note_sync(handle: int) -> None:
        done.append(f"sync {Path(f'/proc/self/fd/{handle}').readlink().name.partition('-')[0]}")
        fsync(handle)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(os, "replace", lambda *paths: (done.append("rename"), rename(*paths)))
    write_atomic(tmp_path / "a.txt", "text")
    assert done == ["sync .a", "rename", f"sync {tmp_path.name.partition('-')[0]}"]
    done.clear()
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "inside").write_bytes(b"1")
    move_into_place(tmp_path / "new", tmp_path / "moved")
    assert done[:3] == ["sync inside", "sync new", "rename"]
    done.clear()
    DiskCache(tmp_path / "cache", 1000).open_or_make("b", lambda path: path.write_bytes(b"1")).close()
    assert done == ["rename"], "a cache need not survive a power cut"
