"""Event times of clips: written beside the captions, and read back to score moments."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..annotations import read_text
from ..errors import AnnotationError
from .plan import ClipPlan
from .sentences import event_captions

EVENTS_FILE = "events.jsonl"


@dataclass(frozen=True)
class TimedEvent:
    """What happens from ``start`` to ``end`` (seconds), in words and in parts."""

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
    """One JSON object a line."""
    return "".join(json.dumps(asdict(clip)) + "\n" for clip in clips)


def read_events(folder: str | Path) -> dict[str, ClipEvents]:
    """The events of every clip of a MiniVTT folder, by video id."""
    path = Path(folder).expanduser() / EVENTS_FILE
    if not path.is_file():
        raise AnnotationError(f"{path} is not there; make the folder with: centerclip data make minivtt {folder}")
    clips: dict[str, ClipEvents] = {}
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        try:
            row: dict[str, Any] = json.loads(line)
            events = tuple(TimedEvent(**event) for event in row.pop("events"))
            clips[row["video"]] = ClipEvents(**row, events=events)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise AnnotationError(f"{path}, line {number} does not describe the events of a clip: {error}.") from error
    return clips
