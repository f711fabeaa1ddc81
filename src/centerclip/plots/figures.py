"""Figures of results, readable in print, in grey and by colour-blind people; equal numbers give equal bytes."""

from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from textwrap import fill
from typing import Any, Literal

from ..cluster import Setting
from ..errors import extras_named
from ..evaluation import gains
from ..files import write_atomic
from ..reports.catalogue import Report
from ..reports.frontier import Point, best
from ..reports.runs import Outcome
from ..reports.table import describe, heading, is_baseline
from ..training.run import CURVE, read_log

# Okabe and Ito's colours, which colour-blind people can tell apart; markers do so without colour.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DPI = 150  # of PNG files; print from the SVG
CURVE_PANELS = (
    ("text-to-video R@1, %", "recall"),
    ("saved activations a video, MB", "memory"),
    ("encoding time, times faster than none", "time"),
)
GAIN_PANELS = ("text-to-video R@1 over no clustering", "video-to-text R@1 over no clustering", "encoding, times faster")


def new_figure(*, width: float, height: float, layout: Literal["constrained"] | None = "constrained") -> Any:
    """An empty matplotlib figure of ``width`` x ``height`` inches, without a window."""
    with extras_named():
        from matplotlib import rcParams
        from matplotlib.figure import Figure
    rcParams["svg.hashsalt"] = "centerclip"  # ids inside the SVG do not change from run to run
    rcParams["svg.fonttype"] = "none"
    return Figure(figsize=(width, height), layout=layout)


def save_figure(figure: Any, path: Path, *, caption: str = "") -> list[Path]:
    """Write ``path`` as PNG and as SVG, each atomically, with a caption below."""
    if caption:
        inches = figure.get_size_inches()[0]
        figure.text(0.01, -0.02, fill(caption, round(inches * 15)), fontsize=7, va="top", color="#444444")
    path.parent.mkdir(parents=True, exist_ok=True)
    written = []
    for kind in ("png", "svg"):
        metadata = {"Date": None} if kind == "svg" else {"Software": None}
        save = partial(figure.savefig, format=kind, dpi=DPI, bbox_inches="tight", metadata=metadata)
        written.append(write_atomic(path.with_name(f"{path.name}.{kind}"), save))
    return written


def draw_curves(report: Report, outcomes: Sequence[Outcome], path: Path, *, small: bool) -> list[Path]:
    """One row of panels for each axis: recall with an interval, memory, time. Writes PNG and SVG.

    The band is the 95 % interval of the difference to no clustering, drawn around that line: differences on the same
    videos are known far better than the values themselves.
    """
    figure = new_figure(width=10.5, height=3.2 * len(report.axes) + 0.5)
    panels: Any = figure.subplots(len(report.axes), len(CURVE_PANELS), squeeze=False)
    names = list(dict.fromkeys(each.plan.row.series for each in outcomes))
    for axis, line in zip(report.axes, panels, strict=True):
        for (title, kind), panel in zip(CURVE_PANELS, line, strict=True):
            for number, name in enumerate(names):
                series = [each for each in outcomes if each.plan.row.series == name]
                _draw_series(panel, kind, axis, series, COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)])
            panel.set_xlabel(axis)
            panel.set_ylabel(title)
    panels[0][1].legend(frameon=False, fontsize=8, loc="lower right")  # memory grows, so this corner is empty
    figure.suptitle(heading(report, outcomes, small=small), fontsize=11)
    caption = f"{describe(outcomes, small=small)} Band: 95 % interval of the difference to no clustering, over videos."
    return save_figure(figure, path, caption=caption)


def _draw_series(panel: Any, kind: str, axis: str, series: Sequence[Outcome], colour: str, marker: str) -> None:
    points = sorted((each for each in series if each.plan.row.axis == axis), key=lambda each: each.plan.x)
    none = next((each for each in series if not each.plan.row.axis), None)
    x = [each.plan.x for each in points]
    panel.plot(x, [_value(each, kind) for each in points], marker=marker, color=colour, label=series[0].plan.row.series)
    panel.set_xticks(x)
    if none is None:
        return
    base = 1.0 if kind == "time" else _value(none, kind)
    panel.axhline(base, color=colour, linestyle="--", linewidth=1, label="no clustering")
    if kind == "recall":
        bounds = [gains(none.seeds, each.seeds)["R1"] for each in points]
        low, high = [base + each.low for each in bounds], [base + each.high for each in bounds]
        panel.fill_between(x, low, high, color=colour, alpha=0.15)


def _value(outcome: Outcome, kind: str) -> float:
    costs = outcome.costs
    if kind == "recall":
        return outcome.seeds.metrics["t2v"]["R1"]
    return costs.saved_mb if kind == "memory" else costs.none_encode_ms / costs.encode_ms


def draw_gains(report: Report, outcomes: Sequence[Outcome], path: Path, *, small: bool) -> list[Path]:
    """One line a row, the best at the top: the gain with its 95 % interval, each seed as a small ring. PNG and SVG."""
    baseline = next(each for each in outcomes if is_baseline(each))
    rows = [each for each in outcomes if each is not baseline]
    rows.sort(key=lambda each: each.seeds.metrics["t2v"]["R1"])
    figure = new_figure(width=10.5, height=0.32 * len(rows) + 1.3)
    panels: Any = figure.subplots(1, len(GAIN_PANELS), sharey=True, width_ratios=(1.2, 1.2, 0.8))
    for place, row in enumerate(rows):
        for panel, direction in zip(panels, ("t2v", "v2t"), strict=False):
            over = gains(baseline.seeds, row.seeds, direction)["R1"]
            panel.plot([over.low, over.high], [place, place], color=COLOURS[0], linewidth=1.5)
            panel.plot(over.mean, place, "o", color=COLOURS[0])
            if len(over.seeds) > 1:
                panel.plot(over.seeds, [place] * len(over.seeds), "o", markersize=4, color="black", fillstyle="none")
        panels[2].plot(row.costs.none_encode_ms / row.costs.encode_ms, place, "D", color=COLOURS[1])
    panels[0].set_yticks(range(len(rows)), [row.plan.row.label for row in rows])
    for panel, title, no_gain in zip(panels, GAIN_PANELS, (0, 0, 1), strict=True):
        panel.axvline(no_gain, color="black", linestyle="--", linewidth=1)
        panel.set_xlabel(title)
        panel.grid(axis="y", color="#DDDDDD", linewidth=0.6)
    figure.suptitle(heading(report, outcomes, small=small), fontsize=11)
    caption = f"{describe(outcomes, small=small)} Lines: 95 % interval over videos. Rings: each seed."
    return save_figure(figure, path, caption=caption)


def draw_frontier(points: Sequence[Point], path: Path, *, title: str, caption: str) -> list[Path]:
    """R@1 against arithmetic and, where it was measured, against time; lines join the best. Writes PNG and SVG.

    Bars are the 95 % intervals of the differences to no clustering, drawn around each point. The best are named.
    """
    timed = all(point.faster for point in points)
    front = best(points)
    figure = new_figure(width=10.5 if timed else 8, height=5.5)
    panels: Any = figure.subplots(1, 2 if timed else 1, sharey=True, squeeze=False)[0]
    kinds = list(dict.fromkeys(_family(point) for point in points))
    for panel, axis in zip(panels, ("arithmetic", "time"), strict=False):

        def x(point: Point, axis: str = axis) -> float:
            return 100 * point.arithmetic if axis == "arithmetic" else 100 / (point.faster or 1)

        for number, kind in enumerate(kinds):
            some = [point for point in points if _family(point) == kind]
            bars = [[max(0, p.gain.mean - p.gain.low) for p in some], [max(0, p.gain.high - p.gain.mean) for p in some]]
            style: dict[str, object] = {
                "color": COLOURS[number % len(COLOURS)],
                "marker": MARKERS[number % len(MARKERS)],
            }
            style |= {"linestyle": "none", "elinewidth": 0.6, "capsize": 2, "label": kind}
            panel.errorbar([x(p) for p in some], [p.recall for p in some], yerr=bars, **style)
        if axis == "arithmetic":
            panel.step([x(p) for p in front], [p.recall for p in front], where="post", color="#888888", linewidth=1)
            for number, point in enumerate(front):
                place = {"xytext": (4, 6 if number % 2 else -10), "textcoords": "offset points", "fontsize": 6}
                panel.annotate(point.setting, (x(point), point.recall), **place)
        panel.set_xlabel(f"{axis}, % of no clustering")
    panels[0].set_ylabel("text-to-video R@1, %")
    panels[0].legend(frameon=False, fontsize=7, loc="lower right")
    figure.suptitle(title, fontsize=11)
    bars_are = "Bars: 95 % interval of the difference to no clustering, over videos. Named: nothing as cheap is better."
    return save_figure(figure, path, caption=f"{caption} {bars_are}")


def _family(point: Point) -> str:
    """What a point is drawn as: its first method, or fewer frames."""
    return "fewer frames" if " frames" in point.setting else Setting.parse(point.setting.split(", ")[0]).method


def draw_curve(folder: Path) -> Path | None:
    """Draw the loss and recall of a training run over its steps into ``curve.png``; None without matplotlib."""
    if find_spec("matplotlib") is None:
        return None
    lines = read_log(folder)
    steps = [line for line in lines if line["event"] == "train"]
    checks = [line for line in lines if line["event"] == "validation"]
    split = checks[-1]["split"] if checks else "validation"
    figure = new_figure(width=7, height=4)
    loss_axes = figure.subplots()
    loss_axes.plot(
        [line["step"] for line in steps], [line["loss"] for line in steps], color="0.6", label="training loss"
    )
    loss_axes.set_xlabel("step")
    loss_axes.set_ylabel("loss")
    recall_axes = loss_axes.twinx()
    for name, colour, marker in (("R1", "#0072b2", "o"), ("R5", "#d55e00", "s"), ("R10", "#009e73", "^")):
        style = {"color": colour, "marker": marker, "markersize": 4, "label": f"{split} R@{name[1:]}"}
        recall_axes.plot([line["step"] for line in checks], [line["t2v"][name] for line in checks], **style)
    recall_axes.set_ylabel("text-to-video recall, %")
    recall_axes.set_ylim(0, 100)
    handles = [*loss_axes.get_lines(), *recall_axes.get_lines()]
    loss_axes.legend(handles=handles, loc="center right", fontsize=8)
    loss_axes.set_title(folder.resolve().name)
    return write_atomic(folder / CURVE, partial(figure.savefig, dpi=120, format="png"))
