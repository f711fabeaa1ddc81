"""``centerclip status`` and ``centerclip remove``: what is in an index, and out with it."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from .options import IndexFolder


def status(
    folder: IndexFolder = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say what is in the index: videos, hours, size, model, and the files that could not be read."""
    from ..search import VideoIndex

    found = VideoIndex(folder, create=False).status()
    if as_json:
        content = asdict(found) | {"folder": str(found.folder), "roots": [str(root) for root in found.roots]}
        typer.echo(json.dumps(content, indent=2))
        return
    copies = found.files - found.videos
    lines = [
        ("index", f"{found.folder}{'  (being written now)' if found.busy else ''}"),
        ("folders", ", ".join(str(root) for root in found.roots) or "none"),
        ("videos", f"{found.videos:,}" + (f", and {copies:,} copies of them" if copies else "")),
        ("length", f"{found.hours:.2f} hours"),
        ("segments", f"{found.segments:,}"),
        ("size", _size(found.bytes)),
        ("model", found.model),
        ("setting", f"{found.clustering}, windows of {found.frames} frames, one frame every {found.every:g} s"),
        ("search", "exact" if found.recall == 1 else f"approximate, finds {found.recall:.1%} of the best segments"),
        ("failures", f"{len(found.failed):,}"),
    ]
    for name, value in lines:
        typer.echo(f"{name:9} {value}")
    for path, reason in found.failed.items():
        typer.echo(f"  {path!r}: {reason}")


def remove(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="Files and folders to forget.")],
    folder: IndexFolder = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Forget files and folders. The videos themselves are not touched."""
    from ..search import VideoIndex

    count = VideoIndex(folder, create=False).remove(*paths)
    if as_json:
        typer.echo(json.dumps({"removed": count}))
    else:
        typer.echo(f"{count:,} files forgotten.")
    if not count:
        typer.echo(f"centerclip: the index has none of {', '.join(map(str, paths))}", err=True)
        raise typer.Exit(1)


def _size(count: int) -> str:
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.1f} MB"
