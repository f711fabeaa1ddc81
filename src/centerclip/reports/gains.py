"""A figure of a comparison: what each row gains over the baseline, how sure that is, and what it saves."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..evaluation import gain
from .catalogue import Report
from .drawing import COLOURS, new_figure, save_figure
from .runs import Outcome
from .table import describe, is_baseline

PANELS = ("text-to-video R@1 over no clustering", "video-to-text R@1 over no clustering", "encoding, times faster")


def draw_gains(report: Report, outcomes: Sequence[Outcome], folder: Path, *, small: bool) -> list[Path]:
    """One line a row, the best at the top: the gain with its 95 % interval, each seed as a small ring. PNG and SVG."""
    baseline = next(each for each in outcomes if is_baseline(each))
    rows = [each for each in outcomes if each is not baseline]
    rows.sort(key=lambda each: each.seeds.metrics["t2v"]["R1"])
    figure = new_figure(width=10.5, height=0.32 * len(rows) + 1.3)
    panels: Any = figure.subplots(1, len(PANELS), sharey=True, width_ratios=(1.2, 1.2, 0.8))
    for place, row in enumerate(rows):
        for panel, direction in zip(panels, ("t2v", "v2t"), strict=False):
            found = gain(baseline.seeds, row.seeds, direction)
            panel.plot([found.low, found.high], [place, place], color=COLOURS[0], linewidth=1.5)
            panel.plot(found.mean, place, "o", color=COLOURS[0])
            if len(found.seeds) > 1:
                panel.plot(found.seeds, [place] * len(found.seeds), "o", markersize=4, color="black", fillstyle="none")
        panels[2].plot(row.costs.none_encode_ms / row.costs.encode_ms, place, "D", color=COLOURS[1])
    panels[0].set_yticks(range(len(rows)), [row.plan.row.label for row in rows])
    for panel, title, nothing in zip(panels, PANELS, (0, 0, 1), strict=True):
        panel.axvline(nothing, color="black", linestyle="--", linewidth=1)
        panel.set_xlabel(title)
        panel.grid(axis="y", color="#DDDDDD", linewidth=0.6)
    figure.suptitle(report.heading(small=small), fontsize=11)
    caption = f"{describe(outcomes, small=small)} Lines: 95 % interval over videos. Rings: each seed."
    return save_figure(figure, folder / report.name, caption=caption)
