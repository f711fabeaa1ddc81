"""The progress bar of every command, and how paths and times are printed."""

import os
import sys
from pathlib import Path

import pytest

from centerclip.cli.common import FETCHING, clock, count, length, printable, progress, show_downloads, this_command
from centerclip.model import hub
from centerclip.search import Progress


@pytest.fixture(params=[False, True], ids=["pipe", "terminal"])
def terminal(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether stderr counts as a terminal."""
    for name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "120")
    if request.param:
        monkeypatch.setenv("FORCE_COLOR", "1")
    return bool(request.param)


def test_the_bar_is_for_terminals_and_on_stderr(terminal: bool, capsys: pytest.CaptureFixture[str]) -> None:
    with progress("indexing") as bar:
        bar(3, 10, "7.0 h of video an hour")
        bar.kind("sentences", 2, 4)
        bar._bars.refresh()
    out, err = capsys.readouterr()
    assert not out
    assert bool(err) == terminal
    if terminal:
        assert all(text in err for text in ("indexing", "3 of 10", "7.0 h of video an hour", "sentences", "2 of 4"))


def test_indexing_shows_videos_and_the_time_left(terminal: bool, capsys: pytest.CaptureFixture[str]) -> None:
    with progress("indexing") as bar:
        bar.indexing(Progress(finished=22, total=67, video_seconds=60, seconds=180, total_seconds=180))
        bar._bars.refresh()
    text = capsys.readouterr().err
    assert all(part in text for part in ("22 of 67 videos", "about 6 min left")) == terminal


def test_a_download_shows_size_rate_and_time_left(
    terminal: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    show_downloads()
    [open_bar] = hub._progress
    with progress("indexing") as bar, open_bar() as on_bytes:  # the model of a new index
        seconds = iter(range(1000))
        monkeypatch.setattr(bar._bars, "get_time", lambda: float(next(seconds)))
        for done in range(0, 300_000_000, 20_000_000):
            on_bytes(done, 605_000_000)
        bar._bars.refresh()
        on_bytes(605_000_000, 605_000_000)
        assert [task.description for task in bar._bars.tasks] == ["indexing"]
    text = capsys.readouterr().err
    assert all(part in text for part in (FETCHING, "280.0 MB of 605.0 MB", "MB a second", "seconds left")) == terminal


def test_lengths_and_counts_in_words() -> None:
    assert [length(seconds) for seconds in (0.2, 1, 6.4, 61, 725, 9000)] == [
        "0 seconds",
        "1 second",
        "6 seconds",
        "1 min",
        "12 min",
        "2.5 hours",
    ]
    assert [count(number, "video") for number in (0, 1, 1200)] == ["0 videos", "1 video", "1,200 videos"]


def test_commands_to_copy_start_with_what_the_shell_finds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "argv", [".venv/bin/centerclip", "demo"])
    assert this_command() == ".venv/bin/centerclip"
    monkeypatch.setattr(sys, "argv", ["/somewhere/centerclip/__main__.py", "demo"])
    assert this_command() == f"{sys.executable} -m centerclip"
    (tmp_path / "centerclip").touch(mode=0o755)
    assert this_command() == "centerclip"


def test_a_quiet_bar_prints_nothing(terminal: bool, capsys: pytest.CaptureFixture[str]) -> None:
    with progress("indexing", quiet=True) as bar:
        bar(3, 10)
        bar.kind("sentences", 2, 4)
    assert capsys.readouterr() == ("", "")


def test_times_have_hours_only_where_there_are_any() -> None:
    assert [clock(seconds) for seconds in (0, 59.9, 123, 3600, 36_061)] == [
        "0:00",
        "0:59",
        "2:03",
        "1:00:00",
        "10:01:01",
    ]


def test_paths_are_printed_without_control_codes_and_in_valid_text() -> None:
    assert printable(Path("a b/ü[red].mp4")) == str(Path("a b/ü[red].mp4"))
    assert printable("x\x1b[31m\n") == "x\\x1b[31m\\n"
    assert printable(os.fsdecode(b"caf\xe9.mp4")) == "caf\ufffd.mp4"
