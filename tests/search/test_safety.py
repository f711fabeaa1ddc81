"""Killed with -9 at any moment, out of disk, searched while written: the index opens and the next run continues."""

import errno
import multiprocessing
import os
import random
import shutil
import sqlite3
import time
from contextlib import closing
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest

from centerclip import VideoIndex
from centerclip.search import IndexBusy, sqlite
from tests.search import child
from tests.search.collection import cannot_open, clip, titles

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals and limits of POSIX")
COUNT = 14


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("videos")
    for number in range(COUNT):
        clip(folder / f"{number:02}.mp4", number, seconds=1 + number % 3)
    return folder


def start(folder: Path, videos: Path, model: Path, file_limit: int = 0) -> tuple[ForkServerProcess, Connection]:
    """A fresh process that indexes; the server it is forked from has done the slow imports."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "transformers.models.clip.modeling_clip", "centerclip.model"])
    ours, theirs = context.Pipe()
    process = context.Process(target=child.index, args=(theirs, str(folder), str(videos), str(model), file_limit))
    process.start()
    theirs.close()
    return process, ours


def outcome(process: ForkServerProcess, pipe: Connection) -> object:
    """Let the process run to its end; what it says then."""
    told: object = None
    while True:
        try:
            told = pipe.recv()
            if not isinstance(told, tuple):
                process.join()
                return told
            pipe.send("continue")
        except (EOFError, BrokenPipeError):
            return told


def check_integrity(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "index.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        for table in ("line", "file"):  # nothing is found that is not there
            query = f"SELECT count(*) FROM {table}_words WHERE rowid NOT IN (SELECT key FROM {table})"
            assert connection.execute(query).fetchone() == (0,)


def test_killed_at_any_moment_what_was_done_is_there_and_the_next_run_continues(
    videos: Path, model: Path, tmp_path: Path
) -> None:
    chance = random.Random(7)
    done = 0
    for commits in (1, 2, 4):
        process, pipe = start(tmp_path / "index", videos, model)
        finished = 0
        for number in range(commits):
            message = pipe.recv()
            if not isinstance(message, tuple):  # all was done before the last commit that was waited for
                break
            finished, total = message
            assert total == COUNT - done
            if number + 1 < commits:
                pipe.send("continue")
        if commits > 1 and finished:  # the first run is killed while it waits, so it is sure to leave work undone
            pipe.send("continue")
            time.sleep(chance.random() * 0.05)
        process.kill()
        process.join()
        check_integrity(tmp_path / "index")
        index = VideoIndex(tmp_path / "index")
        there = titles(index)
        assert len(there) >= done + finished
        assert len(index.search("a dog", top=100, collapse=False)) == len(there)
        done = len(there)
        if commits == 1:
            assert 0 < done < COUNT
    report = VideoIndex(tmp_path / "index").add(videos)
    assert (report.added, report.recognised) == (COUNT - done, 0)  # a video is there with its file or not at all
    assert titles(VideoIndex(tmp_path / "index")) == [f"{number:02}" for number in range(COUNT)]


def test_searching_works_while_another_process_indexes_and_a_second_one_may_not(
    videos: Path, model: Path, tmp_path: Path
) -> None:
    process, pipe = start(tmp_path / "index", videos, model)
    index = VideoIndex(tmp_path / "index", model=model)
    seen: list[int] = []
    told = pipe.recv()
    while isinstance(told, tuple):
        seen.append(len(index.search("a dog", top=100, collapse=False)))
        assert seen[-1] == told[0]
        with pytest.raises(IndexBusy, match="is writing to the index"):
            index.add(videos)
        pipe.send("continue")
        told = pipe.recv()
    process.join()
    assert told == COUNT
    assert seen[0] < COUNT
    assert len(index.search("a dog", top=100, collapse=False)) == COUNT


@pytest.mark.parametrize("limit", [40_000, 90_000, 200_000])  # bytes of a file: before the first commit, within others
def test_a_full_disk_is_a_clear_stop_and_the_index_still_opens(
    videos: Path, model: Path, tmp_path: Path, limit: int
) -> None:
    (tmp_path / "few").mkdir()
    for number in range(3):
        os.link(videos / f"{number:02}.mp4", tmp_path / "few" / f"{number:02}.mp4")
    index = VideoIndex(tmp_path / "index", model=model)
    index.add(tmp_path / "few")
    told = outcome(*start(tmp_path / "index", videos, model, file_limit=limit))
    assert isinstance(told, str)
    assert told.startswith("DiskFull: the disk is full")
    assert "run the same command again" in told
    check_integrity(tmp_path / "index")
    fresh = VideoIndex(tmp_path / "index")
    assert titles(fresh)[:3] == ["00", "01", "02"]
    assert len(fresh.search("a dog", top=100, collapse=False)) == len(titles(fresh)) < COUNT
    index.add(videos)
    assert len(titles(fresh)) == COUNT


def test_a_reader_that_is_open_sees_the_collection_after_reindex(videos: Path, model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "videos"
    folder.mkdir()
    for number in range(3):
        shutil.copy(videos / f"{number:02}.mp4", folder)
    VideoIndex(tmp_path / "index", model=model).add(folder)
    reader = VideoIndex(tmp_path / "index")
    assert len(reader.search("a dog", collapse=False)) == 3
    (folder / "00.mp4").unlink()
    VideoIndex(tmp_path / "index").add(folder, reindex=True)
    assert titles(reader) == ["01", "02"]
    assert sorted(hit.title for hit in reader.search("a dog", collapse=False)) == ["01", "02"]


def test_searching_writes_nothing(videos: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So it works on a full disk and on a read-only mount, where SQLite cannot make its own files either."""
    index = VideoIndex(tmp_path / "index", model=model)
    index.add(videos / "00.mp4", videos / "01.mp4")
    index.close()
    before = {path: path.stat().st_mtime_ns for path in index.folder.iterdir()}
    assert sorted(path.name for path in before) == ["busy.lock", "index.db", "writer.lock"]

    def refuse(*arguments: object, **options: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    def connect_read_only(path: Path, mode: str) -> sqlite3.Connection:
        modes.append(mode)
        if "immutable" not in mode:
            raise cannot_open()
        return connect(path, mode)

    connect, modes = sqlite.connect, list[str]()
    for function in ("mkdir", "write_bytes", "write_text", "replace", "unlink"):
        monkeypatch.setattr(Path, function, refuse)
    monkeypatch.setattr("tempfile.mkdtemp", refuse)
    monkeypatch.setattr(sqlite, "connect", connect_read_only)
    reader = VideoIndex(index.folder)
    assert len(reader.search("a dog", collapse=False)) == 2
    assert reader.status().videos == 2
    assert modes[-1] == "mode=ro&immutable=1"
    assert {path: path.stat().st_mtime_ns for path in index.folder.iterdir()} == before
