"""Vectors of views as the teacher wrote them, and the space that both towers are trained into."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from photos import CHUNK, Photos, View


def stored(photos: Photos, folder: Path, name: str) -> tuple[list[View], np.ndarray]:
    """Views of a set whose vectors have been written so far, and those vectors, float32 [N, D]."""
    views = photos.views(name)
    kept: list[View] = []
    rows = []
    for path in sorted((folder / name).glob("*.npy")):
        start = int(path.stem) * CHUNK
        part = np.load(path)
        kept += views[start : start + len(part)]
        rows.append(part.astype(np.float32))
    return kept, np.concatenate(rows)


@dataclass
class Space:
    """Teacher vectors without their common part, turned so that the first numbers say most, cut, of norm 1.

    CLIP's vectors of any two photographs have a cosine near 0.5 because of a large common part. Without it cosines
    tell more, and half of the numbers are enough.
    """

    mean: np.ndarray  # [512]
    basis: np.ndarray  # [512, D]

    @classmethod
    def fit(cls, vectors: np.ndarray, width: int) -> "Space":
        """From the teacher's vectors, [N, 512]."""
        mean = vectors.mean(0)
        _, _, rows = np.linalg.svd(vectors[:20000] - mean, full_matrices=False)
        return cls(mean, rows[:width].T)

    def __call__(self, vectors: np.ndarray) -> np.ndarray:
        """[N, 512] -> float32 [N, D]."""
        turned = (vectors - self.mean) @ self.basis
        return (turned / np.linalg.norm(turned, axis=1, keepdims=True)).astype(np.float32)

    def save(self, path: Path) -> None:
        """Write an .npz file."""
        np.savez(path, mean=self.mean, basis=self.basis)

    @classmethod
    def load(cls, path: Path) -> "Space":
        """Read what :meth:`save` wrote."""
        with np.load(path) as file:
            return cls(file["mean"], file["basis"])
