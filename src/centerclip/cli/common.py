"""What several commands share: options, the progress bar, times and paths as they are printed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    pass


IndexFolder = Annotated[
    Path | None,
    typer.Option(
        "--index",
        envvar="CENTERCLIP_INDEX",
        help="Folder of the index.",
        show_default="the user's data folder",
    ),
]


@contextmanager
def progress(title: str, *, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr with rate and time left; yields what to call with (finished, total)."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn(title),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), disable=quiet, transient=True) as bar:
        task = bar.add_task(title, total=None, rate="")

        def show(finished: int, total: int) -> None:
            bar.update(task, completed=finished, total=total, rate=_rate(bar.tasks[0].speed))

        yield show


def _rate(speed: float | None) -> str:
    if not speed:
        return ""
    return f"{speed:.1f} a second" if speed >= 1 else f"{60 * speed:.1f} a minute"


def clock(seconds: float) -> str:
    """A time as ``1:02:03`` or ``2:03``."""
    whole = int(seconds)
    return (
        f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}" if whole >= 3600 else f"{whole // 60}:{whole % 60:02}"
    )


def _text(path: Path) -> str:
    """A path that can be printed: names may hold control codes, or not be valid text."""
    text = str(path).encode(errors="surrogateescape").decode(errors="replace")
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
