"""A store that lives in memory: the plainest that conforms, for tests and for collections that need not be kept."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from centerclip.files import is_below
from centerclip.search.filters import Listing
from centerclip.search.store import (
    AddedVideo,
    Among,
    File,
    Floats,
    Line,
    LineHit,
    SegmentHits,
    Segments,
    TextSource,
    Video,
)
from centerclip.search.text import index_name, index_text, match_texts


@dataclass(frozen=True, eq=False)
class MemoryView(Listing):
    """A :class:`~centerclip.search.store.View` of dictionaries."""

    width: int
    videos: dict[str, Video] = field(default_factory=dict)
    files: dict[str, File] = field(default_factory=dict)
    by_id: dict[str, Segments] = field(default_factory=dict)
    text: dict[str, list[Line]] = field(default_factory=dict)
    read: frozenset[tuple[str, TextSource]] = frozenset()

    @property
    def has_lines(self) -> bool:
        """Whether there is any line."""
        return any(self.text.values())

    def segments(self, video: str) -> Segments:
        """The segments of a video."""
        return self.by_id[video]

    def size(self, video: str) -> int:
        """How many segments a video has."""
        return len(self.by_id[video])

    def count(self) -> int:
        """How many segments there are."""
        return sum(len(segments) for segments in self.by_id.values())

    def search(self, query: Floats, top: int, *, among: Among = None) -> SegmentHits:
        """Look at every segment."""
        among = self.passing(among)
        wanted = [video for video in self.by_id if among is None or video in among]
        owners = [video for video in wanted for _ in range(len(self.by_id[video]))]
        if not owners or top < 1:
            return SegmentHits([], np.zeros(0, np.float32))
        scores = np.concatenate([self.by_id[video].vectors for video in wanted]) @ query
        order = np.argsort(-scores, kind="stable")[:top]
        return SegmentHits([owners[row] for row in order], scores[order])

    def sample(self, count: int) -> Floats:
        """Evenly spread rows."""
        if not self.by_id:
            return np.zeros((0, self.width), np.float32)
        rows = np.concatenate([segments.vectors for segments in self.by_id.values()])
        return rows[:: max(1, len(rows) // max(count, 1))]

    def recall(self) -> float:
        """Nothing is passed over."""
        return 1.0

    def lines(self, video: str) -> list[Line]:
        """The lines of a video."""
        return sorted(self.text.get(video, []), key=lambda line: line.start)

    def read_videos(self, source: TextSource) -> set[str]:
        """The videos whose lines of a source have been set."""
        return {video for video, read in self.read if read == source}

    def search_lines(self, match: str, top: int, *, among: Among = None) -> list[LineHit]:
        """Index every line anew."""
        among = self.passing(among)
        lines = [(video, line) for video, several in self.text.items() for line in several]
        found = [(*lines[row], rank) for row, rank in match_texts(match, (index_text(line.text) for _, line in lines))]
        hits = [LineHit(**vars(each), video=video, rank=rank) for video, each, rank in found]
        return [hit for hit in hits if among is None or hit.video in among][:top]

    def search_names(self, match: str, top: int, *, among: Among = None) -> list[tuple[str, str, float]]:
        """Index every name anew."""
        among = self.passing(among)
        files = [file for file in self.files.values() if file.video]
        names = (index_name(file.path.encode(errors="replace").decode()) for file in files)
        found = [(files[row].path, files[row].video, rank) for row, rank in match_texts(match, names)]
        return [hit for hit in found if among is None or hit[1] in among][:top]


class MemoryStore:
    """A :class:`~centerclip.search.store.Store` of dictionaries."""

    def __init__(self, width: int) -> None:
        self.width = width
        self._view = MemoryView(width)
        self._values: dict[str, bytes] = {}

    def view(self) -> MemoryView:
        """What is in the store now."""
        return self._view

    def add(self, videos: Sequence[AddedVideo], files: Sequence[File]) -> None:
        """Add videos that are not there yet, then files."""
        old = self._view
        fresh: dict[str, AddedVideo] = {}
        for added in videos:
            if added[0].id not in old.videos:
                fresh.setdefault(added[0].id, added)
        for file in files:
            if file.video and file.video not in old.videos and file.video not in fresh:
                raise KeyError(file.video)
        self._view = replace(
            old,
            videos=old.videos | {video: known for video, (known, _, _) in fresh.items()},
            files=old.files | {file.path: file for file in files},
            by_id=old.by_id | {video: segments for video, (_, segments, _) in fresh.items()},
            text=old.text | {video: list(lines) for video, (_, _, lines) in fresh.items()},
        )

    def replace(self, video: Video, segments: Segments) -> None:
        """Replace a video and its segments."""
        old = self._view
        if video.id not in old.videos:
            raise KeyError(video.id)
        self._view = replace(old, videos=old.videos | {video.id: video}, by_id=old.by_id | {video.id: segments})

    def add_lines(self, video: str, lines: Sequence[Line], source: TextSource) -> None:
        """Replace the lines of a source."""
        old = self._view
        kept = [line for line in old.text[video] if line.source != source]
        text = old.text | {video: kept + [replace(line, source=source) for line in lines]}
        self._view = replace(old, text=text, read=old.read | {(video, source)})

    def remove(self, videos: Collection[str], paths: Collection[str]) -> None:
        """Forget videos and files."""
        old = self._view
        self._view = replace(
            old,
            videos={video: known for video, known in old.videos.items() if video not in videos},
            files={path: file for path, file in old.files.items() if path not in paths and file.video not in videos},
            by_id={video: segments for video, segments in old.by_id.items() if video not in videos},
            text={video: lines for video, lines in old.text.items() if video not in videos},
            read=frozenset((video, source) for video, source in old.read if video not in videos),
        )

    def move(self, old: str, new: str) -> int:
        """Files at or below a path are elsewhere now."""
        files = self._view.files.values()
        moved = [replace(file, path=new + file.path[len(old) :]) for file in files if is_below(file.path, old)]
        kept = {file.path: file for file in files if not is_below(file.path, old)}
        self._view = replace(self._view, files=kept | {file.path: file for file in moved})
        return len(moved)

    def value(self, name: str) -> bytes | None:
        """What is kept under a name."""
        return self._values.get(name)

    def set_value(self, name: str, value: bytes) -> None:
        """Keep something under a name."""
        self._values[name] = value

    def tidy(self, queries: Floats) -> None:
        """Nothing to do."""

    def bytes(self) -> int:
        """Nothing on disk."""
        return 0
