"""The folder of an index: where it is, and one writer at a time."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from centerclip.search import IndexBusy, default_folder
from centerclip.search.folder import is_busy, writer_lock


@pytest.mark.skipif(os.name == "nt", reason="no fcntl")
def test_asking_whether_an_index_is_busy_never_stops_a_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer starts at the very moment when `is_busy` holds its lock."""
    import fcntl

    with writer_lock(tmp_path):
        pass  # the files of the locks are there
    asking, flock, tried = threading.current_thread(), fcntl.flock, threading.Event()
    entered: list[str] = []

    def write() -> None:
        try:
            with writer_lock(tmp_path):
                entered.append("written")
        except IndexBusy as error:
            entered.append(str(error))

    writer = threading.Thread(target=write)

    def flock_and_wait(file: object, flags: int) -> None:
        if threading.current_thread() is asking:
            flock(file, flags)  # type: ignore[arg-type]
            writer.start()
            assert tried.wait(60)
            return
        try:
            flock(file, flags)  # type: ignore[arg-type]
        finally:
            tried.set()

    monkeypatch.setattr(fcntl, "flock", flock_and_wait)
    assert not is_busy(tmp_path)
    writer.join()
    assert entered == ["written"]


def test_a_writer_in_another_process_is_seen_and_named(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from centerclip.search.folder import writer_lock\n"
        f"with writer_lock(Path({str(tmp_path)!r})):\n"
        "    print('writing', flush=True); sys.stdin.readline()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "writing\n"
        assert is_busy(tmp_path)
        assert is_busy(tmp_path)
        with (
            pytest.raises(IndexBusy, match=rf"PID {other.pid}, since .*is writing to the index"),
            writer_lock(tmp_path),
        ):
            pass
        other.communicate("\n")
    assert not is_busy(tmp_path)
    with writer_lock(tmp_path):
        assert is_busy(tmp_path)


def test_a_folder_without_an_index_is_not_busy(tmp_path: Path) -> None:
    assert not is_busy(tmp_path / "none")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="the folders of Linux")
def test_the_folder_of_an_index_without_a_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CENTERCLIP_INDEX", raising=False)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_folder() == tmp_path / ".local" / "share" / "centerclip" / "index"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert default_folder() == tmp_path / "data" / "centerclip" / "index"
    monkeypatch.setenv("CENTERCLIP_INDEX", "~/mine")
    assert default_folder() == tmp_path / "mine"
