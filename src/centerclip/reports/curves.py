"""Figures with curves: recall, memory and encoding time over the place B, the clusters K or the segments S."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

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
    """One row of panels for each axis: recall with its 95 % interval, memory, time. Writes PNG and SVG."""
    figure = new_figure(width=10.5, height=3.2 * len(report.axes) + 0.5)
    panels: Any = figure.subplots(len(report.axes), len(PANELS), squeeze=False)
    names = list(dict.fromkeys(each.plan.row.series for each in outcomes))
    for axis, line in zip(report.axes, panels, strict=True):
        for (title, kind), panel in zip(PANELS, line, strict=True):
            for number, name in enumerate(names):
                _draw(panel, kind, axis, name, number, outcomes)
            panel.set_xlabel(axis)
            panel.set_ylabel(title)
    panels[0][0].legend(frameon=False, fontsize=8)
    figure.suptitle(report.heading(small=small), fontsize=11)
    label = describe(outcomes, small=small)
    return save_figure(figure, folder / report.name, caption=label)


def _draw(panel: Any, kind: str, axis: str, series: str, number: int, outcomes: Sequence[Outcome]) -> None:
    here = sorted(
        (each for each in outcomes if each.plan.row.series == series and each.plan.row.axis == axis),
        key=lambda each: each.plan.x,
    )
    colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
    x = [each.plan.x for each in here]
    y = [_value(each, kind) for each in here]
    panel.plot(x, y, marker=marker, color=colour, label=series)
    if kind == "recall":
        bounds = [each.seeds.intervals["t2v"]["R1"] for each in here]
        panel.fill_between(x, [low for low, _ in bounds], [high for _, high in bounds], color=colour, alpha=0.15)
    panel.set_xticks(x)
    for each in outcomes:
        if each.plan.row.series == series and not each.plan.row.axis:
            panel.axhline(_value(each, kind), color=colour, linestyle="--", linewidth=1, label="no clustering")


def _value(outcome: Outcome, kind: str) -> float:
    costs = outcome.costs
    if kind == "recall":
        return outcome.seeds.metrics["t2v"]["R1"]
    return costs.saved_mb if kind == "memory" else costs.none_encode_ms / costs.encode_ms
