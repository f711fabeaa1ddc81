"""``centerclip report training-free``: what clustering costs a model that never saw it, on videos of one's own."""

import json
from pathlib import Path
from typing import Annotated, Literal

import typer


def training_free(
    model: Annotated[str, typer.Argument(help="A folder, a name on the hub, or demo.")],
    root: Annotated[Path, typer.Option(help="Folder with videos and a captions.csv, or that of --benchmark.")],
    benchmark: Annotated[str, typer.Option(help="Format of the data.")] = "folder",
    split: Annotated[str, typer.Option(help="Split to search.")] = "test",
    frames: Annotated[int, typer.Option(min=1, help="Frames of a video.")] = 12,
    rule: Annotated[
        Literal["mean", "renormalise"] | None, typer.Option(help="Similarity rule.", show_default="the model's")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--setting", metavar="SETTING", help="Only this one, again for more.", show_default="sweeps of B, K and S"
        ),
    ] = None,
    runs: Annotated[Path, typer.Option(help="Where results are kept; they are not computed again.")] = Path(
        "runs/training-free"
    ),
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the table and the figure.")] = Path(
        "reports"
    ),
    name: Annotated[str, typer.Option(help="Name of the files there.")] = "training-free",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Put clustering into a model as it is, in many ways, and measure how much recall each costs."""
    from ..data import load
    from ..model import CenterCLIP
    from ..reports.sweep import draw_sweep, sweep_points, sweep_settings, to_json, trials_table
    from ..reports.training_free import run_settings
    from .progress import progress

    opened = CenterCLIP.from_pretrained(model, clustering="none", frames=frames, similarity_rule=rule)
    data = load(benchmark, root.expanduser(), split)
    sizes = {"blocks": len(opened.attachment.blocks), "patches": opened.attachment.patches, "frames": frames}
    with progress("videos", quiet=as_json) as show:
        trials = run_settings(opened, data, settings or sweep_settings(**sizes), runs, on_progress=show)
    local = Path(model).expanduser()
    folder = "/".join(local.resolve().parts[-2:])  # a run's model is called best, whatever the run
    table = trials_table(trials, folder if local.exists() else model)
    content = to_json(trials)
    files = table.write(output / name, content)
    if not settings:
        files += draw_sweep(trials, sweep_points(**sizes), output / name, caption=table.label)
    if as_json:
        typer.echo(json.dumps(content, indent=2))
        return
    typer.echo(table.to_markdown())
    typer.echo("Wrote " + ", ".join(map(str, files)))
