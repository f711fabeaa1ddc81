"""``centerclip evaluate``: recall and ranks of a model on a benchmark, or two such results side by side.

``centerclip features``: the vectors behind them, in files that any tool reads.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from typer import Argument, Option

from . import common
from .common import check_names, make_table, open_model, print_json, progress

if TYPE_CHECKING:
    from rich.table import Table

    from ..evaluation import Evaluation, Gain
    from ..evaluation.moments import MomentScore
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
        str | None, Option(help="train, val, test, or several joined by '+'.", show_default="test")
    ] = None,
    clustering: common.Clustering = None,
    frames: common.Frames = None,
    rule: common.Rule = None,
    protocol: common.Protocol = None,
    dual_softmax: Annotated[
        bool, Option("--dual-softmax", help="Rank by dual softmax, which looks at all queries together.")
    ] = False,
    batch_size: common.BatchSize = None,
    device: common.Device = None,
    workers: common.Workers = None,
    allow_missing: common.AllowMissing = False,
    allow_unreadable: common.AllowUnreadable = False,
    output: Annotated[Path | None, Option("--output", "-o", help="Folder for evaluation.json and queries.csv.")] = None,
    moments: Annotated[
        bool,
        Option("--moments", help="Also rank moments, for data with timed sentences: activitynet and MiniVTT."),
    ] = False,
    pairs: Annotated[
        bool, Option("--pairs", help="Also compare each sentence with its clip and the clip's twin: minivtt-order.")
    ] = False,
    compare: Annotated[
        tuple[Path, Path] | None,
        Option(metavar="A B", help="Compare two results: --output folders or training runs."),
    ] = None,
    mteb: Annotated[
        list[str] | None,
        Option(
            "--mteb", metavar="TASK", help="Run an mteb task such as MSRVTTT2V, or all of them with all. Repeatable."
        ),
    ] = None,
    as_json: common.AsJson = False,
) -> None:
    """Measure recall and ranks of a model.

    In both directions, text to video and video to text; or compare two earlier results. Under torchrun the processes
    share the work: `torchrun --nproc-per-node 2 -m centerclip evaluate ...`.
    """
    if compare is not None:
        if model is not None or output is not None:
            raise typer.BadParameter("--compare takes two results, without MODEL and --output.")
        _compare(*compare, split=split, as_json=as_json)
        return
    if mteb:
        if model is None or benchmark is not None or root is not None:
            raise typer.BadParameter("--mteb takes only a MODEL: mteb fetches the test sets itself.")
        _run_mteb(open_model(model, clustering, frames, device, protocol), model, mteb, as_json=as_json)
        return
    if model is None or benchmark is None or root is None:
        raise typer.BadParameter("give a MODEL, a BENCHMARK and --root DIR, or two results with --compare A B.")
    split = check_names(benchmark, split or "test", clustering)
    from ..data import load
    from ..distributed import processes
    from ..evaluation import encode_benchmark, evaluate_vectors

    with processes() as group:
        opened = open_model(model, clustering, frames, device or group.gpu, protocol)
        data = load(
            benchmark, root, split, annotations=annotations, allow_missing=allow_missing, protocol=opened.protocol
        )
        timed = None
        if moments:  # read before anything is encoded: there may be none
            from ..evaluation.moments import read_moments, score_moments

            timed = read_moments(data, root, annotations)
        started = time.perf_counter()
        with progress(quiet=as_json or not group.main) as bar:
            encoded = encode_benchmark(
                opened, data, batch_size=batch_size, workers=workers, group=group, allow_unreadable=allow_unreadable,
                on_progress=bar.kind,
            )  # fmt: skip
            result = evaluate_vectors(opened, encoded, rule=rule, dual_softmax=dual_softmax, started=started)
        if not group.main:
            return
        result = replace(result, model=model)
        saved = {"saved": str(result.save(output))} if output else {}
        score = None
        if timed is not None:
            with progress(quiet=as_json) as bar:
                score = score_moments(opened, data, timed, encoded=encoded, on_progress=bar.kind)
        twins = None
        if pairs:
            from ..evaluation.pairs import score_pairs

            twins = score_pairs(encoded, root, rule=rule or opened.rule)
        if as_json:
            parts = {"moments": score, "pairs": twins}
            print_json(result.to_json() | saved | {name: asdict(each) for name, each in parts.items() if each})
            return
        print_results([result])
        if score:
            _print_moments(score)
        if twins:
            kinds = ", ".join(f"{kind} {share:.1f} %" for kind, share in twins.accuracy.items())
            typer.echo(
                f"Closer to its clip than to the twin (50 % by chance), {twins.sentences['all']:,} sentences: {kinds}."
            )
        if saved:
            typer.echo(f"Saved in {output}, with the rank of every query.")


def _print_moments(score: "MomentScore") -> None:
    from ..evaluation.moments import IOUS, TOPS, to_rows

    title = f"Moments of {score.sentences:,} sentences, {score.videos:,} videos, R@n at an IoU"
    table = make_table(title, "", *(f"R@{top}, {iou}" for top in TOPS for iou in IOUS))
    for name, figures in to_rows(score):
        table.add_row(name, *(f"{value:.1f}" if value == value else "" for value in figures))  # NaN: not counted
    _print(table)


def _run_mteb(model: "CenterCLIP", name: str, names: Sequence[str], *, as_json: bool) -> None:
    from ..integrations.mteb import find_tasks, run_tasks

    tasks = find_tasks(names)
    with progress("videos", quiet=as_json) as bar:
        results = run_tasks(model, tasks, name=name, on_progress=bar)
    if as_json:
        print_json([asdict(each) for each in results])
        return
    columns = ("task", "videos", "R@1", "R@5", "R@10", "nDCG@10", "test set")
    table = make_table("Text to video, tasks of mteb", *columns, left=("task", "test set"))
    table.columns[-1].no_wrap = False
    for each in results:
        lost = f"; {each.unreadable} could not be read and are never found" if each.unreadable else ""
        figures = [f"{value:.1f}" for value in each.metrics.values()]
        table.add_row(each.task, f"{each.gallery:,}", *figures, each.note + lost)
    _print(table)


def features(
    model: Annotated[str, Argument(help="Hub name, model folder or file, or the folder of a training run.")],
    sources: Annotated[
        list[str],
        Argument(metavar="SOURCE", help="A benchmark, with --root; or video files and folders."),
    ],
    output: Annotated[Path, Option("--output", "-o", help="Folder for the files.")],
    root: common.Root = None,
    annotations: common.Annotations = None,
    split: Annotated[str, Option(help="Split of the benchmark, or several joined by '+'.")] = "test",
    form: Annotated[
        Literal["safetensors", "npz"], Option("--format", help="File format of the vectors.")
    ] = "safetensors",
    clustering: common.Clustering = None,
    frames: common.Frames = None,
    rule: common.Rule = None,
    batch_size: common.BatchSize = None,
    device: common.Device = None,
    workers: common.Workers = None,
    allow_missing: common.AllowMissing = False,
    allow_unreadable: common.AllowUnreadable = False,
    as_json: common.AsJson = False,
) -> None:
    """Export vectors of videos and sentences.

    One for each segment, video and sentence, with CSV files that name the rows. Videos that cannot be decoded are
    skipped and listed; the exit code is then 1, unless --allow-unreadable is given.
    """
    if root is not None and len(sources) != 1:
        raise typer.BadParameter("with --root, name one benchmark; without it, files and folders.")
    split = check_names(sources[0] if root else "folder", split, clustering)
    from ..data import Benchmark, Clip, DataError, load
    from ..evaluation import encode_benchmark
    from ..evaluation.evaluate import save_features
    from ..files import find_videos

    opened = open_model(model, clustering, frames, device)
    if root is not None:
        data = load(
            sources[0], root, split, annotations=annotations, allow_missing=allow_missing, protocol=opened.protocol
        )
    else:  # paths are the ids, and captions are not encoded
        paths = list(find_videos(*(Path(source).expanduser() for source in sources)))
        if not paths:
            raise DataError(f"there are no videos in {', '.join(sources)}")
        data = Benchmark("files", "all", tuple(Clip(str(path), path, (path.stem,)) for path in paths))
    with progress(quiet=as_json) as bar:
        encoded = encode_benchmark(
            opened, data, captions=root is not None, batch_size=batch_size, workers=workers, allow_unreadable=True,
            on_progress=bar.kind,
        )  # fmt: skip
    about = {
        "model": model,
        "clustering": str(opened.clustering),
        "frames": str(opened.frames),
        "rule": rule or opened.rule,
        "protocol": opened.protocol,
        "data": f"{data.name} {data.split} {encoded.benchmark.fingerprint}" if root else "files",
    }
    written = save_features(encoded, output, rule=rule or opened.rule, about=about, form=form)
    counts = {
        "videos": len(encoded.segments),
        "segments": sum(map(len, encoded.spans)),
        "texts": len(encoded.texts),
        "width": opened.width,
    }
    if as_json:
        files = [str(path) for path in written]
        content = about | counts | {"frames": opened.frames, "files": files}
        content |= {"missing": data.missing, "unreadable": encoded.unreadable}
        print_json(content)
    else:
        typer.echo(
            f"{counts['videos']:,} videos, {counts['segments']:,} segments, {counts['texts']:,} texts of width "
            f"{opened.width} in {output}: {', '.join(path.name for path in written)}"
        )
    if encoded.unreadable and not allow_unreadable:
        lines = [f"centerclip: {len(encoded.unreadable):,} videos cannot be read and are skipped:"]
        lines += [f"  {video}: {reason}" for video, reason in encoded.unreadable.items()]
        typer.echo("\n".join(lines), err=True)
        raise typer.Exit(1)


def print_results(results: "Sequence[Evaluation]") -> None:
    """Print a table for each split, data and rule, titled with its label."""
    from rich.markup import escape

    from ..evaluation.metrics import HEADINGS

    for label, group in groupby(results, key=lambda result: result.label()):
        table = make_table(label, "", *HEADINGS.values())
        for result in group:
            table.add_row(escape(result.setting()))  # square brackets in a setting are not markup
            for direction, title in DIRECTIONS.items():
                table.add_row(f"  {title}", *_cells(result, direction))
            table.add_section()
        _print(table)
    typer.echo("±: half the 95 % interval, from 1,000 bootstrap samples of the videos.")


def _compare(first: Path, second: Path, *, split: str | None, as_json: bool) -> None:
    from ..evaluation import Evaluation, compare
    from ..evaluation.result import differences

    files = [_find_evaluation(path, split) for path in (first, second)]
    results = [Evaluation.load(file) for file in files]
    gains = compare(*results)
    if as_json:
        named = zip(("first", "second"), files, results, strict=True)
        content = {name: {"file": str(file)} | result.to_json() for name, file, result in named}
        print_json(content | differences(gains))
        return
    _print_comparison(results, files, gains)


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


def _print_comparison(
    results: "Sequence[Evaluation]", files: Sequence[Path], gains: "dict[str, dict[str, Gain]]"
) -> None:
    from ..evaluation.metrics import HEADINGS

    table = make_table("", "", *HEADINGS.values())
    for letter, each, file in zip("AB", results, files, strict=True):
        typer.echo(f"{letter}: {file.parent}, {each.setting()}\n   {each.label()}")
    first, second = (each.protocol for each in results)
    if first != second:
        typer.echo(f"A was run with the protocol {first}, B with {second}: the difference may come from that.")
    for direction, title in DIRECTIONS.items():
        table.add_row(title)
        for letter, each in zip("AB", results, strict=True):
            table.add_row(f"  {letter}", *_cells(each, direction))
        cells = [
            f"{gain.mean:+.1f}{'*' if gain.clear else ''}\n\\[{gain.low:+.1f}, {gain.high:+.1f}]"
            for gain in gains[direction].values()
        ]
        table.add_row("  B - A", *cells)
        table.add_section()
    _print(table)
    typer.echo("[ ]: 95 % interval of the difference, from the same bootstrap samples for both; *: it excludes zero.")


def _cells(result: "Evaluation", direction: str) -> list[str]:
    values, intervals = result.metrics[direction], result.intervals[direction]
    return [f"{values[name]:.1f} ±{(high - low) / 2:.1f}" for name, (low, high) in intervals.items()]


def _print(table: "Table") -> None:
    from rich.console import Console

    screen = Console()
    Console(width=min(WIDTH, screen.width) if screen.is_terminal else WIDTH).print(table)
