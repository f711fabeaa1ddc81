"""The runs behind reports: each row is run once, in a folder named by recipe and data; on a CPU several at a time."""

import hashlib
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from pathlib import Path

import torch

from ..data import Benchmark, load
from ..distributed import Processes
from ..errors import CenterClipError, ReportError
from ..evaluation import Evaluation, Seeds, evaluate
from ..evaluation.costs import Costs, PeakMemory, measure_costs
from ..files import write_atomic
from ..model import CenterCLIP
from ..parallel import usable_cores
from ..training.loop import BEST, Progress, Splits, build_model, train
from ..training.recipe import NO_EFFECT, Recipe
from ..training.run import finished, open_run
from .plan import Plan, file_name

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
    for name in NO_EFFECT:
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
    write_atomic(path, json.dumps(content, indent=2) + "\n")


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:8]


THREADS = "OMP_NUM_THREADS"


@dataclass(frozen=True)
class Watcher:
    """Functions that are told how it goes."""

    say: Callable[[str], None] = lambda text: None  # a line when a run begins or, of several at a time, ends
    on_run: Callable[[int, int], None] = lambda done, total: None  # after every run
    on_step: Callable[[Progress], None] = lambda progress: None  # after every step, while one run is at work


SILENT = Watcher()


def run_all(
    plans: Sequence[Plan],
    root: Path,
    runs: Path,
    group: Processes,
    *,
    seeds: int = 1,
    jobs: int = 1,
    workers: int | None = None,
    watcher: Watcher = SILENT,
) -> list[Outcome]:
    """Run every row with every seed, then measure each row with the machine to itself; returns the rows in their order.

    Rows that come to the same run share it. All rows of a seed are run before the next seed, so that a comparison that
    is stopped early is still fair.

    Args:
        plans: rows of one or more reports.
        root: the folder of the benchmark, or one with a sub-folder for each.
        runs: where runs are kept.
        group: the processes of ``torchrun``, or this one alone.
        seeds: runs of every trained row, with the recipe's seed and those that follow it.
        jobs: runs at a time; more than one only on a CPU and without ``torchrun``.
        workers: decoding processes of each run; the cores of a run by default.
        watcher: is told how it goes.
    """
    every = [plan.with_seed(number) for number in range(seeds) for plan in plans]
    wanted = {recipe_fingerprint(each): each for each in every}
    if jobs > 1:
        if group.world > 1 or group.device.type != "cpu":
            raise ReportError(
                "several runs at a time are for a CPU; on GPUs torchrun shares out each run: leave out --jobs"
            )
        folders = _at_a_time(wanted, root, runs, jobs, workers, watcher)
    else:
        folders = {}
        for number, (name, plan) in enumerate(wanted.items(), start=1):

            def say(text: str, number: int = number) -> None:
                watcher.say(f"run {number} of {len(wanted)}: {text}")

            folders[name] = run_plan(plan, root, runs, group, workers=workers, say=say, on_step=watcher.on_step)
            watcher.on_run(number, len(wanted))
    if group.main:
        for plan in plans:
            measure_plan(plan, folders[recipe_fingerprint(plan)], group.device)
    group.barrier()
    return _outcomes(plans, seeds, lambda plan: folders[recipe_fingerprint(plan)])


def read_all(plans: Sequence[Plan], runs: Path, *, seeds: int = 1) -> list[Outcome]:
    """The rows from their logs alone.

    Raises:
        ReportError: a run was never finished here.
    """
    return _outcomes(plans, seeds, lambda plan: find_run(plan, runs))


def _outcomes(plans: Sequence[Plan], seeds: int, folder_of: Callable[[Plan], Path]) -> list[Outcome]:
    return [read_outcome(plan, [folder_of(plan.with_seed(number)) for number in range(seeds)]) for plan in plans]


def _at_a_time(
    wanted: dict[str, Plan], root: Path, runs: Path, jobs: int, workers: int | None, watcher: Watcher
) -> dict[str, Path]:
    """Runs in processes of their own, each with its share of the cores."""
    cores = max(1, usable_cores() // jobs)
    folders: dict[str, Path] = {}
    context = get_context("spawn")
    with _threads(cores), ProcessPoolExecutor(jobs, mp_context=context, initializer=_end_with_parent) as pool:
        futures = {
            pool.submit(_run_alone, plan, root, runs, cores if workers is None else workers): name
            for name, plan in wanted.items()
        }
        try:
            for future in as_completed(futures):
                name = futures[future]
                folders[name] = future.result()
                watcher.say(f"{len(folders)} of {len(wanted)} runs are there: {wanted[name].title} in {folders[name]}")
                watcher.on_run(len(folders), len(wanted))
        except BrokenProcessPool:
            raise ReportError(
                "a process that trained was killed; out of memory is the usual cause: take fewer --jobs. What was "
                "finished is kept"
            ) from None
        except BaseException:
            pool.shutdown(cancel_futures=True)  # runs that are at work finish, the others are left
            raise
    return folders


def _end_with_parent() -> None:
    """Stop this process when the one that started it is gone: a training then saves a checkpoint first."""
    parent = parent_process()
    assert parent is not None  # only called in a process of the pool

    def watch() -> None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def _run_alone(plan: Plan, root: Path, runs: Path, workers: int) -> Path:
    """One run in a process of its own. Errors come back as text: not every type can be sent."""
    try:
        return run_plan(plan, root, runs, Processes(0, 1, torch.device("cpu")), workers=workers)
    except CenterClipError as error:
        raise ReportError(f"{plan.title}: {error}") from None


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Processes that start inside compute with ``count`` threads: torch reads this when it is imported."""
    before = os.environ.get(THREADS)
    os.environ[THREADS] = str(count)
    try:
        yield
    finally:
        if before is None:
            del os.environ[THREADS]
        else:
            os.environ[THREADS] = before
