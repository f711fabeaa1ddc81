"""``centerclip index``, ``status`` and ``remove``: make folders of videos searchable, and keep them so."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .common import AsJson, IndexFolder, progress

if TYPE_CHECKING:
    from ..search import IndexReport, Progress, VideoIndex


MAX_FAILURES_SHOWN = 20  # on the screen; --json has all of them


def index(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[PATH]...", help="Folders and video files.", show_default="those of earlier runs"),
    ] = None,
    folder: IndexFolder = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="Hub name, folder or checkpoint.", show_default="the index's, or openai/clip-vit-base-patch32"
        ),
    ] = None,
    clustering: Annotated[
        str | None,
        typer.Option(help="The paper's notation.", show_default="the index's, or kmedoids[proportional]:B6-4,1/3"),
    ] = None,
    frames: Annotated[
        int | None, typer.Option(min=1, help="Frames per window.", show_default="the index's, or 12")
    ] = None,
    every: Annotated[
        float | None,
        typer.Option(
            min=0.01,
            help="Seconds from frame to frame. Less finds shorter moments, more is faster.",
            show_default="the index's, or 1",
        ),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Keep running: index what changes, until Ctrl-C.")] = False,
    reindex: Annotated[
        bool, typer.Option("--reindex", help="Drop all vectors and encode everything again with these settings.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before --reindex.")] = False,
    retry: Annotated[bool, typer.Option("--retry", help="Try unreadable files again, even if unchanged.")] = False,
    decoders: Annotated[
        int | None, typer.Option(min=1, help="Files read at the same time.", show_default="half the cores, at most 4")
    ] = None,
    as_json: AsJson = False,
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
    video_index = VideoIndex(folder, model=model, clustering=clustering, frames=frames, every=every)
    _run(video_index, paths or [], reindex, retry, decoders, as_json)
    if watch:
        _watch(video_index, decoders, as_json)


def _run(
    video_index: "VideoIndex",
    paths: list[Path],
    reindex: bool,
    retry: bool,
    decoders: int | None,
    as_json: bool,
    only_news: bool = False,
) -> None:
    with progress("indexing", quiet=as_json) as bar:

        def show(at: "Progress") -> None:
            bar(at.finished, at.total, f"{at.video_seconds / max(at.seconds, 1e-6):.1f} hours of video an hour")

        report = video_index.add(*paths, reindex=reindex, retry=retry, decoders=decoders, on_progress=show)
    if only_news and not (report.added or report.recognised or report.removed):
        return
    if as_json:
        typer.echo(json.dumps(asdict(report)))
    else:
        _print_report(report)


def _announce(video_index: "VideoIndex", paths: list[Path], *, ask: bool) -> None:
    """Say what --reindex will do, and ask."""
    from ..search import DamagedIndex, IndexNotFound

    try:
        status = video_index.status()
        roots = ", ".join(dict.fromkeys(str(path) for path in [*status.roots, *paths]))
        plan = (
            f"--reindex drops the vectors of {status.videos:,} videos ({status.hours:.1f} hours, made with "
            f"{status.model}, {status.clustering}) and encodes everything in {roots or 'no folder'} again."
        )
    except IndexNotFound:
        return
    except DamagedIndex:
        plan = f"--reindex makes the index {video_index.folder} again from scratch; as it is, it cannot be opened."
    typer.echo(f"{plan} The videos themselves are not touched.", err=True)
    if ask:
        typer.confirm("Continue?", abort=True, err=True)


def _watch(video_index: "VideoIndex", decoders: int | None, as_json: bool) -> None:
    """Index again whenever something changes below the roots."""
    from watchfiles import watch

    roots = [root for root in video_index.status().roots if root.exists()]
    if not as_json:
        typer.echo(f"Watching {', '.join(map(str, roots))}; Ctrl-C stops.", err=True)
    up_to_date = False
    # A file that is being copied changes all the time: wait until nothing has for a moment.
    for changes in watch(
        *roots, debounce=5000, step=1000, rust_timeout=1000, yield_on_timeout=True, raise_interrupt=True
    ):
        # What came between the run before and the start of the watch is not among its changes: look once more.
        if changes or not up_to_date:
            _run(video_index, [], False, False, decoders, as_json, only_news=not changes)
        up_to_date = True


def _print_report(report: "IndexReport") -> None:
    done = [f"{report.added:,} added" if report.added else "nothing new"]
    for count, text in (
        (report.recognised, "recognised (moved, copied or touched)"),
        (report.unchanged, "unchanged"),
        (report.removed, "gone and dropped"),
        (len(report.failed), "unreadable"),
    ):
        if count:
            done.append(f"{count:,} {text}")
    line = ", ".join(done) + f", in {report.seconds:.1f} s"
    if report.added:
        speed = report.video_seconds / report.seconds
        line += f" ({report.video_seconds / 3600:.2f} hours of video, {speed:.1f} hours an hour)"
    typer.echo(line + ".")
    for root in report.not_dropped:
        typer.echo(
            f"Not dropped: all videos of {root} are missing. Is a disk not connected? If they are gone for good, run "
            f"centerclip remove {root}",
            err=True,
        )
    if report.failed:
        shown = [f"  {path!r}: {reason}" for path, reason in list(report.failed.items())[:MAX_FAILURES_SHOWN]]
        more = len(report.failed) - MAX_FAILURES_SHOWN
        rest = [f"  ... and {more:,} more; centerclip status lists them all"] if more > 0 else []
        typer.echo("\n".join(["Unreadable:", *shown, *rest]), err=True)


def status(folder: IndexFolder = None, as_json: AsJson = False) -> None:
    """Show what is in the index: videos, hours, size, model, and the files that could not be read."""
    from ..search import VideoIndex

    status = VideoIndex(folder, create=False).status()
    if as_json:
        content = asdict(status) | {"folder": str(status.folder), "roots": [str(root) for root in status.roots]}
        typer.echo(json.dumps(content, indent=2))
        return
    copies = status.files - status.videos
    lines = [
        ("index", f"{status.folder}{'  (being written now)' if status.busy else ''}"),
        ("folders", ", ".join(str(root) for root in status.roots) or "none"),
        ("videos", f"{status.videos:,}" + (f", and {copies:,} copies of them" if copies else "")),
        ("length", f"{status.hours:.2f} hours"),
        ("segments", f"{status.segments:,}"),
        ("size", _size(status.bytes)),
        ("model", status.model),
        ("setting", f"{status.clustering}, windows of {status.frames} frames, one frame every {status.every:g} s"),
        ("search", "exact" if status.recall == 1 else f"approximate, finds {status.recall:.1%} of the best segments"),
        ("failures", f"{len(status.failed):,}"),
    ]
    for name, value in lines:
        typer.echo(f"{name:9} {value}")
    for path, reason in status.failed.items():
        typer.echo(f"  {path!r}: {reason}")


def remove(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="Files and folders to drop from the index.")],
    folder: IndexFolder = None,
    as_json: AsJson = False,
) -> None:
    """Drop files and folders from the index. The videos themselves are not touched."""
    from ..search import VideoIndex

    count = VideoIndex(folder, create=False).remove(*paths)
    if as_json:
        typer.echo(json.dumps({"removed": count}))
    else:
        typer.echo(f"{count:,} files dropped from the index.")
    if not count:
        typer.echo(f"centerclip: not in the index: {', '.join(map(str, paths))}", err=True)
        raise typer.Exit(1)


def _size(count: int) -> str:
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.1f} MB"
