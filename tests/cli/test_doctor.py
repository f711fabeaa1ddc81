"""``centerclip doctor``."""

import json
import re
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from centerclip.cli.doctor import _check_files, doctor
from tests.video.clips import make_clip

app = typer.Typer()
app.command()(doctor)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_clip(tmp_path / "good.mp4", frames=20)
    (tmp_path / "deep").mkdir()
    make_clip(tmp_path / "deep" / "other.mkv", frames=10)
    (tmp_path / "notes.txt").write_text("not looked at in a folder")
    return tmp_path


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "200"})
    return result.exit_code, result.stdout


def test_a_folder_of_good_videos_is_walked_and_passes(folder: Path) -> None:
    code, text = run(folder)
    assert code == 0
    assert "good.mp4" in text
    assert "other.mkv" in text
    assert "notes.txt" not in text
    assert text.splitlines()[0] == str(folder)
    assert "ok   good.mp4: mov h264, 64 x 48, " in text
    assert "2 checked, 2 readable, 0 not." in text


def test_on_a_terminal_no_line_is_wider_than_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a name that is itself rather long.mp4").write_text("no video")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    with pytest.raises(typer.Exit):
        _check_files([tmp_path], 12, 60.0, as_json=False)
    lines = re.sub(r"\x1b\[\d+m", "", capsys.readouterr().out).splitlines()
    assert len(lines) > 3  # the folder, the file in two lines or more, the sum
    assert all(len(line) <= 80 for line in lines[1:])
    assert all(line.startswith(" " * 5) for line in lines[2:-1])


def test_the_json_carries_the_facts(folder: Path) -> None:
    code, text = run("--json", folder / "good.mp4")
    (report,) = json.loads(text)
    assert code == 0
    assert report["ok"]
    assert (report["codec"], report["frames"], report["width"], report["height"]) == ("h264", 20, 64, 48)


def test_a_bad_file_gives_its_reason_its_advice_and_exit_code_1(folder: Path) -> None:
    code, text = run("--json", folder / "good.mp4", folder / "notes.txt", folder / "missing.mp4")
    good, notes, missing = json.loads(text)
    assert code == 1
    assert good["ok"]
    assert notes["reason"] == "not-a-video"
    assert missing["reason"] == "missing"
    assert missing["advice"] == "Check the path."


def test_names_with_markup_and_control_codes_are_shown_as_they_are(tmp_path: Path) -> None:
    clip = tmp_path / "[red]\x1b[31m.mp4"
    make_clip(clip, frames=3)
    code, text = run(clip)
    assert code == 0
    assert "[red]\\x1b[31m.mp4" in text
    assert "\x1b" not in text


def test_a_folder_without_videos_says_so(tmp_path: Path) -> None:
    code, _ = run(tmp_path)
    assert code == 1
