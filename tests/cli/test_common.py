"""The progress bar of every command, and how paths and times are printed."""

import os
from pathlib import Path

import pytest

from centerclip.cli.common import clock, printable, progress


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
        assert all(text in err for text in ("indexing", "3/10", "7.0 h of video an hour", "sentences", "2/4"))


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
