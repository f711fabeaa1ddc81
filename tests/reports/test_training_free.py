"""Settings tried on a model that was trained without them."""

import pytest
import torch

from centerclip.cluster import Setting
from centerclip.evaluation import Gain
from centerclip.reports import training_free
from centerclip.reports.catalogue import TRAINING_FREE, frontier_settings
from centerclip.reports.frontier import Point, best
from centerclip.reports.training_free import encode_with_each, run_settings, usual_stage
from tests.evaluation.made_up import coloured
from tests.model import tiny

SETTINGS = [
    "none",
    "rlt:B0-4,20",
    "kmedoids[budget=change]:B2-4,10",
    "B2-4,10",
    "means:B2-2,12",
    "tome:B3-3,8",
    "attention:B2-4,10",
    "token-shift",
    "pooling:B2-4,16",
]


def test_sharing_blocks_changes_nothing():
    model = tiny.center_clip()
    rgb, mask = tiny.videos(), torch.ones(2, 12, dtype=torch.bool)
    found = dict(encode_with_each(model, rgb, mask, SETTINGS))
    for setting in SETTINGS:
        with torch.no_grad():
            alone, real = tiny.center_clip(setting).video_features(rgb, mask)
        assert torch.allclose(found[setting][0], alone, atol=1e-5), setting
        assert torch.equal(found[setting][1], real)
    assert not any("forward" in vars(block) for block in model.attachment.blocks)
    (fewer, counts) = dict(encode_with_each(model, rgb, mask, ["none, 4 frames"]))["none, 4 frames"]
    assert torch.allclose(fewer, found["none"][0][:, 1::3], atol=1e-5)  # the middle of three
    short = torch.zeros(2, 12, dtype=torch.bool)
    short[:, 0] = True
    (_, counts) = dict(encode_with_each(model, rgb, short, ["none, 4 frames"]))["none, 4 frames"]
    assert counts.sum(dim=1).tolist() == [1, 1]


def test_results_are_kept_and_compared_with_none(tmp_path, monkeypatch):
    benchmark = coloured(tmp_path / "clips")
    model = tiny.center_clip("B2-2,5", frames=4)
    monkeypatch.setattr(training_free, "SETTINGS_PER_PASS", 1)
    seen = []
    results = run_settings(
        model, benchmark, ["means:B2-2,5"], tmp_path / "runs", on_progress=lambda *at: seen.append(at)
    )
    assert [each.setting for each in results] == ["none", "means:B2-2,5"]
    assert seen[-1] == (18, 18)  # nine videos, two settings one after the other
    assert str(model.clustering) == "B2-2,5"
    assert results[0].over_none["t2v"]["R1"].mean == 0
    assert results[0].closeness == pytest.approx(1)
    assert -1 <= results[1].closeness <= 1.0001
    assert results[1].least <= results[1].closeness
    assert results[1].multiply_adds < results[0].multiply_adds
    assert results[1].faster is None
    assert 0 <= results[1].first_found <= 9
    timed = run_settings(model, benchmark, ["means:B2-2,5", "none, 2 frames"], tmp_path / "runs", timed=True)
    assert all(each.faster > 0 for each in timed)
    assert timed[2].multiply_adds * 2 == timed[0].multiply_adds
    assert (str(model.clustering), model.frames) == ("B2-2,5", 4)
    again = run_settings(model, benchmark, ["means:B2-2,5"], tmp_path / "runs", on_progress=lambda *at: seen.clear())
    assert seen  # nothing was encoded again
    assert again[1].result.metrics == results[1].result.metrics
    with torch.no_grad():
        model.backbone.visual_projection.weight.add_(1)  # another model: another place
    assert len(run_settings(model, benchmark, [], tmp_path / "runs")) == 1
    assert len(list((tmp_path / "runs").iterdir())) == 4
    model.protocol = "published"
    (none,) = run_settings(model, benchmark, [], tmp_path / "runs")
    assert none.result.protocol == "published"


def test_every_candidate_suits_every_tower():
    assert str(usual_stage(blocks=12, patches=49, frames=12)) == "B6-4,49"
    for sizes in ({"blocks": 12, "patches": 256}, {"blocks": 6, "patches": 36}, {"blocks": 12, "patches": 196}):
        found = frontier_settings(**sizes, frames=12)
        assert len(found) == len(TRAINING_FREE)
        for text in found:
            setting, _, frames = text.partition(", ") if text.endswith("frames") else (text, "", "12")
            Setting.parse(setting).check(**sizes, frames=int(frames.split()[0]))
    assert "kmedoids[proportional]:B3-4,1/6" in frontier_settings(blocks=6, patches=36, frames=12)
    for odd in ({"blocks": 2, "patches": 4, "frames": 1}, {"blocks": 3, "patches": 9, "frames": 8}):
        assert "none" in frontier_settings(**odd)


def test_the_best_are_those_that_nothing_as_cheap_beats():
    none = Gain(0, 0, 0, (0,))
    names = {"all": (1, 50, 1), "half": (0.5, 50, 0.9), "worse": (0.6, 49, 0.9), "cheap": (0.3, 40, 0.8)}
    points = [Point(name, "", cost, recall, none, cosine) for name, (cost, recall, cosine) in names.items()]
    assert [point.setting for point in best(points)] == ["cheap", "half", "all"]  # all has the higher cosine
