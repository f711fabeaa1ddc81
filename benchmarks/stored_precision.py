"""What it costs to store vectors as float16: hits that change against float32.

    python benchmarks/stored_precision.py                      # the bundled clips, with the bundled model
    python benchmarks/stored_precision.py --index DIR

Segments are those of an index, multiplied by mixing near neighbours; queries are the sentences that an index is
calibrated with. Claims: at least 99 % of the best ten segments stay, and where the first hit changes, it is for one
whose score is the same to a hundredth of the deviation of the query's scores: mixtures of the same two segments.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np

from centerclip import VideoIndex
from centerclip.bundled import DEMO, demo_clips
from centerclip.search.ranking import background_sentences
from centerclip.search.store import Floats

TOP = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--index", type=Path, help="an index to take segments from; the bundled clips by default")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        index = VideoIndex(arguments.index, create=False) if arguments.index else demo_index(Path(scratch))
        real = np.concatenate([index._open().store.view().segments(entry.video_id).vectors for entry in index.videos()])
        queries = index.encode_texts(list(background_sentences()))
    for count in (1_000, 10_000, 100_000):
        compare(real, multiply(real, count), queries)


def compare(real: Floats, vectors: Floats, queries: Floats) -> None:
    rounded = vectors.astype(np.float16).astype(np.float32)
    exact, stored = vectors @ queries.T, rounded @ queries.T  # [N, Q]
    best, found = (np.argsort(-scores, axis=0, kind="stable")[:TOP].T for scores in (exact, stored))
    same = np.mean([len(set(a) & set(b)) / TOP for a, b in zip(best, found, strict=True)])
    print(f"{len(vectors):,} segments of width {vectors.shape[1]}, mixed from {len(real):,}; {len(queries)} sentences")
    print(f"  largest difference of a score      {np.abs(exact - stored).max():.1e}")
    print(f"  best ten that are the same         {same:.2%} (goal: at least 99 %)")
    each = np.arange(len(queries))
    lost = (exact[best[:, 0], each] - exact[found[:, 0], each]) / exact.std(axis=0)
    print(f"  first hit that is the same         {(lost == 0).mean():.2%}")
    print(f"  most that its score loses          {lost.max():.4f} deviations (goal: at most 0.01)")


def demo_index(folder: Path) -> VideoIndex:
    index = VideoIndex(folder / "index", model=DEMO)
    index.add(demo_clips())
    return index


def multiply(real: Floats, count: int) -> Floats:
    """``[count, D]`` mixtures of segments ``[N, D]`` with one of their ten nearest, of norm 1."""
    random = np.random.default_rng(0)
    near = np.argsort(-(real @ real.T), axis=1)[:, 1:11]
    first = random.integers(len(real), size=count)
    second = near[first, random.integers(near.shape[1], size=count)]
    share = random.random((count, 1), dtype=np.float32)
    mixed = share * real[first] + (1 - share) * real[second]
    return np.asarray(mixed / np.linalg.norm(mixed, axis=1, keepdims=True), dtype=np.float32)


if __name__ == "__main__":
    main()
