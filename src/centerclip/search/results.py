"""What a search and a run of the indexer return, and the files of an index with the filters that narrow a search."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, time
from fnmatch import fnmatch
from pathlib import Path

from ..errors import SearchError
from ..files import is_below
from .ranking import Grade, Moment
from .store import File, View

When = float | str | date | datetime | None


@dataclass(frozen=True)
class Hit:
    """A video that answers a query, or with ``moments=True`` a moment of one.

    Attributes:
        video_id: of the video in the index; stays the same when the file is moved.
        path: of the file; of several copies, one that passes the filters.
        start: of the best moment, seconds.
        end: of the best moment, seconds.
        score: of the best moment: a cosine, comparable within one query.
        moments: up to five, best first; the first one is ``start`` to ``end``.
        duration: of the video, seconds.
        copies: other files with the same content.
        duplicates: near-duplicates of it that were left out.
        grade: "sure", "maybe" or "unlikely": how the hit compares with the best hits of unrelated sentences; for images
            and clips, with how alike the collection's own videos are.
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

    @property
    def title(self) -> str:
        """The file's name without its extension."""
        return self.path.stem


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
        recognised: files whose content was in the index: moved, renamed, copied or touched.
        unchanged: files with the same size and time as before.
        removed: files that are gone and were dropped.
        failed: path and reason of files that could not be read, now or in an earlier run and unchanged since.
        failed_before: those of them that an earlier run reported.
        not_dropped: folders that are empty now though the index has files of theirs: a disk may be missing.
        video_seconds: length of the videos that were encoded.
        segments: vectors that were added.
        seconds: how long the run took.
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


@dataclass(frozen=True)
class Filters:
    """Which files a search looks at. A video passes when one of its files does.

    Attributes:
        folder: only files below it.
        name: part of the file's name, or a pattern with ``*`` and ``?``; upper and lower case are the same.
        min_duration: seconds.
        max_duration: seconds.
        after: files changed at this time or later, seconds since 1970.
        before: files changed before this time.
    """

    folder: str | None = None
    name: str | None = None
    min_duration: float | None = None
    max_duration: float | None = None
    after: float | None = None
    before: float | None = None

    def keep_duration(self, seconds: float) -> bool:
        """Whether a video of this length passes."""
        low, high = self.min_duration, self.max_duration
        return (low is None or seconds >= low) and (high is None or seconds <= high)

    def keep_file(self, file: File) -> bool:
        """Whether folder, name and date pass."""
        if self.folder is not None and not is_below(file.path, self.folder):
            return False
        if self.name is not None and not _matches(Path(file.path).name, self.name):
            return False
        modified = file.modified / 1e9
        return (self.after is None or modified >= self.after) and (self.before is None or modified < self.before)


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

    def among(self, filters: Filters) -> list[str] | None:
        """The videos that pass; None when all do."""
        if filters == Filters():
            return None if self.complete else list(self.files)
        return [
            video
            for video, files in self.files.items()
            if filters.keep_duration(self.videos[video].duration) and any(filters.keep_file(file) for file in files)
        ]

    def files_of(self, video: str, filters: Filters | None = None) -> list[File]:
        """The files of a video, those that pass the filters first."""
        files = sorted(self.files.get(video, ()), key=lambda file: file.path)
        return files if filters is None else sorted(files, key=lambda file: not filters.keep_file(file))


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
            raise SearchError(f"{option}: {when!r} is not a date; write it as 2024, 2024-05 or 2024-05-31") from error
    return (when if isinstance(when, datetime) else datetime.combine(when, time())).timestamp()


def _matches(name: str, pattern: str) -> bool:
    name, pattern = name.casefold(), pattern.casefold()
    return fnmatch(name, pattern) if any(letter in pattern for letter in "*?[") else pattern in name
