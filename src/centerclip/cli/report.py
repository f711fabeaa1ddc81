"""``centerclip report``: every table and figure of the paper, made by a command."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ..model import CenterCLIP
    from ..reports.catalogue import Report
    from ..reports.plan import Plan
    from ..reports.runs import Outcome
    from ..training.loop import Progress

app = typer.Typer(
    help="Make the tables and figures of the paper, on its benchmarks or, scaled down, on a laptop.",
    no_args_is_help=True,
)

DATA = ("paper", "minivtt")
VIDEO_MODEL = "demo"


@app.command("list")
def list_reports(
    gpus: Annotated[
        int, typer.Option(min=1, help="Estimate the hours of each table on this many GPUs, from its arithmetic.")
    ] = 8,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON list.")] = False,
) -> None:
    """Name every table and figure."""
    from ..reports.catalogue import reports
    from ..reports.hours import expected_hours
    from ..reports.plan import make_plans

    found = []
    for report in reports().values():
        plans = make_plans(report, small=False)
        hours = sum(expected_hours(plan, gpus=gpus) for plan in plans)
        found.append((report, len(plans), hours))
    if as_json:
        content = [
            {
                "name": each.name,
                "what": each.title,
                "where": each.where,
                "kind": each.kind,
                "runs": runs,
                "hours": hours,
            }
            for each, runs, hours in found
        ]
        typer.echo(json.dumps(content, indent=2))
        return
    width = max(len(report.name) for report, _, _ in found)
    for report, runs, hours in found:
        cost = f"{runs} runs, at least {hours:.1f} h on {gpus} GPUs" if runs else "one video"
        typer.echo(f"{report.name:<{width}}  {report.where or 'beyond':<9} {report.title} ({cost})")
    typer.echo("Hours are arithmetic at 30 Tflop/s a GPU; decoding and validation come on top.")


@app.command()
def run(
    name: Annotated[str, typer.Argument(help="A name that `centerclip report list` shows.")],
    root: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the benchmark, or one with a sub-folder for each: msrvtt, msvd, lsmdc, activitynet."
        ),
    ] = None,
    data: Annotated[
        str, typer.Option(help="paper: the paper's benchmarks; minivtt: the same scaled to a small model, on a laptop.")
    ] = "paper",
    model: Annotated[
        str | None,
        typer.Option(
            help="Model that all runs start from, or that pictures show.", show_default="the recipe's, or demo"
        ),
    ] = None,
    training: Annotated[
        bool,
        typer.Option("--training/--no-training", help="Train each row, or put its clustering into the model as it is."),
    ] = True,
    quick: Annotated[bool, typer.Option("--quick", help="One epoch for each row.")] = False,
    from_logs: Annotated[bool, typer.Option("--from-logs", help="Rebuild it from finished runs alone.")] = False,
    select_on: Annotated[
        str | None, typer.Option(help="Split that chooses the best epoch.", show_default="the recipe's: val")
    ] = None,
    video: Annotated[
        Path | None, typer.Option(help="Video of a picture.", show_default="the first bundled clip")
    ] = None,
    clustering: Annotated[str | None, typer.Option(help="Clustering of a picture.", show_default="the model's")] = None,
    runs: Annotated[Path, typer.Option(help="Where runs are kept; finished ones are not repeated.")] = Path(
        "runs/reports"
    ),
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the tables and figures.")] = Path(
        "reports"
    ),
    workers: Annotated[int | None, typer.Option(min=0, help="Decoding processes.", show_default="cores")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Make one table or figure. The same command again goes on where it was stopped."""
    from ..reports.catalogue import find_report

    if data not in DATA:
        raise typer.BadParameter(f"--data {data}: it is {' or '.join(DATA)}")
    report = find_report(name)
    if report.kind == "picture":
        files = _picture(report, model or VIDEO_MODEL, video, clustering, output)
        if as_json:
            typer.echo(json.dumps({"report": report.name, "files": [str(path) for path in files]}))
        else:
            typer.echo("Wrote " + " and ".join(map(str, files)))
        return
    if root is None and not from_logs:
        raise typer.BadParameter("--root is missing: the folder with the videos of the benchmark.")
    from ..reports.plan import make_plans

    small = data == "minivtt"
    plans = make_plans(report, small=small, quick=quick, start=model, select_on=select_on, training=training)
    outcomes = _outcomes(plans, None if from_logs else root, runs, workers, as_json)
    if outcomes is not None:
        _finish(report, outcomes, output, small=small, as_json=as_json)


def _outcomes(
    plans: "list[Plan]", root: Path | None, runs: Path, workers: int | None, quiet: bool
) -> "list[Outcome] | None":
    """Every row, run or read; None on the processes that do not print."""
    from ..reports.runs import find_outcome, run_plan

    if root is None:
        return [find_outcome(plan, runs) for plan in plans]
    from ..distributed import processes

    with processes() as group:

        def say(text: str) -> None:
            if group.main:
                typer.echo(text, err=True)

        found = []
        for number, plan in enumerate(plans, start=1):
            with _bar(f"run {number} of {len(plans)}", quiet=quiet or not group.main) as bar:
                found.append(run_plan(plan, root.expanduser(), runs, group, workers=workers, say=say, on_step=bar))
        return found if group.main else None


def _finish(report: "Report", outcomes: "list[Outcome]", output: Path, *, small: bool, as_json: bool) -> None:
    from ..evaluation.whole_files import write_whole
    from ..reports.table import make_table, to_json

    table = make_table(report, outcomes, small=small)
    content = to_json(report, outcomes, small=small)
    output.mkdir(parents=True, exist_ok=True)
    files = []
    for suffix, text in (("md", table.to_markdown()), ("json", json.dumps(content, indent=2) + "\n")):
        path = output / f"{report.name}.{suffix}"
        write_whole(path, lambda scratch, text=text: scratch.write_text(text, encoding="utf-8"))  # type: ignore[misc]
        files.append(path)
    if report.kind == "curves":
        from ..reports.curves import draw_curves

        files += draw_curves(report, outcomes, output, small=small)
    if as_json:
        typer.echo(json.dumps(content, indent=2))
        return
    typer.echo(table.to_markdown())
    typer.echo("Wrote " + ", ".join(map(str, files)))


def _picture(report: "Report", name: str, video: Path | None, clustering: str | None, output: Path) -> list[Path]:
    """The figures that need one video: a map of its tokens, or its centres for several segment lengths."""
    from rich.console import Console

    from ..model import CenterCLIP
    from ..model.demo import demo_clips

    model = CenterCLIP.from_pretrained(name)
    if clustering is not None:
        model.set_clustering(clustering)
    if not model.clustering.stages:
        raise typer.BadParameter(f"{name} does not cluster; add for example --clustering B3-4,36")
    clip = video or min(path for path in demo_clips().rglob("*") if path.suffix == ".mp4")
    with Console(stderr=True).status("reading and drawing"):
        draw = _token_map if report.name == "tsne" else _centres
        return draw(model, name, clip, output / report.name)


def _token_map(model: "CenterCLIP", name: str, clip: Path, path: Path) -> list[Path]:
    from ..reports.errors import ReportError
    from ..reports.pictures import draw_token_map
    from .seen import look

    seen = look(model, clip)
    if seen.first.assignment is None:
        raise ReportError(f"{model.clustering} has no clusters to draw; take k-medoids++ or spectral")
    stage = model.clustering.stages[0]
    frames = model.frames // stage.segments
    tokens = seen.tokens[:frames].flatten(0, 1)
    caption = f"{clip.name}, first segment of {frames} frames, {len(tokens)} tokens; model {name}, {model.clustering}"
    return draw_token_map(
        seen.squares[:frames], tokens, seen.first.assignment[0].cpu(), seen.first.ids[0].cpu(), path, caption=caption
    )


def _centres(model: "CenterCLIP", name: str, clip: Path, path: Path) -> list[Path]:
    from dataclasses import replace

    from ..reports.pictures import Kept, draw_centres
    from .seen import look

    first = model.clustering.stages[0]
    drawn = []
    for segments in sorted((s for s in range(1, model.frames) if model.frames % s == 0), reverse=True)[:4]:
        model.set_clustering(replace(model.clustering, stages=(replace(first, segments=segments),)))
        seen = look(model, clip)
        drawn.append(Kept(f"{model.frames // segments} frames a segment, {model.clustering}", model.frames // segments,
                          seen.places[0]))  # fmt: skip
    caption = f"{clip.name}, first segment; model {name}; patches of the {first.k} centres are bright"
    return draw_centres(seen.squares, drawn, path, side=round(model.attachment.patches**0.5), caption=caption)


@contextmanager
def _bar(title: str, *, quiet: bool) -> "Iterator[Callable[[Progress], None]]":
    from .progress import progress

    with progress(title, quiet=quiet) as show:
        yield lambda at: show(at.step, at.steps)
