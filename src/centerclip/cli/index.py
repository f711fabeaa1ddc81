"""``centerclip index``, ``status`` and ``remove``: make folders of videos searchable, and keep them so."""

import itertools
import json
import shlex
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Argument, Option

from ..model.known import DEFAULT_MODEL
from ..video.sampling import ORDER, DetailName
from .common import AsJson, Device, IndexFolder, count, length, printable, progress, size

if TYPE_CHECKING:
    from ..search import IndexReport, VideoIndex
    from ..search.recognise import Recogniser


RETRY_SECONDS = 1.0  # how long --watch waits for another process that writes to the index
LEFT_OUT = {"videos": ["all photographs"], "photos": ["all videos"]}  # by --only
MAX_FAILURES_SHOWN = 20  # on the screen; --json has all of them


def index(
    paths: Annotated[
        list[str] | None,
        Argument(
            metavar="PATH",
            help="Folders and files, also s3:// and gs:// addresses; a .txt file names a file in each line.",
            show_default="those of earlier runs",
        ),
    ] = None,
    folder: IndexFolder = None,
    model: Annotated[
        str | None,
        Option(
            help=f"small, fast, best or multilingual (see `centerclip models`), a hub name, a folder or a checkpoint. "
            f"A new index takes {DEFAULT_MODEL}, or small where the hub cannot be reached.",
            show_default="the index's",
        ),
    ] = None,
    clustering: Annotated[
        str | None,
        Option(
            help="Token clustering. A new index keeps a third of the tokens, after half of the blocks.",
            show_default="the index's",
        ),
    ] = None,
    frames: Annotated[
        int | None, Option(min=1, help="Frames encoded together, in one window.", show_default="the index's, or 12")
    ] = None,
    every: Annotated[
        float | None,
        Option(
            min=0.01,
            help="Seconds between frames with --detail fine. Fewer find shorter moments, more are faster.",
            show_default="the index's, or 1",
        ),
    ] = None,
    detail: Annotated[
        DetailName | None,
        Option(
            help="Frames to read, now and later. fast: keyframes only; normal: the cheapest, at most 5 s apart; "
            "fine: one every --every seconds.",
            show_default="the index's, or normal",
        ),
    ] = None,
    finer: Annotated[
        bool,
        Option(
            "--finer",
            help="Also index videos again one level finer, up to --detail. What searches found last comes first.",
        ),
    ] = False,
    watch: Annotated[bool, Option("--watch", help="Keep running and index changes, until Ctrl-C.")] = False,
    reindex: Annotated[
        bool, Option("--reindex", help="Drop all vectors and encode everything again with these settings.")
    ] = False,
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask before --reindex.")] = False,
    retry: Annotated[
        bool, Option("--retry", help="Try unreadable files again, even if they have not changed.")
    ] = False,
    exclude: Annotated[
        list[str] | None,
        Option(metavar="PATTERN", help="Skip files by a pattern of names or paths, now and in later runs. Repeatable."),
    ] = None,
    only: Annotated[
        Literal["all", "videos", "photos"] | None,
        Option(help="Index only videos or only photos, now and in later runs.", show_default="the index's, or all"),
    ] = None,
    moved: Annotated[
        tuple[str, Path] | None,
        Option(
            metavar="OLD NEW",
            help="Tell the index that a folder is at another path now. Nothing is indexed.",
        ),
    ] = None,
    transcribe: Annotated[
        str | None,
        Option(
            metavar="MODEL",
            help="Also index speech, with a Whisper model: a folder, or a name to download (tiny, base, small ...).",
        ),
    ] = None,
    read_text: Annotated[
        bool, Option("--read-text", help="Also index text in the picture, such as slides and signs.")
    ] = False,
    decoders: Annotated[
        int | None, Option(min=1, help="Files read in parallel.", show_default="half the cores, at most 4")
    ] = None,
    hwaccel: Annotated[
        str,
        Option(metavar="auto|none|NAME", help="Hardware decoding: cuda, qsv, videotoolbox, d3d11va ..."),
    ] = "none",
    ray: Annotated[
        str | None,
        Option(metavar="auto|ADDRESS", help="Encode on a Ray cluster whose nodes see the same paths."),
    ] = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Index videos and photos.

    A later run encodes new and changed files, follows those that moved, and drops those that are gone.
    """
    from ..cluster import Setting
    from ..search import VideoIndex

    if clustering is not None:
        try:
            clustering = str(Setting.parse(clustering))
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--clustering") from error
    if moved is not None:
        if paths or reindex or watch:
            raise typer.BadParameter("--moved only changes paths in the index: leave out paths, --reindex and --watch")
        files = VideoIndex(folder, create=False).move_root(*moved)
        typer.echo(json.dumps({"moved": files}) if as_json else f"{count(files, 'file')} of the index moved.")
        return
    recognisers: list[Recogniser] = []
    if transcribe is not None or read_text:
        from ..search.recognise import open_picture_text, open_speech

        recognisers += [open_speech(transcribe, device)] if transcribe is not None else []
        recognisers += [open_picture_text()] if read_text else []
    if reindex:
        _announce(VideoIndex(folder), paths or [], ask=not (yes or as_json))
    video_index = VideoIndex(folder, model=model, clustering=clustering, frames=frames, every=every, device=device)
    runner = None
    if ray is not None:
        from ..integrations.ray import index_with_ray

        runner = partial(index_with_ray, address=ray, device=device)
    run = partial(
        _run, video_index, as_json, recognisers=recognisers, decoders=decoders, hwaccel=hwaccel, runner=runner
    )
    first = partial(
        run, paths or [], reindex=reindex, retry=retry, exclude=exclude or [], only=only, detail=detail, finer=finer
    )
    if watch:
        _when_free(first)
        _watch(video_index, as_json, partial(run, [], only_news=True))
    else:
        first()


def _run(video_index: "VideoIndex", as_json: bool, paths: list[str], only_news: bool = False, **options: Any) -> None:
    """Index, with the options of :meth:`VideoIndex.add`, and print what was done."""
    from ..errors import Interrupted
    from ..search import Progress

    last = Progress(0, 0, 0, 0)
    with progress("indexing", quiet=as_json) as bar:

        def show(at: "Progress") -> None:
            nonlocal last
            last = at
            bar.indexing(at)

        try:
            with warnings.catch_warnings():
                warnings.showwarning = lambda message, *_: typer.echo(f"centerclip: {message}", err=True)
                report = video_index.add(*paths, on_progress=show, **options)
        except KeyboardInterrupt as interrupt:
            done = "indexed" if last.task == "indexing" else "read"
            videos = f"{last.finished:,} of {last.total:,} videos are {done} and kept"
            kept = videos if last.total else "nothing is lost"
            raise Interrupted(f"stopped: {kept}. Run the same command again to continue") from interrupt
    news = report.added or report.recognised or report.removed or report.texts or report.refined
    if only_news and not news and len(report.failed) == len(report.failed_before):
        return
    if as_json:
        typer.echo(json.dumps(asdict(report)))
    else:
        _print_report(report)


def _when_free(run: Callable[[], None]) -> None:
    """Index as soon as no other process does."""
    from ..search import IndexBusy

    for attempt in itertools.count():
        try:
            return run()
        except IndexBusy as error:
            if not attempt:
                typer.echo(f"centerclip: {error}; waiting", err=True)
            time.sleep(RETRY_SECONDS)


def _announce(video_index: "VideoIndex", paths: list[str], *, ask: bool) -> None:
    """Say what --reindex will do, and ask."""
    from ..search import DamagedIndex, IndexNotFound

    try:
        status = video_index.status()
        roots = ", ".join(dict.fromkeys(str(path) for path in [*status.roots, *paths]))
        plan = (
            f"--reindex drops the vectors of {count(status.videos, 'video')} ({length(3600 * status.hours)}, made with "
            f"{status.model}, {status.clustering}) and encodes everything in {roots or 'no folder'} again."
        )
    except IndexNotFound:
        return
    except DamagedIndex:
        plan = f"--reindex makes the index {video_index.address} again from scratch; as it is, it cannot be opened."
    typer.echo(f"{plan} The videos themselves are not touched.", err=True)
    if ask:
        typer.confirm("Continue?", abort=True, err=True)


def _watch(video_index: "VideoIndex", as_json: bool, run: Callable[[], None]) -> None:
    """Index again whenever something changes below the roots."""
    from watchfiles import watch

    from ..errors import Interrupted, SearchError
    from ..files import is_address

    roots = [root for root in video_index.status().roots if not is_address(root) and root.exists()]
    if not roots:
        raise SearchError("--watch needs a folder of this machine in the index; lists and addresses are not watched")
    if not as_json:
        typer.echo(f"Watching {', '.join(map(str, roots))}; Ctrl-C stops.", err=True)
    up_to_date = False
    try:
        # A file that is being copied changes all the time: wait until nothing has for a moment.
        for changes in watch(
            *roots, debounce=5000, step=1000, rust_timeout=1000, yield_on_timeout=True, raise_interrupt=True
        ):
            # What came between the run before and the start of the watch is not among its changes: look once more.
            if changes or not up_to_date:
                _when_free(run)
            up_to_date = True
    except KeyboardInterrupt as interrupt:
        raise Interrupted("stopped watching; the index is up to date") from interrupt


def _print_report(report: "IndexReport") -> None:
    counts = {
        "indexed more finely": report.refined,
        "recognised (moved, copied or touched)": report.recognised,
        "unchanged": report.unchanged,
        "gone and dropped": report.removed,
        "with new text": report.texts,
        "unreadable": len(report.failed),
    }
    done = [f"{report.added:,} added" if report.added else "nothing new"]
    done += [f"{number:,} {text}" for text, number in counts.items() if number]
    amount = f" ({length(report.video_seconds)} of video)" if report.added or report.refined else ""
    took = f", in {length(report.seconds)}" if report.seconds >= 1 else ""
    typer.echo(f"{', '.join(done)}{took}{amount}.")
    for root in report.not_dropped:
        typer.echo(
            f"Not dropped: all videos of {printable(root)} are missing. Is a disk not connected? If they are gone for "
            f"good, run: centerclip remove {shlex.quote(printable(root))}",
            err=True,
        )
    for path, reason in report.text_failed.items():
        typer.echo(f"Text not read: {printable(path)}: {reason}", err=True)
    earlier = set(report.failed_before)
    failed = [f"  {printable(path)}: {reason}" for path, reason in report.failed.items() if path not in earlier]
    lines = ["Unreadable:", *failed[:MAX_FAILURES_SHOWN]] if failed else []
    more = len(report.failed) - len(failed[:MAX_FAILURES_SHOWN])
    if more:
        lines.append(f"  {f'... and {more:,} more' if failed else f'{more:,} as before'}; see centerclip status")
    if lines:
        typer.echo("\n".join(lines), err=True)


def status(folder: IndexFolder = None, as_json: AsJson = False) -> None:
    """Show what is in the index.

    Videos, hours, size, model, and the files that could not be read.
    """
    from ..search import VideoIndex

    status = VideoIndex(folder, create=False).status()
    if as_json:
        content = asdict(status) | {"folder": str(status.folder)}
        content |= {name: [printable(root) for root in content[name]] for name in ("roots", "offline_roots")}
        typer.echo(json.dumps(content, indent=2))
        return
    copies = status.files - status.videos
    more = f", and {count(copies, 'more copy', 'more copies')} of them" if copies else ""
    away = f"{count(status.offline, 'video')} in {', '.join(map(printable, status.offline_roots))}: not connected?"
    lines = {
        "index": f"{status.folder}{'  (being written now)' if status.busy else ''}",
        "folders": ", ".join(str(root) for root in status.roots) or "none",
        "videos": f"{status.videos - status.photos:,}{more}",
        "photos": f"{status.photos:,}",
        "offline": away if status.offline_roots else "none",
        "length": length(3600 * status.hours),
        "segments": f"{status.segments:,}",
        "size": size(status.bytes),
        "model": f"{status.model}, in {status.precision}",
        "setting": f"{status.clustering}, windows of {status.frames} frames, {status.every:g} s a frame if fine",
        "detail": ", ".join(f"{status.details[name]:,} {name}" for name in ORDER if name in status.details) or "none",
        "search": ("exact" if status.recall == 1 else f"approximate, finds {status.recall:.1%} of the best segments")
        + ("" if status.finds_text else "; of what is shown alone: words need Milvus 2.5 or newer"),
        "left out": ", ".join([*LEFT_OUT.get(status.only, []), *map(printable, status.ignore)]) or "nothing",
        "failures": f"{len(status.failed):,}",
    }
    for name, value in lines.items():
        typer.echo(f"{name:9} {value}")
    for path, reason in status.failed.items():
        typer.echo(f"  {printable(path)}: {reason}")


def copy(
    source: Annotated[str, Argument(metavar="SOURCE", help="An index: a folder, or milvus://HOST:19530/NAME.")],
    target: Annotated[str, Argument(metavar="TARGET", help="Another index: a new one, or one of the same model.")],
    as_json: AsJson = False,
) -> None:
    """Copy an index to another store.

    Between a folder and a Milvus server; nothing is encoded again.
    """
    from ..search.copy import copy_index

    with progress("copying", quiet=as_json) as bar:
        copied = copy_index(source, target, bar)
    if as_json:
        typer.echo(json.dumps(asdict(copied)))
        return
    typer.echo(f"{count(copied.videos, 'video')} and {count(copied.segments, 'segment')} copied to {target}.")


def remove(
    paths: Annotated[list[str], Argument(metavar="PATH", help="Files and folders to remove from the index.")],
    folder: IndexFolder = None,
    as_json: AsJson = False,
) -> None:
    """Remove files and folders from the index.

    Later runs skip them until they are named again. The videos themselves are not touched.
    """
    from ..search import VideoIndex

    dropped = VideoIndex(folder, create=False).remove(*paths)
    if as_json:
        typer.echo(json.dumps({"removed": dropped}))
    else:
        typer.echo(f"{count(dropped, 'file')} removed from the index. Later runs skip them until they are named again.")
    if not dropped:
        typer.echo(f"centerclip: not in the index: {', '.join(map(str, paths))}", err=True)
        raise typer.Exit(1)
