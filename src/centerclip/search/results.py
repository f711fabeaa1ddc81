"""What a search gives back."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from .engine import Moment


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
        copies: further files with the same content.
        duplicates: paths of other videos that show the same and were left out.
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

    @property
    def title(self) -> str:
        """The file's name without its extension."""
        return self.path.stem


@dataclass(frozen=True)
class Results:
    """Hits, best first. Behaves like a list of them.

    Attributes:
        hits: the hits.
        convincing: False when the best hit is no better than what a sentence about something else finds here.
        confidence: 0 to 1: the share of unrelated sentences whose best hit stands out less than this query's; for
            pictures and clips, the share of the collection's own segments that are less like any other video.
        seconds: what the search took, without opening the index and the model.
    """

    hits: list[Hit] = field(default_factory=list)
    convincing: bool = False
    confidence: float = 0.0
    seconds: float = 0.0

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
        unchanged: files that are as they were.
        removed: files that are gone and were dropped.
        failed: path and reason of files that could not be read, now or at an earlier run and unchanged since.
        not_dropped: folders that are empty now though the index has files of theirs: perhaps a disk is missing.
        video_seconds: length of the videos that were encoded.
        segments: vectors that were added.
        seconds: what the run took.
    """

    added: int = 0
    recognised: int = 0
    unchanged: int = 0
    removed: int = 0
    failed: dict[str, str] = field(default_factory=dict)
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
    recall: float  # share of the best segments that a search finds: 1 unless it is so large that some are passed over
