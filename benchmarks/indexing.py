"""Indexing end to end, beside its two stages alone: decoding and encoding overlap, so the slower one sets the pace.

    python benchmarks/indexing.py            # ViT-B/32's sizes, random weights, on this machine; two minutes
    python benchmarks/indexing.py --quick    # a smaller model and fewer clips

Claim: the whole reaches at least 90 % of the rate of its slower stage alone, and memory does not grow with the number
or the length of the videos. Where both stages share the same cores, work that is hidden behind other work still takes
its turn on them; so the second run lets the model wait instead of compute, as it does when a GPU computes.
"""

import argparse
import resource
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import av
import numpy as np
import torch
from transformers import CLIPConfig, CLIPModel

from centerclip import CenterCLIP
from centerclip.model.backbone import Backbone
from centerclip.model.pipeline import Bools, Floats, Pixels, default_decoders
from centerclip.model.preprocess import Preprocess
from centerclip.search import IndexReport
from centerclip.search.indexer import Indexer
from centerclip.search.sqlite import SqliteStore
from centerclip.search.store import File
from centerclip.video import Window, stream_windows
from centerclip.video.sampling import Windows

Files = Sequence[tuple[Path, int, int]]
SMALL = {"hidden_size": 192, "intermediate_size": 768, "num_hidden_layers": 12, "num_attention_heads": 3}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a small model and few clips")
    parser.add_argument("--clips", type=int, help="how many clips of 24 seconds")
    arguments = parser.parse_args()
    count = arguments.clips or (6 if arguments.quick else 16)
    torch.manual_seed(0)
    config = CLIPConfig(vision_config=SMALL if arguments.quick else {})
    backbone = Backbone(CLIPModel(config), None, Preprocess())
    model = CenterCLIP(backbone, clustering="B6-4,49", frames=12).eval()
    windows = Windows(12, 4, 1.0)
    with tempfile.TemporaryDirectory() as scratch:
        files = [make_clip(Path(scratch) / f"{number}.mp4", number) for number in range(count)]
        memory(model, windows, files, Path(scratch))  # first: the peak is of the whole process
        run(model, windows, files, Path(scratch), "model on the same cores")
        pause = decode(model, windows, files) / (2 * count) * 1.2  # windows; a little slower than decoding
        run(WaitingModel(model, pause), windows, files, Path(scratch), "model elsewhere (it waits, as for a GPU)")


def run(model: Any, windows: Windows, files: Files, folder: Path, title: str) -> None:
    """Print the time of each stage alone and of the whole; the best of two runs, in turn."""
    stages: dict[str, Callable[[], float]] = {
        "decoding alone": lambda: decode(model, windows, files),
        "encoding alone": lambda: encode(model, 2 * len(files)),
        "indexing": lambda: whole(model, windows, files, folder),
    }
    best = dict.fromkeys(stages, float("inf"))
    for _ in range(2):
        for name, stage in stages.items():
            best[name] = min(best[name], stage())
    slower = max(best["decoding alone"], best["encoding alone"])
    print(f"{title}: {len(files)} clips of 24 s")
    for name, seconds in best.items():
        print(f"  {name:16} {seconds:7.2f} s   {24 * len(files) / seconds:7.1f} hours of video an hour")
    both = best["decoding alone"] + best["encoding alone"]
    print(f"  {slower / best['indexing']:.0%} of the slower stage's rate (goal: 90 %)")
    print(f"  {both / best['indexing']:.0%} of the rate of one stage after the other")


def decode(model: Any, windows: Windows, files: Files) -> float:
    """Seconds to read all windows, by as many threads as the indexer uses."""
    todo, lock = iter(files), threading.Lock()

    def drop(window: Window) -> None:
        model.preprocess.to_square(window.rgb)

    def work() -> None:
        while True:
            with lock:
                file = next(todo, None)
            if file is None:
                return
            stream_windows(file[0], windows.times, windows.frames, drop, short_side=224)

    began = time.perf_counter()
    threads = [threading.Thread(target=work) for _ in range(default_decoders(model))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - began


def encode(model: Any, count: int) -> float:
    """Seconds to encode as many windows, in the batches of the indexer."""
    batch = min(8, model.batch_size())
    rgb = np.random.default_rng(0).integers(0, 255, (batch, 12, 224, 224, 3), dtype=np.uint8)
    mask = np.ones((batch, 12), dtype=bool)
    began = time.perf_counter()
    for first in range(0, count, batch):
        part = slice(min(batch, count - first))
        model.encode_windows(rgb[part], mask[part])
    return time.perf_counter() - began


def whole(model: Any, windows: Windows, files: Files, folder: Path) -> float:
    """Seconds to index all files into a new store, hashing and commits included."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        store = SqliteStore(Path(place), model.width)
        store.view()
        began = time.perf_counter()
        report = IndexReport()
        Indexer(store, model, windows).run(
            [File(str(path), size, modified, "") for path, size, modified in files], report
        )
        seconds = time.perf_counter() - began
    assert (report.added, report.failed) == (len(files), {})
    return seconds


def memory(model: Any, windows: Windows, files: Files, folder: Path) -> None:
    """Peak memory after a few clips, after all, and after a film of ten minutes."""
    waiting = WaitingModel(model, 0.0)
    marks = []
    film = make_clip(folder / "film.mp4", 99, seconds=600)
    for part in (files[: len(files) // 3], files, [film]):
        whole(waiting, windows, part, folder)
        marks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    print(
        f"peak memory, the model that waits: {marks[0]:.0f} MB after {len(files) // 3} clips, {marks[1]:.0f} MB after "
        f"{len(files)}, {marks[2]:.0f} MB after a film of ten minutes"
    )


class WaitingModel:
    """A model that takes its time without using the processor."""

    def __init__(self, model: CenterCLIP, seconds: float) -> None:
        self.seconds = seconds
        self.preprocess, self.width, self.on_gpu = model.preprocess, model.width, True
        self.batch_size = model.batch_size

    def encode_windows(self, rgb: Pixels, mask: Bools, *, half: bool = True) -> tuple[Floats, Bools]:
        """Vectors ``[V, 4, D]`` of no meaning, after so many seconds a window."""
        time.sleep(self.seconds * len(rgb))
        vectors = np.full((len(rgb), 4, self.width), self.width**-0.5, dtype=np.float32)
        return vectors, np.ones((len(rgb), 4), dtype=bool)


def make_clip(path: Path, number: int, seconds: int = 24) -> tuple[Path, int, int]:
    """640 x 360 at 25 frames a second: a textured image that drifts."""
    random = np.random.default_rng(number)
    image = np.kron(random.integers(0, 255, (45, 80, 3)), np.ones((8, 8, 1))).astype(np.uint8)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=25, options={"preset": "ultrafast", "g": "100"})
        stream.width, stream.height, stream.pix_fmt = 640, 360, "yuv420p"
        for step in range(25 * seconds):
            frame = av.VideoFrame.from_ndarray(np.roll(image, 2 * step, axis=1), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    status = path.stat()
    return path, status.st_size, status.st_mtime_ns


if __name__ == "__main__":
    main()
