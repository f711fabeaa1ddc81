"""Search in collections that are too large for one product: the approximate index, on vectors like real ones.

    python benchmarks/large.py VECTORS.npy QUERIES.npy                       # a million segments
    python benchmarks/large.py VECTORS.npy QUERIES.npy --segments 10000000   # ten million

VECTORS are of real images or segments, QUERIES of sentences, [N, D] and [Q, D], by the same model. The vectors are
multiplied by mixing near neighbours. Half of the queries tune the index, the other half are asked. Recall is that of
the best ten, against exact search.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Collection, Iterator
from pathlib import Path

import numpy as np
import psutil

from centerclip.search.approximate import LargeView
from centerclip.search.ranking import rank
from centerclip.search.sqlite import SqliteStore
from centerclip.search.store import File, Floats, Segments, Video, View

PER_VIDEO = 40  # segments: videos of two minutes
COMMIT = 1000  # videos
NEIGHBOURS = 16
TOP = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("vectors", type=Path)
    parser.add_argument("queries", type=Path)
    parser.add_argument("--segments", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, help="where the index is made, and kept")
    parser.add_argument("--asked", type=int, default=100, help="queries that are asked")
    arguments = parser.parse_args()
    base, queries = (np.load(path).astype(np.float32) for path in (arguments.vectors, arguments.queries))
    tuning, asked = queries[::2], queries[1::2][: arguments.asked]
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        report = measure(folder, base, tuning, asked, arguments.segments)
    print(json.dumps(report, indent=2))


def measure(folder: Path, base: Floats, tuning: Floats, asked: Floats, count: int) -> dict[str, object]:
    width, process = base.shape[1], psutil.Process()
    report: dict[str, object] = {"segments": count, "width": width}
    store = SqliteStore(folder, width)
    videos = count // PER_VIDEO
    if not store.view().videos:
        for first in range(0, videos, COMMIT):
            add(store, mixed(base, first, min(COMMIT, videos - first)), first)
    began = time.perf_counter()
    store.tidy(tuning)
    report["build seconds"] = round(time.perf_counter() - began, 1)
    report["database MB"] = round(store.bytes() / 1e6)
    report["index MB"] = round(sum(path.stat().st_size for path in folder.glob("approximate-*/*")) / 1e6)
    del store
    began, before = time.process_time(), process.memory_info().rss
    store = SqliteStore(folder, width)
    view = store.view()
    view.search(asked[0], TOP)
    assert isinstance(view, LargeView), "there is no approximate index"
    report["open to first hit, processor seconds"] = round(time.process_time() - began, 2)
    report["lists"], report["probes"] = int(view.index.lists), view.index.description.probes
    report["search ms"] = timed(view, asked)
    report["rank ms"] = round(statistics.median(seconds(lambda q=q: rank(view, q, TOP)) for q in asked) * 1e3, 1)
    report["memory MB"] = round((process.memory_info().rss - before) / 1e6)
    report["recall"] = recall(store, view, asked)
    names = sorted(view.videos)
    for share in (0.01, 0.0001):
        among = set(names[:: round(1 / share)])
        report[f"filter {share:.2%}"] = {"ms": timed(view, asked, among), "recall": recall(store, view, asked, among)}
    began = time.perf_counter()
    add(store, mixed(base, videos, 1), videos)
    store.tidy(tuning)
    newest = store.view()
    vector = newest.segments(name_of(videos)).vectors[0]
    assert newest.search(vector, 1).videos
    report["adding one video, seconds"] = round(time.perf_counter() - began, 2)
    store.remove(names[::5], [])
    view = store.view()
    gone = set(names[::5])
    assert not any(gone & set(view.search(query, 100).videos) for query in asked)
    report["a fifth deleted"] = {"ms": timed(view, asked), "recall": recall(store, view, asked)}
    return report


def name_of(number: int) -> str:
    return f"{number:032x}"


def add(store: SqliteStore, made: Iterator[Floats], first: int) -> None:
    starts = np.arange(PER_VIDEO, dtype=np.float32) * 3
    videos = [
        (Video(name_of(first + n), 120.0, 640, 360, 0.0), Segments(starts, starts + 3, vectors), ())
        for n, vectors in enumerate(made)
    ]
    store.add(videos, [File(f"/videos/{video.id}.mp4", 1, 1, video.id) for video, _, _ in videos])


def mixed(base: Floats, first: int, count: int) -> Iterator[Floats]:
    """Vectors ``[PER_VIDEO, D]`` of videos: each a mixture of a real one and two near it."""
    near = neighbours(base)
    for number in range(first, first + count):
        random = np.random.default_rng(number)
        one = random.integers(len(base), size=PER_VIDEO)
        two = near[one, random.integers(NEIGHBOURS, size=PER_VIDEO)]
        three = near[two, random.integers(NEIGHBOURS, size=PER_VIDEO)]
        weights = random.dirichlet([1, 1, 1], size=PER_VIDEO).astype(np.float32)
        vectors = sum(weights[:, [n]] * base[each] for n, each in enumerate((one, two, three)))
        yield vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


_NEAR: dict[int, np.ndarray] = {}


def neighbours(base: Floats) -> np.ndarray:
    if id(base) not in _NEAR:
        _NEAR[id(base)] = np.concatenate(
            [
                np.argpartition(-(base[first : first + 1000] @ base.T), NEIGHBOURS + 1, axis=1)[:, : NEIGHBOURS + 1]
                for first in range(0, len(base), 1000)
            ]
        )[:, 1:]
    return _NEAR[id(base)]


def seconds(action: object) -> float:
    began = time.perf_counter()
    action()  # type: ignore[operator]
    return time.perf_counter() - began


def timed(view: View, asked: Floats, among: Collection[str] | None = None) -> dict[str, float]:
    """Milliseconds of a search for the best ten."""
    times = [seconds(lambda q=q: view.search(q, TOP, among=among)) for q in asked]
    return {"median": round(statistics.median(times) * 1e3, 1), "p95": round(float(np.quantile(times, 0.95)) * 1e3, 1)}


def recall(store: SqliteStore, view: View, asked: Floats, among: Collection[str] | None = None) -> float:
    """Share of the best ten scores that a search finds."""
    best = np.full((len(asked), TOP), -np.inf, np.float32)
    wanted = view.videos if among is None else among
    with store.database.read() as connection:
        for video, vectors in connection.execute("SELECT id, vectors FROM segments JOIN video ON video = key"):
            if video in wanted:
                scores = asked @ np.frombuffer(vectors, "<f2").reshape(-1, store.width).astype(np.float32).T
                best = -np.sort(-np.concatenate([best, scores], axis=1), axis=1)[:, :TOP]
    found = [view.search(query, TOP, among=among).scores for query in asked]
    shares = [(scores >= row[len(scores) - 1] - 1e-6).mean() for scores, row in zip(found, best, strict=True)]
    return round(float(np.mean(shares)), 4)


if __name__ == "__main__":
    main()
