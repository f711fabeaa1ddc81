"""What an evaluation found, and of what: every number keeps its split, gallery, rule and data with it."""

import json
import math
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from . import bootstrap
from .errors import EvaluationError
from .metrics import DIRECTIONS, Metrics, summaries
from .queries import read_queries, write_queries
from .ranking import Ranks
from .whole_files import write_whole

RESULT = "evaluation.json"
QUERIES = "queries.csv"
LISTED = 5  # candidates kept of every query
SAVED = (
    "model", "benchmark", "split", "gallery", "captions", "rule", "dual_softmax", "fingerprint", "clustering", "frames",
    "words", "seconds", "missing", "unreadable", "metrics",
)  # fmt: skip

Intervals = dict[str, dict[str, tuple[float, float]]]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Figures of a model on one split, with the rank of every query behind them."""

    metrics: Metrics  # {"t2v": {"R1", "R5", "R10", "MdR", "MnR"}, "v2t": {...}}, recalls in per cent
    benchmark: str
    split: str
    gallery: int  # videos that were ranked
    captions: int
    rule: str
    dual_softmax: bool
    fingerprint: str  # of the videos and captions that were ranked
    clustering: str
    frames: int
    words: int
    seconds: float
    video_ids: tuple[str, ...]
    caption_texts: tuple[str, ...]
    video_of_caption: np.ndarray  # [captions]
    ranks: Ranks  # .t2v [captions], .v2t [videos], and the best candidates of each
    missing: tuple[str, ...] = ()  # annotated videos without a file
    unreadable: dict[str, str] = field(default_factory=dict)  # why, by video id
    model: str = ""

    def label(self) -> str:
        """What the numbers are of, in one line."""
        lost = [f"{len(self.missing):,} missing"] if self.missing else []
        lost += [f"{len(self.unreadable):,} unreadable"] if self.unreadable else []
        whole = self.gallery + len(self.missing) + len(self.unreadable)
        gallery = f"{self.gallery:,} of {whole:,} videos ({', '.join(lost)})" if lost else f"{self.gallery:,} videos"
        parts = [f"{self.benchmark} {self.split}", gallery, f"{self.captions:,} captions", f"rule {self.rule}"]
        if self.dual_softmax:
            parts.append("DUAL SOFTMAX over all queries")
        return ", ".join([*parts, f"data {self.fingerprint}"])

    def setting(self) -> str:
        """The model's setting: clustering and frames."""
        return f"{self.clustering}, {self.frames} frames"

    @cached_property
    def caption_ids(self) -> tuple[str, ...]:
        """``video#number`` for every caption; numbers start at 0 for each video."""
        seen: dict[int, int] = {}
        ids = []
        for video in self.video_of_caption.tolist():
            number = seen[video] = seen.get(video, -1) + 1
            ids.append(f"{self.video_ids[video]}#{number}")
        return tuple(ids)

    def video_of_query(self, direction: str) -> np.ndarray:
        """The video that each query of a direction is about: a caption's own, or the video that is asked with."""
        return self.video_of_caption if direction == "t2v" else np.arange(self.gallery)

    @cached_property
    def intervals(self) -> Intervals:
        """95 % bootstrap intervals of all figures, as ``metrics`` has them: ``(low, high)``."""
        found = {}
        for direction in DIRECTIONS:
            ranks = getattr(self.ranks, direction)
            samples = bootstrap.resampled([ranks], self.video_of_query(direction), self.gallery)
            found[direction] = bootstrap.named(*bootstrap.interval(samples[:, 0]))
        return found

    def interval(self, direction: str = "t2v", metric: str = "R1") -> tuple[float, float]:
        """The 95 % bootstrap interval of one figure: where it would lie with other videos of the same kind."""
        return self.intervals[direction][metric]

    def to_json(self) -> dict[str, Any]:
        """Everything but the single queries, for programs."""
        content = {"label": self.label()} | {name: getattr(self, name) for name in SAVED}
        return content | {"intervals": self.intervals}

    def save(self, folder: str | Path) -> Path:
        """Write ``evaluation.json`` and ``queries.csv`` into a folder, each whole or not at all."""
        target = Path(folder).expanduser()
        target.mkdir(parents=True, exist_ok=True)
        write_queries(self, target / QUERIES)
        content = json.dumps(self.to_json(), indent=2) + "\n"
        return write_whole(target / RESULT, lambda path: path.write_text(content, encoding="utf-8"))

    @classmethod
    def load(cls, path: str | Path) -> "Evaluation":
        """Read what :meth:`save` wrote: the folder, or its ``evaluation.json``."""
        file = Path(path).expanduser()
        file = file / RESULT if file.is_dir() else file
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
            known = {name: content[name] for name in SAVED}
        except FileNotFoundError as error:
            raise EvaluationError(f"there is no {file}; `centerclip evaluate --output DIR` writes one.") from error
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise EvaluationError(f"{file} is no saved evaluation: {error!r}.") from error
        found = read_queries(file.with_name(QUERIES))
        if not _alike(summaries(found.ranks), known["metrics"]):
            raise EvaluationError(f"{file} and {QUERIES} beside it are of two evaluations; run it again.")
        known["missing"] = tuple(known["missing"])
        return cls(
            **known,
            video_ids=found.video_ids,
            caption_texts=found.caption_texts,
            video_of_caption=found.video_of_caption,
            ranks=found.ranks,
        )


def _alike(one: Metrics, other: Metrics) -> bool:
    """Whether figures are the same but for the last digits, in which machines may differ."""
    return all(
        math.isclose(value, other[direction][name], abs_tol=1e-6)
        for direction, figures in one.items()
        for name, value in figures.items()
    )
