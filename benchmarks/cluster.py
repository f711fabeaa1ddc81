"""What a collection of any size takes: constants that are measured, arithmetic with them, and a simulation of it.

    python benchmarks/cluster.py rates FOLDER [--model NAME]        # indexing, plain and with Ray
    python benchmarks/cluster.py search milvus://HOST:19530/NAME    # both stores with the same segments
    python benchmarks/cluster.py model --hours 1e6                  # the arithmetic of docs/scale.md
    PYTHONPATH=. python benchmarks/cluster.py simulate              # and a run of it with 1 to 1,000 workers that fail

The first two write costs.json, which the others read. ``rates`` needs a quiet machine; without --model it takes
ViT-B/32's sizes with random weights. ``simulate`` runs the scheduling of ``index --ray`` itself, on a clock of its own,
with the times that ``rates`` has measured for each file.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

CORES = 16  # of a machine, for the number of machines
MONTH_HOURS = 720.0
FLOAT_BYTES = {"sqlite": 2, "milvus": 4}
SCALES = (1, 10, 100, 1000)


@contextmanager
def opened(name: str | None) -> Iterator[str]:
    from centerclip.evaluation.costs import random_model

    if name is not None:
        yield name
        return
    with random_model("ViT-B/32") as folder:
        yield str(folder)


def keep(path: Path, **measured: Any) -> None:
    """Add to what was measured before."""
    before = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(before | measured, indent=1))


def rates(arguments: argparse.Namespace) -> None:
    """Index a folder plainly and with Ray, in turns; then each file by itself on one worker."""
    import ray

    from centerclip.integrations.ray import Worker, index_with_ray
    from centerclip.parallel import usable_cores
    from centerclip.search import VideoIndex

    ray.init(num_cpus=2, object_store_memory=200 * 2**20, include_dashboard=False, log_to_driver=False)
    kinds = {"plain": None, "Ray, 1 worker": 1, "Ray, 2 workers": 2}
    seconds: dict[str, list[float]] = {name: [] for name in kinds}
    with opened(arguments.model) as model:
        for _ in range(arguments.rounds):
            for name, workers in kinds.items():
                with tempfile.TemporaryDirectory() as folder:
                    index = VideoIndex(folder, model=model)
                    runner = None if workers is None else partial(index_with_ray, address="auto", workers=workers)
                    report = index.add(arguments.folder, runner=runner)
                    seconds[name].append(report.seconds)
                    settings = index._open().settings
                    files = [each for each in index._open().store.view().files.values() if each.video]
        plain = statistics.median(seconds["plain"])
        print(
            f"{len(files)} files, {report.video_seconds:,.0f} s of video, {settings.describe()}, {settings.precision}"
        )
        for name, each in seconds.items():
            took = statistics.median(each)
            print(f"{name:15} {took:8.1f} s {report.video_seconds / took:8.1f} x as fast as it plays, "
                  f"{took / plain:5.2f} of plain ({min(each) / plain:.2f} to {max(each) / plain:.2f})")  # fmt: skip
        began = time.perf_counter()
        options = {"detail": settings.detail, "hwaccel": "none"}
        worker = ray.remote(num_cpus=2)(Worker).remote(settings, options, None, 2)
        ray.get(worker.index.remote(files[:1], frozenset()))
        started = time.perf_counter() - began
        alone = [ray.get(worker.index.remote([each], frozenset())) for each in files]
        windows = [
            np.zeros((8, settings.frames, *worker_size(settings)), np.uint8),
            np.ones((8, settings.frames), bool),
        ]
        local = Worker(settings, options, None, usable_cores()).model
        times = [timed(lambda: local.encode_windows(*windows)) for _ in range(4)][1:]
    hours = report.video_seconds / 3600
    total = sum(each.seconds for each in alone)
    encoding = statistics.median(times) / 8 * report.segments / settings.segments
    keep(
        arguments.costs,
        core_seconds_per_hour=2 * total / hours,
        encoding_share=min(1.0, encoding / total),
        ray_overhead=statistics.median(seconds["Ray, 1 worker"]) / plain - 1,
        start_seconds=started,
        segments_per_hour=report.segments / hours,
        file_bytes_per_hour=sum(each.size for each in files) / hours,
        width=settings.width,
        files=[[each.size, made.seconds] for each, made in zip(files, alone, strict=True)],
        hours_of_files=hours,
    )
    print(f"a worker starts in {started:.1f} s; by file {total:.1f} s in all, of which encoding takes "
          f"{min(1.0, encoding / total):.0%}; {report.segments / hours:,.0f} segments an hour of video")  # fmt: skip


def worker_size(settings: Any) -> tuple[int, int, int]:
    """Height, width and channels of what the model takes."""
    from centerclip.search.query import open_model

    side = open_model(settings.model, settings.clustering, settings.frames).preprocess.size
    return side, side, 3


def timed(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def search(arguments: argparse.Namespace) -> None:
    """Fill both stores with the same segments, mixed from VECTORS or else random, and search them."""
    from centerclip.search.folder import IndexSettings
    from centerclip.search.index import open_database
    from centerclip.search.store import File, Segments, Video

    chance = np.random.default_rng(0)
    base = queries = chance.normal(size=(arguments.queries, 512)).astype(np.float32)
    if arguments.vectors is not None:
        with np.load(arguments.vectors) as saved:
            base, queries = (saved[name].astype(np.float32) for name in ("photos", "sentences"))
    queries = unit(queries[: arguments.queries])
    settings = IndexSettings("made up", "0", "none", 12, 4, 1.0, base.shape[1])
    measured: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, address in (("sqlite", folder), ("milvus", arguments.address)):
            _, database = open_database(address)
            with database.writing():
                database.save_settings(settings, clear=True)
                store, generator, took = database.store(settings), np.random.default_rng(1), 0.0
                for first in range(0, arguments.segments, 20_000):
                    weights = generator.dirichlet([1, 1, 1], size=20_000).astype(np.float32)
                    picked = base[generator.integers(len(base), size=(20_000, 3))]
                    vectors = unit(np.einsum("nk,nkd->nd", weights, picked))
                    starts = np.arange(1000, dtype=np.float32)
                    videos, files = [], []
                    for place in range(20):
                        id = f"{first + place:032x}"
                        part = vectors[1000 * place : 1000 * (place + 1)]
                        videos.append((Video(id, 1000.0, 64, 48, 0.0), Segments(starts, starts + 1, part), ()))
                        files.append(File(f"/v/{id}.mp4", 1, 1, id))
                    took += timed(partial(store.add, videos, files))
                tidied = timed(partial(store.tidy, queries)) + timed(partial(settle, database, settings.width))
            view = store.view()
            for query in queries[:5]:
                view.search(query, 256)
            times = [1000 * timed(partial(view.search, query, 256)) for query in queries]
            middle, late = np.percentile(times, [50, 99])
            measured[name] = {"rows_per_second": view.count() / took, "ms": middle, "late_ms": late}
            size = f"{view.count():,} segments of {settings.width}"
            print(f"{name}: {size}, {view.count() / took:,.0f} written a second, "
                  f"tidied in {tidied:.0f} s, the best 256 in {middle:.1f} ms (99 %: {late:.1f} ms), "
                  f"recall {view.recall():.3f}")  # fmt: skip
    keep(arguments.costs, stores=measured, searched_segments=view.count())


def settle(database: Any, width: int) -> None:
    """Wait until a server has made its index; SQLite's is made by tidying."""
    if not hasattr(database, "client"):
        return
    name = database.collection(width)
    database.client.flush(name)
    while database.client.describe_index(name, "vector").get("pending_index_rows"):
        time.sleep(1.0)


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def model(arguments: argparse.Namespace) -> None:
    """Print what a collection takes, by the arithmetic of docs/scale.md."""
    known = json.loads(arguments.costs.read_text())
    hours, segments = arguments.hours, arguments.hours * known["segments_per_hour"]
    store = known["stores"]["milvus"]
    cores = hours * known["core_seconds_per_hour"] * (1 + known["ray_overhead"]) / 3600
    writing = segments / store["rows_per_second"] / 3600
    vectors = segments * FLOAT_BYTES["milvus"] * known["width"]
    rows_of_core = segments / cores / 3600
    rows = {
        "video files, read once": f"{hours * known['file_bytes_per_hour'] / 1e12:,.1f} TB",
        "decoding": f"{cores * (1 - known['encoding_share']):,.0f} core hours",
        "encoding": f"{cores * known['encoding_share']:,.0f} core hours",
        f"machines of {CORES} cores for a month": f"{cores / CORES / MONTH_HOURS:,.1f}",
        "segments": f"{segments:,.0f}",
        "vectors in Milvus, float32": f"{vectors / 1e9:,.0f} GB",
        "query nodes, of 64 GB of which vectors take half": f"{vectors / 32e9:,.1f}",
        "writing by the one writer": f"{writing:,.1f} hours",
        "cores that keep the writer busy": f"{store['rows_per_second'] / rows_of_core:,.0f}",
        f"a search of {known['searched_segments']:,}": f"{store['ms']:.1f} ms, 99 %: {store['late_ms']:.1f} ms",
    }
    print(f"| {hours:,.0f} hours of video | |\n|---|---|")
    for name, value in rows.items():
        print(f"| {name} | {value} |")


def simulate(arguments: argparse.Namespace) -> None:
    """Run the scheduler with the measured times on workers that fail; print how long that takes, and the arithmetic."""
    from centerclip.search.store import File
    from tests.faults.cluster import SimulatedCluster

    known = json.loads(arguments.costs.read_text())
    rows_per_second = known["stores"]["milvus"]["rows_per_second"]
    rows_per_file = known["segments_per_hour"] * known["hours_of_files"] / len(known["files"])
    print(f"{arguments.files:,} files; a worker of 2 cores starts in {known['start_seconds']:.0f} s and fails every "
          f"{arguments.hours_between_failures:g} hours\n")  # fmt: skip
    print("| workers | hours | by the arithmetic | writer busy | workers lost |\n|---|---|---|---|---|")
    for workers in SCALES:
        chance = Random(0)
        drawn = [chance.choice(known["files"]) for _ in range(arguments.files)]
        files = [File(f"/v/{n}.mp4", size, n, str(n)) for n, (size, _) in enumerate(drawn)]
        cluster = SimulatedCluster(
            lambda file, drawn=drawn: drawn[file.modified][1],
            lifetime=lambda chance=chance: chance.expovariate(1 / 3600 / arguments.hours_between_failures),
            start=known["start_seconds"],
            write_seconds=lambda count: count * rows_per_file / rows_per_second,
        )
        report = cluster.index(files, workers)
        assert len({file.path for file in cluster.stored}) == len(cluster.stored) == arguments.files
        work = sum(seconds for _, seconds in drawn) / workers
        arithmetic = max(work, cluster.writing) / 3600
        print(f"| {workers:,} | {cluster.now / 3600:,.2f} | {arithmetic:,.2f} | {cluster.writing / cluster.now:.0%} | "
              f"{cluster.deaths:,} |{f' {len(report.failed)} left out' if report.failed else ''}")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--costs", type=Path, default=Path("costs.json"), help="what was measured")
    commands = parser.add_subparsers(required=True)
    each = commands.add_parser("rates")
    each.add_argument("folder", type=Path)
    each.add_argument("--model")
    each.add_argument("--rounds", type=int, default=5)
    each.set_defaults(run=rates)
    each = commands.add_parser("search")
    each.add_argument("address")
    each.add_argument("--vectors", type=Path, help="as benchmarks/large.py makes them; else random, 512 wide")
    each.add_argument("--segments", type=int, default=1_000_000)
    each.add_argument("--queries", type=int, default=200)
    each.set_defaults(run=search)
    each = commands.add_parser("model")
    each.add_argument("--hours", type=float, default=1e6)
    each.set_defaults(run=model)
    each = commands.add_parser("simulate")
    each.add_argument("--files", type=int, default=20_000)
    each.add_argument("--hours-between-failures", type=float, default=100.0)
    each.set_defaults(run=simulate)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
