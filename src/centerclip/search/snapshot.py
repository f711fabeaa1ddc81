"""A copy of the store in plain files that are mapped, not read: a search starts without opening the database.

It is only a cache: made by the indexer at the end of a run, named after the state of the database that it shows, and
of no harm when it is missing or older: what it lacks then comes from the database.
"""

import json
import shutil
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .lists import WORTH_IT, Lists, assign, make_lists, train_centres
from .matrix import Block, Matrix
from .store import File, Floats, Video

PREFIX = "snapshot-"
FORMAT = 1
RETRAIN = 2.0  # centres are found anew when the collection has grown by this factor


def load_snapshot(folder: Path, token: str | None = None) -> Matrix | None:
    """The view of a state, or with None the latest there is; None when there is none that can be read."""
    names = [f"{PREFIX}{token}"] if token else sorted(p.name for p in folder.glob(f"{PREFIX}*"))
    for name in names:
        try:
            return _load(folder / name)
        except (OSError, ValueError, KeyError, TypeError):  # gone meanwhile, half copied, of another version
            continue
    return None


def _load(place: Path) -> Matrix:
    tables = json.loads((place / "tables.json").read_text(encoding="utf-8"))
    if tables["format"] != FORMAT:
        raise ValueError("another format")
    owners = _mapped(place / "owners.npy")
    lists = None
    if tables["lists"]:
        lists = Lists(np.load(place / "centres.npy"), np.load(place / "begins.npy"), **tables["lists"])
    block = Block(
        tables["ids"],
        owners,
        _mapped(place / "spans.npy"),
        _mapped(place / "vectors.npy"),
        lists,
    )
    if len(block.vectors) != len(owners):
        raise ValueError("columns of different lengths")
    videos = {row[0]: Video(*row) for row in tables["videos"]}
    files = {row[0]: File(*row) for row in tables["files"]}
    return Matrix(int(block.vectors.shape[1]), videos, files, [block])


def _mapped(path: Path) -> NDArray[Any]:
    """A file as an array; a plain one, since every slice of NumPy's own kind costs microseconds."""
    return np.asarray(np.load(path, mmap_mode="r"))


def save_snapshot(folder: Path, token: str, matrix: Matrix, trials: Floats, worth_it: int = WORTH_IT) -> None:
    """Write the snapshot of a state and remove older ones. Whoever has mapped those keeps them.

    Args:
        folder: of the index.
        token: name of the state.
        matrix: the state.
        trials: queries ``[Q, D]`` to find the number of lists with.
        worth_it: how many segments make lists of neighbours worth it.
    """
    place = Path(mkdtemp(dir=folder, prefix=".snapshot-"))
    try:
        ids = list(matrix.videos)
        places = {video: number for number, video in enumerate(ids)}
        owners = np.concatenate([_owners(block, places) for block in matrix.blocks] or [np.zeros(0, np.int32)])
        count = int((owners >= 0).sum())
        centres = _centres(matrix, count) if count >= worth_it else None
        order, begins = _order(matrix.blocks, owners, centres)
        np.save(place / "owners.npy", owners[order])
        spans = np.concatenate([block.spans for block in matrix.blocks] or [np.zeros((0, 2), np.float32)])
        np.save(place / "spans.npy", spans[order])
        vectors = _write_vectors(place / "vectors.npy", matrix, order)
        lists = None
        if centres is not None and begins is not None:
            made = make_lists(vectors, centres, begins, trials if len(trials) else matrix.sample(64))
            lists = {"probes": made.probes, "recall": made.recall}
            np.save(place / "centres.npy", centres)
            np.save(place / "begins.npy", begins)
        tables = {
            "format": FORMAT,
            "ids": ids,
            "lists": lists,
            "videos": [list(asdict(video).values()) for video in matrix.videos.values()],
            "files": [list(asdict(file).values()) for file in matrix.files.values()],
        }
        # ASCII, so that names which are not valid text come back as they are.
        (place / "tables.json").write_text(json.dumps(tables), encoding="ascii")
        target = folder / f"{PREFIX}{token}"
        shutil.rmtree(target, ignore_errors=True)
        place.rename(target)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    remove_snapshots(folder, keep=token)


def remove_snapshots(folder: Path, keep: str | None = None) -> None:
    """Remove snapshots, also what a killed process left of one."""
    for place in [*folder.glob(f"{PREFIX}*"), *folder.glob(".snapshot-*")]:
        if place.name != f"{PREFIX}{keep}":
            shutil.rmtree(place, ignore_errors=True)


def _owners(block: Block, places: dict[str, int]) -> NDArray[np.int32]:
    """``[N]`` new place of each row's video, -1 for videos that are gone."""
    lookup = np.array([places.get(video, -1) for video in block.ids] or [-1], dtype=np.int32)
    return lookup[block.owners]


def _centres(matrix: Matrix, count: int) -> Floats:
    """The centres that are in use, as long as the collection has not outgrown them."""
    lists = matrix.blocks[0].lists
    if lists is not None and count < RETRAIN * int(lists.begins[-1]):
        return lists.centres
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
    """Write the rows in their order, piece by piece, and map the file."""
    out = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(len(order), matrix.width))
    first = 0
    for block in matrix.blocks:
        places = np.flatnonzero((order >= first) & (order < first + len(block)))
        for begin in range(0, len(places), 65_536):
            piece = places[begin : begin + 65_536]
            out[piece] = block.vectors[order[piece] - first]
        first += len(block)
    out.flush()
    return out
