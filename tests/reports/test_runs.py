"""Rows are trained, measured and kept; a table comes from what is kept."""

import json
import re
import shutil
from dataclasses import replace

import pytest
import torch

from centerclip.distributed import Processes
from centerclip.errors import ReportError
from centerclip.evaluation import Evaluation, Seeds, costs
from centerclip.plots import figures
from centerclip.plots.tokens import SegmentTokens, token_map
from centerclip.reports import runs
from centerclip.reports.catalogue import Plan, Published, Report, Row
from centerclip.reports.table import make_table, to_json
from centerclip.training.recipe import read_recipe
from centerclip.training.run import read_log
from tests.training.world import RECIPE, make_world

ONE_PROCESS = Processes(0, 1, torch.device("cpu"))
PUBLISHED = Published(t2v=(40.0, 70.0, None, 2, 10.0), memory=20.0, encode=24.4)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return make_world(tmp_path_factory.mktemp("world"), clips=4, frames=4)


def plan_of(folder, clustering, *more, zero_shot=False, axis="", label=""):
    path = folder / "recipe.toml"
    path.write_text(RECIPE)
    recipe = read_recipe(path, [f"model.clustering={clustering}", "train.epochs=1", "data.benchmark=folder", *more])
    row = Row(label or clustering, "tiny", zero_shot=zero_shot, published=PUBLISHED, axis=axis, series="tiny")
    return Plan(row, recipe)


@pytest.fixture(scope="module")
def outcomes(world, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    plans = [
        plan_of(folder, "none", label="baseline"),
        plan_of(folder, "B1-2,8", zero_shot=True, axis="block B"),
        plan_of(folder, "B2-2,8", zero_shot=True, axis="block B"),
    ]
    return folder, runs.run_all(plans, world, folder / "runs", ONE_PROCESS, workers=0)


def test_a_finished_row_is_not_run_again(world, outcomes, monkeypatch):
    folder, found = outcomes
    monkeypatch.setattr(runs, "evaluate", lambda *_, **__: pytest.fail("evaluated again"))
    (again,) = runs.run_all([found[0].plan], world, folder / "runs", ONE_PROCESS)
    assert again.seeds.metrics == found[0].seeds.metrics
    assert again.costs == found[0].costs
    assert runs.read_all([found[0].plan], folder / "runs")[0].costs == found[0].costs  # from the logs alone


def test_seeds_are_runs_of_their_own(world, outcomes, tmp_path):
    folder, found = outcomes
    plans = [found[0].plan, found[1].plan, found[0].plan]
    shutil.copytree(folder / "runs", tmp_path / "runs")
    seen = []
    callbacks = runs.Callbacks(on_run=lambda done, total: seen.append((done, total)))
    rows = runs.run_all(plans, world, tmp_path / "runs", ONE_PROCESS, seeds=2, workers=0, callbacks=callbacks)
    assert seen == [(1, 3), (2, 3), (3, 3)]  # two seeds of the trained row, once though it is there twice; one as it is
    first, second = rows[0].seeds.results
    assert first.metrics == found[0].seeds.metrics
    assert rows[1].seeds.results[0].metrics == rows[1].seeds.results[1].metrics
    recipes = [path.read_text() for path in (tmp_path / "runs").glob("folder-none-*/recipe.toml")]
    assert sorted(int(re.search(r"seed = (\d+)", text)[1]) for text in recipes) == [42, 43]
    mean = (first.metrics["t2v"]["MnR"] + second.metrics["t2v"]["MnR"]) / 2
    assert rows[0].seeds.metrics["t2v"]["MnR"] == pytest.approx(mean)
    table = make_table(Report("x", "Title", "", "table"), rows, small=True)
    assert "mean of 2 seeds" in table.label
    assert ", seeds +" in table.rows[1][-2] or ", seeds -" in table.rows[1][-2]
    again = runs.read_all(plans, tmp_path / "runs", seeds=2)
    assert [each.seeds.metrics for each in again] == [each.seeds.metrics for each in rows]


def test_a_run_that_validates_on_the_test_split_is_finished_when_its_training_is(world, tmp_path):
    """As the published protocol does: there is a test result after every epoch."""
    plan = plan_of(tmp_path, "none", "protocol=published", "train.epochs=2")
    assert plan.recipe.data.validate_on == "test"

    class Stopped(Exception):
        pass

    def stop(progress):
        if progress.epoch == 2:
            raise Stopped

    with pytest.raises(Stopped):
        runs.run_plan(plan, world, tmp_path, ONE_PROCESS, workers=0, callbacks=runs.Callbacks(on_step=stop))
    assert len(list(tmp_path.glob("*/evaluation/test/evaluation.json"))) == 1  # of the first epoch
    with pytest.raises(ReportError, match="no finished run"):
        runs.find_run(plan, tmp_path)
    folder = runs.run_plan(plan, world, tmp_path, ONE_PROCESS, workers=0)
    assert runs.find_run(plan, tmp_path) == folder
    checks = [line for line in read_log(folder) if line["event"] == "validation"]
    best = max(each["t2v"]["R1"] for each in checks)
    result = Evaluation.load(folder / "evaluation" / "test")
    assert (len(checks), result.metrics["t2v"]["R1"], result.protocol) == (2, best, "published")


def test_another_start_is_another_run(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"one")
    before = runs.fingerprint_of({}, str(tmp_path))
    assert runs.fingerprint_of({}, str(tmp_path)) == before
    (tmp_path / "model.safetensors").write_bytes(b"two")
    assert runs.fingerprint_of({}, str(tmp_path)) != before
    assert runs.fingerprint_of({}, "openai/clip-vit-base-patch32") == runs.fingerprint_of({}, "new")


def test_other_settings_or_data_are_another_run(outcomes, tmp_path):
    folder, found = outcomes
    names = {runs.run_folder(each.plan, folder, "abc").name for each in found}
    assert len(names) == 3
    changed = plan_of(folder, "B1-2,8")  # trained, not as it is
    assert runs.run_folder(changed, folder, "abc").name not in names
    assert runs.run_folder(found[0].plan, folder, "def").name not in names
    with pytest.raises(ReportError, match="no finished run"):
        runs.find_run(changed, folder / "runs")
    with pytest.raises(ReportError, match="no finished run"):
        runs.find_run(found[0].plan, tmp_path)


def test_costs_are_beside_no_clustering(outcomes):
    _, (none, early, late) = outcomes
    assert none.costs.saved_mb == none.costs.none_saved_mb == early.costs.none_saved_mb
    assert early.costs.saved_mb < late.costs.saved_mb < none.costs.saved_mb
    assert none.costs.peak_gb > 0.05  # of the training process
    assert early.costs.peak_gb is None


def test_peak_memory_that_was_not_measured_is_null(world, tmp_path, monkeypatch):
    monkeypatch.setattr(costs, "PROC", tmp_path / "no proc")
    plan = plan_of(tmp_path, "none")
    (outcome,) = runs.run_all([plan], world, tmp_path / "runs", ONE_PROCESS, workers=0)
    assert outcome.costs.peak_gb is None
    (file,) = (tmp_path / "runs").glob("*/peak.json")
    assert json.loads(file.read_text()) == {"gb": None}
    table = make_table(Report("x", "Title", "", "table"), [outcome], small=True)
    assert "resident" not in table.to_markdown()


def test_a_damaged_cost_file_is_named(outcomes, tmp_path):
    folder, found = outcomes
    place = next((folder / "runs").glob("folder-none-4f-*"))
    copy = tmp_path / place.name
    (copy / "evaluation" / "test").mkdir(parents=True)
    (copy / "evaluation" / "test" / "evaluation.json").write_text("{}")
    shutil.copy(place / "log.jsonl", copy)
    (copy / "costs.json").write_text("{")
    with pytest.raises(ReportError, match=r"costs\.json cannot be read"):
        runs.read_all([found[0].plan], tmp_path)
    (copy / "costs.json").unlink()
    with pytest.raises(ReportError, match="was not measured"):
        runs.read_all([found[0].plan], tmp_path)


def test_full_tables_have_the_published_number_and_the_difference(outcomes):
    _, found = outcomes
    table = make_table(Report("x", "Title", "Table 1", "table"), found, small=False)
    own = found[0].seeds.metrics["t2v"]["R1"]
    cells = dict(zip(table.columns, table.rows[0], strict=True))
    assert cells["T→V R@1"] == f"{own:.1f} (40, {own - 40:+.1f})"
    assert "(" not in cells["T→V R@10"]  # not published
    assert "(" not in cells["V→T R@1"]
    assert "24.4 on V100" in cells["encode"]
    text = table.to_markdown()
    assert "best one chosen on val" in text
    assert "measured on cpu" in text


def with_results(outcome, **changes):
    return replace(outcome, seeds=Seeds(tuple(replace(each, **changes) for each in outcome.seeds.results)))


def test_tables_and_figures_say_their_protocol(outcomes, tmp_path):
    _, found = outcomes
    report = Report("place", "Places", "Figure 3", "curves", axes=("block B",))
    for protocol in ("clean", "published"):
        rows = [with_results(each, protocol=protocol) for each in found]
        table = make_table(report, rows, small=False)
        assert table.title == f"Places, {protocol} protocol (Figure 3 of the paper)"
        assert f"rule renormalise, protocol {protocol}, data" in table.label
        assert to_json(report, rows, small=False)["protocol"] == protocol
        _, svg = figures.draw_curves(report, rows, tmp_path, small=True)
        assert f"Places, scaled to MiniVTT, {protocol} protocol" in svg.read_text(encoding="utf-8")


def test_choosing_the_epoch_on_the_test_split_is_the_paper_s_way_or_too_good(outcomes):
    outcome = outcomes[1][0]
    recipe = outcome.plan.recipe
    data = recipe.data.model_copy(update={"validate_on": "test"})
    outcome = replace(outcome, plan=replace(outcome.plan, recipe=recipe.model_copy(update={"data": data})))
    report = Report("x", "Title", "Table 1", "table")
    assert "chosen on test (too good" in make_table(report, [outcome], small=False).label
    published = make_table(report, [with_results(outcome, protocol="published")], small=False)
    assert "chosen on test, as in the paper" in published.label
    assert not any("chose the best epoch" in note for note in published.notes)


def test_a_gallery_of_another_size_than_the_published_one_is_noted(outcomes):
    report = Report("x", "Title", "Table 2", "table")

    def notes(gallery):
        row = with_results(outcomes[1][0], benchmark="activitynet", split="test", gallery=gallery)
        return make_table(report, [row, row], small=False).notes

    expected = (
        "activitynet test: ranked among 4,869 videos, published for 4,917; compare only results of the same gallery."
    )
    assert notes(4869).count(expected) == 1
    assert not any("ranked among" in note for note in notes(4917))


def test_small_tables_have_intervals_and_gains(outcomes):
    _, found = outcomes
    table = make_table(Report("x", "Title", "", "table"), found, small=True)
    cells = dict(zip(table.columns, table.rows[2], strict=True))
    assert "±" in cells["T→V R@1"]
    assert "40" not in cells["T→V R@1"]
    assert cells["T→V R@1 over baseline"].count(",") == 1
    assert cells["in the paper"] == "+0.0"
    assert "MiniVTT" in table.label
    assert "beyond the paper" in table.title


def test_curves_are_drawn_for_print_and_screen(outcomes, tmp_path):
    _, found = outcomes
    report = Report("place", "Places, LSMDC", "Figure", "curves", axes=("block B",))
    png, svg = figures.draw_curves(report, found, tmp_path, small=False)
    assert png.read_bytes()[:4] == b"\x89PNG"
    assert "no clustering" in svg.read_text(encoding="utf-8")
    before = svg.read_bytes()
    figures.draw_curves(report, found, tmp_path, small=False)
    assert svg.read_bytes() == before


def test_gains_are_drawn_with_their_rows(outcomes, tmp_path):
    _, found = outcomes
    report = Report("methods", "Ways, MSR-VTT", "", "comparison")
    png, svg = figures.draw_gains(report, found, tmp_path, small=True)
    assert png.read_bytes()[:4] == b"\x89PNG"
    text = svg.read_text(encoding="utf-8")
    assert "B1-2,8" in text
    assert "baseline" not in text  # it is the line at zero


def test_pictures_of_tokens(tmp_path):
    torch.manual_seed(0)
    squares = torch.randint(0, 255, (2, 32, 32, 3), dtype=torch.uint8).numpy()
    segment = SegmentTokens(squares, torch.randn(32, 8), torch.arange(32) % 9, torch.arange(9))
    files = figures.save_figure(token_map(segment), tmp_path / "map", caption="a caption")
    assert [path.suffix for path in files] == [".png", ".svg"]
    text = files[1].read_text(encoding="utf-8")
    assert "a caption" in text
    assert text.count("4 tokens") == 5  # 32 tokens in nine clusters: five of four, four of three, seven of them named
    figures.save_figure(token_map(segment._replace(clusters=None)), tmp_path / "alone")
    assert (tmp_path / "alone.svg").read_text(encoding="utf-8").count("1 tokens") == 7
    with pytest.raises(ReportError, match="at least 4 tokens"):
        token_map(segment._replace(tokens=segment.tokens[:3]))


def test_logs_say_what_was_run(outcomes):
    folder = outcomes[0]
    places = sorted(path.name for path in (folder / "runs").iterdir())
    assert sum("as-it-is" in name for name in places) == 2
    for path in (folder / "runs").iterdir():
        assert json.loads((path / "costs.json").read_text())["device"] == "cpu"
        assert (path / "recipe.toml").exists()
