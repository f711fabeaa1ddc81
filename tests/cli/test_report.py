"""``centerclip report`` and ``centerclip doctor --benchmarks``."""

import json
import subprocess
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from centerclip import CenterCLIP
from centerclip.cli import app
from centerclip.errors import ReportError
from centerclip.model.backbone import new_backbone
from centerclip.model.checkpoints import Sizes
from tests.training.world import make_world

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return make_world(tmp_path_factory.mktemp("world"), clips=3, frames=4)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Six blocks and 36 patches, as the small model of the reports, and very narrow."""
    torch.manual_seed(0)
    sizes = Sizes(image_size=48, patch_size=8, width=16, blocks=6, heads=2, text_width=16, text_blocks=1, text_heads=2,
                  projection=8, max_tokens=64)  # fmt: skip
    backbone = new_backbone(sizes, ["a red square moves"], vocabulary=520)
    folder = tmp_path_factory.mktemp("model")
    CenterCLIP(backbone, clustering="B3-4,36", frames=12).save_pretrained(folder)
    return folder


def run(*arguments):
    result = CliRunner().invoke(app, ["report", *map(str, arguments)], env={"COLUMNS": "200"}, catch_exceptions=False)
    return result.exit_code, result.stdout


def test_the_list_names_every_table_and_figure():
    code, text = run("list", "--json")
    names = {each["name"]: each for each in json.loads(text)}
    assert code == 0
    tables = "msvd activitynet msrvtt-7k msrvtt-9k lsmdc selection twice frames norm learning methods frontier"
    assert {*tables.split(), "tsne", "place", "clusters", "centres"} == names.keys()
    assert names["activitynet"]["hours"] > 0
    assert "Table 1" in run("list")[1]


def test_a_table_on_a_laptop_and_again_from_the_logs(world, model, tmp_path):
    folders = ("--runs", tmp_path / "runs", "--output", tmp_path / "out", "--data", "minivtt", "--model", model)
    code, text = run("run", "twice", "--root", world, "--no-training", "--workers", 0, *folders)
    assert code == 0
    assert "without training" in text
    assert "MiniVTT with a small model" in text
    assert text.count("| B") == 3
    written = (tmp_path / "out" / "twice.md").read_text(encoding="utf-8")
    assert written in text
    again = run("run", "twice", "--from-logs", "--no-training", *folders)
    assert again[0] == 0
    assert (tmp_path / "out" / "twice.md").read_text(encoding="utf-8") == written
    rows = json.loads((tmp_path / "out" / "twice.json").read_text())["rows"]
    assert rows[0]["clustering"] == "B2-6,36 B4-3,36"
    assert rows[0]["published"]["t2v"]["R1"] == 21.0


def test_a_table_of_either_protocol(world, model, tmp_path):
    folders = ("--runs", tmp_path / "runs", "--output", tmp_path / "out", "--data", "minivtt", "--model", model)
    command = ("run", "twice", "--root", world, "--no-training", "--workers", 0, *folders)
    for options, protocol in (((), "clean"), (("--protocol", "published"), "published")):
        code, text = run(*command, *options)
        assert code == 0
        assert text.startswith(
            f"# Clustering twice, LSMDC, scaled to MiniVTT, {protocol} protocol (Table 6 of the paper)"
        )
        assert f"rule renormalise, protocol {protocol}, data" in text
        assert json.loads((tmp_path / "out" / "twice.json").read_text())["protocol"] == protocol
    assert len(list((tmp_path / "runs").iterdir())) == 6  # three rows under each, kept apart


def test_several_reports_share_their_runs(world, model, tmp_path):
    folders = ("--runs", tmp_path / "runs", "--output", tmp_path / "out", "--data", "minivtt", "--model", model)
    code, text = run("run", "norm", "twice", "tsne", "--video", next(world.glob("*.mp4")), "--root", world,
                     "--no-training", "--workers", 0, "--json", *folders)  # fmt: skip
    assert code == 0
    decoder, found = json.JSONDecoder(), []
    while text.strip():
        content, end = decoder.raw_decode(text := text.strip())
        found.append(content["report"])
        text = text[end:]
    assert found == ["norm", "twice", "tsne"]
    assert len(list((tmp_path / "runs").iterdir())) == 5  # four and three rows, of which two are the same


def test_training_free_tables_figures_and_what_was_chosen_elsewhere(world, model, tmp_path):
    common = ("training-free", model, "--root", world, "--runs", tmp_path / "runs", "--output", tmp_path)
    some = ("--setting", "B3-4,9", "--setting", "none, 6 frames")
    code, text = run(*common, *some, "--json")
    content = json.loads(text)
    assert code == 0
    assert [each["setting"] for each in content["settings"]] == ["none", "B3-4,9", "none, 6 frames"]
    assert content["settings"][2]["arithmetic"] == 0.5
    assert set(content["best"]) <= {"none", "B3-4,9", "none, 6 frames"}
    (tmp_path / "elsewhere.json").write_text(json.dumps({"best": ["B3-4,9"]}))
    code, text = run(*common, *some, "--chosen-on", tmp_path / "elsewhere.json", "--name", "again", "--time")
    assert code == 0
    assert "`B3-4,9`" in text
    assert "●: bold on the other data" in text
    assert "| faster |" in text
    assert (tmp_path / "again.md").read_text(encoding="utf-8") in text
    assert (tmp_path / "again.png").read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(ReportError, match="not the JSON file"):
        run(*common, "--chosen-on", tmp_path / "again.md")
    with pytest.raises(ReportError, match="choose 1, 2, 3, 4, 6, 12"):
        run(*common, "--setting", "none, 5 frames")


def test_the_frontier_and_another_test_set(world, model, tmp_path, monkeypatch):
    from centerclip.reports import catalogue

    rows = {"none": "no clustering", "none, 6 frames": "half of the frames", "rlt:B0-4,1/2": "RLT"}
    rows["B6-4,1/3"] = catalogue.PAPER
    monkeypatch.setattr(catalogue, "TRAINED", rows)
    folders = ("--runs", tmp_path / "runs", "--output", tmp_path / "out", "--data", "minivtt", "--model", model)
    other = make_world(tmp_path / "other", clips=2, frames=4)
    command = ("run", "frontier", "--root", world, "--no-training", "--workers", 0, *folders)
    code, text = run(*command)
    assert code == 0
    assert "| 50 % |" in text
    lines = [line.split("|") for line in text.splitlines() if line.startswith("|")]
    (over,) = {line.index(" over k-medoids++ ") for line in lines if " over k-medoids++ " in line}
    assert [line[over].strip()[:1] in "+-" for line in lines[2:6]] == [True] * 4
    assert lines[5][over].strip() == ""  # the paper's own row
    code, text = run(*command, "--test-on", other, "--json")
    content = json.loads(text)
    assert code == 0
    assert [row["arithmetic"] for row in content["rows"]][:2] == [1, 0.5]
    assert content["rows"][0]["gallery"] == 2
    assert len(list((tmp_path / "out").glob("frontier-*.png"))) == 1  # beside the usual one
    assert (tmp_path / "out" / "frontier.png").exists()


def test_pictures_of_a_model_without_clustering(world, model, tmp_path):
    plain = CenterCLIP.from_pretrained(model, clustering="none")
    plain.save_pretrained(tmp_path / "plain")
    clip = next(world.glob("*.mp4"))
    code, _ = run("run", "tsne", "--video", clip, "--model", tmp_path / "plain", "--output", tmp_path)
    assert code == 0
    assert "B3-4,36" in (tmp_path / "tsne.svg").read_text(encoding="utf-8")


def test_pictures_of_one_video(world, model, tmp_path):
    clip = next(world.glob("*.mp4"))
    for name in ("tsne", "centres"):
        code, text = run("run", name, "--video", clip, "--model", model, "--output", tmp_path, "--json")
        assert code == 0
        assert [Path(path).name for path in json.loads(text)["files"]] == [f"{name}.png", f"{name}.svg"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "twice"], "--root is missing"),
        (["run", "twice", "--data", "imagenet"], "is not one of 'paper', 'minivtt'"),
        (["run", "tsne", "--clustering", "none"], "does not cluster"),
    ],
)
def test_wrong_usage(arguments, message):
    result = CliRunner().invoke(app, ["report", *arguments], env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert message in result.stderr


def test_doctor_says_what_is_missing(tmp_path):
    result = CliRunner().invoke(
        app, ["doctor", "--benchmarks", str(tmp_path), "--json"], env={"HF_HOME": str(tmp_path)}
    )
    found = {each["what"]: each for each in json.loads(result.stdout)}
    assert result.exit_code == 1
    assert {"msvd", "msrvtt", "msrvtt-7k", "lsmdc", "activitynet", "weights", "GPUs", "disk"} == found.keys()
    assert not found["msvd"]["ok"]
    assert "captions_msvd.json" in found["msvd"]["detail"]
    both = CliRunner().invoke(app, ["doctor", "--benchmarks", str(tmp_path), "--index", str(tmp_path)])
    assert both.exit_code == 2


def test_the_script_for_a_lab_stops_when_data_is_missing(tmp_path):
    (tmp_path / "centerclip").write_text('#!/bin/sh\necho "$@"\n[ "$1" != doctor ]\n')
    (tmp_path / "torchrun").write_text('#!/bin/sh\necho torchrun "$@"\n')
    for name in ("centerclip", "torchrun"):
        (tmp_path / name).chmod(0o755)

    def call(**extra):
        environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", **extra}
        command = ["sh", ROOT / "recipes" / "run-tables.sh", "DATA", "4", "twice", "norm"]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    stopped = call()
    assert stopped.returncode == 1
    assert "torchrun" not in stopped.stdout
    done = call(ANYWAY="1")
    assert done.returncode == 0
    command = "torchrun --nproc-per-node 4 -m centerclip report run {} --root DATA --protocol {} --output reports/{}"
    for name in ("twice", "norm"):
        assert command.format(name, "published", "published") in done.stdout.splitlines()
    other = call(ANYWAY="1", PROTOCOL="clean")
    assert command.format("norm", "clean", "clean") in other.stdout.splitlines()
