"""The runs behind reports: each row is run once, in a folder named by its recipe and data."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from ..data import Benchmark, load
from ..distributed import Processes
from ..errors import ReportError
from ..evaluation import Evaluation, Seeds, evaluate
from ..evaluation.costs import Costs, PeakMemory, measure_costs
from ..files import write_atomic
from ..model import CenterCLIP
from ..training.loop import BEST, Progress, Splits, build_model, train
from ..training.recipe import NO_EFFECT, Recipe
from ..training.run import finished, open_run
from .catalogue import Plan, file_name

COSTS = "costs.json"
PEAK = "peak.json"  # peak memory of training: null where it could not be measured


@dataclass(frozen=True, eq=False)
class Outcome:
    """A row with its results."""

    plan: Plan
    seeds: Seeds  # one result for each seed
    costs: Costs  # of the first seed


@dataclass(frozen=True)
class Callbacks:
    """What is called while runs make progress."""

    on_message: Callable[[str], None] = lambda text: None  # when a run begins
    on_run: Callable[[int, int], None] = lambda done, total: None  # after every run
    on_step: Callable[[Progress], None] = lambda progress: None  # after every training step


SILENT = Callbacks()


def run_all(
    plans: Sequence[Plan],
    root: Path,
    runs: Path,
    group: Processes,
    *,
    seeds: int = 1,
    workers: int | None = None,
    test_on: Benchmark | None = None,
    callbacks: Callbacks = SILENT,
) -> list[Outcome]:
    """Run every row with every seed, then measure what each costs while nothing else runs; in the order of the rows.

    Rows that need the same run share it. All rows of a seed are run before the next seed, so that a comparison that is
    stopped early is still fair.

    Args:
        plans: rows of one or more reports.
        root: the folder of the benchmark, or one with a sub-folder for each.
        runs: where runs are kept.
        group: the processes of ``torchrun``, or this one alone.
        seeds: runs of every trained row, with the recipe's seed and those that follow it.
        workers: decoding processes of each run; all cores by default.
        test_on: test on this as well, and return its results.
        callbacks: called while runs make progress.
    """
    every = [plan.with_seed(number) for number in range(seeds) for plan in plans]
    wanted = {recipe_fingerprint(each): each for each in every}
    folders: dict[str, Path] = {}
    for number, (name, plan) in enumerate(wanted.items(), start=1):

        def on_message(text: str, number: int = number) -> None:
            callbacks.on_message(f"run {number} of {len(wanted)}: {text}")

        numbered = replace(callbacks, on_message=on_message)
        folders[name] = run_plan(plan, root, runs, group, workers=workers, test_on=test_on, callbacks=numbered)
        callbacks.on_run(number, len(wanted))
    for plan in plans if group.main else ():
        folder = folders[recipe_fingerprint(plan)]
        if not (folder / COSTS).exists():
            costs = measure_costs(_open_model(plan, folder, group.device), peak_gb=_read_peak(folder))
            _write_json(folder / COSTS, asdict(costs))
    group.barrier()
    return _outcomes(plans, seeds, lambda plan: folders[recipe_fingerprint(plan)], test_on)


def read_all(plans: Sequence[Plan], runs: Path, *, seeds: int = 1, test_on: Benchmark | None = None) -> list[Outcome]:
    """The rows from the folders of finished runs; ReportError if one is not finished."""
    return _outcomes(plans, seeds, lambda plan: find_run(plan, runs, test_on), test_on)


def run_plan(
    plan: Plan,
    root: Path,
    runs: Path,
    group: Processes,
    *,
    workers: int | None = None,
    test_on: Benchmark | None = None,
    callbacks: Callbacks = SILENT,
) -> Path:
    """Train (unless the row is zero-shot) and test one row with one seed, unless that was done; returns its folder.

    A training that was stopped is resumed. All processes of ``torchrun`` call it. Arguments are those of
    :func:`run_all`.
    """
    recipe = plan.recipe
    data = data_folder(root, recipe.data.benchmark)
    splits = {name: load(recipe.data.benchmark, data, name, protocol=recipe.protocol) for name in _splits(plan)}
    folder = run_folder(plan, runs, fingerprint_of(splits, recipe.model.start))
    if has_result(folder, plan) and (test_on is None or has_result(folder, plan, test_on)):
        return folder
    callbacks.on_message(f"{plan.title}: {'evaluating' if plan.row.zero_shot else 'training'} in {folder}")
    if group.main:
        open_run(folder, recipe)
    group.barrier()
    if not plan.row.zero_shot and not finished(folder):
        parts, peak = Splits(splits[recipe.data.train], splits[recipe.data.validate_on]), PeakMemory(group.device)
        try:
            with peak:
                train(recipe, parts, folder, group, workers=workers, on_step=callbacks.on_step)
        finally:  # also when the training is stopped, to be resumed later
            if group.main:
                measured = [gb for gb in (peak.gb, _read_peak(folder)) if gb is not None]
                _write_json(folder / PEAK, {"gb": max(measured, default=None)})
    model = _open_model(plan, folder, group.device)
    for other in (None, test_on)[: 1 if test_on is None else 2]:
        if not _result_of(folder, recipe, other).exists():
            result = evaluate(model, other or splits[recipe.data.test], workers=workers, group=group)
            if group.main:
                result.save(_result_of(folder, recipe, other).parent)
            group.barrier()
    return folder


def _open_model(plan: Plan, folder: Path, device: torch.device) -> CenterCLIP:
    """The model of a run's best epoch, or the one that a zero-shot row starts from."""
    if plan.row.zero_shot:
        return build_model(plan.recipe, ()).to(device).eval()
    return CenterCLIP.from_pretrained(folder / BEST, device=device)


def recipe_fingerprint(plan: Plan) -> str:
    """Eight hex digits that change with every setting that can change a result."""
    content = plan.recipe.model_dump(mode="json")
    for name in NO_EFFECT:
        section, setting = name.split(".")
        del content[section][setting]
    return _digest([content, plan.row.zero_shot])


def fingerprint_of(splits: dict[str, Benchmark], start: str) -> str:
    """Eight hex digits that change with the videos and captions of any split, and with the weights of a local start."""
    weights = []
    for path in sorted(Path(start).glob("*.safetensors")):
        with path.open("rb") as file:
            weights.append((path.name, hashlib.file_digest(file, "sha256").hexdigest()))
    return _digest([sorted((name, split.fingerprint) for name, split in splits.items()), weights])


def run_folder(plan: Plan, runs: Path, data: str) -> Path:
    """Where a row is run: its benchmark and setting, for people, then the fingerprints of the recipe and the data."""
    return runs / f"{_folder_name(plan)}-{data}"


def find_run(plan: Plan, runs: Path, test_on: Benchmark | None = None) -> Path:
    """The folder of a finished run on any data, the newest if there are several; ReportError if there is none."""
    folders = [folder for folder in runs.glob(f"{_folder_name(plan)}-*") if has_result(folder, plan, test_on)]
    if not folders:
        raise ReportError(
            f"{runs} has no finished run of {plan.title!r} ({_folder_name(plan)}-*); leave out --from-logs to run it."
        )
    return max(folders, key=lambda folder: _result_of(folder, plan.recipe, test_on).stat().st_mtime)


def has_result(folder: Path, plan: Plan, test_on: Benchmark | None = None) -> bool:
    """Whether a run was trained and tested; one that validates on the test split has results of it before the end."""
    return _result_of(folder, plan.recipe, test_on).exists() and (plan.row.zero_shot or finished(folder))


def read_outcome(plan: Plan, folders: Sequence[Path], test_on: Benchmark | None = None) -> Outcome:
    """The results of a row from the folders of its runs, one for each seed; the first has the costs."""
    path = folders[0] / COSTS
    try:
        costs = Costs(**json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError as error:
        raise ReportError(f"{path} is missing: the run was not measured; leave out --from-logs.") from error
    except (OSError, ValueError, TypeError) as error:
        raise ReportError(f"{path} cannot be read ({error}); remove it and run the report again.") from error
    results = {folder: Evaluation.load(_result_of(folder, plan.recipe, test_on)) for folder in dict.fromkeys(folders)}
    return Outcome(plan, Seeds(tuple(results[folder] for folder in folders)), costs)


def data_folder(root: Path, benchmark: str) -> Path:
    """The folder of a benchmark: ``root`` itself, or its sub-folder ``msrvtt`` for ``msrvtt-7k`` and the like."""
    for name in (benchmark, benchmark.split("-")[0], "minivtt" if benchmark == "folder" else benchmark):
        if (root / name).is_dir():
            return root / name
    return root


def _folder_name(plan: Plan) -> str:
    kind = "as-it-is-" if plan.row.zero_shot else ""
    model = plan.recipe.model
    tower = "b16-" if "patch16" in model.start else ""
    name = f"{plan.recipe.data.benchmark}-{tower}{kind}{file_name(model.clustering)}-{model.frames}f"
    return f"{name}-{recipe_fingerprint(plan)}"


def _splits(plan: Plan) -> list[str]:
    data = plan.recipe.data
    names = [data.test] if plan.row.zero_shot else [data.train, data.validate_on, data.test]
    if not data.test:
        raise ReportError(f"{plan.row.recipe} has no test split, so there is nothing to report.")
    return list(dict.fromkeys(names))


def _result_of(folder: Path, recipe: Recipe, test_on: Benchmark | None = None) -> Path:
    tested = recipe.data.test if test_on is None else f"{test_on.split}-{test_on.fingerprint}"
    return folder / "evaluation" / tested / "evaluation.json"


def _read_peak(folder: Path) -> float | None:
    try:
        return float(json.loads((folder / PEAK).read_text(encoding="utf-8"))["gb"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write_json(path: Path, content: object) -> None:
    write_atomic(path, json.dumps(content, indent=2) + "\n")


def _digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:8]


def _outcomes(
    plans: Sequence[Plan], seeds: int, folder_of: Callable[[Plan], Path], test_on: Benchmark | None
) -> list[Outcome]:
    folders = [[folder_of(plan.with_seed(number)) for number in range(seeds)] for plan in plans]
    return [read_outcome(plan, own, test_on) for plan, own in zip(plans, folders, strict=True)]
