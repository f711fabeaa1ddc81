"""The store on disk: LanceDB keeps what must not be lost, a snapshot in plain files makes it fast to open.

The snapshot is a cache: files that are mapped, not read, so that a search starts without opening the database. When it
is older than the database, the rest comes from there."""

import hashlib
import json
import os
import shutil
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryFile, mkdtemp
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .folder import explain_database_errors
from .matrix import CHUNK_ROWS, IVF, MIN_IVF_ROWS, Block, Matrix, assign, train_centres, tune_ivf
from .store import File, Floats, Segments, Video

VIDEOS, FILES = "videos", "files"
IDS_PER_QUERY = 1000
VIDEOS_PER_BATCH = 64  # read at a time, to bound the memory
COMPACT_EVERY = 100  # changes; each leaves a small file behind
KEEP_OLD = timedelta(hours=1)  # a search that is under way may still read an older state
NOT_TEXT = "\0"  # marks a path that is not valid Unicode
SNAPSHOT = "snapshot-"  # and the name of the state
SNAPSHOT_FORMAT = 2
RETRAIN_GROWTH = 2.0  # centres are trained anew when the collection has grown by this factor


class LanceStore:
    """A :class:`~centerclip.search.store.Store` in a folder.

    A video and its segments are one row, so that they appear, and go, in one step. Vectors are kept as float16.
    """

    def __init__(self, folder: Path, width: int) -> None:
        self.folder, self.width = folder, width
        self._lock = threading.RLock()
        self._database: Any = None
        self._changes = 0
        self._token: str | None = None  # the state that the view shows
        self._view = Matrix(width, {}, {}, [])
        self._ids: set[str] | None = None  # of the videos that are there, for the writer

    # ---- writing --------------------------------------------------------------------------------------------

    def add(self, videos: Sequence[tuple[Video, Segments]], files: Sequence[File]) -> None:
        """Add videos that are not there yet, then add files or replace those of the same paths."""
        import pyarrow as pa

        with self._lock, explain_database_errors(self.folder, "written"):
            known = self._known()
            fresh = {video.id: (video, segments) for video, segments in videos if video.id not in known}
            if fresh:
                rows = [_video_row(video, segments) for video, segments in fresh.values()]
                self._table(VIDEOS).add(pa.Table.from_pylist(rows, schema=_video_schema()))
                known.update(fresh)
            if files:
                rows = [_file_row(file) for file in {file.path: file for file in files}.values()]
                merge = self._table(FILES).merge_insert("path")
                merge.when_matched_update_all().when_not_matched_insert_all().execute(
                    pa.Table.from_pylist(rows, schema=_file_schema())
                )
            self._changed()

    def remove(self, videos: Collection[str], paths: Collection[str]) -> None:
        """Forget videos with their segments, and files."""
        with self._lock, explain_database_errors(self.folder, "written"):
            # Files first: a video without a file is found again by its content, a file without a video is wrong.
            for name, column, values in ((FILES, "path", [_as_text(p) for p in paths]), (VIDEOS, "id", list(videos))):
                for part in _chunks(values):
                    self._table(name).delete(f"{column} IN ({part})")
            self._known().difference_update(videos)
            if videos or paths:
                self._changed()

    def tidy(self, queries: Floats) -> None:
        """Merge small files, and write the snapshot that searches start from."""
        with self._lock, explain_database_errors(self.folder, "written"):
            if load_snapshot(self.folder, self._state()) is None:
                self._compact()
                view, token = self.view(), self._state()
                save_snapshot(self.folder, token, view, queries)
                self._token = None  # from now on use the snapshot: mapped rows take no memory of their own

    def _known(self) -> set[str]:
        """Ids of the videos that are there. Kept apart from the view: who only writes keeps no vectors in memory."""
        if self._ids is None:
            self._ids = set(self.view().videos)
        return self._ids

    def _changed(self) -> None:
        self._changes += 1
        if self._changes % COMPACT_EVERY == 0:
            self._compact()

    def _compact(self) -> None:
        for name in (VIDEOS, FILES):
            self._table(name).optimize(cleanup_older_than=KEEP_OLD)

    # ---- reading --------------------------------------------------------------------------------------------

    def view(self) -> Matrix:
        """What is in the store now, whichever process has written it."""
        with self._lock:
            token = self._state()
            if token != self._token:
                self._view = load_snapshot(self.folder, token) or self._read_tables()
                self._token = token
            return self._view

    def _read_tables(self) -> Matrix:
        """Read what is new: rows never change, so vectors that are in memory or in a snapshot stay."""
        if not (self.folder / f"{VIDEOS}.lance").is_dir():
            return Matrix(self.width, {}, {}, [])
        with explain_database_errors(self.folder, "read"):
            # Files first: those of the state before belong to videos that are surely there.
            files = [_file(row) for row in self._read(FILES).to_pylist()]
            columns = ["id", "duration", "width", "height", "added", "note"]
            videos = {row["id"]: Video(**row) for row in self._read(VIDEOS, columns).to_pylist()}
            old = self._view
            if not old.blocks:
                old = load_snapshot(self.folder) or old
            known = set().union(*(block.ids for block in old.blocks)) - old.gone
            missing = [video for video in videos if video not in known]
            fresh = self._read_block(missing, len(videos))
        # A video that went and came back is in an older block too: that one must not count.
        kept = [_without(block, set(missing)) for block in old.blocks]
        small = [block for block in kept[1:] if len(block)] + ([fresh] if len(fresh) else [])
        blocks = [*kept[:1], *([_joined(small, self.width)] if small else [])]
        gone = frozenset(video for block in blocks for video in block.ids if video not in videos)
        return Matrix(self.width, videos, {file.path: file for file in files}, blocks, gone)

    def _read(self, name: str, columns: list[str] | None = None, where: str | None = None) -> Any:
        query = self._table(name).search()
        query = query.where(where) if where else query
        query = query.select(columns) if columns else query
        return query.limit(2**31 - 1).to_arrow()

    def _read_block(self, missing: Sequence[str], total: int) -> Block:
        """Read the segments of videos into a file that goes with the process, so that they take no memory."""
        wanted, ids = set(missing), list[str]()
        counts, spans = list[int](), [np.zeros((0, 2), np.float32)]
        with TemporaryFile(dir=self.folder) as scratch:
            # A list of ids is read faster when it is short, everything when it is long.
            parts = list(_chunks(missing)) if len(missing) < total / 2 else [None] if missing else []
            for part in parts:
                query = self._table(VIDEOS).search().select(["id", "starts", "ends", "vectors"]).limit(2**31 - 1)
                query = query.where(f"id IN ({part})") if part else query
                for batch in query.to_batches(VIDEOS_PER_BATCH):
                    for row in batch.to_pylist():
                        if row["id"] in wanted:
                            ids.append(row["id"])
                            counts.append(len(row["starts"]))
                            spans.append(np.array([row["starts"], row["ends"]], np.float32).T)
                            scratch.write(np.frombuffer(row["vectors"], np.float16).astype(np.float32).tobytes())
            scratch.flush()
            shape = (sum(counts), self.width)
            vectors = np.memmap(scratch, np.float32, "r", shape=shape) if shape[0] else np.zeros(shape, np.float32)
        owners = np.repeat(np.arange(len(ids), dtype=np.int32), counts)
        return Block(ids, owners, np.concatenate(spans), vectors)

    def bytes(self) -> int:
        """Size on disk."""
        return sum(file.stat().st_size for file in self.folder.rglob("*") if file.is_file())

    # ---- inside ---------------------------------------------------------------------------------------------

    def _state(self) -> str:
        """A name for the state of the database, from the names of its versions: without opening it."""
        digest = hashlib.blake2b(digest_size=12)
        for name in (VIDEOS, FILES):
            try:
                versions = sorted(os.listdir(self.folder / f"{name}.lance" / "_versions"))  # noqa: PTH208
            except FileNotFoundError:
                versions = []
            digest.update("\n".join([name, *(v for v in versions if v.endswith(".manifest"))]).encode())
        return digest.hexdigest()

    def _table(self, name: str) -> Any:
        """A table, made if it is not there, at its latest state."""
        import lancedb

        if self._database is None:
            self._database = lancedb.connect(str(self.folder))
        if not (self.folder / f"{name}.lance" / "_versions").is_dir():
            schema = _video_schema() if name == VIDEOS else _file_schema()
            return self._database.create_table(name, schema=schema, exist_ok=True)
        return self._database.open_table(name)


def load_snapshot(folder: Path, token: str | None = None) -> Matrix | None:
    """The view of a state, or with None the latest there is; None when there is none that can be read."""
    names = [f"{SNAPSHOT}{token}"] if token else sorted(p.name for p in folder.glob(f"{SNAPSHOT}*"))
    for name in names:
        try:
            return _load(folder / name)
        except (OSError, ValueError, KeyError, TypeError):  # gone meanwhile, half copied, of another version
            continue
    return None


def save_snapshot(folder: Path, token: str, matrix: Matrix, queries: Floats, min_ivf_rows: int = MIN_IVF_ROWS) -> None:
    """Write the snapshot of a state and remove older ones. Whoever has mapped those keeps them.

    Args:
        folder: of the index.
        token: name of the state.
        matrix: the state.
        queries: ``[Q, D]`` to tune an inverted file with.
        min_ivf_rows: how many segments make an inverted file worth it.
    """
    place = Path(mkdtemp(dir=folder, prefix=".snapshot-"))
    try:
        ids = list(matrix.videos)
        places = {video: number for number, video in enumerate(ids)}
        owners = np.concatenate([_owners(block, places) for block in matrix.blocks] or [np.zeros(0, np.int32)])
        count = int((owners >= 0).sum())
        centres = _centres(matrix, count) if count >= min_ivf_rows else None
        order, begins = _order(matrix.blocks, owners, centres)
        np.save(place / "owners.npy", owners[order])
        spans = np.concatenate([block.spans for block in matrix.blocks] or [np.zeros((0, 2), np.float32)])
        np.save(place / "spans.npy", spans[order])
        vectors = _write_vectors(place / "vectors.npy", matrix, order)
        ivf = None
        if centres is not None and begins is not None:
            tuned = tune_ivf(vectors, centres, begins, queries if len(queries) else matrix.sample(64))
            ivf = {"probes": tuned.probes, "recall": tuned.recall}
            np.save(place / "centres.npy", centres)
            np.save(place / "begins.npy", begins)
        tables = {
            "format": SNAPSHOT_FORMAT,
            "ids": ids,
            "ivf": ivf,
            "videos": [list(asdict(video).values()) for video in matrix.videos.values()],
            "files": [list(asdict(file).values()) for file in matrix.files.values()],
        }
        # ASCII, so that names which are not valid text come back as they are.
        (place / "tables.json").write_text(json.dumps(tables), encoding="ascii")
        target = folder / f"{SNAPSHOT}{token}"
        shutil.rmtree(target, ignore_errors=True)
        place.rename(target)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    remove_snapshots(folder, keep=token)


def remove_snapshots(folder: Path, keep: str | None = None) -> None:
    """Remove snapshots, also what a killed process left of one."""
    for place in [*folder.glob(f"{SNAPSHOT}*"), *folder.glob(".snapshot-*")]:
        if place.name != f"{SNAPSHOT}{keep}":
            shutil.rmtree(place, ignore_errors=True)


def _load(place: Path) -> Matrix:
    tables = json.loads((place / "tables.json").read_text(encoding="utf-8"))
    if tables["format"] != SNAPSHOT_FORMAT:
        raise ValueError("another format")
    owners = _mapped(place / "owners.npy")
    ivf = None
    if tables["ivf"]:
        ivf = IVF(np.load(place / "centres.npy"), np.load(place / "begins.npy"), **tables["ivf"])
    block = Block(tables["ids"], owners, _mapped(place / "spans.npy"), _mapped(place / "vectors.npy"), ivf)
    if len(block.vectors) != len(owners):
        raise ValueError("columns of different lengths")
    videos = {row[0]: Video(*row) for row in tables["videos"]}
    files = {row[0]: File(*row) for row in tables["files"]}
    return Matrix(int(block.vectors.shape[1]), videos, files, [block])


def _mapped(path: Path) -> NDArray[Any]:
    """A file as an array; a plain one, since every slice of NumPy's own kind costs microseconds."""
    return np.asarray(np.load(path, mmap_mode="r"))


def _owners(block: Block, places: dict[str, int]) -> NDArray[np.int32]:
    """``[N]`` new place of each row's video, -1 for videos that are gone."""
    lookup = np.array([places.get(video, -1) for video in block.ids] or [-1], dtype=np.int32)
    return lookup[block.owners]


def _centres(matrix: Matrix, count: int) -> Floats:
    """The centres that are in use, as long as the collection has not outgrown them."""
    ivf = matrix.blocks[0].ivf
    if ivf is not None and count < RETRAIN_GROWTH * int(ivf.begins[-1]):
        return ivf.centres
    return train_centres(_rows(matrix))


def _rows(matrix: Matrix) -> Floats:
    return (
        matrix.blocks[0].vectors
        if len(matrix.blocks) == 1
        else np.concatenate([block.vectors for block in matrix.blocks])
    )


def _order(
    blocks: Iterable[Block], owners: NDArray[np.int32], centres: Floats | None
) -> tuple[NDArray[np.int64], NDArray[np.int64] | None]:
    """Rows that stay: video by video, or list by list with the first row of each list."""
    kept = np.flatnonzero(owners >= 0)
    if centres is None:
        return kept[np.argsort(owners[kept], kind="stable")], None
    nearest = np.concatenate([assign(block.vectors, centres) for block in blocks])[kept]
    order = np.lexsort((kept, owners[kept], nearest))
    return kept[order], np.searchsorted(nearest[order], np.arange(len(centres) + 1))


def _write_vectors(path: Path, matrix: Matrix, order: NDArray[np.int64]) -> Floats:
    """Write the rows in their order, a chunk at a time, and map the file."""
    out = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(len(order), matrix.width))
    first = 0
    for block in matrix.blocks:
        places = np.flatnonzero((order >= first) & (order < first + len(block)))
        for begin in range(0, len(places), CHUNK_ROWS):
            chunk = places[begin : begin + CHUNK_ROWS]
            out[chunk] = block.vectors[order[chunk] - first]
        first += len(block)
    out.flush()
    return out


def _without(block: Block, videos: set[str]) -> Block:
    """A block whose rows of some videos count no more."""
    if not videos.intersection(block.ids):
        return block
    ids = ["" if video in videos else video for video in block.ids]
    return Block(ids, block.owners, block.spans, block.vectors, block.ivf)


def _joined(blocks: Sequence[Block], width: int) -> Block:
    if len(blocks) == 1:
        return blocks[0]
    return Block.of(((v, block.segments(v)) for block in blocks for v in block.ids if v), width)


def _video_schema() -> Any:
    import pyarrow as pa

    times = pa.list_(pa.float32())
    return pa.schema(
        [
            ("id", pa.string()),
            ("duration", pa.float64()),
            ("width", pa.int32()),
            ("height", pa.int32()),
            ("added", pa.float64()),
            ("note", pa.string()),
            ("starts", times),
            ("ends", times),
            ("vectors", pa.large_binary()),
        ]
    )


def _file_schema() -> Any:
    import pyarrow as pa

    return pa.schema(
        [
            ("path", pa.string()),
            ("size", pa.int64()),
            ("modified", pa.int64()),
            ("video", pa.string()),
            ("failure", pa.string()),
        ]
    )


def _video_row(video: Video, segments: Segments) -> dict[str, Any]:
    return vars(video) | {
        "starts": segments.starts,
        "ends": segments.ends,
        "vectors": segments.vectors.astype(np.float16).tobytes(),
    }


def _file_row(file: File) -> dict[str, Any]:
    return vars(file) | {"path": _as_text(file.path), "failure": _printable(file.failure)}


def _file(row: dict[str, Any]) -> File:
    return File(**row | {"path": _as_path(row["path"])})


def _as_text(path: str) -> str:
    """A path as valid Unicode: file systems take names that are not."""
    raw = os.fsencode(path)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return NOT_TEXT + raw.decode("latin-1")


def _as_path(text: str) -> str:
    return os.fsdecode(text[1:].encode("latin-1")) if text.startswith(NOT_TEXT) else text


def _printable(text: str) -> str:
    return text.encode(errors="replace").decode()


def _chunks(values: Sequence[str]) -> Iterator[str]:
    """Lists of quoted values for SQL."""
    for first in range(0, len(values), IDS_PER_QUERY):
        yield ", ".join("'" + value.replace("'", "''") + "'" for value in values[first : first + IDS_PER_QUERY])
