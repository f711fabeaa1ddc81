"""Ranks of large benchmarks: how long they take, and how much memory.

    python benchmarks/metrics.py            # MSVD's size, and 20,000 x 20,000: half a minute
    python benchmarks/metrics.py --full     # also 100,000 x 100,000: minutes

Vectors are random, of width 512; a caption's vector leans towards its video's. Memory is what the process takes beyond
the vectors themselves, at its peak.
"""

import argparse
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import psutil
import torch
from rich.console import Console
from rich.table import Table

from centerclip.evaluation import bootstrap, rank_vectors, summaries

Result = TypeVar("Result")

WIDTH = 512
SIZES = {"MSVD's test": (27_763, 670), "20k pairs": (20_000, 20_000)}
FULL = {"100k pairs": (100_000, 100_000)}


def vectors(captions: int, videos: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    owners = torch.arange(captions) * videos // captions
    gallery = torch.nn.functional.normalize(torch.randn(videos, WIDTH, generator=generator), dim=1)
    texts = torch.randn(captions, WIDTH, generator=generator).mul_(0.4).add_(gallery[owners])
    return torch.nn.functional.normalize(texts, dim=1), gallery, owners


def measured(work: Callable[[], Result]) -> tuple[Result, float, float]:
    """What the work gives, its seconds, and the megabytes it took at its peak."""
    process, finished, peak = psutil.Process(), threading.Event(), 0

    def watch() -> None:
        nonlocal peak
        while not finished.wait(0.005):
            peak = max(peak, process.memory_info().rss)

    before, watcher = process.memory_info().rss, threading.Thread(target=watch)
    watcher.start()
    start = time.perf_counter()
    result = work()
    seconds = time.perf_counter() - start
    finished.set()
    watcher.join()
    return result, seconds, max(0, peak - before) / 1e6


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--full", action="store_true", help="also 100,000 captions x 100,000 videos")
    sizes = SIZES | (FULL if options.parse_args().full else {})
    table = Table(title=f"Ranks in both directions, {torch.get_num_threads()} threads", title_justify="left")
    for column in ("captions x videos", "ranks", "with top 5", "memory", "matrix would be", "1,000 resamples", "R@1"):
        table.add_column(column, justify="right")
    console = Console()
    with console.status("") as status:
        for name, (captions, videos) in sizes.items():
            status.update(f"{name}: {captions:,} captions x {videos:,} videos")
            texts, gallery, owners = vectors(captions, videos)
            rank_vectors(texts[:9], gallery, owners[:9])  # the first product of a process also sets up its threads
            found, plain, memory = measured(partial(rank_vectors, texts, gallery, owners))
            listed = measured(partial(rank_vectors, texts, gallery, owners, top=5))[1] if captions < 100_000 else None
            draws = measured(partial(bootstrap.resampled, [found.t2v], owners.numpy(), videos))[1]
            table.add_row(
                f"{captions:,} x {videos:,}", f"{plain:.2f} s", f"{listed:.2f} s" if listed else "-",
                f"{memory:,.0f} MB", f"{captions * videos * 4 / 1e6:,.0f} MB", f"{draws:.2f} s",
                f"{summaries(found)['t2v']['R1']:.1f}",
            )  # fmt: skip
    console.print(table)


if __name__ == "__main__":
    main()
