"""``centerclip index``, ``status`` and ``remove``: make folders of videos searchable, and keep them so."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .common import IndexFolder

if TYPE_CHECKING:
    from ..search import IndexReport, Progress, VideoIndex


LISTED = 20  # failures on the screen; --json has all of them


def index(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[PATH]...", help="Folders and video files.", show_default="those of earlier runs"),
    ] = None,
    folder: IndexFolder = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="Hub name, folder or checkpoint.", show_default="the index's own, or openai/clip-vit-base-patch32"
        ),
    ] = None,
    clustering: Annotated[
        str | None,
        typer.Option(help="The paper's notation.", show_default="the index's own, or kmedoids[proportional]:B6-4,49"),
    ] = None,
    frames: Annotated[
        int | None, typer.Option(min=1, help="Frames of a window.", show_default="the index's own, or 12")
    ] = None,
    every: Annotated[
        float | None,
        typer.Option(
            min=0.01,
            help="Seconds from frame to frame. Less finds shorter moments, more is faster.",
            show_default="the index's own, or 1",
        ),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Go on: index what changes, until Ctrl-C.")] = False,
    reindex: Annotated[
        bool, typer.Option("--reindex", help="Forget all vectors and make them again with these settings.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before --reindex.")] = False,
    retry: Annotated[bool, typer.Option("--retry", help="Try unreadable files again that have not changed.")] = False,
    decoders: Annotated[
        int | None, typer.Option(min=1, help="Files read at the same time.", show_default="half the cores, at most 4")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Index videos: encode what is new or changed, follow what moved, drop what is gone."""
    from ..cluster import Setting
    from ..search import VideoIndex

    if clustering is not None:
        try:
            clustering = str(Setting.parse(clustering))
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--clustering") from error
    if reindex:
        _announce(VideoIndex(folder), paths or [], ask=not (yes or as_json))
    opened = VideoIndex(folder, model=model, clustering=clustering, frames=frames, every=every)
    _run(opened, paths or [], reindex, retry, decoders, as_json)
    if watch:
        _watch(opened, decoders, as_json)


def _run(
    opened: "VideoIndex", paths: list[Path], reindex: bool, retry: bool, decoders: int | None, as_json: bool
) -> None:
    with progress_bar(quiet=as_json) as show:
        report = opened.add(*paths, reindex=reindex, retry=retry, decoders=decoders, on_progress=show)
    if as_json:
        typer.echo(json.dumps(asdict(report)))
    else:
        _show(report)


def _announce(opened: "VideoIndex", paths: list[Path], *, ask: bool) -> None:
    """Say what --reindex will do, and ask."""
    from ..search import IndexNotFound

    try:
        status = opened.status()
    except IndexNotFound:
        return
    roots = ", ".join(dict.fromkeys(str(path) for path in [*status.roots, *paths]))
    typer.echo(
        f"--reindex forgets the vectors of {status.videos:,} videos ({status.hours:.1f} hours, made with "
        f"{status.model}, {status.clustering}) and encodes all of {roots or 'nothing'} again. The videos "
        "themselves are not touched.",
        err=True,
    )
    if ask:
        typer.confirm("Go on?", abort=True, err=True)


def _watch(opened: "VideoIndex", decoders: int | None, as_json: bool) -> None:
    """Index again whenever something changes below the roots."""
    from watchfiles import watch

    roots = [root for root in opened.status().roots if root.exists()]
    if not as_json:
        typer.echo(f"Watching {', '.join(map(str, roots))}; Ctrl-C stops.", err=True)
    # A copy that is under way changes all the time: wait until nothing has for a moment.
    for _ in watch(*roots, debounce=5000, step=1000, raise_interrupt=True):
        _run(opened, [], False, False, decoders, as_json)


def _show(report: "IndexReport") -> None:
    done = [f"{report.added:,} added" if report.added else "nothing new"]
    for count, word in (
        (report.recognised, "recognised (moved, copied or touched)"),
        (report.unchanged, "unchanged"),
        (report.removed, "gone and dropped"),
        (len(report.failed), "not readable"),
    ):
        if count:
            done.append(f"{count:,} {word}")
    line = ", ".join(done) + f", in {report.seconds:.1f} s"
    if report.added:
        pace = report.video_seconds / report.seconds
        line += f" ({report.video_seconds / 3600:.2f} hours of video, {pace:.1f} hours an hour)"
    typer.echo(line + ".")
    for root in report.not_dropped:
        typer.echo(
            f"Not dropped: {root} holds none of its videos any more. Is a disk missing? If they are gone for good: "
            f"centerclip remove {root}",
            err=True,
        )
    if report.failed:
        shown = [f"  {path!r}: {reason}" for path, reason in list(report.failed.items())[:LISTED]]
        more = len(report.failed) - LISTED
        rest = [f"  ... and {more:,} more (all of them with --json, or centerclip status)"] if more > 0 else []
        typer.echo("\n".join(["Not readable:", *shown, *rest]), err=True)


@contextmanager
def progress_bar(*, quiet: bool) -> Iterator[Callable[["Progress"], None]]:
    """A bar on stderr: files, files a second, hours of video an hour, time left."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("indexing"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=Console(stderr=True), disable=quiet, transient=True) as bar:
        task = bar.add_task("indexing", total=None, rate="opening the model")

        def show(progress: "Progress") -> None:
            seconds = max(progress.seconds, 1e-6)
            rate = (
                f"{progress.finished / seconds:.1f} videos/s, {progress.video_seconds / seconds:.1f} h of video an hour"
            )
            bar.update(task, completed=progress.finished, total=progress.total, rate=rate)

        yield show


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
