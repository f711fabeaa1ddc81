"""Files with the same content are one video; what happens to one of them does not happen to the others."""

import os
import shutil
from pathlib import Path

import pytest

from centerclip import VideoIndex
from centerclip.search.indexer import Indexer
from centerclip.search.store import File
from tests.search.collection import clip, open_tiny


@pytest.fixture
def copies(tmp_path: Path) -> tuple[Path, Path]:
    first = clip(tmp_path / "videos" / "a.mp4", 1)
    second = Path(shutil.copyfile(first, tmp_path / "videos" / "b.mp4"))
    return first, second


def test_a_file_that_is_touched_while_it_is_read_does_not_spoil_its_copy(
    tmp_path: Path, copies: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = copies
    read, calls = Indexer._read, []

    def touch_then_read(self: Indexer, task: object, deliver: object) -> bool:
        calls.append(task)
        if len(calls) == 1:  # what another thread and another program may do meanwhile, in a fixed order
            status = second.stat()
            assert self._decode(File(str(second), status.st_size, status.st_mtime_ns, ""), deliver) is None
            os.utime(first, ns=(0, 0))
        return read(self, task, deliver)

    index = VideoIndex(tmp_path / "index", model=open_tiny())
    monkeypatch.setattr(Indexer, "_read", touch_then_read)
    # As if the copy had been there when the run began: its size says that the content has to be looked at first.
    monkeypatch.setattr(
        "centerclip.search.indexer._same_size", lambda view, files: [([file], frozenset({"x"})) for file in files]
    )
    report = index.add(first)
    assert report.added == 1
    assert list(report.failed) == [str(first)]
    assert "changed while it was read" in report.failed[str(first)]
    assert [entry.path for entry in index.videos()] == [second]
    monkeypatch.undo()
    report = index.add(tmp_path / "videos")  # without --retry
    assert (report.added, report.recognised, report.unchanged, report.failed) == (0, 1, 1, {})
    assert [entry.copies for entry in index.videos()] == [(second,)]


def test_copies_of_a_damaged_video_all_fail_and_are_read_once(tmp_path: Path, copies: tuple[Path, Path]) -> None:
    first, second = copies
    for path in copies:
        path.write_bytes(path.read_bytes()[:900])
    index = VideoIndex(tmp_path / "index", model=open_tiny())
    report = index.add(tmp_path / "videos")
    assert sorted(report.failed) == [str(first), str(second)]
    assert len(set(report.failed.values())) == 1
    assert index.videos() == []
