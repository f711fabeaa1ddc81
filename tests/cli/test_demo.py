"""What `make demo` shows, and that the model of MiniVTT knows what it is said to know."""

import shutil
from dataclasses import replace

import pytest
from PIL import Image
from typer.testing import CliRunner

from centerclip import CenterCLIP
from centerclip.bundled import demo_clips, demo_model, film_clips, small_model
from centerclip.cli import app
from centerclip.cli.demo import QUERIES
from centerclip.data import load
from centerclip.evaluation import evaluate
from centerclip.evaluation.moments import read_moments, score_moments
from centerclip.search.index import open_database

MEGABYTES = 1_000_000


def size(folder):
    return sum(path.stat().st_size for path in folder.rglob("*"))


@pytest.fixture(scope="module")
def model():
    return CenterCLIP.from_pretrained("demo")


def test_the_bundle_is_small():
    assert size(demo_model()) < 15 * MEGABYTES
    assert size(demo_clips()) < 4 * MEGABYTES
    assert len(list(demo_clips().glob("*.mp4"))) == 60
    assert size(small_model()) < 60 * MEGABYTES
    assert max(path.stat().st_size for path in small_model().iterdir()) < 50 * MEGABYTES
    assert size(film_clips()) < 6 * MEGABYTES
    assert len(list(film_clips().glob("*.mp4"))) == 36


def test_the_model_finds_the_clips_of_held_out_combinations(model):
    """Chance is 1.7 % for R@1. MiniVTT's 500 test clips are in docs/minivtt.md; these are the first 60 of them."""
    result = evaluate(model, load("folder", demo_clips(), "test"), workers=0)
    assert result.metrics["t2v"]["R1"] > 60
    assert result.metrics["t2v"]["R10"] > 90


def test_the_model_finds_the_moment(model):
    clips = load("folder", demo_clips(), "test")
    score = score_moments(model, clips, read_moments(clips, demo_clips()))
    assert score.in_video["R1@0.3"] > 70 > score.chance["R1@0.3"]
    assert score.in_collection["R5@0.3"] > 50


def test_the_demo_prints_hits_and_draws_them(demo_run):
    folder, output = demo_run
    lines = output.splitlines()
    assert "36 clips of photographs and old films; 36 of them indexed now" in output
    for query in QUERIES:
        assert any(line.startswith(query) for line in lines)
    assert ["probably in none of these clips" in line for line in lines if line.startswith(QUERIES)] == [False] * 4 + [
        True
    ]
    assert lines[-1].endswith("centerclip index ~/Videos")  # nothing after it: to copy
    with Image.open(folder / "hits.png") as picture:
        assert picture.height > 500


def test_the_demo_of_an_earlier_version_is_made_anew(demo_run, tmp_path):
    shutil.copytree(demo_run[0], tmp_path / "demo")
    _, database = open_database(tmp_path / "demo" / "index")
    with database.writing():
        database.save_settings(replace(database.settings(), fingerprint="another"))
    database.close()
    done = CliRunner().invoke(app, ["demo", "-o", str(tmp_path / "demo")])
    assert done.exit_code == 0, done.output
    assert "36 of them indexed now" in done.output


def test_the_demo_again_indexes_nothing_anew(demo_run, tmp_path):
    shutil.copytree(demo_run[0], tmp_path / "demo")
    done = CliRunner().invoke(app, ["demo", "-o", str(tmp_path / "demo")])
    assert done.exit_code == 0, done.output
    assert "36 clips of photographs and old films; 0 of them indexed now" in done.output
