"""The command line: one small file per command group. Heavy modules are imported inside commands only."""

import errno
import os
import sys
from pathlib import Path
from typing import NoReturn

import typer

from .. import __version__
from ..errors import CenterClipError, Interrupted, extras_named
from . import bench, data, demo, doctor, evaluate, index, models, report, search, serve, train
from .common import printable, show_downloads

app = typer.Typer(
    name="centerclip",
    help="Find videos, and the moment inside them, with words.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

INTERRUPTED = 130  # the exit code after Ctrl-C, as in a shell
YOURS, RESEARCH = "Your videos", "Research"
# The order is that of `centerclip --help`: what most people use first. Each with an example.
for panel, command, example in (
    (YOURS, index.index, "index ~/Videos --exclude 'proxy*'"),
    (YOURS, search.search, "search a dog on the beach --after 2024 --save found"),
    (YOURS, serve.serve, "serve --allow-folders ~/Videos"),
    (YOURS, serve.mcp, "mcp --allow-write ~/Clips"),
    (YOURS, index.status, "status"),
    (YOURS, index.remove, "remove ~/Videos/private"),
    (YOURS, index.copy, "copy my-index milvus://localhost:19530/videos"),
    (YOURS, demo.demo, "demo"),
    (YOURS, doctor.doctor, "doctor ~/Videos"),
    (YOURS, models.models, "models"),
    (YOURS, models.export, "export owner/model -o my-model"),
    (RESEARCH, models.show, "show dog.mp4 --model openai/clip-vit-base-patch32 -o centres.png"),
    (RESEARCH, train.train, "train msrvtt/b32-B6-4-49 --root DATA"),
    (RESEARCH, evaluate.evaluate, "evaluate runs/msrvtt-b32-B6-4-49 msrvtt --root DATA"),
    (RESEARCH, evaluate.features, "features MODEL msrvtt --root DATA -o features"),
):
    app.command(rich_help_panel=panel, epilog=f"Example: centerclip {example}")(command)
for group, example in (
    (data.app, "data verify msrvtt --root DATA"),
    (bench.app, "bench encoder --quick"),
    (report.app, "report run lsmdc --root DATA"),
):
    name = example.split()[0]
    app.add_typer(group, name=name, rich_help_panel=RESEARCH, epilog=f"Example: centerclip {example}")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"centerclip {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: bool = typer.Option(
        False, "--version", help="Print the version and exit.", callback=_print_version, is_eager=True
    ),
) -> None:
    """Find videos, and the moment inside them, with words."""
    show_downloads()


def main() -> None:
    """Run the command line. Exit codes: 0 done, 1 could not be done, 2 wrong usage, 130 interrupted."""
    try:
        with extras_named():
            app()
    except CenterClipError as error:
        _end(str(error), INTERRUPTED if isinstance(error, Interrupted) else 1)
    except OSError as error:
        if error.errno is None:  # a library's own, not the system's
            raise
        _end(_explain(error), 1)
    except SystemExit as end:  # so typer ends, and at Ctrl-C it says nothing
        if end.code != INTERRUPTED:
            raise
        _end("interrupted", INTERRUPTED)


def _end(message: str, code: int) -> NoReturn:
    typer.echo(f"centerclip: {message}", err=True)
    sys.exit(code)


def _explain(error: OSError) -> str:
    """What the system refused, as a sentence."""
    if error.filename is None:
        return f"{error.strerror or error}".lower()
    path = Path(os.fsdecode(error.filename))
    reasons = {
        errno.EACCES: "cannot be used: permission denied; check who may read and write it",
        errno.EROFS: "cannot be written: the disk is read-only; name another folder",
        errno.ENOSPC: "cannot be written: the disk is full; free some space, then run this again",
        errno.EEXIST: "is a file, not a folder; name another",
        errno.ENOTDIR: "is below a file, not a folder; name another",
    }
    if not path.parent.exists():
        reasons[errno.ENOENT] = f"cannot be written: there is no folder {printable(path.parent)}; make it first"
    return f"{printable(path)} {reasons.get(error.errno or 0, f'cannot be used: {error.strerror}')}"
