"""Rows are run once: the folder of a run is named by its recipe and data, and what is in it is not computed again."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..data import Benchmark, load
from ..distributed import Processes
from ..evaluation import Evaluation, evaluate
from ..evaluation.whole_files import write_whole
from ..model import CenterCLIP
from ..training.folder import finished, open_run
from ..training.loop import BEST, Progress, Splits, build_model, train
from ..training.recipe import WITHOUT_EFFECT, Recipe
from .costs import Costs, PeakMemory, measure_costs
from .errors import ReportError
from .plan import Plan
from .training_free import file_name

COSTS = "costs.json"
PEAK = "peak.json"
Say = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class Outcome:
    """A row with what was found."""

    plan: Plan
    result: Evaluation
    costs: Costs


def run_plan(
    plan: Plan,
    root: Path,
    runs: Path,
    group: Processes,
    *,
    workers: int | None = None,
    say: Say = lambda text: None,
    on_step: Callable[[Progress], None] = lambda progress: None,
) -> Outcome:
    """Train (unless the row is zero-shot), test and measure one row, or read what an earlier run found.

    A stopped training goes on where it was. Several processes of ``torchrun`` all call it.

    Args:
        plan: the row and its recipe.
        root: the folder of the benchmark, or one with a sub-folder named after it.
        runs: where runs are kept.
        group: the processes.
        workers: decoding processes of each.
        say: called with a line when work begins.
        on_step: called after every step of training.
    """
    recipe = plan.recipe
    place = data_folder(root, recipe.data.benchmark)
    splits = {name: load(recipe.data.benchmark, place, name) for name in _splits(plan)}
    folder = run_folder(plan, runs, fingerprint_of(splits))
    if complete(folder, recipe):
        return read_outcome(plan, folder)
    say(f"{plan.title}: {'evaluating' if plan.row.zero_shot else 'training'} in {folder}")
    if group.main:
        open_run(folder, recipe)
    group.barrier()
    test = splits[recipe.data.test]
    if plan.row.zero_shot:
        model = build_model(recipe.model, test.captions).to(group.device).eval()
    else:
        if not finished(folder):
            _train(plan, splits, folder, group, workers, on_step)
        model = CenterCLIP.from_pretrained(folder / BEST, device=group.device)
    result = evaluate(model, test, workers=workers, rank=group.rank, world=group.world)
    if group.main:
        result.save(folder / "evaluation" / test.split)
        costs = measure_costs(model, peak_gb=_read_peak(folder))
        _write_json(folder / COSTS, costs.to_json())
    group.barrier()
    return read_outcome(plan, folder)


def _train(
    plan: Plan,
    splits: dict[str, Benchmark],
    folder: Path,
    group: Processes,
    workers: int | None,
    on_step: Callable[[Progress], None],
) -> None:
    data = Splits(splits[plan.recipe.data.train], splits[plan.recipe.data.validate_on])
    watch = PeakMemory(group.device)
    try:
        with watch:
            train(plan.recipe, data, folder, group, workers=workers, on_step=on_step)
    finally:  # also of a training that was stopped and goes on later
        if group.main:
            _write_json(folder / PEAK, {"gb": max(watch.gb, _read_peak(folder) or 0.0)})


def recipe_fingerprint(plan: Plan) -> str:
    """Eight hex digits that change with every setting that can change a result."""
    content = plan.recipe.model_dump(mode="json")
    for name in WITHOUT_EFFECT:
        section, setting = name.split(".")
        del content[section][setting]
    return _digest([content, plan.row.zero_shot])


def fingerprint_of(splits: dict[str, Benchmark]) -> str:
    """Eight hex digits that change with the videos and captions of any of the splits."""
    return _digest(sorted((name, split.fingerprint) for name, split in splits.items()))


def run_folder(plan: Plan, runs: Path, data: str) -> Path:
    """Where a row is run: its benchmark and setting, for people, then the recipe's and the data's fingerprints."""
    return runs / f"{_stem(plan)}-{data}"


def find_outcome(plan: Plan, runs: Path) -> Outcome:
    """A row from the logs alone, without its data.

    Raises:
        ReportError: it was never finished here.
    """
    found = [folder for folder in runs.glob(f"{_stem(plan)}-*") if complete(folder, plan.recipe)]
    if not found:
        raise ReportError(
            f"{runs} has no finished run of {plan.title!r} ({_stem(plan)}-*); leave out --from-logs to run it"
        )
    return read_outcome(plan, max(found, key=lambda folder: (folder / COSTS).stat().st_mtime))


def complete(folder: Path, recipe: Recipe) -> bool:
    """Whether a run was tested and measured."""
    return (folder / "evaluation" / recipe.data.test / "evaluation.json").exists() and (folder / COSTS).exists()


def read_outcome(plan: Plan, folder: Path) -> Outcome:
    """What :func:`run_plan` left in a folder."""
    try:
        costs = Costs(**json.loads((folder / COSTS).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise ReportError(f"{folder / COSTS} cannot be read ({error}); remove it and run the report again") from error
    return Outcome(plan, Evaluation.load(folder / "evaluation" / plan.recipe.data.test), costs)


def data_folder(root: Path, benchmark: str) -> Path:
    """The folder of a benchmark: ``root`` itself, or its sub-folder ``msrvtt`` for ``msrvtt-7k`` and the like."""
    for name in (benchmark, benchmark.split("-")[0], "minivtt" if benchmark == "folder" else benchmark):
        if (root / name).is_dir():
            return root / name
    return root


def _stem(plan: Plan) -> str:
    kind = "as-it-is-" if plan.row.zero_shot else ""
    model = plan.recipe.model
    tower = "b16-" if "patch16" in model.start else ""
    name = f"{plan.recipe.data.benchmark}-{tower}{kind}{file_name(model.clustering)}-{model.frames}f"
    return f"{name}-{recipe_fingerprint(plan)}"


def _splits(plan: Plan) -> list[str]:
    data = plan.recipe.data
    names = [data.test] if plan.row.zero_shot else [data.train, data.validate_on, data.test]
    if not data.test:
        raise ReportError(f"{plan.row.recipe} has no test split, so there is nothing to report")
    return list(dict.fromkeys(names))


def _read_peak(folder: Path) -> float | None:
    try:
        return float(json.loads((folder / PEAK).read_text(encoding="utf-8"))["gb"])
    except (OSError, ValueError, KeyError):
        return None


def _write_json(path: Path, content: object) -> None:
    write_whole(path, lambda scratch: scratch.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8"))


def _digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:8]
