"""``centerclip evaluate``: what people and programs see, and exit codes 0, 1 and 2."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from centerclip import data
from centerclip.cli import app
from centerclip.data import load
from centerclip.evaluation import Evaluation
from tests.data.made_up import text
from tests.evaluation.made_up import coloured
from tests.model import tiny


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training run's folder with a model, clips, and two saved results of them."""
    folder = tmp_path_factory.mktemp("place")
    coloured(folder / "clips")
    tiny.center_clip("B2-2,5", frames=4).save_pretrained(folder / "run" / "best")
    for name, options in (("centres", []), ("none", ["--clustering", "none", "--rule", "renormalise"])):
        result = run(
            "evaluate",
            folder / "run",
            "folder",
            "--root",
            folder / "clips",
            "--workers",
            0,
            "-o",
            folder / name,
            *options,
        )
        assert result.exit_code == 0, result.output
    return folder


def test_the_table_says_what_it_is_of_and_fits_a_page(place: Path) -> None:
    command = ("evaluate", place / "run", "folder", "--root", place / "clips", "--workers", 0)
    result = run(*command)
    saved = Evaluation.load(place / "centres")
    assert result.exit_code == 0
    assert saved.label() in result.stdout
    assert "B2-2,5, 4 frames" in result.stdout
    low, high = saved.interval("t2v", "MnR")
    assert f"{saved.metrics['t2v']['MnR']:.1f} ±{(high - low) / 2:.1f}" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 100
    weighed = "kmedoids[proportional]:B2-2,5"  # square brackets are no markup
    assert weighed in run(*command, "--clustering", weighed).stdout


def test_json_has_everything_and_the_gallery_shrinks_only_when_allowed(place: Path, tmp_path: Path) -> None:
    clips = tmp_path / "clips"
    coloured(clips)
    text(clips / "v1.mp4", "no video")
    (clips / "v2.mp4").unlink()
    command = ("evaluate", place / "run", "folder", "--root", clips, "--workers", 0, "--json")
    assert "--allow-missing" in str(run(*command).exception)
    assert "--allow-unreadable" in str(run(*command, "--allow-missing").exception)
    result = run(*command, "--allow-missing", "--allow-unreadable", "--dual-softmax")
    assert result.exit_code == 0
    content = json.loads(result.stdout)
    assert content["missing"] == ["v2"]
    assert list(content["unreadable"]) == ["v1"]
    assert content["gallery"] == 7
    assert "7 of 9 videos (1 missing, 1 unreadable)" in content["label"]
    assert "DUAL SOFTMAX" in content["label"]
    assert set(content["intervals"]["v2t"]) == set(content["metrics"]["t2v"]) == {"R1", "R5", "R10", "MdR", "MnR"}


def test_two_results_side_by_side(place: Path) -> None:
    shown = run("evaluate", "--compare", place / "centres", place / "none" / "evaluation.json")
    assert shown.exit_code == 0, shown.output
    assert f"A: {place / 'centres'}, B2-2,5, 4 frames" in shown.stdout
    assert "rule renormalise" in shown.stdout
    assert "B - A" in shown.stdout
    content = json.loads(run("evaluate", "--compare", place / "centres", place / "none", "--json").stdout)
    first, second = (content[which]["metrics"]["v2t"]["MnR"] for which in ("first", "second"))
    assert content["difference"]["v2t"]["MnR"] == pytest.approx(second - first)
    low, high = content["intervals"]["v2t"]["MnR"]
    assert low <= second - first <= high


def test_the_protocol_is_the_model_s_own_unless_it_is_given(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny.center_clip("B2-2,5", frames=4, protocol="published").save_pretrained(tmp_path / "model")

    read_by = []
    monkeypatch.setattr(data, "load", lambda *args, **named: read_by.append(named["protocol"]) or load(*args, **named))

    def protocol(model: Path, *options: object) -> str:
        command = ("evaluate", model, "folder", "--root", place / "clips", "--workers", 0, "--json", *options)
        content = json.loads(run(*command).stdout)
        assert f"protocol {content['protocol']}" in content["label"]
        assert read_by.pop() == content["protocol"]  # which parts of the videos and captions are read
        return str(content["protocol"])

    assert protocol(place / "run") == "clean"
    assert protocol(tmp_path / "model") == "published"
    assert protocol(tmp_path / "model", "--protocol", "clean") == "clean"
    assert protocol(place / "run", "--protocol", "published", "-o", tmp_path / "published") == "published"
    other = run("evaluate", "--compare", place / "centres", tmp_path / "published")
    assert other.exit_code == 0
    assert "A was run with the protocol clean, B with published" in other.stdout
    assert "was run with the protocol" not in run("evaluate", "--compare", place / "centres", place / "none").stdout


def test_the_folder_of_a_training_run_means_its_test_result(place: Path, tmp_path: Path) -> None:
    saved = Evaluation.load(place / "centres")
    saved.save(tmp_path / "evaluation" / "val")
    command = ("evaluate", "--compare", tmp_path, place / "centres")
    assert run(*command).exit_code == 0  # there is only one
    saved.save(tmp_path / "evaluation" / "test")
    assert str(tmp_path / "evaluation" / "test") in run(*command).stdout
    assert str(tmp_path / "evaluation" / "val") in run(*command, "--split", "val").stdout.splitlines()[0]
    assert "has no evaluation of train; name one of" in str(run(*command, "--split", "train").exception)
    assert "has no evaluation.json" in str(run("evaluate", "--compare", tmp_path / "none", tmp_path).exception)


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        ["model", "folder"],
        ["model", "foldr", "--root", "."],
        ["model", "folder", "--root", ".", "--split", "tset"],
        ["model", "folder", "--root", ".", "--clustering", "B6"],
        ["model", "folder", "--root", ".", "--rule", "best"],
        ["model", "folder", "--root", ".", "--protocol", "paper"],
        ["model", "--compare", "a", "b"],
    ],
)
def test_wrong_usage_is_2(wrong: list[str]) -> None:
    assert run("evaluate", *wrong).exit_code == 2
