"""Whether a hit is worth showing: compared with what sentences about other things find in the same collection."""

import os
from pathlib import Path

import numpy as np

from .background import SENTENCES
from .encoder import Encoder
from .engine import spread_of
from .store import Floats, View

CALIBRATION = "calibration.npz"
CONVINCING = 0.5


class Calibration:
    """What unrelated sentences find in a collection.

    Attributes:
        vectors: ``[B, D]`` of the sentences; empty before the first run of the indexer.
        standing: ``[B]`` how far the best hit of each stands out.
    """

    def __init__(self, folder: Path, width: int) -> None:
        self.path = folder / CALIBRATION
        self.vectors: Floats = np.zeros((0, width), np.float32)
        self.standing: Floats = np.zeros(0, np.float32)
        try:
            with np.load(self.path) as saved:
                if saved["vectors"].shape[1:] == (width,):
                    self.vectors, self.standing = saved["vectors"], saved["standing"]
        except (OSError, ValueError, KeyError):
            pass  # not made yet, or damaged: the next run of the indexer makes it again

    def encode(self, encoder: Encoder) -> None:
        """Encode the sentences, once in the life of an index."""
        if len(self.vectors) != len(SENTENCES):
            self.vectors = encoder.texts(list(SENTENCES))

    def measure(self, view: View) -> None:
        """Look at what the sentences find now, and keep it."""
        self.standing = np.array([stands_out(view, vector) for vector in self.vectors], np.float32)
        partial = self.path.with_name(f".{CALIBRATION}.{os.getpid()}.npz")
        np.savez(partial, vectors=self.vectors, standing=self.standing)
        partial.replace(self.path)

    def confidence(self, view: View, query: Floats) -> float:
        """Share of the sentences whose best hit stands out less than that of ``query`` ``[D]``."""
        if not len(self.standing):
            return 1.0
        return float((self.standing < stands_out(view, query)).mean())


def stands_out(view: View, query: Floats) -> float:
    """How many spreads the best segment lies above the mean of all."""
    best = view.search(query, 1).scores
    spread = spread_of(view, query)
    return (float(best[0]) - spread.mean) / spread.deviation if len(best) else 0.0
