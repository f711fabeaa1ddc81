"""Settings tried on a model that was trained without them."""

import pytest
import torch

from centerclip.cluster import Setting
from centerclip.reports import training_free
from centerclip.reports.training_free import (
    AXES,
    encode_with_each,
    kept_share,
    run_settings,
    sweep_points,
    sweep_settings,
    usual_stage,
)
from tests.evaluation.made_up import coloured
from tests.model import tiny

SETTINGS = ["none", "B2-4,10", "means:B2-2,12", "tome:B3-3,8", "attention:B2-4,10", "token-shift", "pooling:B2-4,16"]


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
    assert results[1].tokens == pytest.approx(10 / 64)
    again = run_settings(model, benchmark, ["means:B2-2,5"], tmp_path / "runs", on_progress=lambda *at: seen.clear())
    assert seen  # nothing was encoded again
    assert again[1].result.metrics == results[1].result.metrics
    with torch.no_grad():
        model.backbone.visual_projection.weight.add_(1)  # another model: another place
    assert len(run_settings(model, benchmark, [], tmp_path / "runs")) == 1
    assert len(list((tmp_path / "runs").iterdir())) == 3
    model.protocol = "published"
    (none,) = run_settings(model, benchmark, [], tmp_path / "runs")
    assert none.result.protocol == "published"


def test_a_sweep_passes_through_the_paper_s_place():
    sizes = {"blocks": 12, "patches": 49, "frames": 12}
    points = sweep_points(**sizes)
    assert str(usual_stage(**sizes)) == "B6-4,49"
    for axis in AXES:
        here = {point.setting for point in points if point.axis == axis}
        assert {"B6-4,49", "kmedoids[proportional]:B6-4,49", "means:B6-4,49"} <= here
    settings = sweep_settings(**sizes)
    assert len(settings) == len(set(settings))
    assert {point.setting for point in points} <= set(settings)
    assert "attention:B6-4,24" in settings
    for setting in settings:
        Setting.parse(setting).check(**sizes)
    for odd in ({"blocks": 2, "patches": 1, "frames": 1}, {"blocks": 3, "patches": 9, "frames": 8}):
        for setting in sweep_settings(**odd):
            Setting.parse(setting).check(**odd)


def test_kept_share():
    assert kept_share(Setting.parse("B6-4,128"), 12, 256) == pytest.approx(1 / 6)
    assert kept_share(Setting.parse("B4-6,49 B8-3,49"), 12, 49) == pytest.approx(1 / 4)
    assert kept_share(Setting.parse("token-shift"), 12, 49) == 1
