"""``centerclip models``: which there are. ``centerclip export``: one in the form that runs without torch."""

import json
from pathlib import Path
from typing import Annotated, Literal

import typer
from typer import Argument, Option

from .common import AsJson, printable, size


def export(
    model: Annotated[str, Argument(help="A Hugging Face hub name, a model's folder, or demo.")],
    output: Annotated[Path, Option("--output", "-o", metavar="FOLDER", help="Where to write it.")],
    precision: Annotated[
        Literal["auto", "float32", "int8"],
        Option(help="auto: float32, and int8 too where this machine would take it."),
    ] = "auto",
    as_json: AsJson = False,
) -> None:
    """Write a model as ONNX graphs: `centerclip index --model FOLDER` then needs neither torch nor a conversion."""
    from ..model.engine import export_model

    exported = export_model(model, output.expanduser(), precision=precision)
    if as_json:
        typer.echo(json.dumps(exported))
        return
    total = sum(exported["files"].values())
    typer.echo(f"Wrote {printable(exported['folder'])}: {' and '.join(exported['precisions'])}, {size(total)}.")
    for name, line in exported["measured"].items():
        typer.echo(
            f"{name}: cosine to float32 {line['cosine']:.4f} (sentences {line['text_cosine']:.4f}), order of similar "
            f"videos {line['order']:.3f}, {line['speed']:.1f} times as fast on this machine."
        )


def models(as_json: AsJson = False) -> None:
    """List models that are known to be good: size, languages, speed on this machine, what they are good for."""
    from ..bundled import SMALL, has_small
    from ..model.known import KNOWN_MODELS, frames_per_second

    rows = [
        {
            "name": known.name,
            "short": known.short,
            "megabytes": round(known.megabytes),
            "languages": known.languages,
            "frames_per_second": float(f"{frames_per_second(known):.2g}"),
            "needs": known.engine,
            "good_for": known.good_for,
        }
        for known in KNOWN_MODELS
    ]
    if as_json:
        typer.echo(json.dumps({"bundled": [SMALL] if has_small() else [], "models": rows}, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("--model", "size", "languages", "frames/s", "good for"):
        table.add_column(heading, justify="right" if heading in ("size", "frames/s") else "left", overflow="fold")
    if has_small():
        table.add_row(SMALL, "in the box", "English", "", "a first try, no download")
    for row, known in zip(rows, KNOWN_MODELS, strict=True):
        name = f"{known.short} = {known.name}" if known.short else known.name
        note = known.good_for + (" (needs torch)" if known.engine == "torch" else "")
        speed = f"{row['frames_per_second']:g}"
        table.add_row(name, size(int(known.megabytes * 1e6)), known.languages, speed, note)
    Console().print(table)
    typer.echo(
        "A model is fetched once. Speeds are estimates for this machine, in float32, without clustering, from matrix "
        "products of the same size; `centerclip bench encoder` measures a model."
    )
