"""What clustering saves: counted and measured on small towers, and printed by ``centerclip bench``."""

import json
import os
import sys

import pytest
import torch
from transformers import CLIPVisionConfig
from typer.testing import CliRunner

from centerclip.cli import app
from centerclip.cluster import Setting
from centerclip.evaluation import costs

run = CliRunner().invoke


@pytest.fixture
def small_towers(monkeypatch):
    """The same commands on towers small enough for a test."""
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 12, "num_attention_heads": 2}
    monkeypatch.setattr(costs, "SIZES", sizes)


@pytest.mark.parametrize(("patch", "patches", "published"), [(32, 49, 4.4), (16, 196, 17.6)])
def test_multiply_adds_of_one_frame_are_the_published_ones(patch, patches, published):
    config = CLIPVisionConfig(hidden_size=768, intermediate_size=3072, num_hidden_layers=12, patch_size=patch)
    count = costs.multiply_adds(config, Setting.parse("none"), 1, patches) / 1e9
    assert count == pytest.approx(published, abs=0.1)


def test_multiply_adds_with_clustering():
    config = CLIPVisionConfig(hidden_size=768, intermediate_size=3072, num_hidden_layers=12, patch_size=32)
    none = costs.multiply_adds(config, Setting.parse("none"), 12, 49)
    # 12 of 12 frames in the first half, 4 of 12 sequences in the second; patch embedding is a little on top.
    assert costs.multiply_adds(config, Setting.parse("B6-4,49"), 12, 49) / none == pytest.approx(2 / 3, abs=0.01)
    assert costs.multiply_adds(config, Setting.parse("B6-12,49"), 12, 49) == none


def test_saved_bytes_fall_with_clustering(small_towers):
    none, half = costs.memory_costs("ViT-B/32", 12, ["B6-4,49"])
    assert none.ratio == 1.0
    pixels = 12 * 3 * 224 * 224 * 4 / 2**20  # kept either way
    assert (half.megabytes - pixels) / (none.megabytes - pixels) == pytest.approx(2 / 3, abs=0.05)


def test_saved_bytes_are_counted_once():
    layer = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh())

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, x):
            from types import SimpleNamespace

            return SimpleNamespace(pooler_output=self.layer(x))

    # Linear keeps its input, Tanh its output: 2 x [5, 8] float32.
    assert costs.saved_bytes(Model(), torch.randn(5, 8)) == 2 * 5 * 8 * 4


def test_peak_memory_is_measured_without_psutil_or_not_claimed(monkeypatch):
    monkeypatch.setitem(sys.modules, "psutil", None)
    with costs.PeakMemory(torch.device("cpu")) as peak:
        kept = torch.ones(2**25)  # 134 MB
    assert peak.gb is None or peak.gb > kept.nbytes / 1e9  # never 0, which is what was once recorded
    assert peak.gb is not None or sys.platform != "linux"


def test_peak_memory_is_that_of_the_block_alone():
    earlier = torch.ones(2**27)  # 537 MB, freed before the blocks begin
    del earlier
    peaks = [costs.PeakMemory(torch.device("cpu")) for _ in range(2)]
    with peaks[0]:
        pass
    with peaks[1]:
        kept = torch.ones(2**26)
    if sys.platform == "linux":
        assert peaks[1].gb - peaks[0].gb > 0.8 * kept.nbytes / 1e9


def test_what_cannot_be_measured_is_none(monkeypatch, tmp_path):
    monkeypatch.setattr(costs, "PROC", tmp_path / "proc")
    with costs.PeakMemory(torch.device("cpu")) as peak:
        pass
    assert peak.gb is None


ENCODER = ["bench", "encoder", "--rounds", "1", "--tower", "ViT-B/32", "--device", "cpu"]
CHOSEN = ["--setting", "B6-6,49", "--setting", "token-shift", "--json"]


def test_bench_encoder(small_towers, monkeypatch):
    monkeypatch.setenv("CENTERCLIP_CACHE", "kept")
    rows = [json.loads(line) for line in run(app, [*ENCODER, *CHOSEN]).output.splitlines()]
    for engine, precision in (("torch", "float32"), ("onnxruntime", "float32"), ("onnxruntime", "int8")):
        lines = [row for row in rows if (row["engine"], row["precision"]) == (engine, precision)]
        settings = ["none", "B6-6,49", *(["token-shift"] if engine == "torch" else [])]
        assert [row["clustering"] for row in lines] == settings
        assert all(row["milliseconds"] > 0 and row["ratio"] > 0 for row in lines)
        assert lines[0]["share"] == 0
        assert 0 < lines[1]["share"] < 1
        assert lines[0]["cosine"] > (0.99 if precision == "int8" else 0.99999)
    assert rows[0]["ratio"] == 1
    assert os.environ["CENTERCLIP_CACHE"] == "kept"


def test_bench_encoder_shows_the_paper_s_settings(small_towers):
    result = run(app, [*ENCODER, "--quick", "--engine", "torch"], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    assert "spectral:B6-3,49" in result.output
    assert "52.9 " not in result.output  # the count is of the tower at hand, not of the real one


def test_bench_memory(small_towers):
    result = run(app, ["bench", "memory", "--quick", "--tower", "ViT-B/16", "--device", "cpu"])
    assert result.exit_code == 0, result.output
    assert "B6-4,160" in result.output


@pytest.mark.parametrize("arguments", [["--tower", "ViT-L/14"], ["--device", "cuda"]])
def test_what_there_is_not(arguments):
    if arguments[-1] == "cuda" and torch.cuda.is_available():
        arguments = ["--tower", "ViT-X"]
    assert run(app, ["bench", "encoder", *arguments]).exit_code != 0


def test_settings_of_one_s_own(small_towers):
    wanted = ["kmedoids[proportional]:B6-4,20", "pooling:B6-4,49", "attention:B6-4,9", "token-shift", "B4-6,9 B8-3,9"]
    options = [word for setting in ["none", *wanted] for word in ("--setting", setting)]
    for command in ("encoder", "memory"):
        extra = ["--rounds", "1", "--engine", "torch"] if command == "encoder" else []
        result = run(app, ["bench", command, "--tower", "ViT-B/32", "--json", *extra, *options])
        lines = [json.loads(line) for line in result.stdout.splitlines()]
        assert [line["clustering"] for line in lines if line.get("precision") != "bfloat16"] == ["none", *wanted]
    shown = run(app, ["bench", "memory", "--tower", "ViT-B/32", *options], env={"COLUMNS": "200"}).stdout
    assert "kmedoids[proportional]:B6-4,20" in shown
