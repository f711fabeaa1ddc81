"""``centerclip report``: the tables and figures of the paper, and what clustering costs a model without training."""

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Argument, Option

from .common import AsJson, Protocol, Rule, Workers, print_json, progress

if TYPE_CHECKING:
    from ..reports.catalogue import Plan, Report
    from ..reports.runs import Outcome
    from ..reports.table import Table


app = typer.Typer(
    help="Make tables and figures of the paper. In full, or scaled to a laptop.",
    no_args_is_help=True,
)


VIDEO_MODEL = "demo"
SEGMENT_LENGTHS = 4  # lines of the figure of centres


@app.command("list", epilog="Example: centerclip report list --gpus 4")
def list_reports(
    gpus: Annotated[int, Option(min=1, help="Estimate the hours of each table on this many GPUs.")] = 8,
    as_json: AsJson = False,
) -> None:
    """List all tables and figures."""
    from ..reports.catalogue import expected_hours, make_plans, reports

    rows = []
    for report in reports().values():
        plans = make_plans(report, small=False)
        rows.append((report, len(plans), sum(expected_hours(plan, gpus=gpus) for plan in plans)))
    if as_json:
        content = [
            {"name": each.name, "what": each.title, "where": each.where, "kind": each.kind}
            | {"runs": runs, "hours": hours}
            for each, runs, hours in rows
        ]
        print_json(content)
        return
    width = max(len(report.name) for report, _, _ in rows)
    for report, runs, hours in rows:
        cost = f"{runs} runs, at least {hours:.1f} h on {gpus} GPUs" if runs else "one video"
        typer.echo(f"{report.name:<{width}}  {report.where or 'beyond':<9} {report.title} ({cost})")
    typer.echo(
        f"{'':<{width}}  beyond    Clustering without training: `centerclip report training-free MODEL --root DATA`"
    )
    typer.echo("Hours are arithmetic alone, at 30 Tflop/s a GPU; decoding and validation come on top.")


@app.command(epilog="Example: centerclip report run methods --data minivtt --root DATA/minivtt --quick")
def run(
    names: Annotated[list[str], Argument(metavar="NAME", help="Names from `centerclip report list`, or all.")],
    root: Annotated[
        Path | None,
        Option(help="Folder of the benchmark, or of several in sub-folders msrvtt, msvd, lsmdc, activitynet."),
    ] = None,
    data: Annotated[
        Literal["paper", "minivtt"],
        Option(help="paper: the paper's benchmarks; minivtt: the same, scaled to a small model on a laptop."),
    ] = "paper",
    model: Annotated[
        str | None,
        Option(help="Model that runs start from, or that tsne and centres draw.", show_default="the recipe's, or demo"),
    ] = None,
    training: Annotated[
        bool, Option("--training/--no-training", help="Train each row, or only add its clustering to the model.")
    ] = True,
    quick: Annotated[bool, Option("--quick", help="One epoch per row.")] = False,
    seeds: Annotated[int, Option(min=1, help="Train each row with this many seeds.")] = 1,
    from_logs: Annotated[bool, Option("--from-logs", help="Rebuild from finished runs; needs no data.")] = False,
    select_on: Annotated[
        str | None,
        Option(
            help="Split on which the best epoch is chosen.", show_default="the protocol's: test if published, else val"
        ),
    ] = None,
    protocol: Protocol = None,
    test_on: Annotated[
        Path | None,
        Option(help="Test on the test split of this folder, such as minivtt-order, instead of the benchmark's."),
    ] = None,
    video: Annotated[
        Path | None, Option(help="Video for tsne and centres.", show_default="the first bundled clip")
    ] = None,
    clustering: Annotated[
        str | None, Option(help="Clustering for tsne and centres.", show_default="the model's, or k-medoids++")
    ] = None,
    runs: Annotated[Path, Option(help="Folder of the runs; finished ones are not repeated.")] = Path("runs/reports"),
    output: Annotated[Path, Option("--output", "-o", help="Folder for the tables and figures.")] = Path("reports"),
    workers: Workers = None,
    as_json: AsJson = False,
) -> None:
    """Make tables and figures.

    The same command again resumes what was stopped.
    """
    from ..reports.catalogue import find_report, make_plans, reports

    chosen = list(reports().values()) if names == ["all"] else [find_report(name) for name in dict.fromkeys(names)]
    tables = [report for report in chosen if report.kind != "picture"]
    if tables and root is None and not from_logs:
        raise typer.BadParameter("--root is missing: the folder with the videos of the benchmark.")
    small = data == "minivtt"
    plans = {
        report.name: make_plans(
            report, small=small, quick=quick, start=model, select_on=select_on, protocol=protocol, training=training
        )
        for report in tables
    }
    every = [plan for each in plans.values() for plan in each]
    outcomes = _outcomes(every, None if from_logs else root, runs, workers, seeds=seeds, test_on=test_on, quiet=as_json)
    if outcomes is None:
        return
    rows = iter(outcomes)
    for report in chosen:
        if report.kind == "picture":
            files = _picture(report, model or VIDEO_MODEL, video, clustering, output)
            content = json.dumps({"report": report.name, "files": [str(path) for path in files]})
            typer.echo(content if as_json else "Wrote " + " and ".join(map(str, files)))
        else:
            some = [next(rows) for _ in plans[report.name]]
            _write(report, some, output, small=small, other=test_on is not None, as_json=as_json)


@app.command("training-free", epilog="Example: centerclip report training-free demo --root DATA/minivtt")
def training_free(
    model: Annotated[str, Argument(help="Hub name or model folder; demo is the bundled model of MiniVTT.")],
    root: Annotated[Path, Option(help="Folder of the benchmark, or with videos and a captions.csv.")],
    benchmark: Annotated[str, Option(help="Format of the data.")] = "folder",
    split: Annotated[str, Option(help="Split to search.")] = "test",
    frames: Annotated[int, Option(min=1, help="Frames per video.")] = 12,
    rule: Rule = None,
    settings: Annotated[
        list[str] | None,
        Option(
            "--setting",
            metavar="SETTING",
            help="Only this clustering. Repeatable.",
            show_default="some of every kind",
        ),
    ] = None,
    timed: Annotated[bool, Option("--time", help="Also measure times; nothing else may run meanwhile.")] = False,
    chosen_on: Annotated[
        Path | None, Option(help="Mark the settings that were best in an earlier report on other data: its JSON file.")
    ] = None,
    runs: Annotated[Path, Option(help="Folder of the results; they are not computed again.")] = Path(
        "runs/training-free"
    ),
    output: Annotated[Path, Option("--output", "-o", help="Folder for the table and the figure.")] = Path("reports"),
    name: Annotated[str, Option(help="Name of these files, without a suffix.")] = "training-free",
    as_json: AsJson = False,
) -> None:
    """Add clustering without training.

    In many settings: what each saves, and what it costs in recall.
    """
    from ..data import load
    from ..errors import ReportError
    from ..model import CenterCLIP
    from ..plots.figures import draw_frontier
    from ..reports.catalogue import frontier_settings
    from ..reports.frontier import setting_points, settings_table, to_json
    from ..reports.training_free import run_settings

    chosen: list[str] = []
    if chosen_on is not None:
        try:
            chosen = json.loads(chosen_on.expanduser().read_text(encoding="utf-8"))["best"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ReportError(f"{chosen_on} is not the JSON file of this report: {error!r}") from error
    opened = CenterCLIP.from_pretrained(model, clustering="none", frames=frames, similarity_rule=rule)
    data = load(benchmark, root.expanduser(), split)
    sizes = {"blocks": len(opened.attachment.blocks), "patches": opened.attachment.patches, "frames": frames}
    labels = frontier_settings(**sizes)
    with progress("videos", quiet=as_json) as bar:
        results = run_settings(opened, data, settings or labels, runs, timed=timed, on_progress=bar)
    local = Path(model).expanduser()
    folder = "/".join(local.resolve().parts[-2:])  # with its parent: the model of every training run is called best
    points = setting_points(results, labels)
    table = settings_table(results, points, folder if local.exists() else model, chosen)
    content = to_json(results, points)
    files = table.write(output / name, content)
    files += draw_frontier(points, output / name, title="Clustering without training", caption=table.label)
    _print(table, content, files, as_json)


def _outcomes(
    plans: "list[Plan]",
    root: Path | None,
    runs: Path,
    workers: int | None,
    *,
    seeds: int,
    test_on: Path | None,
    quiet: bool,
) -> "list[Outcome] | None":
    """The rows, run or read from finished runs; None on the processes that do not print."""
    if not plans:
        return []
    from ..data import load
    from ..reports.runs import Callbacks, read_all, run_all

    other = None if test_on is None else load("folder", test_on.expanduser(), "test")
    if root is None:
        return read_all(plans, runs, seeds=seeds, test_on=other)
    from ..distributed import processes

    with processes() as group, progress(quiet=quiet or not group.main) as bar:
        callbacks = Callbacks(
            on_message=lambda text: typer.echo(text, err=True) if group.main else None,
            on_run=lambda done, total: bar.kind("runs", done, total),
            on_step=lambda at: bar.kind("steps of this run", at.step, at.steps),
        )
        outcomes = run_all(
            plans, root.expanduser(), runs, group, seeds=seeds, workers=workers, test_on=other,
            callbacks=callbacks,
        )  # fmt: skip
        return outcomes if group.main else None


def _write(
    report: "Report", outcomes: "list[Outcome]", output: Path, *, small: bool, other: bool, as_json: bool
) -> None:
    from ..reports.table import make_table, to_json

    name = f"{report.name}-{outcomes[0].seeds.results[0].fingerprint}" if other else report.name  # beside the usual

    table = make_table(report, outcomes, small=small)
    content = to_json(report, outcomes, small=small)
    if report.kind == "frontier":
        from ..plots.figures import draw_frontier
        from ..reports.frontier import best, outcome_points, with_arithmetic

        points = outcome_points(outcomes, small=small)
        table = with_arithmetic(table, points, outcomes)
        content["best"] = [point.setting for point in best(points)]
        for row, point in zip(content["rows"], points, strict=True):
            row["arithmetic"] = point.arithmetic
        files = table.write(output / name, content)
        files += draw_frontier(points, output / name, title=table.title, caption=table.label)
        _print(table, content, files, as_json)
        return
    files = table.write(output / name, content)
    if report.kind != "table":
        from ..plots.figures import draw_curves, draw_gains

        draw = draw_curves if report.kind == "curves" else draw_gains
        files += draw(report, outcomes, output / name, small=small)
    _print(table, content, files, as_json)


def _print(table: "Table", content: dict[str, Any], files: list[Path], as_json: bool) -> None:
    if as_json:
        print_json(content)
        return
    typer.echo(table.to_markdown())
    typer.echo("Wrote " + ", ".join(map(str, files)))


def _picture(report: "Report", name: str, video: Path | None, clustering: str | None, output: Path) -> list[Path]:
    """The figures that need one video: a map of its tokens, or its centres for several segment lengths."""
    from rich.console import Console

    from ..bundled import demo_clips
    from ..model import CenterCLIP
    from ..plots.figures import save_figure
    from ..plots.tokens import kept_patches, segment_rows, sheet_figure, token_map
    from ..reports.training_free import usual_stage

    model = CenterCLIP.from_pretrained(name)
    if clustering is not None:
        model.set_clustering(clustering)
        if not model.clustering.stages:
            raise typer.BadParameter(f"--clustering {clustering} does not cluster; use for example B3-4,36")
    elif not model.clustering.stages:
        tower = model.attachment
        stage = usual_stage(blocks=len(tower.blocks), patches=tower.patches, frames=model.frames)
        model.set_clustering(str(stage))
    clip = video or min(demo_clips().rglob("*.mp4"))
    with Console(stderr=True).status("reading and drawing"):
        if report.name == "tsne":
            segment = kept_patches(model, clip).segment(0)
            what = f"first segment of {len(segment.squares)} frames, {len(segment.tokens)} tokens"
            caption = f"{clip.name}, {what}; model {name}, {model.clustering}"
            return save_figure(token_map(segment), output / report.name, caption=caption)
        first, rows = model.clustering.stages[0], []
        for segments in [s for s in range(model.frames - 1, 0, -1) if model.frames % s == 0][:SEGMENT_LENGTHS]:
            model.set_clustering(replace(model.clustering, stages=(replace(first, segments=segments),)))
            title = f"{model.frames // segments} frames a segment, {model.clustering}"
            rows.append((title, kept_patches(model, clip), 0))
        caption = f"{clip.name}, first segment; model {name}; patches of the {first.k} centres are bright"
        return save_figure(sheet_figure(segment_rows(rows)), output / report.name, caption=caption)
