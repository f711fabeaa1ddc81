"""What differs on Windows and macOS, with fakes of those systems."""

import builtins
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from centerclip import files
from centerclip.data.minivtt import render
from centerclip.errors import CenterClipError
from centerclip.integrations import desktop
from centerclip.model import engine
from centerclip.search import roots
from centerclip.server import service

CLIP = Path("/films/a dog.mp4")


@pytest.fixture
def started(monkeypatch):
    """The commands that are started, on a machine with a desktop and no player that is known."""
    commands = []

    def run(command, **_):
        commands.append(command)
        return SimpleNamespace(returncode=1 if command[0] == "explorer" else 0)  # Explorer always returns 1

    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    monkeypatch.setattr(subprocess, "Popen", run)
    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(desktop.shutil, "which", {"open": "/usr/bin/open"}.get)
    monkeypatch.setattr(os, "startfile", lambda path: commands.append(["startfile", str(path)]), raising=False)
    return commands


@pytest.mark.parametrize(
    ("system", "shown"), [("darwin", ["open", "-R", str(CLIP)]), ("win32", ["explorer", f"/select,{CLIP}"])]
)
def test_a_file_is_shown_in_the_file_manager(started, monkeypatch, system, shown):
    monkeypatch.setattr(sys, "platform", system)
    desktop.reveal(CLIP)
    assert started == [shown]


@pytest.mark.parametrize(("system", "opened"), [("darwin", ["open", str(CLIP)]), ("win32", ["startfile", str(CLIP)])])
def test_a_video_is_opened_by_what_the_system_chooses(started, monkeypatch, system, opened):
    monkeypatch.setattr(sys, "platform", system)
    assert desktop.has_desktop()
    assert desktop.play(CLIP, 2.0) == ""
    assert started == [opened]


def test_a_player_that_no_shell_finds_takes_the_time(started, monkeypatch):
    player = r"C:\Program Files\VideoLAN\VLC\vlc.exe"
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(os.path, "exists", lambda path: path == player)
    assert desktop.play(CLIP, 2.5) == "vlc"
    assert started == [[player, "--start-time=2.50", str(CLIP)]]


def test_nobody_sees_a_window_over_ssh(started, monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.1 1 10.0.0.2 22")
    with pytest.raises(CenterClipError, match="no desktop"):
        desktop.play(CLIP, 0.0)


@pytest.mark.parametrize(("machine", "expected"), [("arm64", True), ("x86_64", False)])
def test_an_apple_gpu_is_in_apple_silicon(monkeypatch, machine, expected):
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(engine.platform, "machine", lambda: machine)
    assert engine._may_have_gpu() is expected


def test_a_driver_of_windows_may_mean_a_gpu(monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(engine, "version", lambda name: "2.13.0")
    monkeypatch.setattr(engine.os.path, "expandvars", lambda text: text.replace("%SystemRoot%", "C:\\Windows"))
    monkeypatch.setattr(Path, "exists", lambda path: str(path) == r"C:\Windows\System32\nvcuda.dll")
    assert engine._may_have_gpu()


class FakeLocks:
    """Windows' msvcrt: locks single bytes, refuses those that are locked."""

    LK_LOCK, LK_NBLCK = 1, 2

    def __init__(self):
        self.locked = set()

    def locking(self, number, kind, count):
        place = (os.fstat(number).st_ino, os.lseek(number, 0, os.SEEK_CUR))
        if place in self.locked:
            raise OSError(13, "Permission denied")
        self.locked.add(place)


def test_files_are_locked_on_windows(monkeypatch, tmp_path):
    usual = builtins.__import__

    def without_fcntl(name, *arguments, **options):
        if name == "fcntl":
            raise ImportError(name)
        return usual(name, *arguments, **options)

    monkeypatch.setitem(sys.modules, "msvcrt", FakeLocks())
    monkeypatch.setattr(builtins, "__import__", without_fcntl)
    with (tmp_path / "lock").open("ab") as first, (tmp_path / "lock").open("ab") as second:
        assert files.lock_file(first)
        assert not files.lock_file(second)


@pytest.mark.parametrize(
    ("system", "folder"),
    [("darwin", "Library/Fonts"), ("win32", "AppData/Local/Microsoft/Windows/Fonts")],
)
def test_the_emoji_font_is_looked_for_where_the_system_keeps_fonts(monkeypatch, tmp_path, system, folder):
    (tmp_path / folder).mkdir(parents=True)
    font = tmp_path / folder / render.FONT_FILE
    font.write_bytes(b"font")
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "AppData/Local"))
    assert render.find_font() == font


def test_the_peak_of_memory_is_in_bytes(monkeypatch):
    usage = SimpleNamespace(getrusage=lambda who: SimpleNamespace(ru_maxrss=4096), RUSAGE_SELF=0)
    monkeypatch.setitem(sys.modules, "resource", usage)
    monkeypatch.setattr(sys, "platform", "darwin")
    assert service._peak_memory() == 4096  # macOS counts bytes
    monkeypatch.setattr(sys, "platform", "linux")
    assert service._peak_memory() == 4096 * 1024  # Linux counts kilobytes
    monkeypatch.setitem(sys.modules, "resource", None)  # Windows has no such module
    assert service._peak_memory() == 0


def test_paths_of_windows_are_stored_with_slashes(monkeypatch):
    stored = roots.to_stored("C:\\Users\\me\\Videos\\")
    assert stored == b"C:/Users/me/Videos"
    assert roots.to_stored("D:\\") == b"D:/"
    monkeypatch.setattr(roots, "os", SimpleNamespace(name="nt", fsdecode=os.fsdecode, fsencode=os.fsencode))
    assert roots.from_stored(stored) == "C:\\Users\\me\\Videos"


def test_folders_are_not_opened_to_sync_them_on_windows(monkeypatch, tmp_path):
    opened = []
    fake = SimpleNamespace(name="nt", open=lambda path, how: opened.append(Path(path)) or 0, fsync=id, close=id,
                           O_RDONLY=0, O_RDWR=2)  # fmt: skip
    monkeypatch.setattr(files, "os", fake)
    (tmp_path / "file").touch()
    files._sync(tmp_path)
    files._sync(tmp_path / "file")
    assert opened == [tmp_path / "file"]
