"""What clustering costs a model that was trained without it, over the place B, the clusters K and the segments S."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..cluster import Setting, Stage
from .drawing import COLOURS, MARKERS, new_figure, save_figure
from .table import Table
from .training_free import Trial

AXES = ("block B", "clusters K", "segments S, as many tokens in all")
DRAWN = {  # methods of the curves, by how they are written
    "kmedoids": "medoids (the paper)",
    "kmedoids[proportional]": "medoids, weighed by cluster size",
    "means": "cluster means, weighed by cluster size",
}
TABLED = (  # compared with half the usual K
    "spectral[sigma=median]", "means[proportional=false]", "tome", "dpcknn", "dpcknn[proportional]", "kkz", "attention",
    "sampling", "random",
)  # fmt: skip


@dataclass(frozen=True)
class Point:
    """One point of a curve."""

    axis: str
    x: int
    method: str
    setting: str


def sweep_points(*, blocks: int, patches: int, frames: int) -> list[Point]:
    """Curves through :func:`usual_stage`, along each of its numbers."""
    usual = usual_stage(blocks=blocks, patches=patches, frames=frames)
    places = sorted({min(blocks - 1, max(1, round(blocks * part / 6))) for part in (1, 2, 3, 4, 5)})
    most = patches * frames // usual.segments
    counts = sorted({min(most, max(1, patches * part // 8)) for part in (1, 2, 4, 8, 16)})
    cuts = [s for s in range(2, frames + 1) if frames % s == 0] or [1]
    stages = [(AXES[0], b, replace(usual, block=b)) for b in places]
    stages += [(AXES[1], n, replace(usual, k=n)) for n in counts]
    stages += [(AXES[2], s, replace(usual, segments=s, k=max(1, usual.segments * usual.k // s))) for s in cuts]
    return [Point(axis, x, method, _setting(method, stage)) for method in DRAWN for axis, x, stage in stages]


def usual_stage(*, blocks: int, patches: int, frames: int) -> Stage:
    """What B6-4,49 is to ViT-B/32 and 12 frames: half-way, three frames a segment, as many centres as patches."""
    return Stage(max(1, blocks // 2), frames // 3 if frames % 3 == 0 else 1, patches)


def sweep_settings(*, blocks: int, patches: int, frames: int) -> list[str]:
    """All settings of the curves and of the table, each once."""
    usual = usual_stage(blocks=blocks, patches=patches, frames=frames)
    drawn = [point.setting for point in sweep_points(blocks=blocks, patches=patches, frames=frames)]
    tabled = [_setting(method, replace(usual, k=max(1, patches // 2))) for method in TABLED]
    return list(dict.fromkeys([*drawn, *tabled]))


def trials_table(trials: Sequence[Trial], model: str) -> Table:
    """One line a setting: recall, what it differs from none, and how close the vectors stay. ``model`` is its name."""
    columns = ("setting", "tokens left", "T→V R@1", "over none", "T→V R@5", "T→V R@10", "T→V MnR", "V→T R@1",
               "over none", "cosine")  # fmt: skip
    rows = []
    for trial in trials:
        t2v, v2t = trial.result.metrics["t2v"], trial.result.metrics["v2t"]
        rows.append((
            f"`{trial.setting}`", f"{100 * trial.tokens:.0f} %", f"{t2v['R1']:.1f}", _difference(trial, "t2v"),
            f"{t2v['R5']:.1f}", f"{t2v['R10']:.1f}", f"{t2v['MnR']:.2f}", f"{v2t['R1']:.1f}", _difference(trial, "v2t"),
            f"{trial.closeness:.3f}",
        ))  # fmt: skip
    first = trials[0].result
    notes = (
        "Over none: the difference to no clustering with its 95 % bootstrap interval over videos; * where that leaves "
        "out zero.",
        "Cosine: of the videos' vectors to those without clustering, the mean.",
    )
    label = f"Clustering put into the model {model} as it is; {first.frames} frames; {first.label()}."
    return Table("Clustering without training (beyond the paper)", label, columns, tuple(rows), notes)


def to_json(trials: Sequence[Trial]) -> dict[str, Any]:
    """Everything behind the table, for programs."""
    return {
        "label": trials[0].result.label(),
        "frames": trials[0].result.frames,
        "trials": [
            {
                "setting": trial.setting,
                "tokens": trial.tokens,
                "metrics": trial.result.metrics,
                "over_none": trial.against_none.difference,
                "intervals": trial.against_none.intervals,
                "cosine": trial.closeness,
            }
            for trial in trials
        ],
    }


def draw_sweep(trials: Sequence[Trial], points: Sequence[Point], path: Path, *, caption: str) -> list[Path]:
    """R@1 and the cosine to the vectors without clustering over B, K and S; a line a method. Writes PNG and SVG."""
    found = {trial.setting: trial for trial in trials}
    figure = new_figure(width=10.5, height=6)
    panels: Any = figure.subplots(2, len(AXES), sharey="row")
    for column, axis in enumerate(AXES):
        for number, (method, label) in enumerate(DRAWN.items()):
            here = sorted((each for each in points if (each.axis, each.method) == (axis, method)), key=lambda p: p.x)
            own = [found[each.setting] for each in here]
            style = {"color": COLOURS[number], "marker": MARKERS[number], "label": label}
            places = range(len(here)) if axis == AXES[1] else [each.x for each in here]
            panels[0][column].plot(places, [each.result.metrics["t2v"]["R1"] for each in own], **style)
            panels[1][column].plot(places, [each.closeness for each in own], **style)
            for line in panels:
                line[column].set_xticks(list(places), [str(each.x) for each in here])
        panels[0][column].axhline(
            trials[0].result.metrics["t2v"]["R1"], color="black", linestyle="--", linewidth=1, label="no clustering"
        )
        panels[1][column].set_xlabel(axis)
    panels[0][0].set_ylabel("text-to-video R@1, %")
    panels[1][0].set_ylabel("cosine to the vectors of none")
    panels[0][0].legend(frameon=False, fontsize=8)
    return save_figure(figure, path, caption=caption)


def _setting(method: str, stage: Stage) -> str:
    return str(Setting.parse(f"{method}:{stage}"))


def _difference(trial: Trial, direction: str) -> str:
    found = trial.against_none
    low, high = found.intervals[direction]["R1"]
    star = "*" if found.clear(direction, "R1") else ""
    return f"{found.difference[direction]['R1']:+.1f} [{low:+.1f}, {high:+.1f}]{star}"
