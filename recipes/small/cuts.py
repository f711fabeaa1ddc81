"""What the grades of hits say on photographs: python recipes/small/cuts.py PHOTOS [--model small]

Galleries of val photographs are indexed as a person's folder would be. Asked for are noun phrases of captions: of the
gallery's own (the first hit is right when one of its captions has all words of the phrase), and of other photographs,
when no caption of the gallery has any of their words. So the cuts of ``search/ranking.py`` can be judged, or chosen,
without the clips that are reported on. Captions leave things out: some of what counts as absent, or wrong, is there.
"""

import argparse
import random
import tempfile
from pathlib import Path

import numpy as np
from captions import ARTICLES, phrases, words_of
from photos import Photos

from centerclip import VideoIndex
from centerclip.bundled import SMALL
from centerclip.search.ranking import MIN_LIKELY, MIN_SURE


def content(phrase: str) -> frozenset[str]:
    """The words of a phrase that name something."""
    return frozenset(words_of(phrase)) - ARTICLES


def confidences(photos: Photos, files: list[str], others: list[str], model: str, asked: int) -> tuple[list, list]:
    """The confidence of right first hits, and of the first hits of absent things."""
    rng = random.Random(0)
    with tempfile.TemporaryDirectory() as scratch:
        folder, said = Path(scratch, "photos"), {}
        folder.mkdir()
        for place, file in enumerate(files):
            photos.whole(file).save(folder / f"{place:04}.jpg", quality=95)
            said[f"{place:04}.jpg"] = [frozenset(words_of(caption)) for caption in photos.captions[file]]
        index = VideoIndex(Path(scratch, "index"), model=model)
        index.add(folder)
        mentioned = frozenset().union(*(words for captions in said.values() for words in captions))
        there = sorted({phrase for file in files for caption in photos.captions[file] for phrase in phrases(caption)})
        absent = sorted(
            {
                phrase
                for file in others
                for caption in photos.captions[file]
                for phrase in phrases(caption)
                if not content(phrase) & mentioned
            }
        )
        right, wrong = [], []
        for phrase in rng.sample(there, min(asked, len(there))):
            hit = index.search(phrase, where="video")[0]
            if any(content(phrase) <= words for words in said[hit.path.name]):
                right.append(hit.confidence)
        for phrase in rng.sample(absent, min(asked, len(absent))):
            wrong.append(index.search(phrase, where="video")[0].confidence)
        index.close()
    return right, wrong


def main() -> None:
    """Print what passes at each cut."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--model", default=SMALL)
    parser.add_argument("--galleries", type=int, default=4)
    parser.add_argument("--size", type=int, default=64, help="photographs of a gallery")
    parser.add_argument("--asked", type=int, default=200, help="phrases of each kind, for each gallery")
    args = parser.parse_args()
    photos = Photos(args.photos)
    files = photos.in_split("val")
    random.Random(0).shuffle(files)
    right, absent = [], []
    for start in range(0, args.galleries * args.size, args.size):
        gallery = files[start : start + args.size]
        found = confidences(photos, gallery, files[start + args.size :][:2000], args.model, args.asked)
        right += found[0]
        absent += found[1]
    suits = float(np.quantile(right, 0.05))
    print(f"{args.model}: {len(right)} right first hits, {len(absent)} absent phrases, {args.galleries} galleries")
    for name, cut in (("likely", MIN_LIKELY), ("sure", MIN_SURE), ("95 % of the right", suits)):
        shares = [100 * np.mean(np.array(values) >= cut) for values in (right, absent)]
        print(f"{name:18} {cut:.3f}   right {shares[0]:5.1f} %   absent {shares[1]:5.1f} %")


if __name__ == "__main__":
    main()
