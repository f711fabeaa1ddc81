"""The table of a report: results beside the published numbers, as Markdown and as JSON."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..data.benchmark import format_of
from ..evaluation import gains
from ..evaluation.metrics import HEADINGS, NAMES
from ..files import write_atomic
from .catalogue import Report
from .runs import Outcome

DIRECTIONS = {"t2v": "T→V", "v2t": "V→T"}


@dataclass(frozen=True)
class Table:
    """Cells as text, with a label that says what was run and notes on how to read it."""

    title: str
    label: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]

    def to_markdown(self) -> str:
        """The table with its title, label and notes."""
        lines = [f"# {self.title}", "", self.label, ""]
        lines += ["| " + " | ".join(self.columns) + " |", "|---" + "|---:" * (len(self.columns) - 1) + "|"]
        lines += ["| " + " | ".join(row) + " |" for row in self.rows]
        return "\n".join([*lines, "", *(f"{note}  " for note in self.notes)]).rstrip() + "\n"

    def write(self, path: Path, content: dict[str, Any]) -> list[Path]:
        """Write the table as ``path``.md and the numbers behind it as ``path``.json, each atomically."""
        path.parent.mkdir(parents=True, exist_ok=True)
        texts = {".md": self.to_markdown(), ".json": json.dumps(content, indent=2) + "\n"}
        return [write_atomic(path.with_name(path.name + suffix), text) for suffix, text in texts.items()]


def make_table(report: Report, outcomes: Sequence[Outcome], *, small: bool) -> Table:
    """The table of a report.

    On the paper's benchmarks each cell has the published number and the difference in brackets. On MiniVTT numbers of
    another benchmark say little, so cells have the half-width of their 95 % interval, and the gain over the baseline is
    beside the published gain.
    """
    columns = ["method", "memory", "encode"]
    columns += [f"{arrow} {metric}" for arrow in DIRECTIONS.values() for metric in HEADINGS.values()]
    gains = _gains(outcomes) if small else {}
    rows = []
    for place, each in enumerate(outcomes):
        cells = [_method(each, small), _memory(each, small), _encode(each, small)]
        cells += [_metric(each, direction, name, small) for direction in DIRECTIONS for name in NAMES]
        rows.append((*cells, *(column[place] for column in gains.values())))
    where = f"{report.where} of the paper" if report.where else "beyond the paper"
    return Table(
        title=f"{heading(report, outcomes, small=small)} ({where})",
        label=describe(outcomes, small=small),
        columns=(*columns, *gains),
        rows=tuple(rows),
        notes=tuple(_notes(outcomes, small=small)),
    )


def heading(report: Report, outcomes: Sequence[Outcome], *, small: bool) -> str:
    """The title of a table or figure: with the data where that is not the benchmark that it names, and the protocol."""
    scaled = ", scaled to MiniVTT" if small else ""
    return f"{report.title}{scaled}, {' and '.join(_protocols(outcomes))} protocol"


def is_baseline(outcome: Outcome) -> bool:
    """Whether a row is the model without clustering that the others are compared with."""
    model = outcome.plan.recipe.model
    plain = model.clustering == "none" and model.temporal == "none" and "patch16" not in model.start
    return plain and "zero-shot" not in outcome.plan.row.label  # the row "CLIP zero-shot" is not trained, others are


def describe(outcomes: Sequence[Outcome], *, small: bool) -> str:
    """What the numbers were measured on, in one line."""
    devices = sorted({each.costs.device for each in outcomes})
    results = list(dict.fromkeys(each.seeds.results[0].label() for each in outcomes))
    scaled = "MiniVTT with a small model (6 blocks, 36 patches), scaled from the paper's settings"
    kind = scaled if small else "The paper's benchmarks and settings"
    trained = [each for each in outcomes if not each.plan.row.zero_shot]
    if trained:
        data = trained[0].plan.recipe.data
        epochs = sorted({each.plan.recipe.train.epochs for each in trained})
        how = f"trained for {' or '.join(map(str, epochs))} epoch{'s' if epochs[-1] > 1 else ''}"
        how += f", best one chosen on {data.validate_on}"
        if data.validate_on == data.test:
            how += ", as in the paper" if _protocols(trained) == ["published"] else " (too good for a fair comparison)"
        count = len(trained[0].seeds.results)
        how += f", mean of {count} seeds" if count > 1 else ""
    else:
        how = "without training: clustering is put into the model as it is"
    return f"{kind}; {how}; measured on {', '.join(devices)}; {'; '.join(results)}."


def to_json(report: Report, outcomes: Sequence[Outcome], *, small: bool) -> dict[str, Any]:
    """The numbers behind a table, for programs."""
    return {
        "report": report.name,
        "title": report.title,
        "where": report.where,
        "small": small,
        "protocol": " and ".join(_protocols(outcomes)),
        "label": describe(outcomes, small=small),
        "rows": [
            {
                "label": each.plan.row.label,
                "part": each.plan.row.part,
                "clustering": each.plan.recipe.model.clustering,
                "frames": each.plan.recipe.model.frames,
                "trained": not each.plan.row.zero_shot,
                "gallery": each.seeds.results[0].gallery,
                "metrics": each.seeds.metrics,
                "intervals": each.seeds.intervals,
                "seeds": [result.metrics for result in each.seeds.results],
                "costs": asdict(each.costs),
                "published": {
                    direction: {name: each.plan.row.published.metric(direction, name) for name in NAMES}
                    for direction in DIRECTIONS
                }
                | {"memory_gb": each.plan.row.published.memory, "encode_ms": each.plan.row.published.encode},
            }
            for each in outcomes
        ],
    }


def _method(outcome: Outcome, small: bool) -> str:
    row = outcome.plan.row
    name = outcome.plan.title if small else row.label
    return f"{row.part}: {name}" if row.part else name


def _metric(outcome: Outcome, direction: str, name: str, small: bool) -> str:
    value = outcome.seeds.metrics[direction][name]
    if small:
        low, high = outcome.seeds.intervals[direction][name]
        return f"{value:.1f} ±{(high - low) / 2:.1f}"
    return _beside(value, outcome.plan.row.published.metric(direction, name))


def _beside(value: float, published: float | None) -> str:
    return f"{value:.1f}" if published is None else f"{value:.1f} ({published:g}, {value - published:+.1f})"


def _memory(outcome: Outcome, small: bool) -> str:
    costs = outcome.costs
    if costs.device != "cpu" and costs.peak_gb is not None:
        return _beside(costs.peak_gb, None if small else outcome.plan.row.published.memory) + " GB"
    resident = f", {costs.peak_gb:.1f} GB resident" if costs.peak_gb is not None else ""
    return f"{costs.saved_mb:.1f} MB saved ({costs.saved_mb / costs.none_saved_mb:.2f}){resident}"


def _encode(outcome: Outcome, small: bool) -> str:
    costs, published = outcome.costs, outcome.plan.row.published.encode
    faster = f"{costs.none_encode_ms / costs.encode_ms:.2f}x"
    beside = f"; {published:g} on V100" if published is not None and not small else ""
    return f"{costs.encode_ms:.1f} ms ({faster}{beside})"


def _gains(outcomes: Sequence[Outcome]) -> dict[str, list[str]]:
    """Columns with the gain of each row over the baseline, measured and published; none without a baseline."""
    baseline = next((each for each in outcomes if is_baseline(each)), None)
    if baseline is None:
        return {}
    measured = ["" if each is baseline else str(gains(baseline.seeds, each.seeds)["R1"]) for each in outcomes]
    columns = {
        "T→V R@1 over baseline": measured,
        "in the paper": [_published_gain(each, baseline) for each in outcomes],
    }
    return {name: cells for name, cells in columns.items() if any(cells)}


def _published_gain(outcome: Outcome, baseline: Outcome) -> str:
    value, base = (each.plan.row.published.metric("t2v", "R1") for each in (outcome, baseline))
    return "" if value is None or base is None or outcome is baseline else f"{value - base:+.1f}"


def _notes(outcomes: Sequence[Outcome], *, small: bool) -> list[str]:
    notes = []
    if small:
        notes.append("±: half of the 95 % bootstrap interval over test videos; in square brackets the whole interval.")
        if any(len(each.seeds.results) > 1 for each in outcomes):
            notes.append("Seeds: the lowest and the highest gain of a seed over the same seed of the baseline.")
        notes.append("The paper's gains are from other data and a larger model: only their signs can be compared.")
    else:
        notes.append("In brackets: the published number, and ours minus it.")
        if "clean" in _protocols(outcomes):
            notes.append("The paper chose the best epoch on the test split.")
        notes += _other_galleries(outcomes)
    if any(each.costs.device == "cpu" for each in outcomes):
        notes.append("MB saved: what one video keeps for the backward pass (and as a part of no clustering).")
    notes.append("Encode: one video, and how many times faster than without clustering in the same run.")
    return notes


def _other_galleries(outcomes: Sequence[Outcome]) -> list[str]:
    """A note for every gallery that has not the published size; a smaller one gives higher recall."""
    notes = []
    for result in (each.seeds.results[0] for each in outcomes):
        size = format_of(result.benchmark).published.get(result.split)
        if size and size.videos != result.gallery:
            notes.append(
                f"{result.benchmark} {result.split}: ranked among {result.gallery:,} videos, published for "
                f"{size.videos:,}; compare only results of the same gallery."
            )
    return list(dict.fromkeys(notes))


def _protocols(outcomes: Sequence[Outcome]) -> list[str]:
    return sorted({each.seeds.results[0].protocol for each in outcomes})
