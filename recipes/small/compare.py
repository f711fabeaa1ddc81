"""What 8 bits and clustering cost: R@1, R@5, R@10 of captioned clips in float32 and int8, without clustering and with.

    python recipes/small/compare.py MODEL [INT8] --clips captions.csv [--photos PHOTOS --split val --most 2048]

MODEL is a folder with float32 weights (what ``assemble.py`` wrote), INT8 what ``bundle.py`` made of it, by default the
bundled one. ``captions.csv`` has a column ``file`` (below its own folder), ``caption``, and may have
``other_captions``, with bars between them. Twelve frames a clip, mean of its vectors; every line also says how many of
the first captions find their clip first that did so in the first line, and how many no longer do.
"""

import argparse
import csv
from pathlib import Path

import numpy as np

from centerclip.bundled import SMALL, resolve_model
from centerclip.model.engine import OnnxEncoder
from centerclip.model.pipeline import read_squares
from centerclip.search.folder import default_clustering

FRAMES, KS = 12, (1, 5, 10)


def read_captions(path: Path) -> tuple[list[Path], list[str], list[int], int]:
    """Clips, captions (the first of each clip in front), the clip of each, and how many are first ones."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    captions, owners = [row["caption"] for row in rows], list(range(len(rows)))
    for place, row in enumerate(rows):
        more = [text.strip() for text in (row.get("other_captions") or "").split("|") if text.strip()]
        captions += more
        owners += [place] * len(more)
    return [path.parent / row["file"] for row in rows], captions, owners, len(rows)


def ranks_of(
    model: OnnxEncoder, setting: str, clips: list[np.ndarray], captions: list[str], owners: list[int]
) -> np.ndarray:
    """How many wrong clips score higher than the right one, for each caption."""
    model.set_clustering(setting, frames=FRAMES)
    videos = np.stack([_mean(model, squares) for squares in clips])
    scores = model.encode_sentences(captions) @ videos.T
    return (scores > scores[np.arange(len(captions)), owners][:, None]).sum(axis=1)


def _mean(model: OnnxEncoder, squares: np.ndarray) -> np.ndarray:
    segments, real = model.encode_windows(squares[None], np.ones((1, len(squares)), bool))
    vector = segments[0][real[0]].mean(axis=0)
    return vector / np.linalg.norm(vector)


def main() -> None:
    """Print a line for each precision and clustering."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("int8", type=Path, nargs="?", default=None)
    parser.add_argument("--clips", type=Path, help="captions.csv")
    parser.add_argument("--photos", type=Path)
    parser.add_argument("--split", choices=["val", "test", "flickr"], default="val")
    parser.add_argument("--most", type=int)
    args = parser.parse_args()
    folders = {"float32": args.model, "int8": Path(args.int8 or resolve_model(SMALL))}
    models = {name: OnnxEncoder(folder, device="cpu", precision=name) for name, folder in folders.items()}
    if args.clips:
        files, captions, owners, first = read_captions(args.clips)
        preprocess = models["float32"].preprocess
        clips = [np.asarray(read_squares(preprocess, file, FRAMES).rgb) for file in files]
        print(f"{len(files)} clips, {len(captions)} captions, {FRAMES} frames")
        before = None
        for setting in ("none", default_clustering(blocks=models["float32"].blocks, frames=FRAMES)):
            for name, model in models.items():
                ranks = ranks_of(model, setting, clips, captions, owners)
                right = ranks[:first] < 1
                before = right if before is None else before
                parts = [f"{100 * (part < k).mean():5.1f}" for part in (ranks[:first], ranks) for k in KS]
                lost, won = (before & ~right).sum(), (right & ~before).sum()
                print(
                    f"{name:8} {setting:34} R@1/5/10 {' '.join(parts[:3])}  all {' '.join(parts[3:])}  -{lost} +{won}"
                )
    if args.photos:
        from evaluate import encode, ranks
        from photos import Photos

        photos = Photos(args.photos)
        chosen = photos.in_split(args.split)[: args.most]
        found = {}
        for name, model in models.items():
            model.set_clustering("none", frames=1)
            found[name] = ranks(*encode(model, photos, chosen))
            for way, rank in found[name].items():
                print(
                    f"{name:8} {args.split} {len(chosen)} {way} R@1/5/10",
                    *(f"{100 * (rank < k).mean():.2f}" for k in KS),
                )


if __name__ == "__main__":
    main()
