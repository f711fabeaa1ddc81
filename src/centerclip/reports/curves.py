"""Figures with curves: recall, memory and encoding time over the place B, the clusters K or the segments S."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..evaluation import gain
from .catalogue import Report
from .drawing import COLOURS, MARKERS, new_figure, save_figure
from .runs import Outcome
from .table import describe

PANELS = (
    ("text-to-video R@1, %", "recall"),
    ("saved activations a video, MB", "memory"),
    ("encoding time, times faster than none", "time"),
)


def draw_curves(report: Report, outcomes: Sequence[Outcome], folder: Path, *, small: bool) -> list[Path]:
    """One row of panels for each axis: recall with an interval, memory, time. Writes PNG and SVG.

    The band is the 95 % interval of the difference to no clustering, drawn around it: what the points differ by is far
    surer than where they all lie.
    """
    figure = new_figure(width=10.5, height=3.2 * len(report.axes) + 0.5)
    panels: Any = figure.subplots(len(report.axes), len(PANELS), squeeze=False)
    names = list(dict.fromkeys(each.plan.row.series for each in outcomes))
    for axis, line in zip(report.axes, panels, strict=True):
        for (title, kind), panel in zip(PANELS, line, strict=True):
            for number, name in enumerate(names):
                own = [each for each in outcomes if each.plan.row.series == name]
                _draw(panel, kind, axis, own, COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)])
            panel.set_xlabel(axis)
            panel.set_ylabel(title)
    panels[0][1].legend(frameon=False, fontsize=8, loc="lower right")  # memory grows: there is room
    figure.suptitle(report.heading(small=small), fontsize=11)
    caption = f"{describe(outcomes, small=small)} Band: 95 % interval of the difference to no clustering, over videos."
    return save_figure(figure, folder / report.name, caption=caption)


def _draw(panel: Any, kind: str, axis: str, series: Sequence[Outcome], colour: str, marker: str) -> None:
    here = sorted((each for each in series if each.plan.row.axis == axis), key=lambda each: each.plan.x)
    none = next((each for each in series if not each.plan.row.axis), None)
    x = [each.plan.x for each in here]
    panel.plot(x, [_value(each, kind) for each in here], marker=marker, color=colour, label=series[0].plan.row.series)
    panel.set_xticks(x)
    if none is None:
        return
    base = 1.0 if kind == "time" else _value(none, kind)
    panel.axhline(base, color=colour, linestyle="--", linewidth=1, label="no clustering")
    if kind == "recall":
        bounds = [gain(none.seeds, each.seeds) for each in here]
        low, high = [base + each.low for each in bounds], [base + each.high for each in bounds]
        panel.fill_between(x, low, high, color=colour, alpha=0.15)


def _value(outcome: Outcome, kind: str) -> float:
    costs = outcome.costs
    if kind == "recall":
        return outcome.seeds.metrics["t2v"]["R1"]
    return costs.saved_mb if kind == "memory" else costs.none_encode_ms / costs.encode_ms
