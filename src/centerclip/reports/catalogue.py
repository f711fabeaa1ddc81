"""Every table and figure of the paper, and one beyond it: what is run for each row, and what was published."""

import math
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from ..errors import ReportError
from ..evaluation.metrics import NAMES
from ..extend import methods

Kind = Literal["table", "comparison", "curves", "picture"]  # a comparison is a table with a baseline, and drawn


@dataclass(frozen=True)
class Published:
    """What the paper prints for a row; None where it prints nothing."""

    t2v: tuple[float | None, ...] | None = None  # R@1, R@5, R@10, MdR, MnR
    v2t: tuple[float | None, ...] | None = None
    memory: float | None = None  # GB on each GPU in training
    encode: float | None = None  # ms a video on a Tesla V100

    def metric(self, direction: str, name: str) -> float | None:
        """One metric, such as ``("t2v", "R1")``."""
        return dict(zip(NAMES, getattr(self, direction) or (), strict=False)).get(name)


@dataclass(frozen=True)
class Row:
    """One run: a recipe and changes to it."""

    label: str
    recipe: str  # as `centerclip train --list` names it
    changes: tuple[str, ...] = ()  # section.setting=value
    zero_shot: bool = False  # evaluated without training
    published: Published = Published()
    part: str = ""  # of a table in several parts
    series: str = ""  # of a figure with several lines
    axis: str = ""  # of a figure: what is varied; empty for a horizontal line


@dataclass(frozen=True)
class Report:
    """One table or figure."""

    name: str
    title: str
    where: str  # in the paper; empty for what is beyond it
    kind: Kind
    rows: tuple[Row, ...] = ()
    axes: tuple[str, ...] = ()  # names of the x axes, one for each row of panels


def reports() -> dict[str, Report]:
    """All reports by name, in the order of the paper."""
    content = tomllib.loads((Path(__file__).parent / "published.toml").read_text(encoding="utf-8"))
    tables = [
        Report(name, table["title"], table["where"], "table", tuple(map(_row, table["rows"])))
        for name, table in content.items()
    ]
    axes = ("clusters K", "segments S")
    clusters = "Number of clusters K and of segments S, LSMDC and ActivityNet"
    figures = [
        Report("tsne", "Tokens of a segment as a map, with patches of clusters", "Figure 1", "picture"),
        Report("place", "After which block to cluster, LSMDC", "Figure 3", "curves", tuple(_places()), ("block B",)),
        Report("clusters", clusters, "Figure 4", "curves", tuple(_clusters()), axes),
        Report("centres", "Patches of the centres, for segments of different lengths", "Figure 5", "picture"),
        Report("methods", "Ways to choose the tokens of a segment, MSR-VTT", "", "comparison", tuple(_methods())),
    ]
    return {report.name: report for report in (*tables, *figures)}


def find_report(name: str) -> Report:
    """A report by name; raises ReportError with the nearest name."""
    known = reports()
    if name in known:
        return known[name]
    close = get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]}?" if close else "`centerclip report list` shows them."
    raise ReportError(f"there is no report {name}; {hint}")


def _row(content: dict[str, Any]) -> Row:
    t2v, v2t = (_values(content.get(direction)) for direction in ("t2v", "v2t"))
    return Row(
        label=content["label"],
        recipe=content["recipe"],
        changes=tuple(content.get("set", ())),
        zero_shot=content.get("zero-shot", False),
        part=content.get("part", ""),
        published=Published(t2v, v2t, content.get("memory"), content.get("encode")),
    )


def _values(values: Sequence[float] | None) -> tuple[float | None, ...] | None:
    return None if values is None else tuple(None if math.isnan(value) else value for value in values)


def _places() -> Iterator[Row]:
    """The paper draws B = 1 to 11; its text does not give S and K, so they are those of its tables."""
    for block in range(1, 12):
        setting = f"B{block}-4,49"
        yield Row(setting, "lsmdc/b32-none", (f"model.clustering={setting}",), series="LSMDC", axis="block B")
    yield Row("no clustering", "lsmdc/b32-none", series="LSMDC")


def _clusters() -> Iterator[Row]:
    """The paper's text gives S = 1 on LSMDC and S = 6 on ActivityNet; the other values are chosen around its tables."""
    sweeps = (
        ("LSMDC", "lsmdc/b32-none", 4, (16, 25, 36, 49, 64, 81, 100), (1, 2, 3, 4, 6, 12)),
        ("ActivityNet", "activitynet/b32-none", 15, (16, 25, 36, 49, 64, 81, 100), (6, 10, 12, 15, 20, 30)),
    )
    for series, recipe, usual, counts, segments in sweeps:
        for k in counts:
            change = f"model.clustering=B6-{usual},{k}"
            yield Row(f"{series} S={usual} K={k}", recipe, (change,), series=series, axis="clusters K")
        for s in segments:
            change = f"model.clustering=B6-{s},49"
            yield Row(f"{series} S={s} K=49", recipe, (change,), series=series, axis="segments S")
        yield Row(f"{series} no clustering", recipe, series=series)


def _methods() -> Iterator[Row]:
    """Beyond the paper: the same recipe and number of tokens for every method."""
    names = {
        "none": "no clustering",
        "B6-4,49": "k-medoids++",
        "spectral:B6-4,49": "spectral",
        "pooling:B6-4,49": "pooling",
        "sampling:B6-4,49": "sparse sampling",
        "token-shift": "token shift",
        "temporal-shift": "temporal shift",
        "kmedoids[proportional]:B6-4,49": "k-medoids++, weighed by size",
        "means:B6-4,49": "means of the clusters, weighed by size",
        "means[proportional=false]:B6-4,49": "means of the clusters",
        "tome:B6-4,49": "token merging (soft matching)",
        "dpcknn:B6-4,49": "density peaks (DPC-KNN)",
        "kkz:B6-4,49": "farthest points (KKZ)",
        "attention:B6-4,49": "highest [CLASS] attention",
        "random:B6-4,49": "random",
    }
    names |= {f"{name}:B6-4,49": name for name in methods.names()}  # those that are installed
    for setting, label in names.items():
        yield Row(label, "msrvtt/b32-none", (f"model.clustering={setting}",))
