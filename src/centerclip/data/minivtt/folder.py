"""The folder of a generated data set: the settings it was made with, its captions, and the times of its events."""

import csv
import io
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...errors import AnnotationError, DataError
from ...files import write_atomic
from ..annotations import read_text
from .plan import ClipPlan
from .sentences import event_captions

INFO_FILE = "minivtt.json"
CAPTIONS_FILE = "captions.csv"
EVENTS_FILE = "events.jsonl"
VERSION = 1  # of what the generator draws and writes: raise it when the same seed gives other files
EXTENSIBLE = ("clips", "complete")  # may differ from one run to the next in the same folder


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
    place: str
    events: tuple[TimedEvent, ...]


def timed_events(plan: ClipPlan, seed: int) -> ClipEvents:
    """The events of a planned clip. ``place`` of the clip is where it begins."""
    events, frame = [], 0
    for event, caption in zip(plan.events, event_captions(plan, seed), strict=True):
        start, frame = frame, frame + event.frames
        partner = event.partner.name if event.partner else None
        span = round(start / plan.fps, 3), round(frame / plan.fps, 3)
        events.append(TimedEvent(*span, caption, event.thing.name, partner, event.motion, event.place.name))
    return ClipEvents(plan.id, plan.split, events[-1].end, plan.events[0].place.name, tuple(events))


def events_text(clips: Iterable[ClipEvents]) -> str:
    """One JSON object per line, for ``events.jsonl``."""
    return "".join(json.dumps(asdict(clip)) + "\n" for clip in clips)


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


def claim(folder: Path, settings: dict[str, Any], *, force: bool) -> None:
    """Take a folder for these settings: a new one, or one in which an earlier run with the same settings stopped.

    With ``force`` the files of an earlier run with any settings are removed first; other files never are.
    """
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder} is a file; name a folder.")
    earlier = read_info(folder)
    if earlier is None:
        if folder.is_dir() and any(folder.iterdir()):
            raise DataError(f"{folder} has other files in it; choose a new or empty folder.")
    elif force:
        _remove_generated(folder)
    else:
        changed = [key for key in settings if key not in EXTENSIBLE and earlier.get(key) != settings[key]]
        if changed:
            differences = ", ".join(f"{key} {earlier.get(key)}, not {settings[key]}" for key in changed)
            raise DataError(f"{folder} was made with {differences}. Choose another folder, or start over with --force.")
        fewer = [split for split, count in settings["clips"].items() if earlier["clips"].get(split, 0) > count]
        if fewer:
            raise DataError(
                f"{folder} was made for {sum(earlier['clips'].values()):,} clips. Ask for at least as many, choose "
                "another folder, or start over with --force."
            )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_info(folder, settings | {"complete": False})
    except OSError as error:
        raise DataError(f"{folder} cannot be written to: {error.strerror}.") from error


def read_info(folder: Path) -> dict[str, Any] | None:
    """The settings a folder was made with; None when this generator did not make it."""
    path = folder / INFO_FILE
    if not path.is_file():
        return None
    try:
        info = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(info["clips"], dict):
            raise TypeError("clips are not counted by split")
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is damaged ({error}); remove the folder {folder}.") from error
    renamed = {"what": "images"} if info.get("what") == "stills" else {}  # what images were called at first
    return info | renamed


def write_info(folder: Path, info: dict[str, Any]) -> None:
    """Record the settings the folder is made with."""
    write_atomic(folder / INFO_FILE, json.dumps(info, indent=2) + "\n")


def write_captions(folder: Path, rows: Iterable[tuple[str, str, str]]) -> None:
    """Write (video, caption, split) in the ``folder`` format."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(("video", "caption", "split"))
    table.writerows(rows)
    write_atomic(folder / CAPTIONS_FILE, text.getvalue())


def _remove_generated(folder: Path) -> None:
    for subfolder in ("videos", "pictures"):
        for path in (folder / subfolder).glob("*.mp4"):
            path.unlink()
    for name in (CAPTIONS_FILE, EVENTS_FILE, INFO_FILE):
        (folder / name).unlink(missing_ok=True)
