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
    help="Make the tables and figures of the paper, on its benchmarks or, scaled down, on a laptop.",
    no_args_is_help=True,
)


VIDEO_MODEL = "demo"
SEGMENT_LENGTHS = 4  # lines of the figure of centres


@app.command("list", epilog="Example: centerclip report list --gpus 4")
def list_reports(
    gpus: Annotated[int, Option(min=1, help="Estimate the hours of each table on this many GPUs.")] = 8,
    as_json: AsJson = False,
) -> None:
    """List every table and figure."""
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
    names: Annotated[list[str], Argument(metavar="NAME...", help="Names that `centerclip report list` shows, or all.")],
    root: Annotated[
        Path | None,
        Option(help="Folder of the benchmark, or one with a sub-folder for each: msrvtt, msvd, lsmdc, activitynet."),
    ] = None,
    data: Annotated[
        Literal["paper", "minivtt"],
        Option(help="paper: the paper's benchmarks; minivtt: the same scaled to a small model, on a laptop."),
    ] = "paper",
    model: Annotated[
        str | None,
        Option(help="Model that runs start from, or that tsne and centres show.", show_default="the recipe's, or demo"),
    ] = None,
    training: Annotated[
        bool, Option("--training/--no-training", help="Train each row, or only add its clustering to the model.")
    ] = True,
    quick: Annotated[bool, Option("--quick", help="One epoch for each row.")] = False,
    seeds: Annotated[int, Option(min=1, help="Train each row with this many seeds.")] = 1,
    jobs: Annotated[int, Option(min=1, help="Runs at the same time on a CPU, which share its cores.")] = 1,
    from_logs: Annotated[bool, Option("--from-logs", help="Rebuild from finished runs, without data.")] = False,
    select_on: Annotated[
        str | None,
        Option(help="Split that chooses the best epoch.", show_default="the protocol's: test if published, else val"),
    ] = None,
    protocol: Protocol = None,
    video: Annotated[
        Path | None, Option(help="Video of tsne and centres.", show_default="the first bundled clip")
    ] = None,
    clustering: Annotated[
        str | None, Option(help="Clustering of tsne and centres.", show_default="the model's, or k-medoids++")
    ] = None,
    runs: Annotated[Path, Option(help="Where runs are kept; finished ones are not repeated.")] = Path("runs/reports"),
    output: Annotated[Path, Option("--output", "-o", help="Folder for the tables and figures.")] = Path("reports"),
    workers: Workers = None,
    as_json: AsJson = False,
) -> None:
    """Make tables and figures. The same command resumes what was stopped."""
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
    outcomes = _outcomes(every, None if from_logs else root, runs, workers, seeds=seeds, jobs=jobs, quiet=as_json)
    if outcomes is None:
        return
    rows = iter(outcomes)
    for report in chosen:
        if report.kind == "picture":
            files = _picture(report, model or VIDEO_MODEL, video, clustering, output)
            content = json.dumps({"report": report.name, "files": [str(path) for path in files]})
            typer.echo(content if as_json else "Wrote " + " and ".join(map(str, files)))
        else:
            _write(report, [next(rows) for _ in plans[report.name]], output, small=small, as_json=as_json)


@app.command("training-free", epilog="Example: centerclip report training-free demo --root DATA/minivtt")
def training_free(
    model: Annotated[str, Argument(help="Hub name or model folder; demo is the bundled model.")],
    root: Annotated[Path, Option(help="Folder with videos and a captions.csv, or of the benchmark.")],
    benchmark: Annotated[str, Option(help="Format of the data.")] = "folder",
    split: Annotated[str, Option(help="Split to search.")] = "test",
    frames: Annotated[int, Option(min=1, help="Frames per video.")] = 12,
    rule: Rule = None,
    settings: Annotated[
        list[str] | None,
        Option(
            "--setting",
            metavar="SETTING",
            help="Only this clustering; repeat for more.",
            show_default="sweeps of B, K and S",
        ),
    ] = None,
    runs: Annotated[Path, Option(help="Where results are kept; they are not computed again.")] = Path(
        "runs/training-free"
    ),
    output: Annotated[Path, Option("--output", "-o", help="Folder for the table and the figure.")] = Path("reports"),
    name: Annotated[str, Option(help="Name of these files, without suffix.")] = "training-free",
    as_json: AsJson = False,
) -> None:
    """Add clustering to a model without training it, in many ways, and measure how much recall each costs."""
    from ..data import load
    from ..model import CenterCLIP
    from ..plots.figures import draw_sweep
    from ..reports.training_free import run_settings, settings_table, sweep_points, sweep_settings, to_json

    opened = CenterCLIP.from_pretrained(model, clustering="none", frames=frames, similarity_rule=rule)
    data = load(benchmark, root.expanduser(), split)
    sizes = {"blocks": len(opened.attachment.blocks), "patches": opened.attachment.patches, "frames": frames}
    with progress("videos", quiet=as_json) as bar:
        results = run_settings(opened, data, settings or sweep_settings(**sizes), runs, on_progress=bar)
    local = Path(model).expanduser()
    folder = "/".join(local.resolve().parts[-2:])  # with its parent: the model of every training run is called best
    table = settings_table(results, folder if local.exists() else model)
    content = to_json(results)
    files = table.write(output / name, content)
    if not settings:
        files += draw_sweep(results, sweep_points(**sizes), output / name, caption=table.label)
    _print(table, content, files, as_json)


def _outcomes(
    plans: "list[Plan]", root: Path | None, runs: Path, workers: int | None, *, seeds: int, jobs: int, quiet: bool
) -> "list[Outcome] | None":
    """The rows, run or read from finished runs; None on the processes that do not print."""
    if not plans:
        return []
    from ..reports.runs import Callbacks, read_all, run_all

    if root is None:
        return read_all(plans, runs, seeds=seeds)
    from ..distributed import processes

    with processes() as group, progress(quiet=quiet or not group.main) as bar:
        callbacks = Callbacks(
            on_message=lambda text: typer.echo(text, err=True) if group.main else None,
            on_run=lambda done, total: bar.kind("runs", done, total),
            on_step=lambda at: bar.kind("steps of this run", at.step, at.steps),
        )
        outcomes = run_all(
            plans, root.expanduser(), runs, group, seeds=seeds, jobs=jobs, workers=workers, callbacks=callbacks
        )
        return outcomes if group.main else None


def _write(report: "Report", outcomes: "list[Outcome]", output: Path, *, small: bool, as_json: bool) -> None:
    from ..reports.table import make_table, to_json

    table = make_table(report, outcomes, small=small)
    content = to_json(report, outcomes, small=small)
    files = table.write(output / report.name, content)
    if report.kind != "table":
        from ..plots.figures import draw_curves, draw_gains

        draw = draw_curves if report.kind == "curves" else draw_gains
        files += draw(report, outcomes, output, small=small)
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
