"""Makes the whole data set, clips or pictures: in parallel, resumable, and the same for the same seed."""

import time
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from ...errors import DataError
from ...files import write_atomic
from ...parallel import run_each, usable_cores
from .folder import EVENTS_FILE, VERSION, claim, events_text, timed_events, write_captions, write_info
from .plan import plan_clips
from .render import BATCH, PictureJob, PicturePlan, RenderJob, plan_picture, render_clip, render_pictures
from .sentences import clip_captions
from .sprites import INSTALL, check_font, find_font, font_mark
from .world import SPLITS, Kind, Split, world

VAL, TEST = 100, 500  # clips at most; what is beyond them goes into training
VAL_PICTURES = 500
Job = TypeVar("Job")
Progress = Callable[[int, int], None]


@dataclass
class Report:
    """What a run did. ``clips`` counts each split; ``failed`` maps a file to the reason."""

    folder: str
    things: Kind
    clips: dict[Split, int]
    note: str | None = None
    made: int = 0
    skipped: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    bytes: int = 0
    seconds: float = 0.0


def make(
    folder: str | Path,
    *,
    clips: int = 2000,
    seed: int = 0,
    workers: int | None = None,
    things: Kind | None = None,
    font: str | Path | None = None,
    force: bool = False,
    on_progress: Progress | None = None,
) -> Report:
    """Write clips, captions and event times into a folder.

    A clip depends on the seed, its split and its number, so more clips only add to those that are there. A stopped
    run goes on where it was.

    Args:
        folder: a new or empty folder, or one that a run with the same seed and things began.
        clips: of all splits. A quarter is for test, up to 500; one in 20 for val, up to 100; the others for train.
        seed: another seed, other clips of the same world.
        workers: processes, by default one for each core.
        things: ``emoji`` or ``shapes``; by default emoji when their font is found.
        font: an emoji font to use.
        force: remove what an earlier run made in the folder, and start anew.
        on_progress: called with (finished, total) at the start and after each clip.
    """
    began, folder = time.monotonic(), Path(folder).expanduser().absolute()
    counts = clip_counts(clips)
    kind, font_file, note = choose_things(things, font)
    setting = _setting("videos", counts, seed, kind, font_file)
    claim(folder, setting, force=force)
    videos = folder / "videos"
    videos.mkdir(exist_ok=True)
    plans = [plan for split in SPLITS for plan in plan_clips(world(kind), split, counts[split], seed)]
    jobs = [RenderJob(plan, videos / f"{plan.id}.mp4", seed, kind, font_file) for plan in plans]
    todo = [job for job in jobs if not job.target.exists()]
    report = Report(str(folder), kind, counts, note, skipped=len(jobs) - len(todo))
    _run(
        render_clip,
        todo,
        report,
        videos,
        workers=workers,
        on_progress=on_progress,
        size=lambda job: 1,
        name=lambda job: job.target.name,
    )
    made = [plan for plan in plans if f"{plan.id}.mp4" not in report.failed]
    write_captions(folder, ((plan.id, caption, plan.split) for plan in made for caption in clip_captions(plan, seed)))
    write_atomic(folder / EVENTS_FILE, events_text(timed_events(plan, seed) for plan in made))
    return _finish(folder, setting, report, videos, began)


def make_stills(
    folder: str | Path,
    *,
    clips: int = 30_000,
    seed: int = 0,
    workers: int | None = None,
    things: Kind | None = None,
    font: str | Path | None = None,
    force: bool = False,
    on_progress: Progress | None = None,
) -> Report:
    """Write pictures, as videos of one frame, and captions into a folder; arguments as of :func:`make`.

    They show one or two things in a place, only in pairs that training clips show too, so a model that has learnt
    from them still has not seen what val and test clips show. The last 500 (of few, one in 20) are for val.
    """
    began, folder = time.monotonic(), Path(folder).expanduser().absolute()
    if clips < 20:
        raise DataError("20 pictures are the least.")
    val = min(VAL_PICTURES, clips // 20)
    counts: dict[Split, int] = {"train": clips - val, "val": val}
    kind, font_file, note = choose_things(things, font)
    setting = _setting("stills", counts, seed, kind, font_file)
    claim(folder, setting, force=force)
    pictures = folder / "pictures"
    pictures.mkdir(exist_ok=True)
    those = world(kind)
    plans = {split: [plan_picture(those, split, number, seed) for number in range(counts[split])] for split in counts}
    there = {path.stem for path in pictures.glob("*.mp4")}
    todo = [plan for split in counts for plan in plans[split] if plan.id not in there]
    batches = [
        PictureJob(tuple(todo[first : first + BATCH]), pictures, seed, kind, font_file)
        for first in range(0, len(todo), BATCH)
    ]
    report = Report(str(folder), kind, counts, note, skipped=clips - len(todo))
    _run(
        render_pictures,
        batches,
        report,
        pictures,
        workers=workers,
        on_progress=on_progress,
        size=lambda job: len(job.plans),
        name=lambda job: f"{job.plans[0].id} and the {len(job.plans) - 1} after it",
    )
    there = {path.stem for path in pictures.glob("*.mp4")} if report.failed else set()
    rows = ((plan, split) for split in counts for plan in plans[split] if not report.failed or plan.id in there)
    write_captions(folder, _rows(rows))
    return _finish(folder, setting, report, pictures, began)


def clip_counts(clips: int) -> dict[Split, int]:
    """How many clips each split has of so many."""
    if clips < 20:
        raise DataError("20 clips are the least: every split needs some.")
    val, test = min(VAL, clips // 20), min(TEST, clips // 4)
    return {"train": clips - val - test, "val": val, "test": test}


def choose_things(things: Kind | None, font: str | Path | None) -> tuple[Kind, Path | None, str | None]:
    """Which kind of things to draw, with which font, and a note when emoji were wanted by default but cannot be."""
    if things == "shapes":
        return "shapes", None, None
    path = Path(font).expanduser().absolute() if font else find_font()
    try:
        if path is None:
            raise DataError(f"the font Noto Color Emoji is not on this computer: {INSTALL}.")
        if not path.is_file():
            raise DataError(f"{path} is not a font file.")
        check_font(path)
    except DataError as error:
        if things == "emoji" or font:
            raise
        return "shapes", None, f"Drawn shapes instead of emoji, because {error}"
    return "emoji", path, None


def _setting(what: str, counts: dict[Split, int], seed: int, kind: Kind, font: Path | None) -> dict[str, Any]:
    mark = font_mark(font) if font else None
    return {
        "data": "minivtt",
        "what": what,
        "version": VERSION,
        "seed": seed,
        "things": kind,
        "font": mark,
        "clips": counts,
    }


def _run(
    function: Callable[[Job], int],
    todo: list[Job],
    report: Report,
    files: Path,
    *,
    workers: int | None,
    on_progress: Progress | None,
    size: Callable[[Job], int],
    name: Callable[[Job], str],
) -> None:
    """Do all jobs, and count what was made and what failed. ``files`` is the folder that they write to."""
    tell = on_progress or (lambda finished, total: None)
    finished, total = report.skipped, sum(report.clips.values())
    tell(finished, total)
    _remove_partial_files(files)  # of a run that was killed
    try:
        with closing(run_each(function, todo, workers=workers or usable_cores())) as outcomes:
            for outcome in outcomes:
                if outcome.error is not None:
                    report.failed[name(outcome.job)] = outcome.error
                else:
                    report.made += size(outcome.job)
                finished += size(outcome.job)
                tell(finished, total)
    finally:
        _remove_partial_files(files)  # the processes have ended, also after Ctrl-C: nobody writes any more


def _remove_partial_files(files: Path) -> None:
    for partial in files.glob(".*.part"):
        partial.unlink(missing_ok=True)


def _rows(plans: Iterable[tuple[PicturePlan, str]]) -> Iterable[tuple[str, str, str]]:
    return ((plan.id, caption, split) for plan, split in plans for caption in plan.captions)


def _finish(folder: Path, setting: dict[str, Any], report: Report, files: Path, began: float) -> Report:
    report.bytes = sum(path.stat().st_size for path in files.glob("*.mp4"))
    report.seconds = round(time.monotonic() - began, 1)
    write_info(folder, setting | {"complete": not report.failed})
    return report
