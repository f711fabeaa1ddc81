"""Generates MiniVTT into a folder, clips or images: in parallel, resumable, and the same for the same seed.

The folder has the settings it was made with, the captions, and the times of the events of its clips.
"""

import csv
import io
import json
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ...errors import AnnotationError, DataError
from ...files import remove_partial, write_atomic
from ...parallel import run_each, usable_cores
from ..annotations import read_text
from .plan import ClipPlan, ImagePlan, clip_captions, event_captions, plan_clips, plan_images, plan_pairs
from .render import INSTALL_FONT, RenderJob, check_font, find_font, font_fingerprint, render
from .world import Kind, Split, world

INFO_FILE, CAPTIONS_FILE, EVENTS_FILE = "minivtt.json", "captions.csv", "events.jsonl"
VERSION = 1  # of what the generator draws and writes: raise it when the same seed gives other files
EXTENSIBLE = ("clips", "complete")  # may differ from one run to the next in the same folder
MIN_CLIPS = 20  # fewer would leave a split empty
MAX_VAL, MAX_TEST = 100, 500  # clips; all others are for training
MAX_VAL_IMAGES = 500
IMAGES_PER_JOB = 64  # that a process draws before it reports: one takes milliseconds


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


@dataclass(frozen=True)
class TimedEvent:
    """What happens from ``start`` to ``end`` (seconds): as a caption, and as its parts."""

    start: float
    end: float
    caption: str
    thing: str
    partner: str | None
    motion: str
    place: str


@dataclass(frozen=True)
class ClipEvents:
    """The events of one clip, in order and without gaps."""

    video: str
    split: str
    duration: float
    place: str  # where it begins
    events: tuple[TimedEvent, ...]


def make(
    folder: str | Path,
    *,
    clips: int = 2000,
    images: bool = False,
    pairs: bool = False,
    seed: int = 0,
    workers: int | None = None,
    things: Kind | None = None,
    font: str | Path | None = None,
    force: bool = False,
    on_progress: Callable[[int, int], None] = lambda finished, total: None,
) -> Report:
    """Write clips, captions and event times into a folder: a new one, or one that a run with the same options began.

    A clip depends on the seed, its split and its number, so more clips only add to the existing ones.

    Args:
        folder: new, empty, or of an earlier run.
        clips: of all splits (:func:`split_counts`).
        images: make training images instead, as videos of one frame. They show one or two things in a place, only in
            pairs that training clips show too, so a model that has learnt from them still has not seen what val and
            test clips show.
        pairs: make a harder test split instead, of clips that only order and motion tell from their twin.
        seed: another seed gives other scenes of the same world.
        workers: processes, by default one per core.
        things: ``emoji`` or ``shapes``; by default emoji when their font is found.
        font: an emoji font to use.
        force: remove what an earlier run made in the folder, and start over.
        on_progress: called with (finished, total) at the start and after each job.
    """
    started, folder = time.monotonic(), Path(folder).expanduser().absolute()
    counts: dict[Split, int] = {"test": clips - clips % 2} if pairs else split_counts(clips, images=images)
    kind, font, note = choose_things(things, font)
    fingerprint = font_fingerprint(font) if font else None
    settings: dict[str, Any] = {
        "data": "minivtt",
        "what": "images" if images else "pairs" if pairs else "videos",
        "version": VERSION,
        "seed": seed,
        "things": kind,
    }
    settings |= {"font": fingerprint, "clips": counts}
    _claim(folder, settings, force=force)
    files = folder / ("pictures" if images else "videos")
    files.mkdir(exist_ok=True)
    make_plans = plan_images if images else plan_clips
    plans: list[ClipPlan | ImagePlan] = (
        list(plan_pairs(world(kind), counts["test"], seed))
        if pairs
        else [plan for split, count in counts.items() for plan in make_plans(world(kind), split, count, seed)]
    )
    existing = {path.stem for path in files.glob("*.mp4")}
    missing = [plan for plan in plans if plan.id not in existing]
    size = IMAGES_PER_JOB if images else 1
    batches = [missing[first : first + size] for first in range(0, len(missing), size)]
    jobs = [RenderJob(batch, files, seed, kind, font) for batch in batches]
    report = Report(str(folder), kind, counts, note, skipped=len(plans) - len(missing))
    finished = report.skipped
    on_progress(finished, len(plans))
    remove_partial(files)  # of a run that was killed
    try:
        with closing(run_each(render, jobs, workers=workers or usable_cores())) as outcomes:
            for outcome in outcomes:
                drawn = outcome.job.plans
                if outcome.error is None:
                    report.made += len(drawn)
                else:
                    more = f" and the {len(drawn) - 1} after it" if images else ".mp4"
                    report.failed[f"{drawn[0].id}{more}"] = outcome.error
                finished += len(drawn)
                on_progress(finished, len(plans))
    finally:
        remove_partial(files)  # the workers have stopped, also after Ctrl-C: nobody writes any more
    sizes = {path.stem: path.stat().st_size for path in files.glob("*.mp4")}
    _write_annotations(folder, [plan for plan in plans if plan.id in sizes], seed)
    report.bytes, report.seconds = sum(sizes.values()), round(time.monotonic() - started, 1)
    _write_info(folder, settings | {"complete": not report.failed})
    return report


def split_counts(clips: int, *, images: bool = False) -> dict[Split, int]:
    """How many of all clips are in each split: a quarter for test, up to 500; one in 20 for val, up to 100.

    Images are for training, one in 20 of them, up to 500, for val.
    """
    if clips < MIN_CLIPS:
        raise DataError(
            f"at least {MIN_CLIPS} {'images' if images else 'clips'} are needed, so that no split is empty."
        )
    val = min(MAX_VAL_IMAGES if images else MAX_VAL, clips // 20)
    if images:
        return {"train": clips - val, "val": val}
    test = min(MAX_TEST, clips // 4)
    return {"train": clips - val - test, "val": val, "test": test}


def choose_things(things: Kind | None, font: str | Path | None) -> tuple[Kind, Path | None, str | None]:
    """Which kind of things to draw, with which font, and a note when emoji are the default but cannot be drawn."""
    if things == "shapes":
        return "shapes", None, None
    path = Path(font).expanduser().absolute() if font else find_font()
    try:
        if path is None:
            raise DataError(f"the font Noto Color Emoji is not on this computer: {INSTALL_FONT}.")
        if not path.is_file():
            raise DataError(f"{path} is not a font file.")
        check_font(path)
    except DataError as error:
        if things == "emoji" or font:
            raise
        return "shapes", None, f"Drawing shapes instead of emoji, because {error}"
    return "emoji", path, None


def read_events(folder: str | Path) -> dict[str, ClipEvents]:
    """The events of every clip of a MiniVTT folder, by video id."""
    path = Path(folder).expanduser() / EVENTS_FILE
    if not path.is_file():
        raise AnnotationError(f"{path} does not exist; generate it with: centerclip data make minivtt {folder}")
    clips: dict[str, ClipEvents] = {}
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        try:
            row: dict[str, Any] = json.loads(line)
            events = tuple(TimedEvent(**event) for event in row.pop("events"))
            clips[row["video"]] = ClipEvents(**row, events=events)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise AnnotationError(f"{path}, line {number} is not the events of a clip: {error}.") from error
    return clips


def _write_annotations(folder: Path, plans: list[ClipPlan | ImagePlan], seed: int) -> None:
    """Write the captions in the ``folder`` format, and the events of clips, one JSON object a line."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(("video", "caption", "split"))
    for plan in plans:
        captions = clip_captions(plan, seed) if isinstance(plan, ClipPlan) else plan.captions
        table.writerows((plan.id, caption, plan.split) for caption in captions)
    write_atomic(folder / CAPTIONS_FILE, text.getvalue())
    events = [_timed_events(plan, seed) for plan in plans if isinstance(plan, ClipPlan)]
    if events:
        write_atomic(folder / EVENTS_FILE, "".join(json.dumps(asdict(clip)) + "\n" for clip in events))


def _timed_events(plan: ClipPlan, seed: int) -> ClipEvents:
    events, frame = [], 0
    for event, caption in zip(plan.events, event_captions(plan, seed), strict=True):
        start, frame = frame, frame + event.frames
        partner = event.partner.name if event.partner else None
        span = round(start / plan.fps, 3), round(frame / plan.fps, 3)
        events.append(TimedEvent(*span, caption, event.thing.name, partner, event.motion, event.place.name))
    return ClipEvents(plan.id, plan.split, events[-1].end, plan.events[0].place.name, tuple(events))


def _claim(folder: Path, settings: dict[str, Any], *, force: bool) -> None:
    """Take a folder for these settings: a new one, or one in which an earlier run with the same settings stopped.

    With ``force`` the files of an earlier run with any settings are removed first; other files never are.
    """
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder} is a file; name a folder.")
    earlier = _read_info(folder)
    if earlier is None:
        if folder.is_dir() and any(folder.iterdir()):
            raise DataError(f"{folder} has other files in it; choose a new or empty folder.")
    elif force:
        for path in (*folder.glob("videos/*.mp4"), *folder.glob("pictures/*.mp4")):
            path.unlink()
        for name in (CAPTIONS_FILE, EVENTS_FILE, INFO_FILE):
            (folder / name).unlink(missing_ok=True)
    else:
        changed = [key for key in settings if key not in EXTENSIBLE and earlier.get(key) != settings[key]]
        if changed:
            differences = ", ".join(f"{key} {earlier.get(key)}, not {settings[key]}" for key in changed)
            raise DataError(f"{folder} was made with {differences}. Choose another folder, or start over with --force.")
        if any(earlier["clips"].get(split, 0) > count for split, count in settings["clips"].items()):
            raise DataError(
                f"{folder} was made for {sum(earlier['clips'].values()):,} clips. Ask for at least as many, choose "
                "another folder, or start over with --force."
            )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write_info(folder, settings | {"complete": False})
    except OSError as error:
        raise DataError(f"{folder} cannot be written to: {error.strerror}.") from error


def _read_info(folder: Path) -> dict[str, Any] | None:
    """The settings a folder was made with; None when this generator did not make it."""
    path = folder / INFO_FILE
    if not path.is_file():
        return None
    try:
        info: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(info["clips"], dict):
            raise TypeError("clips are not counted by split")
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is damaged ({error}); remove the folder {folder}.") from error
    return info


def _write_info(folder: Path, info: dict[str, Any]) -> None:
    write_atomic(folder / INFO_FILE, json.dumps(info, indent=2) + "\n")
