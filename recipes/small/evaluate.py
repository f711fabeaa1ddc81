"""R@1, R@5, R@10 of a model on a split of the photographs, both ways, with 95 % bootstrap intervals over photographs.

    python recipes/small/evaluate.py PHOTOS MODEL [MODEL ...] --split val [--most 2048] [--squeeze | --crop]

MODEL is a name or a folder, as everywhere; one that is only there in 8 bits, such as ``small``, is taken so, others in
float32. Several models are also compared pair by pair: the interval of the difference to the first.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
from photos import SPLITS, Photos

from centerclip.model.conversion import read_form
from centerclip.model.engine import OnnxEncoder
from centerclip.model.hub import find_model

ROUNDS, BATCH = 1000, 16


def open_model(name: str) -> OnnxEncoder:
    """A model without clustering."""
    folder = find_model(name)
    form = read_form(folder)
    precision = "int8" if form is not None and not form.has("float32") else "float32"
    return OnnxEncoder(folder, clustering="none", frames=1, device="cpu", precision=precision)


def encode(model: OnnxEncoder, photos: Photos, files: list[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Image vectors [N, D], caption vectors [M, D], and the image of each caption [M]."""
    rows = []
    for start in range(0, len(files), BATCH):
        pictures = [np.asarray(photos.whole(file))[None] for file in files[start : start + BATCH]]
        squares = np.stack([model.preprocess.to_square(picture) for picture in pictures])
        rows.append(model.encode_windows(squares, np.ones((len(squares), 1), bool))[0][:, 0])
    captions = [caption for file in files for caption in photos.captions[file]]
    image_of = np.array([place for place, file in enumerate(files) for _ in photos.captions[file]])
    return np.concatenate(rows), in_parts(model, captions), image_of


def in_parts(model: OnnxEncoder, sentences: list[str]) -> np.ndarray:
    """Vectors ``[N, D]``, some sentences at a time: all of a benchmark's would not fit into the memory."""
    return np.concatenate([model.encode_sentences(sentences[at : at + 256]) for at in range(0, len(sentences), 256)])


def ranks(images: np.ndarray, texts: np.ndarray, image_of: np.ndarray) -> dict[str, np.ndarray]:
    """How many wrong ones score higher, for each caption and for each image (its best caption)."""
    scores = texts @ images.T
    own = scores[np.arange(len(texts)), image_of]
    to_image = (scores > own[:, None]).sum(1)
    to_text = np.empty(len(images), int)
    for place in range(len(images)):
        mine = image_of == place
        to_text[place] = (scores[~mine, place] > scores[mine, place].max()).sum()
    return {"t2i": to_image, "i2t": to_text}


def samples(found: np.ndarray, image_of: np.ndarray, count: int) -> np.ndarray:
    """Bootstrap over photographs: the mean of ``found`` in each round, in per cent, [ROUNDS]."""
    rng = np.random.default_rng(0)
    sums, counts = np.bincount(image_of, found, count), np.bincount(image_of, minlength=count)
    drawn = rng.integers(0, count, (ROUNDS, count))
    return 100 * sums[drawn].sum(1) / counts[drawn].sum(1)


def main() -> None:
    """Print a JSON object a model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--split", choices=[*SPLITS], default="val")
    parser.add_argument("--most", type=int)
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--squeeze", dest="crop", action="store_false", default=None)
    shape.add_argument("--crop", dest="crop", action="store_true", default=None)
    args = parser.parse_args()
    photos = Photos(args.photos)
    files = photos.in_split(args.split)[: args.most]
    first: dict[str, np.ndarray] = {}
    for name in args.models:
        model = open_model(name)
        if args.crop is not None:
            model.preprocess = replace(model.preprocess, crop=args.crop)
        images, texts, image_of = encode(model, photos, files)
        result: dict[str, object] = {"model": name, "split": args.split, "images": len(images), "texts": len(texts)}
        for way, rank in ranks(images, texts, image_of).items():
            owner = image_of if way == "t2i" else np.arange(len(images))
            for k in (1, 5, 10):
                drawn = samples(rank < k, owner, len(images))
                key = f"{way} R{k}"
                difference = drawn - first.setdefault(key, drawn)
                result[key] = [round(100 * float((rank < k).mean()), 2), *np.percentile(drawn, [2.5, 97.5]).round(2)]
                if name != args.models[0]:
                    result[f"{key} gain"] = [
                        round(float(difference.mean()), 2), *np.percentile(difference, [2.5, 97.5]).round(2)
                    ]  # fmt: skip
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
