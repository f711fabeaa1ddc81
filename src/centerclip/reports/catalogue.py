"""Every table and figure of the paper, and one beyond it: what is run for each row, and what was published.

A row becomes a :class:`Plan`: the recipe that is run for it, the paper's or the same scaled to a laptop.
"""

import math
import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

from ..cluster import Setting, Stage
from ..data.benchmark import format_of
from ..data.formats import Protocol
from ..errors import ReportError, SettingError
from ..evaluation.costs import multiply_adds
from ..evaluation.metrics import NAMES
from ..extend import methods
from ..training.recipe import Recipe, read_recipe, recipes_folder

Kind = Literal["table", "comparison", "frontier", "curves", "picture"]  # two are tables with a baseline, and drawn
SMALL = "minivtt/comparison"
FULL_BLOCKS, FULL_PATCHES, FULL_FRAMES = 12, 49, 12  # of ViT-B/32 and the short-video benchmarks
SMALL_BLOCKS, SMALL_PATCHES, SMALL_FRAMES, SMALL_WIDTH = 6, 36, 12, 160  # of recipes/minivtt/images.toml
LONG_FRAMES = 60  # of ActivityNet
FULL_EPOCHS = 5  # of the short-video benchmarks
QUICK = ("train.epochs=1",)
TERAFLOPS = 30.0  # a cautious sustained rate of one recent GPU in half precision
WIDTH, MLP_WIDTH, BLOCKS = 768, 3072, 12  # of ViT-B
PAPER = "k-medoids++ (the paper)"  # the row that others are compared with
# Recall for the arithmetic, in settings for 12 blocks and 12 frames; shares of tokens suit any patch size. First what
# changes a model least that was not trained for it. What costs more or less than about half of the arithmetic is there
# to compare with: fewer frames, the paper's share, and what the label says is fewer.
TRAINING_FREE = {
    "none": "no clustering",
    "none, 6 frames": "half of the frames",
    "none, 4 frames": "a third of the frames",
    "none, 3 frames": "a quarter of the frames",
    "B6-4,1/3": PAPER,
    "kmedoids[proportional]:B6-4,1/3": "k-medoids++, weighed",
    "kmedoids[proportional]:B6-4,1/6": "half of those",
    "kmedoids[proportional]:B6-6,1/2, 6 frames": "half of the frames, then of their patches",
    "kmedoids[proportional]:B4-4,0.24": "earlier",
    "kmedoids[proportional]:B4-4,1/6": "earlier, fewer",
    "kmedoids[proportional]:B4-6,0.24": "earlier, shorter segments",
    "kmedoids[proportional]:B4-6,1/3 B8-6,1/2": "twice",
    "kmedoids[proportional]:B3-6,1/2 B7-3,1/3": "twice, then longer segments",
    "kmedoids[proportional]:B2-6,0.6 B6-3,0.4": "twice, early",
    "kmedoids[proportional,class=kept]:B4-4,0.24": "[CLASS] weighed by what is kept",
    "kmedoids[proportional,budget=change]:B4-4,0.24": "more for segments that change",
    "kkz[proportional]:B4-4,0.24": "farthest points (KKZ)",
    "means:B4-4,0.24": "means of the clusters",
    "dpcknn[proportional]:B4-4,0.24": "density peaks",
    "attention[proportional]:B4-4,0.24": "highest [CLASS] attention",
    "random[proportional]:B4-4,0.24": "random",
    "tome:B4-4,0.24": "ToMe, once",
    "tome:B2-12,3/4 B4-12,2/3 B6-12,1/2": "ToMe inside frames",
    "tempme:B2-12,3/4 B4-6,1/2 B8-3,1/2": "TempMe",
    "rlt:B0-4,1/2": "unchanged patches left out (RLT)",
    "rlt[budget=change]:B0-4,0.4": "RLT, more for segments that change",  # attention over a whole video costs more
    "rlt:B0-6,3/4 kmedoids[proportional]:B5-3,1/3": "RLT, then k-medoids++",
}
# Then what is trained: from the paper's share down to below 40 %, where weighing is not needed.
TRAINED = {
    "none": "no clustering",
    "B6-4,1/3": PAPER,
    "B2-4,1/6": "earlier",
    "kkz:B2-4,1/6": "farthest points (KKZ)",
    "tempme:B2-6,1/3 B4-3,1/2": "TempMe",
    "none, 4 frames": "a third of the frames",
    "B2-6,1/3 B6-3,1/3": "twice, early",
    "rlt:B0-4,1/2 kmedoids:B4-4,1/3": "RLT, then k-medoids++",
    "B2-2,1/6": "earlier, longer segments",
    "tome:B2-4,1/6": "ToMe",
    "random:B2-4,1/6": "random",
    "kmedoids[proportional]:B2-4,1/6": "earlier, weighed",
    "none, 6 frames": "half of the frames",
    "rlt:B0-4,1/2": "unchanged patches left out (RLT)",
    "B4-6,1/2 B8-3,1/2": "twice (the paper)",
}


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
        Report("frontier", "Recall for the arithmetic, MSR-VTT", "", "frontier", tuple(_frontier())),
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


def _frontier() -> Iterator[Row]:
    """Beyond the paper: what each way costs and finds; two that cost nothing less but know the order of frames."""
    for text, label in TRAINED.items():
        setting, frames = with_frames(text, FULL_FRAMES)
        yield Row(label, "msrvtt/b32-none", (f"model.clustering={setting}", f"model.frames={frames}"))
    yield Row("token shift", "msrvtt/b32-none", ("model.clustering=token-shift",))
    yield Row("seqTransf", "msrvtt/b32-none", ("model.temporal=seqTransf",))


def with_frames(text: str, usual: int) -> tuple[str, int]:
    """A setting that may say how many frames it takes, ``none, 6 frames``: in its usual form, and the frames."""
    match = re.fullmatch(r"(.*), (\d+) frames", text)
    return str(Setting.parse(match[1] if match else text)), int(match[2]) if match else usual


def frontier_settings(*, blocks: int, patches: int, frames: int) -> dict[str, str]:
    """What :data:`TRAINING_FREE` is to a tower, with its labels; settings that come out the same are there once."""
    found: dict[str, str] = {}
    for text, label in TRAINING_FREE.items():
        setting, asked = with_frames(text, FULL_FRAMES)
        taken = max(1, round(asked * frames / FULL_FRAMES))
        scaled = scaled_setting(Setting.parse(setting), asked, taken, blocks=blocks, patches=patches)
        try:
            scaled.check(blocks=blocks, patches=patches, frames=taken)
        except SettingError:  # too few blocks for its stages
            continue
        if taken == frames or frames % taken == 0:
            found.setdefault(str(scaled) + (f", {taken} frames" if taken != frames else ""), label)
    return found


@dataclass(frozen=True)
class Plan:
    """A row with the recipe that is run for it."""

    row: Row
    recipe: Recipe

    @property
    def setting(self) -> Setting:
        """The clustering that is run."""
        return Setting.parse(self.recipe.model.clustering)

    @property
    def x(self) -> int:
        """The value of the row on the axis of its figure."""
        stage = self.setting.stages[0]
        return {"block B": stage.block, "clusters K": stage.k, "segments S": stage.segments}[self.row.axis]

    @property
    def title(self) -> str:
        """The label of the row, with what was run where that differs from it."""
        model, train, label = self.recipe.model, self.recipe.train, self.row.label
        actual = []
        if model.clustering != "none" and model.clustering not in label.replace("k-medoids++, ", ""):
            actual.append(model.clustering)
        if "frames" in label and str(model.frames) not in label:
            actual.append(f"{model.frames} frames")
        if "epochs" in label and f"{train.lr:g}" not in label:
            actual.append(f"lr {train.lr:g}, {train.epochs} epochs")
        return f"{label} ({', '.join(actual)})" if actual else label

    def with_seed(self, number: int) -> "Plan":
        """The same run with the recipe's seed plus ``number``; a row that is not trained has no seed."""
        if self.row.zero_shot or not number:
            return self
        train = self.recipe.train.model_copy(update={"seed": self.recipe.train.seed + number})
        return replace(self, recipe=self.recipe.model_copy(update={"train": train}))


def make_plans(
    report: Report,
    *,
    small: bool,
    quick: bool = False,
    start: str | None = None,
    select_on: str | None = None,
    protocol: Protocol | None = None,
    training: bool = True,
) -> list[Plan]:
    """The runs of a report, in its order.

    Args:
        report: a table or curves.
        small: on MiniVTT with the small model: blocks, patches and frames in proportion. Rows that need the same run
            are kept once. Rows of a larger tower are left out, and all but the first benchmark of a report on several,
            since all of them would be MiniVTT.
        quick: one epoch.
        start: the model that runs start from, instead of the recipe's; rows of a larger tower are left out then too.
        select_on: the split that chooses the best epoch, instead of the recipe's.
        protocol: instead of the recipes', which is ``published`` for the paper's tables and ``clean`` on MiniVTT.
        training: if not, rows are evaluated with the weights that they start from.
    """
    plans: list[Plan] = []
    overrides = [f"protocol={protocol}"] if protocol else []
    small_recipe = read_recipe(_file(SMALL), overrides)
    for each in report.rows:
        if small and (each.series, each.part) != (report.rows[0].series, report.rows[0].part):
            continue
        row = each if training else replace(each, zero_shot=True)
        changes = [*row.changes, *(QUICK if quick else ()), *overrides]
        recipe = read_recipe(_file(row.recipe), changes)
        if "patch16" in recipe.model.start and (small or start):
            continue
        if small:
            recipe = scaled(recipe, read_recipe(_file(row.recipe)), small_recipe, quick=quick)
            row = replace(row, part="", series="MiniVTT" if row.series else "")
        model = recipe.model.model_copy(update={"start": start} if start else {})
        data = recipe.data.model_copy(update={"validate_on": select_on} if select_on else {})
        plan = Plan(row, recipe.model_copy(update={"model": model, "data": data}))
        if not any(_same_run(plan, other) for other in plans):
            plans.append(plan)
    return plans


def scaled(recipe: Recipe, usual: Recipe, small: Recipe, *, quick: bool = False) -> Recipe:
    """The recipe for MiniVTT that is to the ``small`` model's what this one is to ViT-B/32.

    ``usual`` is the same without the row's changes: the learning rate is scaled by how much the row's differs from it.
    """
    long = recipe.model.frames > FULL_FRAMES
    frames = max(1, recipe.model.frames * SMALL_FRAMES // (LONG_FRAMES if long else FULL_FRAMES))
    setting = scaled_setting(Setting.parse(recipe.model.clustering), recipe.model.frames, frames)
    model = {"clustering": str(setting), "frames": frames, "temporal": recipe.model.temporal}
    epochs = 1 if quick else math.ceil(small.train.epochs * recipe.train.epochs / FULL_EPOCHS)
    train = {"lr": small.train.lr * recipe.train.lr / usual.train.lr, "epochs": epochs}
    parts = {"model": small.model.model_copy(update=model), "train": small.train.model_copy(update=train)}
    return small.model_copy(update=parts)


def scaled_setting(
    setting: Setting, frames: int, small_frames: int, *, blocks: int = SMALL_BLOCKS, patches: int = SMALL_PATCHES
) -> Setting:
    """The same setting for other blocks, patches and frames; segments keep their length where possible."""
    stages: list[Stage] = []
    sequences, length = small_frames, patches
    for stage in setting.stages:
        block = min(blocks - 1, max(min(1, stage.block), round(stage.block * blocks / FULL_BLOCKS)))
        wanted = stage.segments * small_frames / frames
        segments = min((s for s in range(1, sequences + 1) if sequences % s == 0), key=lambda s: abs(s - wanted))
        available = length * sequences // segments
        k = length if setting.method == "pooling" else round(stage.k * patches / FULL_PATCHES)
        k = 0 if stage.share else min(max(1, k), available)
        stages.append(replace(stage, block=block, segments=segments, k=k))
        sequences, length = segments, k or max(1, round(Fraction(stage.share) * available))
    return replace(setting, stages=tuple(stages))


def training_pairs(recipe: Recipe) -> int:
    """Pairs of an epoch, from the published sizes of the benchmark; 0 where there are none."""
    published = format_of(recipe.data.benchmark).published
    size = published.get("train") or published.get("train+val")
    if size is None:
        return 0
    return size.videos if recipe.data.items == "videos" else size.captions or size.videos


def expected_hours(plan: Plan, *, gpus: int, teraflops: float = TERAFLOPS) -> float:
    """Hours of training a row on ``gpus`` by arithmetic alone: forward and backward passes of the vision tower.

    Decoding, text and validation come on top, and slow disks may leave GPUs idle.
    """
    if plan.row.zero_shot:
        return 0.0
    recipe = plan.recipe
    tower, patches = tower_of(recipe, small=False)
    forward = multiply_adds(tower, plan.setting, recipe.model.frames, patches)
    operations = 2 * 3 * forward * training_pairs(recipe) * recipe.train.epochs  # a backward pass is two forward passes
    return operations / (gpus * teraflops * 1e12) / 3600


def tower_of(recipe: Recipe, *, small: bool) -> tuple[SimpleNamespace, int]:
    """The sizes of the vision tower that a recipe trains, for arithmetic, and its patches."""
    patch = 16 if small or "patch16" in recipe.model.start else 32
    width, inner, blocks = (SMALL_WIDTH, 4 * SMALL_WIDTH, SMALL_BLOCKS) if small else (WIDTH, MLP_WIDTH, BLOCKS)
    tower = SimpleNamespace(
        hidden_size=width, intermediate_size=inner, num_hidden_layers=blocks, num_channels=3, patch_size=patch
    )
    return tower, SMALL_PATCHES if small else (224 // patch) ** 2


def file_name(setting: str) -> str:
    """A setting as part of a file's name."""
    return "".join(letter if letter.isalnum() or letter in "-." else "_" for letter in setting)


def _file(recipe: str) -> Path:
    return recipes_folder() / f"{recipe}.toml"


def _same_run(first: Plan, second: Plan) -> bool:
    parts = [(plan.row.zero_shot, plan.row.part, plan.row.series, plan.row.axis) for plan in (first, second)]
    return parts[0] == parts[1] and not first.recipe.differences(second.recipe)
