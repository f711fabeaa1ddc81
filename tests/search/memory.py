"""A store that lives in memory: the plainest that conforms, for tests and for collections that need not be kept."""

from collections.abc import Collection, Sequence

import numpy as np

from centerclip.search.store import File, Floats, SegmentHits, Segments, Video


class MemoryView:
    """A :class:`~centerclip.search.store.View` of dictionaries."""

    def __init__(
        self, width: int, videos: dict[str, Video], files: dict[str, File], by_id: dict[str, Segments]
    ) -> None:
        self.width, self.videos, self.files, self._segments = width, videos, files, by_id

    def segments(self, video: str) -> Segments:
        """The segments of a video."""
        return self._segments[video]

    def count(self) -> int:
        """How many segments there are."""
        return sum(len(segments) for segments in self._segments.values())

    def search(self, query: Floats, top: int, *, among: Collection[str] | None = None) -> SegmentHits:
        """Look at every segment."""
        wanted = [video for video in self._segments if among is None or video in among]
        owners = [video for video in wanted for _ in range(len(self._segments[video]))]
        if not owners or top < 1:
            return SegmentHits([], np.zeros(0, np.float32))
        scores = np.concatenate([self._segments[video].vectors for video in wanted]) @ query
        order = np.argsort(-scores, kind="stable")[:top]
        return SegmentHits([owners[row] for row in order], scores[order])

    def sample(self, count: int) -> Floats:
        """Evenly spread rows."""
        if not self._segments:
            return np.zeros((0, self.width), np.float32)
        rows = np.concatenate([segments.vectors for segments in self._segments.values()])
        return rows[:: max(1, len(rows) // max(count, 1))]

    def recall(self) -> float:
        """Nothing is passed over."""
        return 1.0


class MemoryStore:
    """A :class:`~centerclip.search.store.Store` of dictionaries."""

    def __init__(self, width: int) -> None:
        self.width = width
        self._view = MemoryView(width, {}, {}, {})

    def view(self) -> MemoryView:
        """What is in the store now."""
        return self._view

    def add(self, videos: Sequence[tuple[Video, Segments]], files: Sequence[File]) -> None:
        """Add videos that are not there yet, then files."""
        old = self._view
        fresh = {video.id: (video, segments) for video, segments in videos if video.id not in old.videos}
        self._view = MemoryView(
            self.width,
            old.videos | {video: known for video, (known, _) in fresh.items()},
            old.files | {file.path: file for file in files},
            old._segments | {video: segments for video, (_, segments) in fresh.items()},
        )

    def remove(self, videos: Collection[str], paths: Collection[str]) -> None:
        """Forget videos and files."""
        old = self._view
        self._view = MemoryView(
            self.width,
            {video: known for video, known in old.videos.items() if video not in videos},
            {path: file for path, file in old.files.items() if path not in paths},
            {video: segments for video, segments in old._segments.items() if video not in videos},
        )

    def tidy(self, queries: Floats) -> None:
        """Nothing to do."""

    def bytes(self) -> int:
        """Nothing on disk."""
        return 0
