"""What `make demo` shows, and that the bundled model knows what it is said to know."""

import pytest
from PIL import Image
from typer.testing import CliRunner

from centerclip import CenterCLIP
from centerclip.bundled import demo_clips, demo_model
from centerclip.cli import app
from centerclip.cli.demo import QUERIES
from centerclip.data import load
from centerclip.data.minivtt import read_events
from centerclip.evaluation import evaluate
from centerclip.evaluation.moments import score_moments

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


def test_the_model_finds_the_clips_of_held_out_combinations(model):
    """Chance is 1.7 % for R@1. MiniVTT's 500 test clips are in docs/minivtt.md; these are the first 60 of them."""
    result = evaluate(model, load("folder", demo_clips(), "test"), workers=0)
    assert result.metrics["t2v"]["R1"] > 60
    assert result.metrics["t2v"]["R10"] > 90


def test_the_model_finds_the_moment(model):
    score = score_moments(model, load("folder", demo_clips(), "test"), demo_clips())
    assert score.asked == sum(len(clip.events) for clip in read_events(demo_clips()).values() if len(clip.events) > 1)
    assert score.accuracy > 80
    assert score.chance < 60


def test_the_demo_prints_hits_and_draws_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for again in (False, True):
        done = CliRunner().invoke(app, ["demo"])
        assert done.exit_code == 0, done.output
        assert "60 clips" in done.output
        assert ("60 of them indexed now" in done.output) != again
    for query in QUERIES:
        assert query in done.output
    commands = [line.strip() for line in done.output.splitlines() if "centerclip index ~" in line]
    assert [command.endswith("centerclip index ~/Videos") for command in commands] == [
        True
    ]  # nothing after it: to copy
    with Image.open(tmp_path / "centerclip-demo" / "hits.png") as picture:
        assert picture.height > 500
