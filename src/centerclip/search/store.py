"""What an index needs of a database: a few methods over videos with their vectors, and files with their state.

A store that passes ``tests/search/conformance.py`` can take the place of the one on disk."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


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
    """

    id: str
    duration: float
    width: int
    height: int
    added: float
    note: str = ""


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
class File:
    """A file that was read, or could not be.

    Attributes:
        path: absolute.
        size: bytes.
        modified: time of last change, nanoseconds since 1970.
        video: id of its video; empty when it could not be read.
        failure: why it could not be read; empty when it could.
    """

    path: str
    size: int
    modified: int
    video: str
    failure: str = ""


@dataclass(frozen=True)
class SegmentHits:
    """Segments in the order of their scores, best first.

    Attributes:
        videos: ids, one for each of ``K`` segments.
        scores: ``[K]`` dot products with the query, descending.
    """

    videos: list[str]
    scores: Floats


class View(Protocol):
    """A store at one moment. It does not change, so a search can use it whatever is written meanwhile."""

    @property
    def videos(self) -> Mapping[str, Video]:
        """All videos by id."""
        ...

    @property
    def files(self) -> Mapping[str, File]:
        """All files by path."""
        ...

    def segments(self, video: str) -> Segments:
        """The segments of a video; KeyError when it is not there."""
        ...

    def count(self) -> int:
        """How many segments there are."""
        ...

    def search(self, query: Floats, top: int, *, among: Collection[str] | None = None) -> SegmentHits:
        """The ``top`` segments with the largest dot product with ``query`` ``[D]``.

        Args:
            query: a vector.
            top: how many; fewer come back when there are fewer.
            among: ids of the videos to search; all of them by default. Never a segment of another video.
        """
        ...

    def sample(self, count: int) -> Floats:
        """Vectors ``[N, D]`` of about ``count`` segments, evenly spread over the store, the same ones each time."""
        ...

    def recall(self) -> float:
        """Share of the best segments that ``search`` finds: 1 when it compares all of them."""
        ...


class Store(Protocol):
    """Where an index keeps its vectors. One writer at a time (the caller sees to it), any number of readers.

    A method that changes something has done it, for every process and even if this one is killed, when it returns;
    killed in the middle, each video and each file is there as before or as after.
    """

    width: int

    def view(self) -> View:
        """What is in the store now, whichever process has written it. The same object as long as nothing changes."""
        ...

    def add(self, videos: Sequence[tuple[Video, Segments]], files: Sequence[File]) -> None:
        """Add videos that are not there yet, then add files or replace those of the same paths."""
        ...

    def remove(self, videos: Collection[str], paths: Collection[str]) -> None:
        """Forget videos with their segments, and files. What is not there is no error."""
        ...

    def tidy(self, queries: Floats) -> None:
        """Bring the store into good shape for searching, after many changes.

        Args:
            queries: ``[Q, D]`` such as people ask, to tune an approximate index with.
        """
        ...

    def bytes(self) -> int:
        """Size on disk."""
        ...
