"""What several commands share: options, opening a model, the progress bar, and how times and paths are printed."""

import json
import shutil
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from typer import Option

from ..files import valid_text
from ..plots import clock as clock

if TYPE_CHECKING:
    import torch
    from rich.progress import Progress, TaskID
    from rich.table import Table

    from ..model import CenterCLIP
    from ..model.hub import OnBytes
    from ..search import Progress as IndexingProgress


AsJson = Annotated[bool, Option("--json", help="Print JSON, for programs.")]
IndexFolder = Annotated[
    str | None,
    Option(
        "--index",
        envvar="CENTERCLIP_INDEX",
        metavar="DIR",
        help="The index: a folder, or milvus://HOST:19530/NAME.",
        show_default="the user's data folder",
    ),
]
Root = Annotated[Path | None, Option(help="Folder of the videos, with its sub-folders.")]
Annotations = Annotated[
    Path | None, Option(help="Folder of the annotation files.", show_default="ROOT or ROOT/annotations")
]
Clustering = Annotated[
    str | None, Option(help='Token clustering in the paper\'s notation: "B6-4,49".', show_default="the model's")
]
Frames = Annotated[int | None, Option(min=1, help="Frames per video.", show_default="the model's")]
Rule = Annotated[
    Literal["mean", "renormalise"] | None,
    Option(help="How the segments of a video are scored against a sentence.", show_default="the model's"),
]
Protocol = Annotated[
    Literal["published", "clean"] | None,
    Option(
        help="published: the authors' procedure; clean: a more careful one (docs/reproduction.md).",
        show_default="the recipe's, or the model's",
    ),
]
BatchSize = Annotated[int | None, Option(min=1, help="Videos per batch.", show_default="from the free memory")]
Workers = Annotated[int | None, Option(min=0, help="Files decoded in parallel.", show_default="enough for the model")]
Device = Annotated[
    Literal["cpu", "cuda", "mps"] | None, Option(help="Where the model runs.", show_default="a GPU if there is one")
]
AllowMissing = Annotated[bool, Option("--allow-missing", help="Skip videos whose file is missing.")]
AllowUnreadable = Annotated[bool, Option("--allow-unreadable", help="Skip videos that cannot be decoded.")]


FETCHING = "fetching the model"
_open_bars: "list[ProgressBar]" = []  # a terminal shows one group of bars well, not two


class ProgressBar:
    """Bars on stderr, one for each kind of work: finished of total, a note or the rate, and the time left, about."""

    def __init__(self, bars: "Progress", title: str) -> None:
        self._bars, self._title = bars, title
        self._tasks: dict[str, TaskID] = {}
        if title:
            self._add(title)

    def __call__(self, finished: int, total: int, note: str = "") -> None:
        """Move the bar that :func:`progress` named; the note takes the place of the rate."""
        self.kind(self._title, finished, total, note)

    def kind(self, title: str, finished: int, total: int, note: str = "") -> None:
        """Move the bar of one kind of work, such as ``"videos"``; the first call adds it."""
        self._move(title, finished, total, f"{finished:,} of {total:,}", note)

    def indexing(self, at: "IndexingProgress") -> None:
        """Move the bar with the seconds of video that are encoded: one film moves it too."""
        done = f"{at.finished:,} of {count(at.total, 'video')}"
        self._move(at.task, at.share, 1.0, done, at.note or " ", at.seconds_left)

    def download(self, done: int, total: int) -> None:
        """Move a bar of its own with the bytes of a model that have arrived; it is gone when all have."""
        self._move(FETCHING, done, total, f"{size(done)} of {size(total)}", in_bytes=True)
        if done >= total:
            self._bars.remove_task(self._tasks.pop(FETCHING))

    def _add(self, title: str) -> None:
        self._tasks[title] = self._bars.add_task(title, total=None, count="", note="", left="")

    def _move(
        self,
        title: str,
        done: float,
        total: float,
        count: str,
        note: str = "",
        seconds_left: float | None = None,
        in_bytes: bool = False,
    ) -> None:
        if title not in self._tasks:
            self._add(title)
        task = next(each for each in self._bars.tasks if each.id == self._tasks[title])
        self._bars.update(task.id, completed=done, total=total, count=count, note=note or _rate(task.speed, in_bytes))
        left = task.time_remaining if seconds_left is None else seconds_left
        self._bars.update(task.id, left="" if left is None or done >= total else f"about {length(left)} left")


@contextmanager
def progress(title: str = "", *, quiet: bool = False) -> Iterator[ProgressBar]:
    """The progress bar of every command. It is gone at the end, and absent where stderr is not a terminal.

    Args:
        title: shown at once, before the amount of work is known; empty when :meth:`ProgressBar.kind` names the bars.
        quiet: show nothing: for ``--json``, and for all but the first process of a group.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    console = Console(stderr=True)
    fields = (TextColumn(f"{{task.fields[{name}]}}") for name in ("count", "note", "left"))
    columns = (TextColumn("{task.description}"), BarColumn(), *fields)
    with Progress(*columns, console=console, disable=quiet or not console.is_terminal, transient=True) as bars:
        _open_bars.append(ProgressBar(bars, title))
        try:
            yield _open_bars[-1]
        finally:
            _open_bars.pop()


@contextmanager
def _download_bar() -> "Iterator[OnBytes]":
    with nullcontext(_open_bars[-1]) if _open_bars else progress() as bar:
        yield bar.download


def show_downloads() -> None:
    """Show a bar while a model is fetched from the hub, whichever command needs it."""
    from ..model import hub

    hub.show_downloads(_download_bar)


def _rate(speed: float | None, in_bytes: bool = False) -> str:
    if not speed:
        return ""
    if in_bytes:
        return f"{size(int(speed))} a second"
    return f"{speed:.1f} a second" if speed >= 1 else f"{60 * speed:.1f} a minute"


def make_table(title: str, *columns: str, left: Collection[str] = ("",)) -> "Table":
    """An empty table; its columns are numbers, but for those of ``left``."""
    from rich import box
    from rich.table import Table

    table = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD)
    for column in columns:
        table.add_column(column, justify="left" if column in left else "right", no_wrap=True)
    return table


def print_json(content: object) -> None:
    """Print what a command found, for ``--json``."""
    typer.echo(json.dumps(content, indent=2))


def count(number: int, one: str, many: str = "") -> str:
    """``1 video``, ``1,200 videos``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def length(seconds: float) -> str:
    """How long something takes or is, in words: ``6 seconds``, ``12 min``, ``2.5 hours``."""
    whole = round(seconds)
    if whole < 60:
        return count(whole, "second")
    return f"{round(seconds / 60)} min" if whole < 3570 else f"{seconds / 3600:.1f} hours"


def size(count: int) -> str:
    """Bytes, as ``12.3 MB`` or ``1.2 GB``."""
    return f"{count / 1e9:,.1f} GB" if abs(count) >= 1e9 else f"{count / 1e6:,.1f} MB"


def this_command() -> str:
    """How this program is called, in a command to be copied: its name alone if the shell finds that."""
    if shutil.which("centerclip"):
        return "centerclip"
    called = sys.argv[0]
    return called if Path(called).stem == "centerclip" else f"{sys.executable} -m centerclip"


def printable(text: str | Path) -> str:
    """A path, or text with one inside, that can be printed: names may hold control codes, or not be valid text."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in valid_text(text))


def check_names(benchmark: str, split: str, clustering: str | None) -> str:
    """The split by its usual name. Wrong names are wrong usage, and are reported before anything is opened."""
    from ..cluster import Setting
    from ..data.benchmark import format_of, split_names
    from ..errors import CenterClipError

    try:
        format_of(benchmark)
        parts = split_names(split)
        if clustering is not None:
            Setting.parse(clustering)
    except CenterClipError as error:
        raise typer.BadParameter(str(error)) from error
    return "+".join(parts)


def open_model(
    name: str,
    clustering: str | None,
    frames: int | None,
    device: "str | torch.device | None" = None,
    protocol: Literal["published", "clean"] | None = None,
) -> "CenterCLIP":
    """Open a model; the folder of a training run stands for the model of its best epoch."""
    from ..model import CenterCLIP

    folder = Path(name).expanduser()
    best = folder / "best"
    is_run = not (folder / "config.json").exists() and best.is_dir()
    return CenterCLIP.from_pretrained(
        best if is_run else name, clustering=clustering, frames=frames, protocol=protocol, device=device
    )
