"""Whether short queries find more when they are put into sentences: "a video of an owl", several such, averaged.

    python benchmarks/prompts.py MODEL FOLDER [--queries recipes/small/queries.json]

FOLDER holds the clips that the queries name (``present``: ``query``, ``kind`` and the ``clips`` that show it). Every
clip is encoded once, by the engine that an index takes, as MODEL encodes it; queries are encoded as they are and in
templates. A query is answered when one of its clips is among the first. Prints recall of both, and the difference with
its 95 % bootstrap interval over queries, for each kind and for all.
"""

import argparse
import json
from pathlib import Path

import numpy as np

from centerclip.evaluation.metrics import RESAMPLES, SEED, interval
from centerclip.files import find_videos
from centerclip.model.engine import open_encoder
from centerclip.model.pipeline import Deliver, Window, encode_in_order, read_squares

TEMPLATES = ("{}", "a video of {}", "a photo of {}", "a clip that shows {}", "{}, seen in a film")
QUERIES = Path(__file__).parent.parent / "recipes" / "small" / "queries.json"


def ranks(texts: np.ndarray, segments: list[np.ndarray], shown: list[list[int]]) -> np.ndarray:
    """The rank ``[Q]`` of the first clip that shows what each query asks for; a clip counts by its best segment.

    Args:
        texts: ``[Q, D]``.
        segments: ``[S, D]`` of each clip.
        shown: the clips that show it, for each query.
    """
    scores = np.stack([(texts @ each.T).max(axis=1) for each in segments], axis=1)  # [Q, clips]
    best = np.array([row[clips].max() for row, clips in zip(scores, shown, strict=True)])
    return 1 + (scores > best[:, None]).sum(axis=1)


def line(before: np.ndarray, after: np.ndarray) -> str:
    """R@1 and R@5 of two sets of ranks ``[Q]`` of the same queries, and how they differ."""
    drawn = np.random.default_rng(SEED).integers(0, len(before), (RESAMPLES, len(before)))
    parts = []
    for top in (1, 5):
        first, second = 100.0 * (before <= top), 100.0 * (after <= top)
        low, high = interval((second - first)[drawn].mean(axis=1))
        parts.append(
            f"R@{top} {first.mean():.1f}, in templates {second.mean():.1f} "
            f"({(second - first).mean():+.1f} [{low:+.1f}, {high:+.1f}])"
        )
    return "; ".join(parts)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--queries", type=Path, default=QUERIES)
    parser.add_argument("--frames", type=int, default=12)
    parser.add_argument("--clustering", default="none")
    args = parser.parse_args()
    rows = json.loads(args.queries.read_text(encoding="utf-8"))["present"]
    model = open_encoder(args.model, clustering=args.clustering, frames=args.frames)
    paths = sorted(find_videos(args.folder))

    def decode(path: Path, deliver: Deliver) -> None:
        frames = read_squares(model.preprocess, path, args.frames)
        deliver(0, Window(frames.rgb, frames.mask))

    segments = []
    for each in encode_in_order(model, paths, decode, half=False):
        if each.error is not None:
            raise SystemExit(f"{each.item}: {each.error}")
        segments.append(each.segments[each.mask])
    places = {path.name: place for place, path in enumerate(paths)}
    shown = [[places[clip] for clip in row["clips"]] for row in rows]
    queries = [row["query"] for row in rows]
    parts = [model.encode_sentences([template.format(query) for query in queries]) for template in TEMPLATES]
    mean = np.mean(parts, axis=0)
    found = [ranks(texts, segments, shown) for texts in (parts[0], mean / np.linalg.norm(mean, axis=1, keepdims=True))]
    kinds = np.array([row["kind"] for row in rows])
    print(f"{args.model}, {args.clustering}: {len(rows)} queries, {len(paths)} clips")
    for kind in (*dict.fromkeys(kinds), "all"):
        chosen = (kinds == kind) | (kind == "all")
        print(f"  {kind} ({chosen.sum()}): {line(*(each[chosen] for each in found))}")


if __name__ == "__main__":
    main()
