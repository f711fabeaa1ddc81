"""Search in collections that are too large for one product: the approximate index, on vectors of real images.

    python benchmarks/large.py encode MODEL PHOTOS CAPTIONS VECTORS.npz [--videos FOLDER]     # once
    python benchmarks/large.py take WORK VECTORS.npz                                   # or those of recipes/small
    python benchmarks/large.py run VECTORS.npz > 1m.json                               # a million segments
    python benchmarks/large.py run VECTORS.npz --segments 10000000 --folder DIR > 10m.json
    python benchmarks/large.py table 1m.json 10m.json                                  # as docs/search.md has it

PHOTOS is a folder of images, CAPTIONS a file of JSON lines (also .gz) with a list ``captions`` each; FOLDER has videos,
of which a dozen frames each count as photographs. WORK is the folder of recipes/small: its vectors of COCO's
photographs by CLIP's ViT-B/16, and of their captions by the text tower trained for it, 256 wide. Vectors are multiplied
by mixing near neighbours. Half of the sentences tune the index, some of the other half are asked. Recall is that of the
best ten segments, against exact search. With ``--folder`` the collection is kept; ``--only-ask`` changes nothing in it.
"""

import argparse
import gzip
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from centerclip.search.approximate import LargeView
from centerclip.search.ranking import rank
from centerclip.search.sqlite import SqliteStore
from centerclip.search.store import File, Floats, Segments, Video, View

COMMIT = 40_000  # segments
NEIGHBOURS = 16
TOP = 10
BATCH = 16  # photographs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(required=True, dest="command")
    encoding = commands.add_parser("encode", help="make VECTORS.npz")
    encoding.add_argument("model")
    for name in ("photos", "captions", "vectors"):
        encoding.add_argument(name, type=Path)
    encoding.add_argument("--seconds", type=float, default=420.0, help="stop encoding photographs after so long")
    encoding.add_argument("--sentences", type=int, default=4000)
    encoding.add_argument("--videos", type=Path, help="a folder of videos to take frames from too")
    taking = commands.add_parser("take", help="make VECTORS.npz from the folder of recipes/small")
    taking.add_argument("work", type=Path)
    taking.add_argument("vectors", type=Path)
    running = commands.add_parser("run", help="measure")
    running.add_argument("vectors", type=Path)
    running.add_argument("--segments", type=int, default=1_000_000)
    running.add_argument("--per-video", type=int, default=40, help="segments of a video: 40 are two minutes")
    running.add_argument("--folder", type=Path, help="where the collection is made, and kept")
    running.add_argument("--asked", type=int, default=200, help="queries that are asked")
    running.add_argument("--only-ask", action="store_true", help="add and delete nothing")
    commands.add_parser("table", help="print reports").add_argument("reports", type=Path, nargs="+")
    arguments = parser.parse_args()
    if arguments.command == "table":
        table([json.loads(path.read_text(encoding="utf-8")) for path in arguments.reports])
        return
    if arguments.command == "take":
        take(arguments.work, arguments.vectors)
        return
    if arguments.command == "encode":
        del arguments.command
        encode(**vars(arguments))
        return
    with np.load(arguments.vectors) as saved, tempfile.TemporaryDirectory() as scratch:
        base, queries = saved["photos"].astype(np.float32), saved["sentences"].astype(np.float32)
        folder = arguments.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        collection = Collected(base, queries[::2], queries[1::2][: arguments.asked], arguments.per_video)
        measured = collection.measure(folder, arguments.segments, only_ask=arguments.only_ask)
        report = {"photographs": len(base), "sentences": len(queries), **measured}
    print(json.dumps(report, indent=2))


def table(reports: list[dict[str, Any]]) -> None:
    """Print what was measured, a column for each report."""

    def cell(value: Any) -> str:
        if isinstance(value, dict):
            return f"{value['ms']:g} ms (95 % within {value['95 % within ms']:g}), recall {value['recall']:.3f}"
        return ", ".join(f"{each:,}" for each in value) if isinstance(value, list) else f"{value:,}"

    heads = [f"{report['segments']:,} segments" for report in reports]
    for row in (["", *heads], ["---"] * (1 + len(heads))):
        print("|", " | ".join(row), "|")
    for name in reports[0]:
        print("|", " | ".join([name, *(cell(report[name]) if name in report else "-" for report in reports)]), "|")


def encode(
    model: str, photos: Path, captions: Path, vectors: Path, seconds: float, sentences: int, videos: Path | None
) -> None:
    """Vectors of photographs, frames and sentences, by one model."""
    from PIL import Image

    from centerclip.files import find_videos
    from centerclip.model.engine import open_encoder
    from centerclip.video import read_frames

    encoder = open_encoder(model, clustering="none", frames=1)
    opener = gzip.open if captions.suffix == ".gz" else open
    with opener(captions, "rt", encoding="utf-8") as lines:
        texts = [text for line in lines for text in json.loads(line)["captions"][:1]]
    texts = texts[:: max(1, len(texts) // sentences)][:sentences]
    made = [encoder.encode_sentences(texts[first : first + 32]) for first in range(0, len(texts), 32)]

    def batches() -> Iterator[list[NDArray[np.uint8]]]:
        for path in find_videos(videos) if videos is not None else ():
            yield list(read_frames(path, count=12, short_side=encoder.preprocess.read_size).rgb)
        paths, began = sorted(photos.rglob("*.jpg")), time.monotonic()
        order = np.random.default_rng(0).permutation(len(paths))
        for first in range(0, len(paths), BATCH):
            if time.monotonic() - began > seconds:
                break
            yield [np.array(Image.open(paths[place]).convert("RGB")) for place in order[first : first + BATCH]]

    rows = []
    for images in batches():
        squares = np.stack([encoder.preprocess.to_square(image[None]) for image in images])
        segments, _ = encoder.encode_windows(squares, np.ones((len(images), 1), dtype=bool))
        rows.append(segments[:, 0])
    np.savez(vectors, photos=np.concatenate(rows), sentences=np.concatenate(made))
    print(f"{sum(map(len, rows)):,} images, {len(texts):,} sentences, {encoder.precision}")


def take(work: Path, vectors: Path, sentences: int = 4000) -> None:
    """Vectors of photographs and captions that recipes/small has made, in the space that both share."""
    with np.load(work / "text-1" / "space.npz") as space:
        mean, basis = space["mean"], space["basis"]
    photos = np.concatenate([np.load(path) for path in sorted((work / "teacher" / "train-0").glob("*.npy"))])
    photos = (photos.astype(np.float32) - mean) @ basis
    photos /= np.linalg.norm(photos, axis=1, keepdims=True)
    texts = np.load(work / "text-1" / "captions.npy").astype(np.float32)
    texts = texts[:: max(1, len(texts) // sentences)][:sentences]
    np.savez(vectors, photos=photos, sentences=texts)
    print(f"{len(photos):,} images, {len(texts):,} sentences")


class Collected:
    """A collection of mixed vectors, and what is measured of it.

    Args:
        base: ``[N, D]`` vectors of photographs.
        tuning: ``[T, D]`` sentences that the index is tuned with.
        asked: ``[Q, D]`` other sentences.
        per_video: segments of a video.
    """

    def __init__(self, base: Floats, tuning: Floats, asked: Floats, per_video: int) -> None:
        self.base, self.tuning, self.asked, self.per_video = base, tuning, asked, per_video
        parts = (base[first : first + 1000] @ base.T for first in range(0, len(base), 1000))
        nearest = [np.argpartition(-part, NEIGHBOURS, axis=1)[:, : NEIGHBOURS + 1] for part in parts]
        self.near = np.concatenate(nearest)

    def measure(self, folder: Path, count: int, *, only_ask: bool) -> dict[str, object]:
        """Make a collection of so many segments, or take the one that is there, and measure it."""
        videos = count // self.per_video
        report: dict[str, object] = {"segments": videos * self.per_video, "width": self.base.shape[1]}
        with ProcessPoolExecutor(1, get_context("spawn")) as process:  # with memory of its own
            report |= process.submit(self.make, folder, videos).result()
        before, began = memory(), time.process_time()
        store = SqliteStore(folder, self.base.shape[1])
        view = store.view()
        view.search(self.asked[0], TOP)
        report["open to first hit, processor seconds"] = round(time.process_time() - began, 2)
        assert isinstance(view, LargeView), "there is no approximate index"
        report["lists and probes"] = [view.index.lists, view.index.probes]
        names, new, deleted = sorted(view.videos), name_of(videos), "a fifth deleted"
        gone = set(names[::5])
        filters: dict[str, Collection[str] | None] = {"all": None}
        filters |= {f"filter that keeps {1 / step:.2%}": set(names[::step]) for step in (100, 10_000)}
        asked = {name: self.ask(view, among) for name, among in filters.items()}
        times = [seconds(partial(rank, view, query, TOP)) for query in self.asked]
        report["ten videos with their moments, ms"] = round(statistics.median(times) * 1e3, 1)
        report["memory MB, own and of mapped files"] = [now - then for now, then in zip(memory(), before, strict=True)]
        best = self.exact(store, filters | {deleted: set(names) - gone})
        report |= {name: described(*asked[name], best[name]) for name in filters}
        if only_ask:
            return report
        written = stamps(folder)
        began = time.perf_counter()
        self.add(store, videos, 1)
        store.tidy(self.tuning)
        view = store.view()
        assert new in view.search(view.segments(new).vectors[0], 1).videos
        report["adding a video until it is found, seconds"] = round(time.perf_counter() - began, 2)
        assert stamps(folder) == written, "the approximate index was written again"
        began = time.perf_counter()
        store.remove([*gone, new], [])
        report["deleting a fifth, seconds"] = round(time.perf_counter() - began, 1)
        view = store.view()
        assert not any(gone & set(view.search(query, 100).videos) for query in self.asked), "a deleted video came back"
        report[deleted] = described(*self.ask(view), best[deleted])
        return report

    def make(self, folder: Path, videos: int) -> dict[str, object]:
        """Write the videos and the approximate index, unless they are there."""
        store = SqliteStore(folder, self.base.shape[1])
        step = max(1, COMMIT // self.per_video)
        for first in range(len(store.view().videos), videos, step):
            self.add(store, first, min(step, videos - first))
        began, used = time.perf_counter(), time.process_time()
        store.tidy(self.tuning)
        built = time.perf_counter() - began, time.process_time() - used
        sizes = {path.name: path.stat().st_size for path in folder.glob("approximate-*/*")}
        return {
            "database MB": round(store.database.bytes() / 1e6),
            "approximate index MB": round(sum(sizes.values()) / 1e6),
            "build, seconds and processor seconds": [round(each, 1) for each in built],
            "most memory while building, MB": memory("VmHWM")[0],  # getrusage would tell of the parent's
        }

    def add(self, store: SqliteStore, first: int, count: int) -> None:
        """Add videos: each segment is a mixture of a photograph and two near it."""
        random = np.random.default_rng(first)
        one = random.integers(len(self.base), size=count * self.per_video)
        two = self.near[one, random.integers(NEIGHBOURS, size=len(one))]
        three = self.near[two, random.integers(NEIGHBOURS, size=len(one))]
        weights = random.dirichlet([1, 1, 1], size=len(one)).astype(np.float32)
        vectors = sum(weights[:, [n]] * self.base[each] for n, each in enumerate((one, two, three)))
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        starts = np.arange(self.per_video, dtype=np.float32) * 3
        parts = np.split(vectors, count)
        videos = [
            (Video(name_of(first + n), 3.0 * self.per_video, 640, 360, 0.0), Segments(starts, starts + 3, part), ())
            for n, part in enumerate(parts)
        ]
        store.add(videos, [File(f"/videos/{video.id}.mp4", 1, 1, video.id) for video, _, _ in videos])

    def exact(self, store: SqliteStore, filters: dict[str, Collection[str] | None]) -> dict[str, Floats]:
        """The best scores ``[Q, TOP]`` among the videos of each filter, by a product with everything."""
        best = {name: np.full((len(self.asked), TOP), -np.inf, np.float32) for name in filters}
        with store.database.read() as connection:
            rows = connection.execute("SELECT id, vectors FROM segments JOIN video ON video = key")
            while batch := rows.fetchmany(max(1, COMMIT // self.per_video)):
                vectors = np.frombuffer(b"".join(row[1] for row in batch), "<f2").reshape(-1, store.width)
                scores = self.asked @ vectors.astype(np.float32).T
                for name, among in filters.items():
                    kept = np.repeat([among is None or row[0] in among for row in batch], self.per_video)
                    part = scores if kept.all() else scores[:, kept]
                    both = np.concatenate([best[name], part], axis=1)
                    best[name] = -np.sort(-np.partition(both, -TOP, axis=1)[:, -TOP:], axis=1)
        return best

    def ask(self, view: View, among: Collection[str] | None = None) -> tuple[list[float], Floats]:
        """Seconds of each search for the best ten, and the scores ``[Q, TOP]`` that it finds."""
        times, found = [], np.full((len(self.asked), TOP), -np.inf, np.float32)
        for number, query in enumerate(self.asked):
            began = time.perf_counter()
            hits = view.search(query, TOP, among=among)
            times.append(time.perf_counter() - began)
            found[number, : len(hits.scores)] = hits.scores
        return times, found


def described(times: list[float], found: Floats, best: Floats) -> dict[str, float]:
    """How long searches took, and what share of the best scores ``[Q, TOP]`` they found."""
    worst = np.nanmin(np.where(np.isfinite(best), best, np.nan), axis=1, keepdims=True)
    shares = (found >= worst - 1e-6).sum() / np.isfinite(best).sum()
    middle, most = statistics.median(times), float(np.quantile(times, 0.95))
    return {"ms": round(middle * 1e3, 1), "95 % within ms": round(most * 1e3, 1), "recall": round(float(shares), 4)}


def memory(*names: str) -> list[int]:
    """Megabytes of this process, by default its own memory and that of files which it has mapped."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    values = dict(line.split(":", 1) for line in lines)
    return [round(int(values[name].split()[0]) / 1e3) for name in names or ("RssAnon", "RssFile")]


def name_of(number: int) -> str:
    return f"{number:032x}"


def seconds(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def stamps(folder: Path) -> dict[Path, tuple[int, int]]:
    return {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.glob("approximate-*/*")}


if __name__ == "__main__":
    main()
