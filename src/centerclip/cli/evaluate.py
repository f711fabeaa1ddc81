"""``centerclip evaluate``: recall and ranks of a model on a benchmark, or two such results side by side."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    import torch
    from rich.table import Table

    from ..data import Benchmark
    from ..evaluation import Comparison, Evaluation
    from ..evaluation.moments import MomentScore
    from ..model import CenterCLIP


HEADINGS = {"R1": "R@1", "R5": "R@5", "R10": "R@10", "MdR": "MdR", "MnR": "MnR"}
DIRECTIONS = {"t2v": "text to video", "v2t": "video to text"}
WIDTH = 100  # columns of a table where the screen is not narrower
Model = Annotated[str | None, typer.Argument(help="Hub name, model folder or file, or the folder of a training run.")]
Root = Annotated[Path | None, typer.Option(help="Folder with the videos, in any sub-folders.")]
Annotations = Annotated[
    Path | None, typer.Option(help="Folder with the annotation files.", show_default="ROOT or ROOT/annotations")
]
Clustering = Annotated[str | None, typer.Option(help='As in the paper: "B6-4,49".', show_default="the model's")]
Frames = Annotated[int | None, typer.Option(min=1, help="Frames of a video.", show_default="the model's")]
Rule = Annotated[
    Literal["mean", "renormalise"] | None,
    typer.Option(help="How the segments of a video are compared with a sentence.", show_default="the model's"),
]
BatchSize = Annotated[
    int | None, typer.Option(min=1, help="Videos encoded at a time.", show_default="from the free memory")
]
Workers = Annotated[int | None, typer.Option(min=0, help="Decoding processes.", show_default="cores")]
AllowMissing = Annotated[bool, typer.Option("--allow-missing", help="Go on without videos that are absent.")]
AllowUnreadable = Annotated[
    bool, typer.Option("--allow-unreadable", help="Go on without videos that cannot be decoded.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def evaluate(
    model: Model = None,
    benchmark: Annotated[
        str | None, typer.Argument(help="msrvtt, msrvtt-7k, msvd, lsmdc, activitynet, didemo or folder.")
    ] = None,
    root: Root = None,
    annotations: Annotations = None,
    split: Annotated[
        str | None, typer.Option(help="train, val, test, or some of them joined by '+'.", show_default="test")
    ] = None,
    clustering: Clustering = None,
    frames: Frames = None,
    rule: Rule = None,
    dual_softmax: Annotated[
        bool, typer.Option("--dual-softmax", help="Rank by dual softmax, which sees all queries at once.")
    ] = False,
    batch_size: BatchSize = None,
    workers: Workers = None,
    allow_missing: AllowMissing = False,
    allow_unreadable: AllowUnreadable = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder for evaluation.json and queries.csv.")
    ] = None,
    moments: Annotated[
        bool, typer.Option("--moments", help="Also score moments, by the event times of a MiniVTT folder.")
    ] = False,
    compare: Annotated[
        tuple[Path, Path] | None,
        typer.Option(metavar="A B", help="Print two results side by side: folders of --output, or training runs."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Recall, median and mean rank of a model, in both directions; or compare two results.

    Under torchrun the processes share out the work: `torchrun --nproc-per-node 2 -m centerclip evaluate ...`.
    """
    if compare is not None:
        if model is not None or output is not None:
            raise typer.BadParameter("--compare takes two results, and neither a model nor --output.")
        _compare(*compare, split=split, as_json=as_json)
        return
    if model is None or benchmark is None or root is None:
        raise typer.BadParameter("name a MODEL, a BENCHMARK and --root DIR, or two results with --compare A B.")
    split = check_names(benchmark, split or "test", clustering)
    from ..data import load
    from ..distributed import processes
    from ..evaluation import evaluate as run

    with processes() as group:
        data = load(benchmark, root, split, annotations=annotations, allow_missing=allow_missing)
        opened = open_model(model, clustering, frames, group.device)
        with bars(quiet=as_json or not group.main) as on_progress:
            result = run(
                opened,
                data,
                rule=rule,
                dual_softmax=dual_softmax,
                batch_size=batch_size,
                workers=workers,
                rank=group.rank,
                world=group.world,
                allow_unreadable=allow_unreadable,
                on_progress=on_progress,
            )
        result = replace(result, model=model)
        if not group.main:
            return
        saved = {"saved": str(result.save(output))} if output else {}
        found = _moments(opened, data, root, quiet=as_json) if moments else None
        if as_json:
            more = {"moments": asdict(found) | {"accuracy": found.accuracy}} if found else {}
            typer.echo(json.dumps(result.to_json() | saved | more, indent=2))
            return
        print_results([result])
        if found:
            typer.echo(
                f"Moments: {found.accuracy:.1f} % of {found.asked:,} sentences about one event of a video with several "
                f"find a segment of it that overlaps the event ({found.chance:.1f} % by chance)."
            )
        if saved:
            typer.echo(f"Saved with every query in {output}.")


def _moments(opened: "CenterCLIP", data: "Benchmark", root: Path, *, quiet: bool) -> "MomentScore":
    from ..evaluation.moments import score_moments

    with bars(quiet=quiet) as on_progress:
        return score_moments(opened, data, root, on_progress=on_progress)


def check_names(benchmark: str, split: str, clustering: str | None) -> str:
    """The split by its usual name. Wrong names are wrong usage, and are said before anything is opened."""
    from ..cluster import Setting
    from ..data.benchmark import format_of, split_names
    from ..errors import CenterClipError

    try:
        format_of(benchmark)
        parts = split_names(split)
        if clustering is not None:
            Setting.parse(clustering)
    except CenterClipError as error:
        raise typer.BadParameter(str(error)) from error
    return "+".join(parts)


def open_model(
    name: str, clustering: str | None, frames: int | None, device: "torch.device | None" = None
) -> "CenterCLIP":
    """Open a model; of a training run's folder, the model of its best epoch."""
    from ..model import CenterCLIP

    folder = Path(name).expanduser()
    best = folder / "best"
    is_run = not (folder / "config.json").exists() and best.is_dir()
    return CenterCLIP.from_pretrained(best if is_run else name, clustering=clustering, frames=frames, device=device)


def print_results(results: "Sequence[Evaluation]") -> None:
    """Tables of evaluations; those of the same split, data and rule share one, titled with what they are of."""
    from rich.markup import escape

    for label, group in groupby(results, key=lambda result: result.label()):
        table = _table(label)
        for result in group:
            table.add_row(escape(result.setting()))  # a setting may have square brackets
            for direction, title in DIRECTIONS.items():
                table.add_row(f"  {title}", *_cells(result, direction))
            table.add_section()
        _print(table)
    typer.echo("±: half of the 95 % interval, by 1,000 draws of the videos with replacement.")


def _compare(first: Path, second: Path, *, split: str | None, as_json: bool) -> None:
    from ..evaluation import Evaluation, compare

    files = [find_evaluation(path, split) for path in (first, second)]
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


def find_evaluation(path: Path, split: str | None = None) -> Path:
    """The ``evaluation.json`` that a path means: itself, in the folder, or in a training run's ``evaluation/SPLIT``."""
    from ..evaluation import EvaluationError

    path = path.expanduser()
    if path.is_file():
        return path
    if (path / "evaluation.json").is_file():
        return path / "evaluation.json"
    found = sorted(path.glob("evaluation/*/evaluation.json"))
    chosen = [file for file in found if file.parent.name == (split or "test")]
    if split is None and len(found) == 1:
        return found[0]
    if chosen:
        return chosen[0]
    if found:
        names = ", ".join(str(file.parent) for file in found)
        raise EvaluationError(f"{path} has no evaluation of {split or 'test'}; name one of {names}.")
    raise EvaluationError(
        f"{path} has no evaluation.json; `centerclip evaluate MODEL BENCHMARK --output DIR` writes one."
    )


def _print_comparison(result: "Comparison", files: Sequence[Path]) -> None:
    table = _table("")
    for letter, each, file in zip("AB", (result.first, result.second), files, strict=True):
        typer.echo(f"{letter}: {file.parent}, {each.setting()}\n   {each.label()}")
    for direction, title in DIRECTIONS.items():
        table.add_row(title)
        table.add_row("  A", *_cells(result.first, direction))
        table.add_row("  B", *_cells(result.second, direction))
        differences = []
        for name in HEADINGS:
            low, high = result.intervals[direction][name]
            star = "*" if result.clear(direction, name) else ""
            differences.append(f"{result.difference[direction][name]:+.1f}{star}\n\\[{low:+.1f}, {high:+.1f}]")
        table.add_row("  B - A", *differences)
        table.add_section()
    _print(table)
    typer.echo("[ ]: 95 % interval of the difference, over the same draws of videos for both; *: it leaves out zero.")


def _cells(result: "Evaluation", direction: str) -> list[str]:
    cells = []
    for name in HEADINGS:
        low, high = result.interval(direction, name)
        cells.append(f"{result.metrics[direction][name]:.1f} ±{(high - low) / 2:.1f}")
    return cells


def _table(title: str) -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("")
    for heading in HEADINGS.values():
        table.add_column(heading, justify="right")
    return table


def _print(table: "Table") -> None:
    from rich.console import Console

    screen = Console()
    Console(width=min(WIDTH, screen.width) if screen.is_terminal else WIDTH).print(table)


@contextmanager
def bars(*, quiet: bool) -> Iterator[Callable[[str, int, int], None]]:
    """A bar on stderr for each kind of thing, with rate and time left; yields what to call as it goes on."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), disable=quiet, transient=True) as progress:
        tasks: dict[str, TaskID] = {}

        def show(what: str, finished: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = progress.add_task(what, total=total, rate="")
            speed = progress.tasks[tasks[what]].speed
            progress.update(tasks[what], completed=finished, rate=f"{speed:.1f} a second" if speed else "")

        yield show
