"""Rows are run once: the folder of a run is named by its recipe and data, and what is in it is not computed again."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from ..data import Benchmark, load
from ..distributed import Processes
from ..evaluation import Evaluation, Seeds, evaluate
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
    seeds: Seeds  # one result for each seed
    costs: Costs  # of the first seed


def run_plan(
    plan: Plan,
    root: Path,
    runs: Path,
    group: Processes,
    *,
    workers: int | None = None,
    say: Say = lambda text: None,
    on_step: Callable[[Progress], None] = lambda progress: None,
) -> Path:
    """Train (unless the row is zero-shot) and test one row with one seed, unless that was done; returns its folder.

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
    folder = run_folder(plan, runs, fingerprint_of(splits, recipe.model.start))
    if tested(folder, recipe):
        return folder
    say(f"{plan.title}: {'evaluating' if plan.row.zero_shot else 'training'} in {folder}")
    if group.main:
        open_run(folder, recipe)
    group.barrier()
    test = splits[recipe.data.test]
    if not plan.row.zero_shot and not finished(folder):
        _train(plan, splits, folder, group, workers, on_step)
    result = evaluate(open_model(plan, folder, group.device), test, workers=workers, rank=group.rank, world=group.world)
    if group.main:
        result.save(folder / "evaluation" / test.split)
    group.barrier()
    return folder


def open_model(plan: Plan, folder: Path, device: torch.device) -> CenterCLIP:
    """The model of a run's best epoch, or the one that a zero-shot row starts from."""
    if plan.row.zero_shot:
        return build_model(plan.recipe.model, ()).to(device).eval()
    return CenterCLIP.from_pretrained(folder / BEST, device=device)


def measure_plan(plan: Plan, folder: Path, device: torch.device) -> None:
    """Measure what a tested run costs, unless that was done."""
    if not (folder / COSTS).exists():
        costs = measure_costs(open_model(plan, folder, device), peak_gb=_read_peak(folder))
        _write_json(folder / COSTS, costs.to_json())


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


def fingerprint_of(splits: dict[str, Benchmark], start: str) -> str:
    """Eight hex digits that change with the videos and captions of any split, and with the weights of a local start."""
    weights = [(path.name, _file_digest(path)) for path in sorted(Path(start).glob("*.safetensors"))]
    return _digest([sorted((name, split.fingerprint) for name, split in splits.items()), weights])


def run_folder(plan: Plan, runs: Path, data: str) -> Path:
    """Where a row is run: its benchmark and setting, for people, then the recipe's and the data's fingerprints."""
    return runs / f"{_stem(plan)}-{data}"


def find_run(plan: Plan, runs: Path) -> Path:
    """The folder of a finished run, without its data; the newest if there are several.

    Raises:
        ReportError: it was never finished here.
    """
    found = [folder for folder in runs.glob(f"{_stem(plan)}-*") if tested(folder, plan.recipe)]
    if not found:
        raise ReportError(
            f"{runs} has no finished run of {plan.title!r} ({_stem(plan)}-*); leave out --from-logs to run it"
        )
    return max(found, key=lambda folder: _result_of(folder, plan.recipe).stat().st_mtime)


def tested(folder: Path, recipe: Recipe) -> bool:
    """Whether a run has its result."""
    return _result_of(folder, recipe).exists()


def read_outcome(plan: Plan, folders: Sequence[Path]) -> Outcome:
    """What a row's runs left in their folders, one a seed; the first was measured too."""
    path = folders[0] / COSTS
    try:
        costs = Costs(**json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError as error:
        raise ReportError(f"{path} is missing: this run was not measured; leave out --from-logs to do it") from error
    except (OSError, ValueError, TypeError) as error:
        raise ReportError(f"{path} cannot be read ({error}); remove it and run the report again") from error
    results = {folder: Evaluation.load(_result_of(folder, plan.recipe)) for folder in dict.fromkeys(folders)}
    return Outcome(plan, Seeds(tuple(results[folder] for folder in folders)), costs)


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


def _result_of(folder: Path, recipe: Recipe) -> Path:
    return folder / "evaluation" / recipe.data.test / "evaluation.json"


def _read_peak(folder: Path) -> float | None:
    try:
        return float(json.loads((folder / PEAK).read_text(encoding="utf-8"))["gb"])
    except (OSError, ValueError, KeyError):
        return None


def _write_json(path: Path, content: object) -> None:
    write_whole(path, lambda scratch: scratch.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8"))


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:8]
