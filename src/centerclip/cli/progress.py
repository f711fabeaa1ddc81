"""A progress bar for anything that takes longer than two seconds."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


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
