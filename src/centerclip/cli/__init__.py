"""The command line: one small file per command group. Heavy modules are imported inside commands only."""

import sys

import typer

from .. import __version__
from ..errors import CenterClipError
from . import bench, data, demo, doctor, evaluate, features, index, report, search, serve, show, train

app = typer.Typer(
    name="centerclip",
    help="Find videos, and the moment inside them, with words.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

# The order is that of `centerclip --help`: what most people use first.
for command in (
    index.index,
    search.search,
    index.status,
    index.remove,
    serve.serve,
    show.show,
    demo.demo,
    doctor.doctor,
    train.train,
    evaluate.evaluate,
    features.features,
):
    app.command()(command)
app.add_typer(data.app, name="data")
app.add_typer(bench.app, name="bench")
app.add_typer(report.app, name="report")


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


def main() -> None:
    """Run the command line. Exit codes: 0 done, 1 could not be done, 2 wrong usage, 130 interrupted."""
    try:
        app()
    except CenterClipError as error:
        typer.echo(f"centerclip: {error}", err=True)
        sys.exit(1)
    except KeyboardInterrupt:
        typer.echo("centerclip: interrupted", err=True)
        sys.exit(130)
