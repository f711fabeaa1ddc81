"""What an index needs of a database: a few methods over videos with their vectors, and files with their state.

A store that passes ``tests/search/conformance.py`` can take the place of the one on disk."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..files import is_address
from ..video.subtitles import Line as Line
from ..video.subtitles import TextSource as TextSource

if TYPE_CHECKING:
    from .filters import Filters, Totals
    from .folder import IndexSettings

Floats = NDArray[np.float32]
Among: TypeAlias = "Collection[str] | Filters | None"  # ids of videos, or what they have to pass; None for all


@dataclass(frozen=True)
class Video:
    """What is known about a video, by content: copies of a file are one video.

    Attributes:
        id: hash of the file's bytes, hexadecimal.
        duration: seconds.
        width: pixels of a shown frame.
        height: pixels of a shown frame.
        added: when it was indexed, seconds since 1970.
        note: a fault of the file that could be read around; empty for most.
        detail: how finely it was indexed, "fast", "normal" or "fine"; empty where there was no choice.
        recorded, camera, latitude, longitude: as in :class:`~centerclip.video.info.Recording`.
    """

    id: str
    duration: float
    width: int
    height: int
    added: float
    note: str = ""
    detail: str = ""
    recorded: float | None = None
    camera: str = ""
    latitude: float | None = None
    longitude: float | None = None

    @property
    def is_photo(self) -> bool:
        """A photograph is a video that takes no time: one segment from 0 to 0."""
        return not self.duration


@dataclass(frozen=True)
class Segments:
    """The segments of a video in the order of time.

    Attributes:
        starts: ``[S]`` seconds.
        ends: ``[S]`` seconds.
        vectors: ``[S, D]``, each of norm 1 up to the rounding of the store.
    """

    starts: Floats
    ends: Floats
    vectors: Floats

    def __len__(self) -> int:
        return len(self.starts)


@dataclass(frozen=True)
class LineHit(Line):
    """A line that matches an expression of words, with the id of its video and its rank of BM25: less is better."""

    video: str
    rank: float


@dataclass(frozen=True)
class File:
    """A file that was read, or could not be.

    Attributes:
        path: absolute.
        size: bytes.
        modified: time of last change, nanoseconds since 1970.
        video: id of its video; empty when it could not be read.
        failure: why it could not be read; empty when it could.
        root: the folder or file that it was indexed with, which the store knows; empty when there is none.
    """

    path: str
    size: int
    modified: int
    video: str
    failure: str = ""
    root: str = field(default="", compare=False)

    @property
    def is_unchanged(self) -> bool:
        """Whether the file on the disk has this size and time now."""
        try:
            if is_address(self.path):
                from ..storage import Address

                status = Address(self.path).stat_now()
            else:
                status = Path(self.path).stat()
        except OSError:
            return False
        return (status.st_size, status.st_mtime_ns) == (self.size, self.modified)


@dataclass(frozen=True)
class SegmentHits:
    """Segments in the order of their scores, best first.

    Attributes:
        videos: ids, one for each of ``K`` segments.
        scores: ``[K]`` dot products with the query, descending.
    """

    videos: list[str]
    scores: Floats


AddedVideo = tuple[Video, Segments, Sequence[Line]]


def unit(vector: Floats) -> Floats:
    """A vector ``[D]`` at norm 1; zeros stay zeros."""
    return np.asarray(vector / max(float(np.linalg.norm(vector)), 1e-12), dtype=np.float32)


class View(Protocol):
    """A store at one moment. It does not change, so a search can use it whatever is written meanwhile.

    Vectors are read at the first search, lines and names when they are asked for. By then a video may have gone: it is
    not found, and its segments are a KeyError. One that the view does not have is never found.
    ``videos`` and ``files`` are mappings, not dictionaries: a store of any size looks up what is asked for, and pages
    through them where all are asked for. Nothing that answers a query goes through all of them.
    """

    @property
    def is_listed(self) -> bool:
        """Whether all videos and files are in memory, so that a list of them costs nothing."""

    @property
    def finds_text(self) -> bool:
        """Whether lines and names can be searched; otherwise those searches find nothing."""

    @property
    def videos(self) -> Mapping[str, Video]:
        """All videos by id."""

    @property
    def files(self) -> Mapping[str, File]:
        """All files by path."""

    def with_files(self, videos: Collection[str]) -> dict[str, tuple[Video, list[File]]]:
        """Those of the videos that have files, with these, in one go. A video without any is being removed."""

    def files_at(self, paths: Iterable[str]) -> dict[str, File]:
        """Those of the paths that have a file, in one go."""

    def has_size(self, size: int) -> bool:
        """Whether a file of a video has so many bytes."""

    def totals(self) -> "Totals":
        """What there is, counted."""

    @property
    def has_lines(self) -> bool:
        """Whether there is any line of text."""

    def segments(self, video: str) -> Segments:
        """The segments of a video; KeyError when it is not there."""

    def size(self, video: str) -> int:
        """How many segments a video has; KeyError when it is not there."""

    def lines(self, video: str) -> list[Line]:
        """The lines of a video in the order of time."""

    def read_videos(self, source: TextSource) -> set[str]:
        """Ids of the videos whose lines of a source :meth:`Store.add_lines` has set, also to none."""

    def search_lines(self, match: str, top: int, *, among: Among = None) -> list[LineHit]:
        """The ``top`` lines that match an FTS5 expression best, of the videos ``among``; all of them by default."""

    def search_names(self, match: str, top: int, *, among: Among = None) -> list[tuple[str, str, float]]:
        """Path, video and rank (less is better) of the ``top`` files whose folders and name match best."""

    def count(self) -> int:
        """How many segments there are."""

    def search(self, query: Floats, top: int, *, among: Among = None) -> SegmentHits:
        """The ``top`` segments with the largest dot product with ``query`` ``[D]``.

        Args:
            query: a vector.
            top: how many; fewer come back when there are fewer.
            among: ids of the videos to search, or filters that they pass; all by default. Never a segment of another.
        """

    def sample(self, count: int) -> Floats:
        """Vectors ``[N, D]`` of about ``count`` segments, evenly spread over the store, the same ones each time."""

    def recall(self) -> float:
        """Share of the best segments that ``search`` finds: 1 when it compares all of them."""


class Store(Protocol):
    """Where an index keeps its vectors. One writer at a time (the caller sees to it), any number of readers.

    A method that changes something has done it, for every process and even if this one is killed, when it returns;
    killed in the middle, each video and each file is there as before or as after.
    """

    width: int

    def view(self) -> View:
        """What is in the store now, whichever process has written it. The same object as long as nothing changes."""

    def add(self, videos: Sequence[AddedVideo], files: Sequence[File]) -> None:
        """Add videos that are not there yet with their segments and lines, then files, or replace those of the same
        paths, all in one step. The videos of files must be there; KeyError when one is not."""

    def replace(self, video: Video, segments: Segments) -> None:
        """Replace what is known about a video, by its id, and its segments; files and lines stay. KeyError when it is
        not there."""

    def add_lines(self, video: str, lines: Sequence[Line], source: TextSource) -> None:
        """Replace the lines of a video that come from ``source``; KeyError when the video is not there."""

    def move(self, old: str, new: str) -> int:
        """Files at or below the path ``old`` are at ``new`` from now on; how many there are."""

    def value(self, name: str) -> "bytes | None":
        """What :meth:`set_value` has kept under a name; None for nothing."""

    def set_value(self, name: str, value: "bytes") -> None:
        """Keep something small beside the videos."""

    def remove(self, videos: Collection[str], paths: Collection[str]) -> None:
        """Forget videos with their segments, lines and files, and files. What is not there is no error."""

    def tidy(self, queries: Floats) -> None:
        """Bring the store into good shape for searching, after many changes.

        Args:
            queries: ``[Q, D]`` such as people ask, to tune an approximate index with.
        """

    def bytes(self) -> int:
        """Size on disk."""


class Database(Protocol):
    """Where an index is: its settings, its store, and one writer at a time."""

    @property
    def address(self) -> str:
        """As people name it: a folder, or ``milvus://host:19530/name``."""

    def exists(self) -> bool:
        """Whether something has been written there."""

    def version(self) -> object:
        """Changes whenever something in the index has changed, whichever process has written it."""

    def settings(self) -> "IndexSettings":
        """What the index was made with; IndexNotFound when there is none."""

    def save_settings(self, settings: "IndexSettings", *, clear: bool = False) -> None:
        """Replace the settings; ``clear`` also forgets all videos, files and values, in the same step."""

    def store(self, settings: "IndexSettings") -> Store:
        """The vectors that were made with settings. When the index is made again with others, its view stays."""

    def root_named(self, name: str) -> str:
        """Where the root of a name is; empty when there is none."""

    def writing(self) -> AbstractContextManager[None]:
        """Hold the index for writing, or raise IndexBusy; errors inside name the index."""

    def is_busy(self) -> bool:
        """Whether a process is writing to it now."""

    def make_writable(self) -> None:
        """Bring an older index up to date."""

    def remove(self) -> None:
        """Remove what cannot be read."""

    def close(self) -> None:
        """Close connections; the next use opens them again."""
