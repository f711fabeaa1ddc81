"""``centerclip search``: find videos, and the moment inside them."""

import csv
import json
import math
import os
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Argument, Option

from .common import AsJson, Device, IndexFolder, clock, count, printable

if TYPE_CHECKING:
    from ..search import Hit, Moment, Results, VideoIndex
    from ..video.subtitles import Line


COLUMNS = ("rank", "score", "path", "start", "end", "duration", "video_id", "found_by", "text", "fps", "timecode_start",
           "timecode_end")  # fmt: skip
# How a hit says why it was found, by where its line comes from.
REASONS = {
    "subtitle": "said at {time}: {text}",
    "spoken": "said at {time}: {text}",
    "written": "written at {time}: {text}",
    "chapter": "chapter at {time}: {text}",
    "title": "in the title: {text}",
    "description": "in the description: {text}",
    "name": "in the name",
}
TIMELINES = (".edl", ".fcpxml", ".otio", ".xml")
MAX_SHOWN_LETTERS = 200  # of a line; --json has all of it


def seconds(text: str) -> float:
    """A length as people write it: ``90``, ``90s``, ``1:30`` or ``1:02:03``."""
    try:
        parts = [float(part) for part in text.removesuffix("s").split(":")]
    except ValueError:
        parts = [-1.0]
    if min(parts) < 0 or len(parts) > 3 or not math.isfinite(sum(parts)):
        raise typer.BadParameter(f"{text!r} is not a length of time; write seconds, or 1:30")
    return sum(part * 60**place for place, part in enumerate(reversed(parts)))


def search(
    words: Annotated[
        list[str] | None,
        Argument(metavar="SENTENCE", help="What the video shows, or what is said in it.", show_default=False),
    ] = None,
    folder: IndexFolder = None,
    image: Annotated[Path | None, Option(help="Find what looks like this image.")] = None,
    video: Annotated[Path | None, Option(help="Find what looks like this clip.")] = None,
    where: Annotated[
        Literal["all", "video", "text"],
        Option("--in", help="Match the picture (video), what is said and written (text), or both (all)."),
    ] = "all",
    top: Annotated[int, Option("--top", "-n", min=1, help="Maximum number of hits.")] = 10,
    moments: Annotated[bool, Option("--moments", help="Rank moments: a video can appear more than once.")] = False,
    below: Annotated[Path | None, Option("--folder", help="Only files in this folder and its sub-folders.")] = None,
    name: Annotated[str | None, Option(help="Only files with this in their name, or a pattern: 'IMG_*'.")] = None,
    min_duration: Annotated[
        float | None, Option(parser=seconds, metavar="TIME", help="Only videos at least this long: 90 or 1:30.")
    ] = None,
    max_duration: Annotated[
        float | None, Option(parser=seconds, metavar="TIME", help="Only videos at most this long: 90 or 1:30.")
    ] = None,
    after: Annotated[
        str | None,
        Option(metavar="DATE", help="Only files changed on or after this date: 2024, 2024-05 or 2024-05-31."),
    ] = None,
    before: Annotated[str | None, Option(metavar="DATE", help="Only files changed before this date.")] = None,
    recorded_after: Annotated[
        str | None,
        Option(metavar="DATE", help="Only videos recorded on or after this date, according to their metadata."),
    ] = None,
    recorded_before: Annotated[
        str | None, Option(metavar="DATE", help="Only videos recorded before this date.")
    ] = None,
    camera: Annotated[str | None, Option(help="Only this camera: part of its make or model.")] = None,
    near: Annotated[
        str | None,
        Option(metavar="LAT,LON,KM", help="Only videos recorded within KM kilometres of a place: 52.37,4.89,10."),
    ] = None,
    only: Annotated[Literal["all", "videos", "photos"], Option(help="Search only videos or only photos.")] = "all",
    min_score: Annotated[float | None, Option(help="Leave out hits with a lower score.")] = None,
    show_all: Annotated[bool, Option("--all", help="List near-duplicates as separate hits.")] = False,
    sharpen: Annotated[
        bool,
        Option(
            "--sharpen", help="Index the moments of the first five hits again, at --detail fine, and search once more."
        ),
    ] = False,
    save: Annotated[Path | None, Option(metavar="DIR", help="Save each hit as a clip in this folder.")] = None,
    exact: Annotated[
        bool, Option("--exact", help="With --save: start at the exact frame, by re-encoding instead of copying.")
    ] = False,
    handles: Annotated[
        float,
        Option(
            parser=seconds, metavar="TIME", help="Time added before and after each moment by --save and --timeline."
        ),
    ] = "0.5",  # type: ignore[assignment] # a parser is given text
    timeline: Annotated[
        Path | None,
        Option(metavar="FILE", help="Save the hits as a timeline for an editor: .edl, .fcpxml, .otio or .xml (FCP 7)."),
    ] = None,
    m3u: Annotated[
        Path | None,
        Option("--m3u", metavar="FILE", help="Save the hits as a playlist for VLC, or as FILE.mpv.m3u for mpv."),
    ] = None,
    chapters: Annotated[
        Path | None, Option(metavar="DIR", help="Save the moments of each video as chapters (WebVTT) in this folder.")
    ] = None,
    open_player: Annotated[bool, Option("--open", help="Play the best moment in a video player.")] = False,
    thumbnails: Annotated[
        bool | None,
        Option("--thumbnails/--no-thumbnails", help="Show a frame of each hit.", show_default="if the terminal can"),
    ] = None,
    device: Device = None,
    as_json: AsJson = False,
    as_csv: Annotated[bool, Option("--csv", help="Print comma-separated values.")] = False,
) -> None:
    """Search by a sentence, an image or a clip.

    They combine: "like this clip, but at night". Words are also looked up in subtitles, chapters, titles and file
    names, where '"as it stands"' matches that exact phrase, and zep* every word that begins with zep.
    """
    sentence = " ".join(words) if words else None
    if sentence is None and image is None and video is None:
        raise typer.BadParameter("nothing to search for: give a sentence, --image or --video")
    if sentence is not None and not sentence.strip():
        raise typer.BadParameter("the sentence is empty")
    if timeline is not None and timeline.suffix.lower() not in TIMELINES:
        raise typer.BadParameter(
            f"{timeline} is not a timeline file; its name must end in {', '.join(TIMELINES)}", param_hint="--timeline"
        )
    if as_json and as_csv:
        raise typer.BadParameter("give either --json or --csv")
    if where == "text" and (sentence is None or image is not None or video is not None):
        raise typer.BadParameter("--in text needs a sentence, without --image and --video")
    # One sentence gains nothing from NumPy's threads, and on a busy machine waits for them. Before NumPy is imported.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from ..search import SearchError, VideoIndex
    from ..search.filters import near_of, seconds_of
    from ..search.query import is_english

    dates = {"--after": after, "--before": before}
    dates |= {"--recorded-after": recorded_after, "--recorded-before": recorded_before}
    try:
        around = near_of(near, option="--near")
        for option, date in dates.items():
            seconds_of(date, option=option)
    except SearchError as error:
        raise typer.BadParameter(str(error)) from error
    index = VideoIndex(folder, device=device, create=False)
    filters: dict[str, Any] = {
        "folder": below, "name": name, "min_duration": min_duration, "max_duration": max_duration,
        "camera": camera, "near": around, "min_score": min_score,
        **{option.strip("-").replace("-", "_"): date for option, date in dates.items()},
    }  # fmt: skip
    find = partial(
        index.search,
        sentence,
        image=image,
        video=video,
        where=where,
        top=top,
        moments=moments,
        collapse=not show_all,
        only=only,
        **filters,
    )
    results = find()
    if sharpen:
        try:
            results = find() if index.sharpen(results) else results
        except SearchError as error:  # somebody else writes, or nobody may: what was found is still worth showing
            typer.echo(f"centerclip: not sharpened: {error}", err=True)
    if sentence is not None and not any(hit.found_by == "text" for hit in results) and not is_english(sentence):
        warning = "this does not look like English, the only language that most models understand."
        typer.echo(f"centerclip: {warning}", err=True)
    if as_json:
        typer.echo(json.dumps(as_object(results), indent=2))
    elif as_csv:
        _print_csv(results)
    else:
        if not len(results):
            filtered = only != "all" or any(value is not None for value in filters.values())
            typer.echo(_why_nothing(index, where, filtered=filtered))
        _print_hits(results, thumbnails)
    wanted = sentence or "like " + " and ".join(path.name for path in (image, video) if path is not None)
    _write_files(results, wanted, save, exact, handles, timeline, m3u, chapters)
    if open_player and len(results):
        _play(results[0])


def as_object(results: "Results") -> dict[str, Any]:
    """Results as ``--json`` prints them."""
    return {
        "convincing": results.convincing,
        "confidence": round(results.confidence, 4),
        "hits": [
            {
                "video_id": hit.video_id,
                "path": printable(hit.path),
                "kind": "photo" if hit.is_photo else "video",
                **_span(hit),
                "grade": hit.grade,
                "duration": round(hit.duration, 3),
                "offline": hit.offline,
                "confidence": round(hit.confidence, 4),
                "found_by": hit.found_by,
                "line": None if hit.line is None else asdict(hit.line),
                "moments": [_span(moment) for moment in hit.moments],
                "copies": [printable(path) for path in hit.copies],
                "duplicates": [printable(path) for path in hit.duplicates],
            }
            for hit in results
        ],
    }


def _span(found: "Hit | Moment") -> dict[str, float]:
    return {"start": round(found.start, 3), "end": round(found.end, 3), "score": round(found.score, 5)}


def _print_csv(results: "Results") -> None:
    from ..integrations.timelines import read_clip
    from ..video.errors import VideoError
    from ..video.info import timing_of

    def timecodes(hit: "Hit") -> list[str]:
        try:
            clip = read_clip(hit, timing_of(hit.path))
        except VideoError:  # the disk may not be connected
            return ["", "", ""]
        return [f"{float(clip.timing.rate):.5g}", clip.timecode(clip.first), clip.timecode(clip.last)]

    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(COLUMNS)
    for rank, hit in enumerate(results, 1):
        times = (f"{value:.3f}" for value in (hit.start, hit.end, hit.duration))
        text = "" if hit.line is None else hit.line.text
        row = [rank, f"{hit.score:.5f}", printable(hit.path), *times, hit.video_id, hit.found_by, text]
        writer.writerow(row + timecodes(hit))


def _why_nothing(index: "VideoIndex", where: str, *, filtered: bool) -> str:
    if not index.status().videos:
        return f"The index {index.address} is empty. Add videos with: centerclip index FOLDER"
    if where == "text":
        return "Nothing found: none of these words is in a subtitle, chapter, title or file name."
    return f"Nothing found: no {'video passes the filters' if filtered else 'other video is in the index'}."


def _print_hits(results: "Results", thumbnails: bool | None) -> None:
    from rich.console import Console

    console = Console(soft_wrap=True, highlight=False)
    for rank, hit in enumerate(results, 1):
        if rank == results.likely + 1:
            console.print("Less likely:" if results.likely else "Probably none of these matches. The closest ones:")
        _print_hit(console, rank, hit)
    if thumbnails or (thumbnails is None and console.is_terminal and console.color_system == "truecolor"):
        from ..plots.hits import print_thumbnails

        print_thumbnails(results.hits, force=bool(thumbnails))


def _print_hit(console: Any, rank: int, hit: "Hit") -> None:
    from rich.text import Text

    other_moments = ", ".join(f"{clock(m.start)}-{clock(m.end)}" for m in hit.moments[1:])
    doubt = "?" if hit.grade == "maybe" else " "
    line = Text(f"{rank:3}  {hit.score:.3f}{doubt} ")
    times = "photo" if hit.is_photo else f"{clock(hit.start)}-{clock(hit.end)}"
    line.append(times.ljust(13), style="bold")
    line.append(f"  {printable(hit.path)}{' (offline)' if hit.offline else ''}")
    console.print(line)
    notes = [] if hit.line is None else [_reason(hit.line)]
    notes += [f"also {other_moments}"] if other_moments else []
    notes += [f"copy: {printable(path)}" for path in hit.copies]
    notes += [f"near-duplicate: {printable(path)}" for path in hit.duplicates]
    for note in notes:
        console.print(Text(f"            {note}", style="dim"))


def _reason(line: "Line") -> str:
    """``said at 12:31: "..."``."""
    text = printable(line.text)
    shown = text if len(text) <= MAX_SHOWN_LETTERS else f"{text[:MAX_SHOWN_LETTERS]}..."
    return REASONS[line.source].format(time=clock(line.start), text=f'"{shown}"')


def _write_files(
    results: "Results",
    title: str,
    save: Path | None,
    exact: bool,
    handles: float,
    timeline: Path | None,
    m3u: Path | None,
    chapters: Path | None,
) -> None:
    from ..errors import CenterClipError
    from ..files import write_atomic
    from ..search import export

    if m3u is not None:
        write_atomic(m3u, export.playlist(results.hits, mpv=m3u.name.endswith(".mpv.m3u")))
        listed = sum(not hit.is_photo for hit in results)
        typer.echo(f"{count(listed, 'moment')} in {printable(m3u)}", err=True)
    if chapters is not None:
        for path in export.save_chapters(results.hits, chapters, title):
            typer.echo(f"saved {printable(path)}", err=True)
    if timeline is not None:
        from ..integrations.timelines import make_timeline, write_timeline

        made = make_timeline(results, title, handles=handles)
        write_atomic(timeline, write_timeline(made, timeline.suffix.lower()))
        typer.echo(f"{count(len(made.clips), 'moment')} at {made.rate_name} in {printable(timeline)}", err=True)
        for name, reason in made.left_out.items():
            typer.echo(f"centerclip: left out of the timeline: {printable(name)}: {reason}", err=True)
    failed = 0
    for hit in results:
        if save is None:
            break
        try:
            typer.echo(f"saved {printable(export.save_clip(hit, save, exact=exact, handles=handles))}", err=True)
        except CenterClipError as error:
            failed += 1
            typer.echo(f"centerclip: {error}", err=True)
    if failed:
        raise typer.Exit(1)


def _play(hit: "Hit") -> None:
    from ..integrations.desktop import play

    if hit.is_photo:
        play(hit.path, None)
        typer.echo(f"opened {printable(hit.path)}", err=True)
        return
    player = play(hit.path, hit.start)
    where = f"in {player} from {clock(hit.start)}" if player else f"from its start; the moment is at {clock(hit.start)}"
    typer.echo(f"playing {printable(hit.path)} {where}", err=True)
