"""Time and memory of ranking large benchmarks.

    python benchmarks/metrics.py            # MSVD's size, and 20,000 x 20,000: half a minute
    python benchmarks/metrics.py --full     # also 100,000 x 100,000: minutes

Vectors are random, of width 512; a caption's vector is close to its video's. Memory is the peak of the process, without
the vectors themselves.
"""

import argparse
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import psutil
import torch
from rich.console import Console
from rich.table import Table

from centerclip.evaluation import metrics, rank_vectors

WIDTH = 512
SIZES = ((27_763, 670, 5), (20_000, 20_000, 1))  # captions, videos, rounds; the first is the test split of MSVD
FULL = ((100_000, 100_000, 1),)


def vectors(captions: int, videos: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    owners = torch.arange(captions) * videos // captions
    gallery = torch.nn.functional.normalize(torch.randn(videos, WIDTH, generator=generator), dim=1)
    texts = torch.randn(captions, WIDTH, generator=generator).mul_(0.4).add_(gallery[owners])
    return torch.nn.functional.normalize(texts, dim=1), gallery, owners


@dataclass(frozen=True)
class Cost:
    """Wall-clock seconds, processor seconds of all threads, and megabytes at the peak."""

    seconds: float
    processor: float
    megabytes: float


def cost(work: Callable[[], object], rounds: int) -> Cost:
    """The fastest of several rounds: other work on the machine only ever adds time."""
    return min((_once(work) for _ in range(rounds)), key=lambda each: each.seconds)


def _once(work: Callable[[], object]) -> Cost:
    process, finished, peak = psutil.Process(), threading.Event(), 0

    def watch() -> None:
        nonlocal peak
        while not finished.wait(0.005):
            peak = max(peak, process.memory_info().rss)

    before, watcher = process.memory_info().rss, threading.Thread(target=watch)
    watcher.start()
    start, processor = time.perf_counter(), time.process_time()
    work()
    seconds, processor = time.perf_counter() - start, time.process_time() - processor
    finished.set()
    watcher.join()
    return Cost(seconds, processor, max(0, peak - before) / 1e6)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--full", action="store_true", help="also 100,000 captions x 100,000 videos")
    sizes = SIZES + (FULL if options.parse_args().full else ())
    table = Table(title=f"Ranks in both directions, {torch.get_num_threads()} threads", title_justify="left")
    for column in ("captions x videos", "ranks", "processor", "with top 5", "memory", "matrix", "bootstrap"):
        table.add_column(column, justify="right", no_wrap=True)
    console = Console(width=100)
    with console.status("") as status:
        for captions, videos, rounds in sizes:
            status.update(f"{captions:,} captions x {videos:,} videos")
            texts, gallery, owners = vectors(captions, videos)
            rank_vectors(texts[:9], gallery, owners[:9])  # the first product also sets up the threads
            ranks = cost(partial(rank_vectors, texts, gallery, owners), rounds)
            top = cost(partial(rank_vectors, texts, gallery, owners, top=5), rounds) if rounds > 1 else None
            random_ranks = np.random.default_rng(0).integers(1, videos + 1, captions).astype(np.float64)
            draws = cost(partial(metrics.resampled, [random_ranks], owners.numpy(), videos), rounds)
            table.add_row(
                f"{captions:,} x {videos:,}", f"{ranks.seconds:.2f} s", f"{ranks.processor:.2f} s",
                f"{top.seconds:.2f} s" if top else "-", f"{ranks.megabytes:,.0f} MB",
                f"{captions * videos * 4 / 1e6:,.0f} MB", f"{draws.seconds:.2f} s",
            )  # fmt: skip
    console.print(table)
    console.print(
        "processor: seconds of all threads together. memory: beside the vectors. matrix: its size in float32.\n"
        "bootstrap: 1,000 samples of the videos, for one direction."
    )


if __name__ == "__main__":
    main()
