"""``centerclip evaluate``: recall and ranks of a model on a benchmark, or two such results side by side."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from . import common
from .common import check_names, open_model, progress

if TYPE_CHECKING:
    from rich.table import Table

    from ..evaluation import Comparison, Evaluation
    from ..model import CenterCLIP


DIRECTIONS = {"t2v": "text to video", "v2t": "video to text"}
WIDTH = 100  # columns of a table, so that it fits a page; fewer on a narrower terminal


def evaluate(
    model: Annotated[
        str | None, Argument(help="Hub name, model folder or file, or the folder of a training run.")
    ] = None,
    benchmark: Annotated[
        str | None, Argument(help="msrvtt, msrvtt-7k, msvd, lsmdc, activitynet, didemo, folder, or a name of your own.")
    ] = None,
    root: common.Root = None,
    annotations: common.Annotations = None,
    split: Annotated[
        str | None, Option(help="train, val, test, or some of them joined by '+'.", show_default="test")
    ] = None,
    clustering: common.Clustering = None,
    frames: common.Frames = None,
    rule: common.Rule = None,
    protocol: common.Protocol = None,
    dual_softmax: Annotated[
        bool, Option("--dual-softmax", help="Rank by dual softmax, which uses all queries at once.")
    ] = False,
    batch_size: common.BatchSize = None,
    device: common.Device = None,
    workers: common.Workers = None,
    allow_missing: common.AllowMissing = False,
    allow_unreadable: common.AllowUnreadable = False,
    output: Annotated[Path | None, Option("--output", "-o", help="Folder for evaluation.json and queries.csv.")] = None,
    moments: Annotated[
        bool, Option("--moments", help="Also score moments, against the event times of a MiniVTT folder.")
    ] = False,
    compare: Annotated[
        tuple[Path, Path] | None,
        Option(metavar="A B", help="Compare two results: folders of --output, or training runs."),
    ] = None,
    mteb: Annotated[
        list[str] | None,
        Option("--mteb", metavar="TASK", help="Run a task of mteb, such as MSRVTTT2V, or all; repeat for more."),
    ] = None,
    as_json: common.AsJson = False,
) -> None:
    """Recall, median and mean rank of a model, in both directions; or compare two results.

    Under torchrun the processes share the work: `torchrun --nproc-per-node 2 -m centerclip evaluate ...`.
    """
    if compare is not None:
        if model is not None or output is not None:
            raise typer.BadParameter("--compare takes two results; leave out MODEL and --output.")
        _compare(*compare, split=split, as_json=as_json)
        return
    if mteb:
        if model is None or benchmark is not None or root is not None:
            raise typer.BadParameter("--mteb takes a MODEL alone: mteb fetches its test sets itself.")
        _run_mteb(open_model(model, clustering, frames, device, protocol), model, mteb, as_json=as_json)
        return
    if model is None or benchmark is None or root is None:
        raise typer.BadParameter("give a MODEL, a BENCHMARK and --root DIR, or two results with --compare A B.")
    split = check_names(benchmark, split or "test", clustering)
    from ..data import load
    from ..distributed import processes
    from ..evaluation import evaluate as run

    with processes() as group:
        opened = open_model(model, clustering, frames, device or group.gpu, protocol)
        data = load(
            benchmark, root, split, annotations=annotations, allow_missing=allow_missing, protocol=opened.protocol
        )
        with progress(quiet=as_json or not group.main) as bar:
            result = run(
                opened, data, rule=rule, dual_softmax=dual_softmax, batch_size=batch_size, workers=workers,
                group=group, allow_unreadable=allow_unreadable, on_progress=bar.kind,
            )  # fmt: skip
        if not group.main:
            return
        result = replace(result, model=model)
        saved = {"saved": str(result.save(output))} if output else {}
        score = None
        if moments:
            from ..evaluation.moments import score_moments

            with progress(quiet=as_json) as bar:
                score = score_moments(opened, data, root, on_progress=bar.kind)
        if as_json:
            more = {"moments": asdict(score) | {"accuracy": score.accuracy}} if score else {}
            typer.echo(json.dumps(result.to_json() | saved | more, indent=2))
            return
        print_results([result])
        if score:
            typer.echo(
                f"Moments: {score.accuracy:.1f} % of {score.asked:,} sentences about one event of a video with several "
                f"find a segment that overlaps the event ({score.chance:.1f} % by chance)."
            )
        if saved:
            typer.echo(f"Saved in {output}, with the rank of every query.")


def _run_mteb(model: "CenterCLIP", name: str, names: Sequence[str], *, as_json: bool) -> None:
    from ..integrations.mteb import find_tasks, run_tasks

    tasks = find_tasks(names)
    with progress("videos", quiet=as_json) as bar:
        results = run_tasks(model, tasks, name=name, on_progress=bar)
    if as_json:
        typer.echo(json.dumps([asdict(each) for each in results], indent=2))
        return
    from rich import box
    from rich.table import Table

    table = Table(title="Text to video, tasks of mteb", title_justify="left", box=box.SIMPLE_HEAD)
    for heading in ("task", "videos", "R@1", "R@5", "R@10", "nDCG@10", "test set"):
        table.add_column(heading, justify="left" if heading in ("task", "test set") else "right")
    for each in results:
        lost = f"; {each.unreadable} could not be read and are never found" if each.unreadable else ""
        figures = [f"{value:.1f}" for value in each.metrics.values()]
        table.add_row(each.task, f"{each.gallery:,}", *figures, each.note + lost)
    _print(table)


def print_results(results: "Sequence[Evaluation]") -> None:
    """Print a table for each split, data and rule, titled with its label."""
    from rich.markup import escape

    for label, group in groupby(results, key=lambda result: result.label()):
        table = _table(label)
        for result in group:
            table.add_row(escape(result.setting()))  # square brackets in a setting are not markup
            for direction, title in DIRECTIONS.items():
                table.add_row(f"  {title}", *_cells(result, direction))
            table.add_section()
        _print(table)
    typer.echo("±: half the 95 % interval, from 1,000 bootstrap samples of the videos.")


def _compare(first: Path, second: Path, *, split: str | None, as_json: bool) -> None:
    from ..evaluation import Evaluation, compare

    files = [_find_evaluation(path, split) for path in (first, second)]
    result = compare(*(Evaluation.load(file) for file in files))
    if as_json:
        content = {
            "first": {"file": str(files[0])} | result.first.to_json(),
            "second": {"file": str(files[1])} | result.second.to_json(),
            "difference": result.difference,
            "intervals": result.intervals,
        }
        typer.echo(json.dumps(content, indent=2))
        return
    _print_comparison(result, files)


def _find_evaluation(path: Path, split: str | None = None) -> Path:
    """The ``evaluation.json`` that a path means: itself, in the folder, or in a training run's ``evaluation/SPLIT``."""
    from ..evaluation import EvaluationError

    path = path.expanduser()
    if path.is_file():
        return path
    if (path / "evaluation.json").is_file():
        return path / "evaluation.json"
    splits = {file.parent.name: file for file in sorted(path.glob("evaluation/*/evaluation.json"))}
    if not splits:
        command = "`centerclip evaluate MODEL BENCHMARK --output DIR`"
        raise EvaluationError(f"{path} has no evaluation.json; {command} writes one.")
    wanted = next(iter(splits)) if split is None and len(splits) == 1 else split or "test"
    if wanted not in splits:
        names = ", ".join(str(file.parent) for file in splits.values())
        raise EvaluationError(f"{path} has no evaluation of {wanted}; name one of {names}.")
    return splits[wanted]


def _print_comparison(result: "Comparison", files: Sequence[Path]) -> None:
    table = _table("")
    for letter, each, file in zip("AB", (result.first, result.second), files, strict=True):
        typer.echo(f"{letter}: {file.parent}, {each.setting()}\n   {each.label()}")
    if result.first.protocol != result.second.protocol:
        typer.echo(
            f"A was run with the protocol {result.first.protocol}, B with {result.second.protocol}: the difference may "
            "come from that."
        )
    for direction, title in DIRECTIONS.items():
        table.add_row(title)
        table.add_row("  A", *_cells(result.first, direction))
        table.add_row("  B", *_cells(result.second, direction))
        differences = []
        for name, (low, high) in result.intervals[direction].items():
            star = "*" if result.clear(direction, name) else ""
            differences.append(f"{result.difference[direction][name]:+.1f}{star}\n\\[{low:+.1f}, {high:+.1f}]")
        table.add_row("  B - A", *differences)
        table.add_section()
    _print(table)
    typer.echo("[ ]: 95 % interval of the difference, from the same bootstrap samples for both; *: it excludes zero.")


def _cells(result: "Evaluation", direction: str) -> list[str]:
    values, intervals = result.metrics[direction], result.intervals[direction]
    return [f"{values[name]:.1f} ±{(high - low) / 2:.1f}" for name, (low, high) in intervals.items()]


def _table(title: str) -> "Table":
    from rich import box
    from rich.table import Table

    from ..evaluation.metrics import HEADINGS

    table = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("")
    for heading in HEADINGS.values():
        table.add_column(heading, justify="right")
    return table


def _print(table: "Table") -> None:
    from rich.console import Console

    screen = Console()
    Console(width=min(WIDTH, screen.width) if screen.is_terminal else WIDTH).print(table)
