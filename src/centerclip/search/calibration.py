"""Whether a hit is worth showing: compared with what sentences about other things find in the same collection.

A score alone says little: some segments score high with every sentence, some models score everything high. So the mean
of many unrelated sentences is taken off the query, and what is left finds something convincing when its best hit beats
those of most of these sentences. Some of them do fit the collection, so that "most" need not be nearly all.
"""

import os
from pathlib import Path

import numpy as np

from .background import SENTENCES
from .encoder import Encoder
from .engine import Ranked, rank
from .store import Floats, View

CALIBRATION = "calibration.npz"
CONVINCING = 0.6  # share of the unrelated sentences, or of the collection's own segments, that a query has to beat
LOOKED_AT = 10  # hits of a query that are judged
NEIGHBOURS = 64  # segments that are compared with the rest of the collection


class Calibration:
    """What unrelated queries find in a collection.

    Attributes:
        vectors: ``[B, D]`` of unrelated sentences; empty before the first run of the indexer.
        words: ``[B]`` the best score of each, less what any sentence scores.
        pictures: ``[P]`` how alike segments are to the nearest one of another video.
    """

    def __init__(self, folder: Path, width: int) -> None:
        self.path = folder / CALIBRATION
        self.vectors: Floats = np.zeros((0, width), np.float32)
        self.words: Floats = np.zeros(0, np.float32)
        self.pictures: Floats = np.zeros(0, np.float32)
        try:
            with np.load(self.path) as saved:
                if saved["vectors"].shape[1:] == (width,):
                    self.vectors, self.words, self.pictures = saved["vectors"], saved["words"], saved["pictures"]
        except (OSError, ValueError, KeyError):
            pass  # not made yet, or damaged: the next run of the indexer makes it again

    def encode(self, encoder: Encoder) -> None:
        """Encode the sentences, once in the life of an index."""
        if len(self.vectors) != len(SENTENCES):
            self.vectors = encoder.texts(list(SENTENCES))

    def measure(self, view: View) -> None:
        """Look at what unrelated queries find now, and keep it."""
        self.words = np.array([self._stands_out(v, rank(view, v, LOOKED_AT)) for v in self.vectors], np.float32)
        sample = view.sample(NEIGHBOURS)[:NEIGHBOURS]
        self.pictures = np.array([_nearest_other(view, vector) for vector in sample], np.float32)
        partial = self.path.with_name(f".{CALIBRATION}.{os.getpid()}.npz")
        np.savez(partial, vectors=self.vectors, words=self.words, pictures=self.pictures)
        partial.replace(self.path)

    def confidence(self, query: Floats, found: list[Ranked], *, words: bool = True) -> float:
        """How many unrelated queries a query ``[D]`` beats with what it found, 0 to 1.

        Args:
            query: a sentence, or a picture or clip: those are compared with how alike the collection's own videos are.
            found: the best ``LOOKED_AT`` videos, or more.
            words: whether there is a sentence in it.
        """
        others = self.words if words else self.pictures
        if not len(others) or not found:
            return 0.0
        return float((others <= (self._stands_out(query, found) if words else found[0].score)).mean())

    def _stands_out(self, query: Floats, found: list[Ranked]) -> float:
        """The best score of what was found, less what any sentence scores there."""
        rest = query - self.vectors.mean(axis=0)
        return max((float(entry.vector @ rest) for entry in found[:LOOKED_AT]), default=0.0)


def _nearest_other(view: View, vector: Floats) -> float:
    """The best score of a segment's vector in another video than its own; -1 when there is none near."""
    hits = view.search(vector, 256)
    return next((float(s) for v, s in zip(hits.videos, hits.scores, strict=True) if v != hits.videos[0]), -1.0)
