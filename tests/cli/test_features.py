"""``centerclip features``: what is written can be read with NumPy alone and ranks as an evaluation does."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import load_file
from typer.testing import CliRunner, Result

from centerclip import CenterCLIP
from centerclip.cli import app
from centerclip.data import Benchmark, Clip, load
from centerclip.evaluation import encode_benchmark, evaluate, retrieval_metrics
from tests.data.made_up import clip, text
from tests.evaluation.made_up import coloured
from tests.model import tiny

GUIDE = Path(__file__).parents[2] / "docs" / "evaluation.md"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model and clips."""
    folder = tmp_path_factory.mktemp("place")
    coloured(folder / "clips")
    tiny.center_clip("B2-2,5", frames=4).save_pretrained(folder / "model")
    return folder


def test_a_benchmark_goes_out_and_ranks_the_same_in_numpy(place: Path, tmp_path: Path) -> None:
    result = run("features", place / "model", "folder", "--root", place / "clips", "--workers", 0, "-o", tmp_path)
    assert result.exit_code == 0, result.output
    videos, texts = load_file(tmp_path / "videos.safetensors"), load_file(tmp_path / "texts.safetensors")
    assert videos["segments"].shape == (9, 2, 24)
    assert videos["mask"].dtype == bool
    row_of = {row["id"]: int(row["row"]) for row in rows(tmp_path / "videos.csv")}
    owners = [row_of[row["video"]] for row in rows(tmp_path / "texts.csv")]
    similarity = texts["vectors"].astype(float) @ videos["vectors"].astype(float).T
    benchmark = load("folder", place / "clips")
    assert [row["caption"] for row in rows(tmp_path / "texts.csv")] == list(benchmark.captions)
    expected = evaluate(CenterCLIP.from_pretrained(place / "model"), benchmark, workers=0)
    assert retrieval_metrics(similarity, owners) == expected.metrics
    check_the_guide(tmp_path, similarity)
    with safe_open(tmp_path / "videos.safetensors", framework="np") as file:
        about = file.metadata()
    assert (about["clustering"], about["frames"], about["rule"]) == ("B2-2,5", "4", "mean")
    assert benchmark.fingerprint in about["data"]


def check_the_guide(folder: Path, similarity: np.ndarray) -> None:
    """The example in the guide runs on what was written, and finds a real segment."""
    (block,) = re.findall(r"```python\n(import csv\n.*?)```", GUIDE.read_text(encoding="utf-8"), flags=re.DOTALL)
    names: dict[str, Any] = {}
    exec(block.replace("OUT/", f"{folder.as_posix()}/"), names)
    assert np.allclose(names["similarity"], similarity, atol=1e-6)
    assert names["lines"][names["row"], names["segment"]]["path"]


def test_files_go_out_with_the_times_of_their_segments_and_bad_ones_are_named(place: Path, tmp_path: Path) -> None:
    short = clip(tmp_path / "in" / "short.mp4", seconds=0.3)  # three frames: the second segment is half padding
    single = clip(tmp_path / "in" / "single.mp4", seconds=0.1)
    bad = text(tmp_path / "in" / "z.mp4", "no video")
    command = ("features", place / "model", tmp_path / "in", place / "clips" / "v1.mp4", "--workers", 0, "-o")
    result = run(*command, tmp_path / "out", "--format", "npz")
    assert result.exit_code == 1
    assert f"{bad}: this is not a video" in result.stderr
    model = CenterCLIP.from_pretrained(place / "model")
    found = np.load(tmp_path / "out" / "videos.npz")
    lines = rows(tmp_path / "out" / "videos.csv")
    for number, path in enumerate((short, single, place / "clips" / "v1.mp4")):
        own = [line for line in lines if line["row"] == str(number)]
        video = model.encode_video(path)
        assert [line["path"] for line in own] == [str(path)] * len(video.spans)
        times = [(float(line["start"]), float(line["end"])) for line in own]
        assert times == [pytest.approx(span, abs=1e-3) for span in video.spans]
        assert np.allclose(found["segments"][number][found["mask"][number]], video.segments, atol=1e-5)
    assert found["mask"].tolist() == [[True, True], [True, False], [True, True]]
    assert not (tmp_path / "out" / "texts.npz").exists()
    allowed = run(*command, tmp_path / "out", "--allow-unreadable", "--json")
    assert allowed.exit_code == 0
    content = json.loads(allowed.stdout)
    assert (content["videos"], content["segments"], content["texts"]) == (3, 5, 0)
    assert list(content["unreadable"]) == [str(bad)]


def test_times_end_where_only_the_start_of_a_video_is_used(tmp_path: Path) -> None:
    model = tiny.center_clip("B2-2,5", frames=4)
    path = clip(tmp_path / "long.mp4", seconds=2.0)
    videos = (Clip("whole", path, ("a",)), Clip("start", path, ("b",), end=1.0), Clip("short", path, ("c",), end=9.0))
    encoded = encode_benchmark(model, Benchmark("folder", "test", videos), workers=1)
    whole, start, short = encoded.spans
    assert whole == short == [(0.0, pytest.approx(1.0)), (pytest.approx(1.0), pytest.approx(2.0))]
    assert start == [(0.0, pytest.approx(0.5)), (pytest.approx(0.5), pytest.approx(1.0))]
    assert torch.allclose(encoded.segments[0], encoded.segments[2], atol=1e-5)  # rows of one batch may round apart
    assert not torch.allclose(encoded.segments[0], encoded.segments[1], atol=1e-5)


def test_wrong_usage_is_2(place: Path, tmp_path: Path) -> None:
    assert run("features", place / "model", "a.mp4", "b.mp4", "--root", place, "-o", tmp_path).exit_code == 2
    assert run("features", place / "model", "foldr", "--root", place, "-o", tmp_path).exit_code == 2
    assert run("features", place / "model", "a.mp4").exit_code == 2
    (tmp_path / "empty").mkdir()
    assert "there are no videos" in str(run("features", place / "model", tmp_path / "empty", "-o", tmp_path).exception)
