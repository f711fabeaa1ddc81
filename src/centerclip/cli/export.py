"""``centerclip export``: a model in the form that runs without torch, for other machines."""

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
