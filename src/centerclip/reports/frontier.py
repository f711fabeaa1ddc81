"""Recall against arithmetic and time: which settings nothing else beats, of models as they are and of trained rows."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..evaluation import Gain, gains
from ..evaluation.costs import multiply_adds
from ..evaluation.result import differences
from .catalogue import PAPER, tower_of
from .runs import Outcome
from .table import Table, is_baseline
from .training_free import SettingResult


@dataclass(frozen=True)
class Point:
    """One setting in the figure."""

    setting: str
    label: str
    arithmetic: float  # as a part of no clustering
    recall: float  # text to video R@1, per cent
    gain: Gain  # of that over no clustering
    cosine: float = 0.0  # to the vectors of no clustering; decides between equal recalls
    faster: float | None = None  # times as fast as no clustering


def best(points: Sequence[Point]) -> list[Point]:
    """The Pareto points: nothing that costs as little has a higher recall (or the same, and a higher cosine)."""

    def beaten(point: Point) -> bool:
        mine = (point.recall, point.cosine)
        return any(
            other.arithmetic <= point.arithmetic
            and (other.recall, other.cosine) >= mine
            and (other.arithmetic, other.recall, other.cosine) != (point.arithmetic, *mine)
            for other in points
        )

    return sorted((point for point in points if not beaten(point)), key=lambda point: point.arithmetic)


def setting_points(results: Sequence[SettingResult], labels: dict[str, str]) -> list[Point]:
    """Points of a model as it is; the first result is no clustering."""
    none = results[0].multiply_adds
    return [
        Point(
            each.setting,
            labels.get(each.setting, ""),
            each.multiply_adds / none,
            each.result.metrics["t2v"]["R1"],
            each.over_none["t2v"]["R1"],
            each.closeness,
            each.faster,
        )
        for each in results
    ]


def outcome_points(outcomes: Sequence[Outcome], *, small: bool) -> list[Point]:
    """Points of trained rows, one of which is no clustering."""
    none = next(each for each in outcomes if is_baseline(each))

    def cost(outcome: Outcome) -> int:
        frames = outcome.plan.recipe.model.frames
        tower, patches = tower_of(outcome.plan.recipe, small=small)
        return multiply_adds(tower, outcome.plan.setting, frames, patches)

    found = []
    for each in outcomes:
        model = each.plan.recipe.model
        name = f"{each.plan.setting}" + (f", {model.temporal}" if model.temporal != "none" else "")
        name += f", {model.frames} frames" if model.frames != none.plan.recipe.model.frames else ""
        faster = none.costs.encode_ms / each.costs.encode_ms
        recall = each.seeds.metrics["t2v"]["R1"]
        gain = gains(none.seeds, each.seeds)["R1"]
        found.append(Point(name, each.plan.row.label, cost(each) / cost(none), recall, gain, faster=faster))
    return found


def settings_table(
    results: Sequence[SettingResult], points: Sequence[Point], model: str, chosen: Sequence[str] = ()
) -> Table:
    """One line a setting: its arithmetic, recall, the difference to none, and how close the vectors stay.

    Args:
        results: no clustering first.
        points: of the results.
        model: its name.
        chosen: settings that were the best on other data.
    """
    timed = any(each.faster for each in results)
    columns = ["setting", "", "arithmetic", *(["faster"] if timed else []), "T→V R@1", "over none", "found first",
               "T→V R@5", "T→V R@10", "T→V MnR", "V→T R@1", "over none", "cosine", "least"]  # fmt: skip
    front = {point.setting for point in best(points)}
    rows = []
    for each, point in zip(results, points, strict=True):
        t2v, v2t = each.result.metrics["t2v"], each.result.metrics["v2t"]
        over, back = (_gain(each.over_none[direction]["R1"]) for direction in ("t2v", "v2t"))
        marks = ("**" if each.setting in front else "", " ●" if each.setting in chosen else "")
        rows.append((
            f"{marks[0]}`{each.setting}`{marks[0]}{marks[1]}", point.label, f"{100 * point.arithmetic:.0f} %",
            *([f"{each.faster:.2f}x" if each.faster else ""] if timed else []),
            f"{t2v['R1']:.1f}", over, f"{each.first_found} of {each.result.gallery}",
            f"{t2v['R5']:.1f}", f"{t2v['R10']:.1f}", f"{t2v['MnR']:.2f}", f"{v2t['R1']:.1f}", back,
            f"{each.closeness:.3f}", f"{each.least:.3f}",
        ))  # fmt: skip
    first = results[0].result
    notes = [
        "Bold: nothing that costs as little has a higher T→V R@1 (of equals, a higher cosine).",
        f"Arithmetic: multiply-adds of the vision tower, 100 % are {results[0].multiply_adds / 1e9:.1f} G a video; the "
        "choice of tokens is not in it.",
        "Over none: the difference to no clustering with its 95 % bootstrap interval over videos; * where it excludes "
        "zero.",
        "Found first: videos that rank first for their first sentence.",
        "Cosine: of the videos' vectors to those without clustering, the mean and the least.",
    ]
    if timed:
        notes.append("Faster: one video, against no clustering in the same run.")
    if chosen:
        notes.insert(1, "●: bold on the other data that settings were chosen on.")
    label = f"Clustering put into the model {model} as it is; {first.frames} frames; {first.label()}."
    return Table("Clustering without training (beyond the paper)", label, tuple(columns), tuple(rows), tuple(notes))


def with_arithmetic(table: Table, points: Sequence[Point], outcomes: Sequence[Outcome]) -> Table:
    """The table of trained rows with what each costs, and its gain over the paper's setting; the best are bold."""
    front, paper = best(points), next((each for each in outcomes if each.plan.row.label == PAPER), None)
    over = ["" if paper in (None, each) else _gain(gains(paper.seeds, each.seeds)["R1"]) for each in outcomes]
    rows = [
        (f"**{cells[0]}**" if point in front else cells[0], f"{100 * point.arithmetic:.0f} %", *cells[1:], gain)
        for cells, point, gain in zip(table.rows, points, over, strict=True)
    ]
    notes = (
        "Bold: nothing that costs as little has a higher T→V R@1.",
        "Arithmetic: multiply-adds of the vision tower, of those of no clustering.",
        *table.notes,
        "Over k-medoids++: the difference in T→V R@1 with its 95 % interval; * where it excludes zero.",
    )
    columns = (table.columns[0], "arithmetic", *table.columns[1:], "over k-medoids++")
    return replace(table, columns=columns, rows=tuple(rows), notes=notes)


def to_json(results: Sequence[SettingResult], points: Sequence[Point]) -> dict[str, Any]:
    """The numbers behind the table, for programs."""
    return {
        "label": results[0].result.label(),
        "frames": results[0].result.frames,
        "best": [point.setting for point in best(points)],
        "settings": [
            {
                "setting": each.setting,
                "label": point.label,
                "multiply_adds": each.multiply_adds,
                "arithmetic": point.arithmetic,
                "faster": each.faster,
                "metrics": each.result.metrics,
                "found_first": each.first_found,
                "over_none": differences(each.over_none)["difference"],
                "intervals": differences(each.over_none)["intervals"],
                "cosine": each.closeness,
                "least_cosine": each.least,
            }
            for each, point in zip(results, points, strict=True)
        ],
    }


def _gain(gain: Gain) -> str:
    return f"{gain}{'*' if gain.clear else ''}"
