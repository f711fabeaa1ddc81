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
            speed = bar.tasks[0].speed
            bar.update(task, completed=finished, total=total, rate=f"{speed:.1f} a second" if speed else "")

        yield show
