"""What the reports are made of: the paper's numbers, and the runs behind every row."""

import re

import pytest

from centerclip.cluster import Setting
from centerclip.errors import ReportError
from centerclip.evaluation.metrics import NAMES
from centerclip.reports.catalogue import expected_hours, find_report, make_plans, reports, scaled_setting
from centerclip.training.recipe import find_recipe, list_recipes

MAIN = ("msvd", "activitynet", "msrvtt-7k", "msrvtt-9k", "lsmdc")


def commented(recipe):
    """The published metrics in the comment of a recipe, which were written down independently."""
    text = find_recipe(recipe).read_text(encoding="utf-8")
    found = {}
    for direction, words in (("t2v", "text to video"), ("v2t", "video to text")):
        line = re.search(rf"#\s+{words}\s+(.*)", text)
        if line:
            found[direction] = [None if word == "-" else float(word) for word in line[1].split()]
    cost = re.search(r"([\d.]+) GB on each GPU in training, ([\d.]+) ms", text)
    return found, cost and (float(cost[1]), float(cost[2]))


@pytest.mark.parametrize("name", MAIN)
def test_published_metrics_agree_with_the_recipes(name):
    trained = [row for row in reports()[name].rows if not row.zero_shot]
    assert len(trained) >= 7
    for row in trained:
        metrics, cost = commented(row.recipe)
        for direction in ("t2v", "v2t"):
            if direction in metrics:
                published = [row.published.metric(direction, each) for each in NAMES]
                assert published == metrics[direction], (row.label, direction)
        if cost:
            assert (row.published.memory, row.published.encode) == cost, row.label


def test_every_recipe_of_the_paper_is_a_row():
    used = {row.recipe for name in MAIN for row in reports()[name].rows}
    assert used == {name for name, _ in list_recipes() if not name.startswith("minivtt/")}


def test_every_row_can_be_run():
    for report in reports().values():
        for plan in make_plans(report, small=False):
            patches = 196 if "patch16" in plan.recipe.model.start else 49
            plan.setting.check(blocks=12, frames=plan.recipe.model.frames, patches=patches)
            assert (expected_hours(plan, gpus=8) > 0) != plan.row.zero_shot
        for plan in make_plans(report, small=True):
            plan.setting.check(blocks=6, frames=plan.recipe.model.frames, patches=36)


def test_the_same_row_in_two_tables_is_the_same_run():
    def recipe(table, label):
        return next(p.recipe for p in make_plans(find_report(table), small=False) if p.row.label == label)

    assert not recipe("lsmdc", "k-medoids++, B6-4,49").differences(recipe("twice", "B6-4,49"))
    assert not recipe("lsmdc", "k-medoids++, B6-4,49").differences(recipe("norm", "B6-4,49"))
    assert recipe("norm", "B6-4,49, l2 norm").model.clustering == "kmedoids[normalise]:B6-4,49"
    assert recipe("frames", "75 frames").model.frames == 75


@pytest.mark.parametrize(
    ("setting", "frames", "small_frames", "scaled"),
    [
        ("B6-4,49", 12, 12, "B3-4,36"),
        ("spectral:B6-20,49", 60, 12, "spectral:B3-4,36"),
        ("B6-12,49", 60, 12, "B3-2,36"),
        ("B4-6,49 B8-3,49", 12, 12, "B2-6,36 B4-3,36"),
        ("B11-4,49", 12, 12, "B5-4,36"),
        ("B6-15,49", 75, 15, "B3-3,36"),
        ("pooling:B6-4,49", 12, 12, "pooling:B3-4,36"),
        ("token-shift", 12, 12, "token-shift"),
    ],
)
def test_settings_scale_with_the_model(setting, frames, small_frames, scaled):
    assert str(scaled_setting(Setting.parse(setting), frames, small_frames)) == scaled


def test_small_plans_keep_what_a_table_varies():
    learning = make_plans(find_report("learning"), small=True)
    rates = [(plan.recipe.train.lr, plan.recipe.train.epochs) for plan in learning]
    assert rates[0][0] == pytest.approx(rates[1][0] / 2)
    assert rates[2][1] > rates[1][1]
    assert rates[1][0] == rates[2][0]
    assert [plan.recipe.model.frames for plan in make_plans(find_report("frames"), small=True)] == [15, 12, 9, 6]
    places = [plan.x for plan in make_plans(find_report("place"), small=True) if plan.row.axis]
    assert places == [1, 2, 3, 4, 5]
    assert not any("B/16" in plan.row.label for plan in make_plans(find_report("msvd"), small=True))


def test_the_paper_s_tables_follow_the_published_protocol_and_minivtt_the_clean_one():
    """Published: all of the training list, and the epoch that is best on test; clean holds videos out for that."""

    def runs(name, **options):
        recipes = [plan.recipe for plan in make_plans(find_report(name), **options)]
        return {(each.protocol, each.data.train, each.data.validate_on) for each in recipes}

    for report in reports().values():
        assert {protocol for protocol, *_ in runs(report.name, small=False)} <= {"published"}
    assert runs("msrvtt-9k", small=False) == {("published", "train+val", "test")}
    assert runs("msrvtt-9k", small=False, protocol="clean") == {("clean", "train", "val")}
    assert runs("msvd", small=False) == {("published", "train", "test")}
    assert runs("msvd", small=True) == {("clean", "train", "val")}
    assert runs("msvd", small=True, protocol="published") == {("published", "train", "test")}
    assert runs("msvd", small=False, select_on="val") == {("published", "train", "val")}


def test_settings_of_a_call_reach_every_row():
    plans = make_plans(find_report("methods"), small=True, quick=True, start="mine", select_on="test", training=False)
    assert {plan.recipe.model.start for plan in plans} == {"mine"}
    assert {plan.recipe.train.epochs for plan in plans} == {1}
    assert {plan.recipe.data.validate_on for plan in plans} == {"test"}
    assert all(plan.row.zero_shot for plan in plans)


def test_unknown_names_get_the_nearest():
    with pytest.raises(ReportError, match="did you mean lsmdc"):
        find_report("lsmcd")
