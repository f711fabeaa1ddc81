"""``centerclip data``: what people and programs see, and exit codes 0, 1 and 2."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from centerclip.cli.data import app
from centerclip.data import load
from centerclip.errors import CenterClipError
from tests.data.made_up import clip, lsmdc, table, text


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two captioned clips that are there."""
    text(tmp_path / "captions.csv", table([("video", "caption", "split"), ("a", "x", "test"), ("b", "y", "test")]))
    for name in "ab":
        clip(tmp_path / f"{name}.mp4")
    return tmp_path


def test_a_whole_folder_is_fine(folder: Path) -> None:
    result = run("verify", "folder", "--root", folder, "--workers", 1)
    assert result.exit_code == 0, result.output
    assert "All 2 videos found can be opened." in result.stdout
    assert load("folder", folder).fingerprint in result.stdout


def test_missing_and_unreadable_videos_are_named_in_words_and_json(folder: Path) -> None:
    (folder / "a.mp4").unlink()
    text(folder / "b.mp4", "no video")
    result = run("verify", "folder", "--root", folder, "--workers", 1)
    assert result.exit_code == 1
    assert "Missing, 1 videos:\n  a\n" in result.stdout
    assert "Unreadable, 1 of 1 videos opened:\n  b: this is not a video" in result.stdout
    assert "missing videos: 1 (--allow-missing accepts a smaller gallery)" in result.stderr
    told = json.loads(run("verify", "folder", "--root", folder, "--workers", 1, "--json").stdout)
    assert (told["ok"], told["missing"]) == (False, ["a"])
    assert list(told["unreadable"]) == ["b"]
    assert told["splits"][0]["found"] == 1


def test_missing_videos_and_other_counts_can_be_allowed(folder: Path) -> None:
    (folder / "a.mp4").unlink()
    allowed = run("verify", "folder", "--root", folder, "--allow-missing", "--quick")
    assert allowed.exit_code == 0
    assert "Missing, 1 videos:\n  a" in allowed.stdout
    lsmdc(folder)
    refused = run("verify", "lsmdc", "--root", folder, "--quick")
    assert refused.exit_code == 1
    assert "test has 2 videos, 998 fewer than the 1,000 published" in refused.stderr
    assert run("verify", "lsmdc", "--root", folder, "--quick", "--allow-missing").exit_code == 0


@pytest.mark.parametrize("wrong", [["mrsvtt"], ["msvd", "--split", "tset"], ["msvd", "--workers", "0"], []])
def test_wrong_usage_is_2(folder: Path, wrong: list[str]) -> None:
    assert run("verify", "--root", folder, *wrong).exit_code == 2
    assert run("prepare", folder).exit_code == 2


def test_work_that_cannot_be_done_is_an_error_of_ours(folder: Path) -> None:
    for arguments in (("verify", "msvd", "--root", folder), ("prepare", folder / "none", folder / "out")):
        result = run(*arguments)
        assert result.exit_code == 1
        assert isinstance(result.exception, CenterClipError)


def test_prepare_tells_what_it_did_and_what_failed(folder: Path, tmp_path: Path) -> None:
    text(folder / "bad.mp4", "no video")
    target = tmp_path / "small"
    result = run("prepare", folder, target, "--workers", 1, "--short-side", 32)
    assert result.exit_code == 1
    assert "2 encoded, 0 already there, 1 failed." in result.stdout
    assert "  bad.mp4: this is not a video" in result.stdout
    assert "1 videos failed; all are in" in result.stderr
    (folder / "bad.mp4").unlink()
    again = run("prepare", folder, target, "--short-side", 32, "--json")
    assert again.exit_code == 0
    told = json.loads(again.stdout)
    assert (told["done"], told["skipped"], told["failed"]) == (0, 2, {})
    assert run("verify", "folder", "--root", target, "--annotations", folder, "--quick").exit_code == 0
