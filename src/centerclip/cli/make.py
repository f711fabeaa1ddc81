"""``centerclip data make``: generate a benchmark."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from .progress import progress

if TYPE_CHECKING:
    from ..data.minivtt import Report

app = typer.Typer(name="make", help="Generate a benchmark.", no_args_is_help=True)

Folder = Annotated[Path, typer.Argument(help="New folder; a stopped run goes on where it was.")]
Seed = Annotated[int, typer.Option(min=0, help="Another seed, other scenes of the same world.")]
Workers = Annotated[int | None, typer.Option(min=1, help="Processes.", show_default="cores")]
Things = Annotated[
    Literal["emoji", "shapes"] | None, typer.Option(help="What to draw.", show_default="emoji, shapes without a font")
]
Font = Annotated[
    Path | None,
    typer.Option(help="Emoji font.", show_default="Noto Color Emoji of this computer", envvar="CENTERCLIP_FONT"),
]
Force = Annotated[bool, typer.Option("--force", help="Remove what an earlier run made in the folder; start anew.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@app.command()
def minivtt(
    folder: Folder,
    clips: Annotated[int, typer.Option(min=20, help="Clips of all splits.")] = 2000,
    seed: Seed = 0,
    workers: Workers = None,
    things: Things = None,
    font: Font = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Generate MiniVTT: clips of things that move in places, with sentences and event times."""
    from ..data.minivtt import make

    with progress("drawing clips", quiet=as_json) as show:
        report = make(
            folder, clips=clips, seed=seed, workers=workers, things=things, font=font, force=force, on_progress=show
        )
    _tell(report, "clips", as_json)


@app.command()
def minivtt_stills(
    folder: Folder,
    clips: Annotated[int, typer.Option(min=20, help="Pictures of all splits.")] = 30_000,
    seed: Seed = 0,
    workers: Workers = None,
    things: Things = None,
    font: Font = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Generate pictures of the world of MiniVTT, as videos of one frame: a model learns names from them first."""
    from ..data.minivtt import make_stills

    with progress("drawing pictures", quiet=as_json) as show:
        report = make_stills(
            folder, clips=clips, seed=seed, workers=workers, things=things, font=font, force=force, on_progress=show
        )
    _tell(report, "pictures", as_json)


def _tell(report: "Report", what: str, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(asdict(report), indent=2))
    else:
        if report.note:
            typer.echo(report.note)
        counts = ", ".join(f"{split} {count:,}" for split, count in report.clips.items())
        typer.echo(
            f"{report.made:,} {what} of {report.things} made in {report.seconds:,.0f} s, {report.skipped:,} were there "
            f"({counts}); {report.bytes / 1e6:,.1f} MB in {report.folder}."
        )
        for name, reason in report.failed.items():
            typer.echo(f"Failed: {name}: {reason}")
    if report.failed:
        typer.echo(f"centerclip: {len(report.failed):,} jobs failed; run the command again for them.", err=True)
        raise typer.Exit(1)
