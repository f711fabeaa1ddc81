"""What a search and a run of the indexer return, and how hits get the files that they are in."""

import hashlib
import json
import os
import time as clock
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from ..errors import UnknownVideo
from ..files import cache_folder, path_of, write_atomic
from .filters import Filters, offline_check
from .ranking import FoundBy, Grade, Moment, Ranked
from .store import File, Line, Video, View

VIDEOS_AT_A_TIME = 1000  # looked up, where all are listed
MAX_FOUND = 1000  # videos whose last finding is remembered


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


@dataclass(frozen=True, kw_only=True)
class VideoEntry(Video):
    """A video in the index and the files it is in.

    Attributes:
        path: of a file, and ``copies`` of others with the same content.
        modified: time of its last change, seconds since 1970.
        segments: how many it has.
        offline: the folder of the file, and of its copies, is not there now.
    """

    path: Path
    copies: tuple[Path, ...]
    modified: float
    segments: int
    offline: bool = False

    @property
    def video_id(self) -> str:
        """Of the video in the index; stays the same when the file is moved."""
        return self.id

    @property
    def title(self) -> str:
        """The file's name without its extension."""
        return self.path.stem


@dataclass(frozen=True)
class Status:
    """What is in an index."""

    folder: Path | str  # of the index, or the address of its server
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
    finds_text: bool = True  # words can be searched: not where a server has no full-text search
    has_lines: bool = False  # something is said or written in a video, or it has a title
    precision: str = "float32"  # that it was made in
    photos: int = 0  # of the videos: those that are photographs
    only: str = ""  # "videos" or "photos" where the others are left out
    details: dict[str, int] = field(default_factory=dict)  # how many videos are indexed how finely


def files_of(
    view: View, video_id: str, filters: Filters | None = None, is_offline: Callable[[File], bool] = lambda file: False
) -> list[File]:
    """The files of a video by path, those that pass the filters first, and of those the ones that are there."""
    found = view.with_files([video_id])
    if video_id not in found:
        raise UnknownVideo(f"the index has no video {video_id!r}")
    return _sorted(found[video_id][1], filters, is_offline)


def hits_of(view: View, ranked: list[Ranked], filters: Filters | None = None) -> list[Hit]:
    """What was found, with the files that it is in; what has gone meanwhile is left out."""
    is_offline = offline_check()
    found = view.with_files({video for entry in ranked for video in (entry.video, *entry.duplicates)})
    hits = []
    for entry in (entry for entry in ranked if entry.video in found):
        video, files = found[entry.video]
        files = _sorted(files, filters, is_offline)
        duplicates = (_sorted(found[video][1])[0].path for video in entry.duplicates if video in found)
        hits.append(
            Hit(
                video_id=entry.video,
                path=path_of(files[0].path),
                **vars(entry.moments[0]),
                moments=entry.moments,
                duration=video.duration,
                copies=tuple(path_of(file.path) for file in files[1:]),
                duplicates=tuple(map(path_of, duplicates)),
                grade=entry.grade,
                offline=all(map(is_offline, files)),
                confidence=entry.confidence,
                found_by=entry.found_by,
                line=entry.line,
                file=files[0],
            )
        )
    return hits


def entries_of(view: View, video_ids: Iterable[str] | None = None) -> Iterator[VideoEntry]:
    """Videos with their files, some at a time; all of them by default."""
    is_offline, wanted = offline_check(), iter(view.videos if video_ids is None else video_ids)
    while some := list(islice(wanted, VIDEOS_AT_A_TIME)):
        for video_id, (video, files) in view.with_files(some).items():
            files = _sorted(files, None, is_offline)
            yield VideoEntry(
                **vars(video),
                path=path_of(files[0].path),
                copies=tuple(path_of(file.path) for file in files[1:]),
                modified=files[0].modified / 1e9,
                segments=view.size(video_id),
                offline=all(map(is_offline, files)),
            )


def _sorted(
    files: Iterable[File], filters: Filters | None = None, is_offline: Callable[[File], bool] = lambda file: False
) -> list[File]:
    keep = (filters or Filters()).keep_file
    return sorted(files, key=lambda file: (not keep(file), is_offline(file), file.path))


def found_file(folder: Path) -> Path:
    """Where it is noted what was found in an index: in the user's cache, since a search writes nothing to an index."""
    name = hashlib.blake2b(os.fsencode(os.path.realpath(folder)), digest_size=12).hexdigest()
    return cache_folder() / "found" / f"{name}.json"


def last_found(folder: Path) -> dict[str, float]:
    """When the videos of an index that a search found last were found, in seconds since 1970, by id."""
    try:
        return {str(video): float(when) for video, when in json.loads(found_file(folder).read_bytes()).items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def note_found(folder: Path, videos: Sequence[str]) -> None:
    """Remember that videos of an index were found now; of what two searches note at once, one may be lost."""
    found, file = last_found(folder) | dict.fromkeys(videos, clock.time()), found_file(folder)
    newest = sorted(found, key=found.__getitem__, reverse=True)[:MAX_FOUND]
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(file, json.dumps({video: found[video] for video in newest}), durable=False)
