"""All segments of a collection as one matrix in memory, and a search that is one product with it.

Rows are only ever appended, so that a view of an earlier state stays as it is while newer ones share its memory."""

import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from .coarse import Blocks, coarse_scores, grow
from .filters import Listing
from .store import Among, File, Floats, SegmentHits, Segments, Video

Rows = NDArray[np.int64]
Job = tuple[Floats, list[tuple[Floats, float]]]  # a query [D], and where its scores [N] and their largest error go
MAX_EXACT_SEGMENTS = 250_000  # up to so many one product takes no longer than an approximate index
GATHERED_SHARE = 1 / 16  # of the rows; when a filter leaves fewer, only those are multiplied
GROWTH = 1.25  # of what is needed: copying all rows takes long, and memory that is not used yet is not taken
MAX_SHARED = 32  # queries in one product: more only take memory
SHARED_ROWS = 256  # of the matrix at a time: they stay in the cache while each query is multiplied with them
WORTH_PRODUCTS = 16  # to make rows in 8 bits takes as long as some products: for a single search none are made
MIN_DEAD_ROWS = 10_000  # rows of removed videos; from here on, when they are the most, the memory is made anew


@dataclass(frozen=True)
class Block:
    """The rows of a view.

    Attributes:
        ids: ids of at least ``V`` videos, also of some that are gone.
        begins: ``[V + 1]`` first row of each video.
        owners: ``[N]`` place in ``ids`` of each row's video.
        spans: ``[N, 2]`` start and end, seconds.
        vectors: ``[N, D]``.
        places: place in ``ids`` of each video that counts.
        complete: whether all rows count.
        coarse: rows in 8 bits, shared with other views.
    """

    ids: list[str]
    begins: list[int]
    owners: NDArray[np.int32]
    spans: Floats
    vectors: Floats
    places: dict[str, int]
    complete: bool
    coarse: Blocks

    def rows_of(self, video: str) -> slice:
        """The rows of a video, in the order of time; KeyError when it is not there."""
        place = self.places[video]
        return slice(self.begins[place], self.begins[place + 1])


class Buffer:
    """Memory that blocks share, filled at its end."""

    def __init__(self, width: int) -> None:
        self.ids: list[str] = []
        self.begins = [0]
        self._owners = np.empty(0, np.int32)
        self._spans = np.empty((0, 2), np.float32)
        self._vectors = np.empty((0, width), np.float32)
        self._coarse: Blocks = {}

    def reserve(self, rows: int) -> None:
        """Make room for so many more."""
        used, capacity = self.begins[-1], len(self._owners)
        if used + rows > capacity:
            capacity = int(GROWTH * (used + rows))
            for name in ("_owners", "_spans", "_vectors"):
                old = getattr(self, name)
                new = np.empty((capacity, *old.shape[1:]), old.dtype)
                new[:used] = old[:used]
                setattr(self, name, new)

    def append(self, video: str, starts: Floats, ends: Floats, vectors: NDArray[np.floating]) -> None:
        """Add the segments of a video, ``[S]``, ``[S]`` and ``[S, D]``, for which there is room."""
        rows = slice(self.begins[-1], self.begins[-1] + len(starts))
        self._owners[rows] = len(self.ids)
        self._spans[rows, 0], self._spans[rows, 1] = starts, ends
        self._vectors[rows] = vectors
        self.ids.append(video)
        self.begins.append(rows.stop)

    def block(self, videos: Collection[str]) -> Block:
        """The rows as they are now, of which those of ``videos`` count."""
        rows = self.begins[-1]
        # A video that went and came back is there twice: the later one counts.
        places = {video: place for place, video in enumerate(self.ids) if video in videos}
        columns = self._owners[:rows], self._spans[:rows], self._vectors[:rows]
        return Block(self.ids, self.begins, *columns, places, len(places) == len(self.ids), self._coarse)

    def without_dead_rows(self, block: Block) -> "Buffer":
        """This buffer; a new one with what counts, when most of the rows no longer do."""
        alive = sum(block.begins[place + 1] - block.begins[place] for place in block.places.values())
        if self.begins[-1] - alive < max(MIN_DEAD_ROWS, alive):
            return self
        fresh = Buffer(self._vectors.shape[1])
        fresh.reserve(alive)
        for video in block.places:
            rows = block.rows_of(video)
            fresh.append(video, block.spans[rows, 0], block.spans[rows, 1], block.vectors[rows])
        return fresh


class Products:
    """Products of a matrix with the queries of several threads, one after the other.

    Reading the matrix from memory takes most of the time, so that queries that wait for their turn share one product,
    and once there were some queries most rows are read in 8 bits.

    Args:
        vectors: ``[N, D]``.
        coarse: rows of them in 8 bits; filled here.
    """

    def __init__(self, vectors: Floats, coarse: Blocks) -> None:
        self.vectors, self.coarse = vectors, coarse
        self._products = 0
        self._turn = threading.Lock()
        self._waiting: deque[Job] = deque()

    def scores(self, query: Floats) -> tuple[Floats, float]:
        """``[N]`` of a query ``[D]``, and how far from exact they may be."""
        job: Job = (query, [])
        self._waiting.append(job)
        with self._turn:
            if not job[1]:  # nobody has answered it meanwhile
                self._multiply(job)
        return job[1][0]

    def _multiply(self, job: Job) -> None:
        """Answer a query, and others that wait."""
        jobs = [job]
        while self._waiting and len(jobs) < MAX_SHARED:
            other = self._waiting.popleft()
            if other is not job and not other[1]:
                jobs.append(other)
        queries, errors = np.stack([query for query, _ in jobs]), np.zeros(len(jobs), np.float32)
        scores = np.empty((len(jobs), len(self.vectors)), np.float32)
        self._products += 1
        rows = grow(self.coarse, self.vectors) if self._products > WORTH_PRODUCTS else 0
        if rows:
            errors = coarse_scores(self.coarse, queries, scores[:, :rows])
        step = SHARED_ROWS if len(jobs) > 1 else max(1, len(self.vectors))
        for first in range(rows, len(self.vectors), step):
            for place, query in enumerate(queries):
                part = self.vectors[first : first + step]
                np.matmul(part, query, out=scores[place, first : first + step])
        for (_, answer), own, error in zip(jobs, scores, errors.tolist(), strict=True):
            answer.append((own, error))


class Matrix(Listing):
    """The part of a :class:`~centerclip.search.store.View` that is in memory.

    Args:
        width: of the vectors.
        videos: by id.
        files: by path.
        sizes: how many segments each video has.
        load: gives the rows, when they are needed.
    """

    def __init__(
        self,
        width: int,
        videos: Mapping[str, Video],
        files: Mapping[str, File],
        sizes: Mapping[str, int],
        load: Callable[[], Block],
    ) -> None:
        self.width, self.videos, self.files, self.sizes, self._load = width, videos, files, sizes, load
        self._count = sum(sizes.values())
        self._samples: dict[int, Floats] = {}  # every search looks at one

    @cached_property
    def block(self) -> Block:
        """The rows, read at the first use."""
        return self._load()

    def size(self, video: str) -> int:
        """How many segments a video has; KeyError when it is not there."""
        return self.sizes[video]

    def count(self) -> int:
        """How many segments there are."""
        return self._count

    def segments(self, video: str) -> Segments:
        """The segments of a video; KeyError when it is not there."""
        rows = self.block.rows_of(video)
        return Segments(self.block.spans[rows, 0], self.block.spans[rows, 1], self.block.vectors[rows])

    def search(self, query: Floats, top: int, *, among: Among = None) -> SegmentHits:
        """The ``top`` segments with the largest scores, of the videos ``among``."""
        block, rows = self.block, self._rows(self.passing(among))
        if rows is not None and len(rows) < GATHERED_SHARE * len(block.owners):
            scores = block.vectors[rows] @ query
        else:
            scores, error = self._products.scores(query)
            scores = scores if rows is None else scores[rows]
            if error:  # what is further than that from the last of the best is not among them
                last = np.partition(scores, -top)[-top] if 0 < top < len(scores) else -np.inf
                near = np.flatnonzero(scores >= last - 2 * error)
                rows = near if rows is None else rows[near]
                few = len(rows) < GATHERED_SHARE * len(block.owners)
                scores = np.vecdot(block.vectors[rows], query) if few else (block.vectors @ query)[rows]
        best = np.argpartition(scores, -top)[-top:] if 0 < top < len(scores) else np.arange(len(scores))[: max(top, 0)]
        best = best[np.lexsort((best, -scores[best]))]  # of equal scores the earlier row first
        owners = block.owners[best if rows is None else rows[best]]
        return SegmentHits([block.ids[owner] for owner in owners.tolist()], scores[best])

    def sample(self, count: int) -> Floats:
        """Vectors ``[N, D]`` of about ``count`` rows, evenly spread."""
        if count not in self._samples:
            rows = self._rows(None)
            step = max(1, (len(self.block.owners) if rows is None else len(rows)) // max(count, 1))
            sample = self.block.vectors[::step] if rows is None else self.block.vectors[rows[::step]]
            self._samples[count] = np.ascontiguousarray(sample)  # rows far apart would be slow to multiply
        return self._samples[count]

    def recall(self) -> float:
        """Nothing is passed over."""
        return 1.0

    def _rows(self, among: Collection[str] | None) -> Rows | None:
        """The rows that count; None for all."""
        block = self.block
        if among is None:
            return None if block.complete else self._alive
        return _rows_of(block, [block.places[video] for video in among if video in block.places])

    @cached_property
    def _products(self) -> Products:
        return Products(self.block.vectors, self.block.coarse)

    @cached_property
    def _alive(self) -> Rows:
        return _rows_of(self.block, list(self.block.places.values()))


def _rows_of(block: Block, places: list[int]) -> Rows:
    wanted = np.zeros(len(block.ids), dtype=bool)
    wanted[places] = True
    return np.flatnonzero(wanted[block.owners])
