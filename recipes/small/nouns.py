"""Nouns that captions hardly have, and where they belong: CLIP's text vectors of 2,000 nouns, mapped to image vectors.

    python recipes/small/nouns.py DETIC WORK

DETIC is a clone of Detic (Apache-2.0), whose ``datasets/metadata`` holds vectors that the text tower of CLIP's ViT-B/32
makes of the class names of LVIS, Objects365 and Open Images. Writes ``WORK/nouns.npz``. ``text.py`` fits a linear map
from them to the mean image of those nouns that captions do have, and trains on what it says of the others.
"""

import argparse
import csv
import json
import re
from pathlib import Path

import numpy as np

PENALTY = 0.03  # of the ridge regression; chosen on nouns of val that were left out
ENOUGH = 3  # photographs of a noun, to be fitted to
RARE = 30  # nouns of so few photographs are trained by the map


def read_nouns(detic: Path) -> tuple[list[str], np.ndarray]:
    """The nouns, each once, and their vectors of norm 1, float32 [N, 512]."""
    folder, names = detic / "datasets/metadata", list[str]()
    lvis = sorted(json.loads((folder / "lvis_v1_train_cat_info.json").read_text()), key=lambda row: row["id"])
    names += [row["synonyms"][0].split("(")[0].replace("_", " ").strip() for row in lvis]
    with (folder / "Objects365_names_fix.csv").open(newline="") as file:
        names += [row[2].split("/")[0].strip() for row in csv.reader(file)]
    names += re.findall(r"'name': '([^']+)'", (detic / "detic/data/datasets/oid.py").read_text())
    files = ("lvis_v1_clip_a+cname.npy", "o365_clip_a+cnamefix.npy", "oid_clip_a+cname.npy")
    vectors = np.concatenate([np.load(folder / file) for file in files]).astype(np.float32)
    assert len(names) == len(vectors), (len(names), len(vectors))
    first = {name.lower(): place for place, name in reversed(list(enumerate(names)))}
    kept = vectors[list(first.values())]
    return list(first), kept / np.linalg.norm(kept, axis=1, keepdims=True)


def photographs_of(nouns: list[str], captions: list[list[str]]) -> list[np.ndarray]:
    """Which photographs have a noun, in one or several, in one of their captions."""
    longest = max(len(noun.split()) for noun in nouns)
    places: dict[str, set[int]] = {noun: set() for noun in nouns}
    for place, texts in enumerate(captions):
        for text in texts:
            words = re.findall(r"[\w'-]+", text.lower())
            for length in range(1, longest + 1):
                for start in range(len(words) - length + 1):
                    noun = " ".join(words[start : start + length])
                    for form in (noun, noun.removesuffix("s"), noun.removesuffix("es")):
                        if form in places:
                            places[form].add(place)
    return [np.array(sorted(found), int) for found in places.values()]


def mapped(vectors: np.ndarray, images: np.ndarray, photographs: list[np.ndarray], left_out: np.ndarray) -> np.ndarray:
    """Where nouns belong among ``images`` [M, D]: float32 [N, D], fitted to those with photographs and not left out."""
    fitted = np.array([len(found) >= ENOUGH for found in photographs]) & ~left_out
    centred = vectors - vectors.mean(0)
    means = np.stack([images[found].mean(0) for found, kept in zip(photographs, fitted, strict=True) if kept])
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    weights = np.sqrt([len(found) for found, kept in zip(photographs, fitted, strict=True) if kept])
    weights /= weights.mean()
    rows, middle = centred[fitted] * weights[:, None], means.mean(0)
    gram = rows.T @ rows + PENALTY * np.eye(rows.shape[1])
    out = middle + centred @ np.linalg.solve(gram, rows.T @ ((means - middle) * weights[:, None]))
    return (out / np.linalg.norm(out, axis=1, keepdims=True)).astype(np.float32)


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("detic", type=Path)
    parser.add_argument("work", type=Path)
    args = parser.parse_args()
    nouns, vectors = read_nouns(args.detic)
    np.savez(args.work / "nouns.npz", nouns=np.array(nouns), vectors=vectors)
    print(len(nouns), "nouns")


if __name__ == "__main__":
    main()
