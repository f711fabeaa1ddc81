"""What a lower precision, or the other engine, costs in recall: the same videos or photographs, the same sentences.

    python benchmarks/precision.py MODEL captions.csv                 # columns: file, caption, other_captions (a | b)
    python benchmarks/precision.py demo DATA/minivtt/captions.csv     # columns: video, caption, split
    python benchmarks/precision.py MODEL captions.jsonl.gz --root PHOTOS --split coco_karpathy_test --limit 1000

Every row is compared with torch in float32 at the same clustering (with --engine onnxruntime, with ONNX Runtime in
float32): how many sentences lose or find their video as the first hit, the difference of R@1 with its 95 % interval (a
bootstrap over videos, both sides drawn together), the mean cosine of the videos' vectors, and the share of cluster
centres that are the same tokens. Goals: of 63 sentences at most one is lost, and the intervals include zero.
"""

import argparse
import csv
import gzip
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from rich.console import Console
from rich.markup import escape
from rich.progress import track

from centerclip import CenterCLIP
from centerclip.data.benchmark import VideoFiles
from centerclip.evaluation.metrics import interval, resampled, summary
from centerclip.evaluation.ranking import rank_vectors
from centerclip.model.engine import OnnxEncoder
from centerclip.model.hub import find_model
from centerclip.model.pipeline import VideoEncoder, read_squares
from centerclip.model.precision import same_centres
from centerclip.model.vectors import video_vectors
from centerclip.search.folder import default_clustering

IMAGES = (".jpg", ".jpeg", ".png", ".webp")
Items = dict[str, list[str]]  # file -> its sentences, the main one first
err = Console(stderr=True)


def read_items(path: Path, split: str | None, limit: int | None) -> Items:
    """The sentences of each file that an annotation file names."""
    items: Items = {}
    opener: Any = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8", newline="") as lines:
        rows: Any = csv.DictReader(lines) if path.suffix == ".csv" else map(json.loads, lines)
        for row in rows:
            if split in (None, row.get("split")):
                others = [each.strip() for each in (row.get("other_captions") or "").split("|")]
                sentences = row.get("captions") or [row["caption"], *filter(None, others)]
                items.setdefault(row.get("file") or row["video"], []).extend(sentences)
    names = list(items)
    if limit and limit < len(names):  # evenly over the file
        names = [names[place * len(names) // limit] for place in range(limit)]
    return {name: items[name] for name in names}


def read_pixels(model: VideoEncoder, items: Items, root: Path, frames: int) -> tuple[np.ndarray, np.ndarray]:
    """Squares ``[V, T, size, size, 3]`` and which frames are real, ``[V, T]``."""
    files = VideoFiles.under(root)
    pixels, masks = [], []
    for name in track(items, "decoding", console=err):
        path = root / name
        if path.suffix.lower() in IMAGES:
            with Image.open(path) as image:
                pixels.append(model.preprocess.to_square(np.asarray(image.convert("RGB"))[None]))
            masks.append(np.ones(1, dtype=bool))
        else:
            found = path if path.is_file() else files.find(name)
            if found is None:
                raise SystemExit(f"{root} has no video {name}")
            video = read_squares(model.preprocess, found, frames)
            pixels.append(video.rgb)
            masks.append(video.mask)
    return np.stack(pixels), np.stack(masks)


def encoders(name: str, frames: int, engine: str) -> Iterator[Callable[[], VideoEncoder]]:
    """The same model on each engine and in each precision; torch in float32 first, where it is asked for."""
    folder = find_model(name, exported=False)
    for precision in ("float32", "bfloat16") if engine == "all" else ():
        yield lambda precision=precision: CenterCLIP.from_pretrained(  # type: ignore[misc]
            folder, frames=frames, device="cpu", precision=precision
        )
    exact = OnnxEncoder(folder, frames=frames, device="cpu", precision="float32")
    yield lambda: exact
    yield lambda: exact.in_precision("int8")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("model", help="a model's folder, its name on the hub, or demo")
    options.add_argument("captions", type=Path, help="a .csv, .jsonl or .jsonl.gz file")
    options.add_argument("--root", type=Path, help="where the files are; the folder of the captions by default")
    options.add_argument("--split", help="only this one")
    options.add_argument("--limit", type=int, help="only so many files, evenly over all")
    options.add_argument("--frames", type=int, default=12, help="of a video; a photograph has one")
    options.add_argument("--engine", choices=("all", "onnxruntime"), default="all", help="onnxruntime leaves out torch")
    options.add_argument("--json", action="store_true", help="print JSON lines")
    args = options.parse_args()
    items = read_items(args.captions, args.split, args.limit)
    if not items:
        raise SystemExit(f"{args.captions} names no files" + (f" of split {args.split}" if args.split else ""))
    frames = 1 if Path(next(iter(items))).suffix.lower() in IMAGES else args.frames
    sentences = [sentence for each in items.values() for sentence in each]
    owners = np.repeat(np.arange(len(items)), [len(each) for each in items.values()])
    main_ones = np.flatnonzero(np.diff(owners, prepend=-1))  # the first sentence of each
    groups = (
        {"main": main_ones} if len(main_ones) == len(owners) else {"main": main_ones, "all": np.arange(len(owners))}
    )
    rows: list[dict[str, Any]] = []
    exact: dict[str, Any] = {}
    pixels = mask = None
    with tempfile.TemporaryDirectory() as scratch:
        os.environ.setdefault("CENTERCLIP_CACHE", scratch)
        for open_one in encoders(args.model, frames, args.engine):
            encoder = open_one()
            if pixels is None or mask is None:
                pixels, mask = read_pixels(encoder, items, args.root or args.captions.parent, frames)
            texts = torch.from_numpy(encoder.encode_sentences(sentences))
            for clustering in ("none", default_clustering(blocks=encoder.blocks, frames=frames)):
                encoder.set_clustering(clustering, frames=frames)
                with encoder.record_centres() as ids:
                    label = f"{encoder.engine} {encoder.precision} {clustering}"
                    parts = [
                        encoder.encode_windows(pixels[place : place + 1], mask[place : place + 1], half=False)
                        for place in track(range(len(pixels)), escape(label), console=err)
                    ]
                segments, counts = (torch.from_numpy(np.concatenate(part)) for part in zip(*parts, strict=True))
                vectors = video_vectors(segments, counts, rule="renormalise")
                ranks = rank_vectors(texts, vectors, torch.from_numpy(owners)).t2v
                before = exact.setdefault(clustering, {"ranks": ranks, "vectors": vectors, "ids": ids})
                for group, chosen in groups.items():
                    two = [each[chosen] for each in (before["ranks"], ranks)]
                    drawn = resampled(two, owners[chosen], len(items))
                    low, high = interval(drawn[:, 1, 0] - drawn[:, 0, 0])
                    rows.append({
                        "clustering": clustering, "engine": encoder.engine, "precision": encoder.precision,
                        "sentences": f"{len(chosen):,} ({group})", **summary(two[1]),
                        "lost": int(((two[0] <= 1) & (two[1] > 1)).sum()),
                        "won": int(((two[0] > 1) & (two[1] <= 1)).sum()),
                        "difference": summary(two[1])["R1"] - summary(two[0])["R1"],
                        "interval": [float(low), float(high)],
                        "cosine": float((vectors * before["vectors"]).sum(1).mean()),
                        "same_centres": same_centres(ids, before["ids"]) if ids else None,
                    })  # fmt: skip
    if args.json:
        print(*map(json.dumps, rows), sep="\n")
        return
    print(f"{args.captions.name}, {len(items)} files of {frames} frames, {args.model}\n")
    print(
        "| sentences | clustering | engine, precision | R@1 | lost, won | difference of R@1 | cosine | same centres |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for row in sorted(rows, key=lambda row: (row["sentences"], row["clustering"] != "none")):
        same, (low, high) = row["same_centres"], row["interval"]
        print(
            f"| {row['sentences']} | `{row['clustering']}` | {row['engine']} {row['precision']} | {row['R1']:.1f} | "
            f"{row['lost']}, {row['won']} | {row['difference']:+.1f} [{low:+.1f}, {high:+.1f}] | {row['cosine']:.4f} | "
            f"{'' if same is None else f'{same:.1%}'} |"
        )


if __name__ == "__main__":
    main()
