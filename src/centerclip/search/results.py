"""What a search and a run of the indexer return, and the files of an index with the filters that narrow a search."""

import json
import math
import os
import time as clock
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime, time
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Literal

from ..errors import QueryError, UnknownVideo
from ..files import is_below, write_atomic
from .ranking import FoundBy, Grade, Moment, Ranked
from .store import File, Line, Segments, Video, View

Only = Literal["all", "videos", "photos"]
When = float | str | date | datetime | None
Near = tuple[float, float, float]  # latitude and longitude in degrees, and kilometres around it
EARTH_KM = 6371.0  # radius
KEPT_FILTERS = 16  # whose videos are remembered: of a large collection, finding them takes longer than a search
FOUND_FILE = "found.json"  # when videos were found by a search: those are worth being indexed more finely
MAX_FOUND = 1000  # videos in it


@dataclass(frozen=True)
class Hit:
    """A video that answers a query, or with ``moments=True`` a moment of one.

    Attributes:
        video_id: of the video in the index; stays the same when the file is moved.
        path: of the file; of several copies, one that passes the filters.
        start: of the best moment, seconds.
        end: of the best moment, seconds.
        score: of the best moment: a cosine, comparable within one query; of a hit found by text, the share of the
            query's words that the line has.
        moments: up to five, best first; the first one is ``start`` to ``end``.
        duration: of the video, seconds.
        copies: other files with the same content.
        duplicates: near-duplicates of it that were left out.
        grade: "sure", "maybe" or "unlikely": how the hit compares with the best hits of unrelated sentences; for images
            and clips, with how alike the collection's own videos are.
        offline: the folder of the file, and of its copies, is not there now: a disk may not be connected.
        confidence: 0 to 1, by which hits found in the video and by text are compared.
        found_by: "video", what it shows, or "text", what is said or written; then ``start`` is when.
        line: the line with the query's words, also where the video was found by what it shows; None without any.
        file: the file as it was indexed; clips are cut out of it only while it is unchanged.
    """

    video_id: str
    path: Path
    start: float
    end: float
    score: float
    moments: tuple[Moment, ...]
    duration: float
    copies: tuple[Path, ...] = ()
    duplicates: tuple[Path, ...] = ()
    grade: Grade = "maybe"
    offline: bool = False
    confidence: float = 0.0
    found_by: FoundBy = "video"
    line: Line | None = None
    file: File | None = field(default=None, repr=False)

    @property
    def title(self) -> str:
        """The file's name without its extension."""
        return self.path.stem

    @property
    def is_photo(self) -> bool:
        """It is a photograph, and has no moments."""
        return not self.duration


@dataclass(frozen=True)
class Results:
    """Hits, best first. Behaves like a list of them.

    Attributes:
        hits: the hits.
        convincing: False when the first hit is unlikely and none of the ten best is sure.
        confidence: 0 to 1: the share of unrelated sentences whose best hit stands out less than this query's; for
            images and clips, the share of the collection's own segments that are less like any other video.
        seconds: how long the search took, without opening the index and the model.
    """

    hits: list[Hit] = field(default_factory=list)
    convincing: bool = False
    confidence: float = 0.0
    seconds: float = 0.0

    @property
    def likely(self) -> int:
        """How many hits come before the cut: those before the first unlikely one, and all up to the last sure one."""
        grades = [hit.grade for hit in self.hits]
        before = grades.index("unlikely") if "unlikely" in grades else len(grades)
        return max([before, *(place for place, each in enumerate(grades, start=1) if each == "sure")])

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    def __len__(self) -> int:
        return len(self.hits)

    def __getitem__(self, place: int) -> Hit:
        return self.hits[place]


@dataclass
class IndexReport:
    """What a run of the indexer did.

    Attributes:
        added: videos that were encoded.
        refined: videos that were encoded again, more finely.
        recognised: files whose content was in the index: moved, renamed, copied or touched.
        unchanged: files with the same size and time as before.
        removed: files that are gone and were dropped.
        failed: path and reason of files that could not be read, now or in an earlier run and unchanged since.
        failed_before: those of them that an earlier run reported.
        not_dropped: folders that are empty now though the index has files of theirs: a disk may be missing.
        video_seconds: length of the videos that were encoded.
        segments: vectors that were added.
        seconds: how long the run took.
        texts: videos whose subtitles have changed, or whose speech or pictures were read.
        text_failed: path and reason of videos of which that could not be done.
    """

    added: int = 0
    recognised: int = 0
    unchanged: int = 0
    removed: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    failed_before: list[str] = field(default_factory=list)
    not_dropped: list[str] = field(default_factory=list)
    video_seconds: float = 0.0
    segments: int = 0
    seconds: float = 0.0
    texts: int = 0
    text_failed: dict[str, str] = field(default_factory=dict)
    refined: int = 0


@dataclass(frozen=True)
class VideoEntry:
    """A video in the index and the files it is in."""

    video_id: str
    path: Path
    copies: tuple[Path, ...]
    duration: float
    width: int
    height: int
    modified: float  # of the file, seconds since 1970
    added: float  # to the index
    segments: int
    note: str = ""
    offline: bool = False  # the folder of the file, and of its copies, is not there now
    detail: str = ""
    recorded: float | None = None  # seconds since 1970
    camera: str = ""
    latitude: float | None = None
    longitude: float | None = None

    @property
    def is_photo(self) -> bool:
        """It is a photograph, and has no moments."""
        return not self.duration

    @property
    def title(self) -> str:
        """The file's name without its extension."""
        return self.path.stem


@dataclass(frozen=True)
class Status:
    """What is in an index."""

    folder: Path
    model: str
    clustering: str
    frames: int
    every: float
    videos: int
    files: int
    segments: int
    hours: float
    bytes: int
    roots: tuple[Path, ...]
    failed: dict[str, str]
    busy: bool  # a process is writing to it now
    recall: float  # share of the best segments that a search finds: 1 unless a large index is searched approximately
    ignore: tuple[str, ...] = ()  # what is left out below the roots
    offline: int = 0  # videos of which no file's root is there now
    offline_roots: tuple[Path, ...] = ()
    has_lines: bool = False  # something is said or written in a video, or it has a title
    precision: str = "float32"  # that it was made in
    photos: int = 0  # of the videos: those that are photographs
    only: str = ""  # "videos" or "photos" where the others are left out
    details: dict[str, int] = field(default_factory=dict)  # how many videos are indexed how finely


@dataclass(frozen=True)
class Filters:
    """Which files a search looks at, as :meth:`VideoIndex.search` says. A video passes when one of its files does.

    Times are seconds since 1970; in names and cameras upper and lower case are the same.
    """

    folder: str | None = None
    name: str | None = None
    min_duration: float | None = None
    max_duration: float | None = None
    after: float | None = None
    before: float | None = None
    recorded_after: float | None = None
    recorded_before: float | None = None
    camera: str | None = None
    near: Near | None = None
    only: Only = "all"

    def keep_video(self, video: "Video | VideoEntry") -> bool:
        """Whether kind, length, recording date, camera and place pass. What the file does not say does not pass."""
        return (
            self.only in ("all", "videos" if video.duration else "photos")
            and _between(video.duration or None, self.min_duration, self.max_duration, inclusive=True)
            and _between(video.recorded, self.recorded_after, self.recorded_before)
            and (self.camera is None or self.camera.casefold() in video.camera.casefold())
            and (self.near is None or _distance(video, self.near) <= self.near[2])
        )

    def keep_file(self, file: File) -> bool:
        """Whether folder, name and date pass."""
        if self.folder is not None and not is_below(file.path, self.folder):
            return False
        if self.name is not None and not _matches(os.path.basename(file.path), self.name):  # noqa: PTH119 - quicker
            return False
        return _between(file.modified / 1e9, self.after, self.before)


class Catalogue:
    """The files of every video, at one moment of the store. A video without a file is being removed: not shown."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.videos = view.videos
        self.files: dict[str, list[File]] = defaultdict(list)
        for file in view.files.values():
            if file.video in self.videos:
                self.files[file.video].append(file)
        self.complete = len(self.files) == len(self.videos)
        self._passing: dict[Filters, list[str]] = {}

    def among(self, filters: Filters) -> list[str] | None:
        """The videos that pass; None when all do."""
        if filters == Filters():
            return None if self.complete else list(self.files)
        passing = self._passing.get(filters)
        if passing is None:
            passing = [
                video
                for video, files in self.files.items()
                if filters.keep_video(self.videos[video]) and any(filters.keep_file(file) for file in files)
            ]
            if len(self._passing) >= KEPT_FILTERS:
                self._passing.clear()
            self._passing[filters] = passing
        return passing

    def segments(self, video_id: str) -> Segments:
        """The segments of a video."""
        try:
            return self.view.segments(video_id)
        except KeyError as error:
            raise UnknownVideo(f"the index has no video {video_id!r}") from error

    def files_of(
        self, video_id: str, filters: Filters | None = None, is_offline: Callable[[File], bool] = lambda file: False
    ) -> list[File]:
        """The files of a video by path, those that pass the filters first, and of those the ones that are there."""
        if video_id not in self.files:
            raise UnknownVideo(f"the index has no video {video_id!r}")
        filters = filters or Filters()
        return sorted(self.files[video_id], key=lambda file: (not filters.keep_file(file), is_offline(file), file.path))

    def hits(self, ranked: list[Ranked], filters: Filters | None = None) -> list[Hit]:
        """What was found, with the files that it is in."""
        is_offline = offline_check()
        hits = []
        for entry in ranked:
            files = self.files_of(entry.video, filters, is_offline)
            hits.append(
                Hit(
                    video_id=entry.video,
                    path=Path(files[0].path),
                    **vars(entry.moments[0]),
                    moments=entry.moments,
                    duration=self.videos[entry.video].duration,
                    copies=tuple(Path(file.path) for file in files[1:]),
                    duplicates=tuple(Path(self.files_of(video)[0].path) for video in entry.duplicates),
                    grade=entry.grade,
                    offline=all(map(is_offline, files)),
                    confidence=entry.confidence,
                    found_by=entry.found_by,
                    line=entry.line,
                    file=files[0],
                )
            )
        return hits

    def entries(self, video_ids: Iterable[str] | None = None) -> list[VideoEntry]:
        """Videos with their files; all of them by default."""
        is_offline = offline_check()
        entries = []
        for video_id in self.files if video_ids is None else video_ids:
            files = self.files_of(video_id, None, is_offline)
            facts = {name: fact for name, fact in vars(self.videos[video_id]).items() if name != "id"}
            entries.append(
                VideoEntry(
                    video_id=video_id,
                    path=Path(files[0].path),
                    copies=tuple(Path(file.path) for file in files[1:]),
                    modified=files[0].modified / 1e9,
                    segments=self.view.size(video_id),
                    offline=all(map(is_offline, files)),
                    **facts,
                )
            )
        return entries


def last_found(folder: Path) -> dict[str, float]:
    """When the videos that were found last by a search were, in seconds since 1970, by id."""
    try:
        return {str(video): float(when) for video, when in json.loads((folder / FOUND_FILE).read_bytes()).items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def note_found(folder: Path, videos: Sequence[str]) -> None:
    """Remember that videos were found now, where the folder can be written; of what two searches note, one may go."""
    found = last_found(folder) | dict.fromkeys(videos, clock.time())
    newest = sorted(found, key=found.__getitem__, reverse=True)[:MAX_FOUND]
    with suppress(OSError):
        write_atomic(folder / FOUND_FILE, json.dumps({video: found[video] for video in newest}), durable=False)


def offline_check() -> Callable[[File], bool]:
    """A function that says of a file whether its root is not there now; it looks at each root once.

    A root is not there when it is missing, of another system, or an empty folder, which is what a mount point is
    without its disk. A file that was indexed by its own name is judged by its folder: it alone may just be gone.
    """
    is_missing = cache(_is_missing)

    def is_offline(file: File) -> bool:
        folder = os.path.dirname(file.root) if file.root == file.path else file.root  # noqa: PTH120 - is no Path
        return bool(folder) and is_missing(folder)

    return is_offline


def _is_missing(folder: str) -> bool:
    if not os.path.isabs(folder):  # noqa: PTH117 - of another system it is no path at all
        return True
    try:
        with os.scandir(folder) as entries:
            return all(entry.name.startswith(".") for entry in entries)
    except (NotADirectoryError, PermissionError):
        return False
    except OSError:
        return True


def seconds_of(when: When, *, option: str) -> float | None:
    """A time as seconds since 1970; text as ``2024``, ``2024-05``, ``2024-05-31`` or with a time of day."""
    if when is None or isinstance(when, float | int):
        return when
    if isinstance(when, str):
        text = when.strip()
        padded = text + "-01-01" if len(text) == 4 else text + "-01" if len(text) == 7 else text
        try:
            return datetime.fromisoformat(padded).timestamp()
        except (ValueError, OverflowError, OSError) as error:  # 0001 is a date, but no computer's clock has shown it
            raise QueryError(f"{option}: {when!r} is not a date; write it as 2024, 2024-05 or 2024-05-31") from error
    return (when if isinstance(when, datetime) else datetime.combine(when, time())).timestamp()


def near_of(text: str | None, *, option: str) -> Near | None:
    """A place as people write it: ``52.37,4.89,10``."""
    if text is None:
        return None
    try:
        latitude, longitude, kilometres = (float(part) for part in text.split(","))
    except ValueError:
        latitude, longitude, kilometres = 0.0, 0.0, -1.0
    if not (abs(latitude) <= 90 and abs(longitude) <= 180 and 0 <= kilometres < math.inf):
        raise QueryError(f"{option}: {text!r} is not a place; write latitude,longitude,kilometres: 52.37,4.89,10")
    return latitude, longitude, kilometres


def _matches(name: str, pattern: str) -> bool:
    name, pattern = name.casefold(), pattern.casefold()
    return fnmatch(name, pattern) if any(letter in pattern for letter in "*?[") else pattern in name


def _between(value: float | None, low: float | None, high: float | None, *, inclusive: bool = False) -> bool:
    if low is None and high is None:
        return True
    if value is None or (low is not None and value < low):
        return False
    return high is None or value < high or (inclusive and value == high)


def _distance(video: "Video | VideoEntry", near: Near) -> float:
    """Kilometres along the surface of the earth; infinite for a video without a place."""
    if video.latitude is None or video.longitude is None:
        return math.inf
    north, east, there = (math.radians(degrees) for degrees in (video.latitude, video.longitude, near[0]))
    half = math.sin((north - there) / 2) ** 2
    half += math.cos(north) * math.cos(there) * math.sin((east - math.radians(near[1])) / 2) ** 2
    return 2 * EARTH_KM * math.asin(min(1.0, math.sqrt(half)))
