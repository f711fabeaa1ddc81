"""``queries.csv``: one line for every query of an evaluation, with its rank and what was found instead."""

import csv
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import EvaluationError
from ..files import write_atomic
from .metrics import DIRECTIONS, Metrics, interval, named, resampled, summaries
from .ranking import Ranks, Top

FIRST = ("direction", "id", "video", "text", "rank")
TEXT = {"encoding": "utf-8", "errors": "surrogatepass", "newline": ""}  # ids may be names of files in any encoding


@dataclass(frozen=True, eq=False)
class Queries:
    """What the file holds."""

    video_ids: tuple[str, ...]
    caption_texts: tuple[str, ...]
    video_of_caption: np.ndarray  # [captions]
    ranks: Ranks


def write_queries(result: "Evaluation", path: Path) -> Path:
    """Write one line a query: captions first, then videos. Scores are those that were ranked by."""
    listed = 0 if result.ranks.top_t2v is None else result.ranks.top_t2v.ids.shape[1]
    listed = max(listed, 0 if result.ranks.top_v2t is None else result.ranks.top_v2t.ids.shape[1])
    numbers = range(1, listed + 1)
    header = [*FIRST, *(name for n in numbers for name in (f"top{n}", f"score{n}"))]

    def write(partial: Path) -> None:
        with partial.open("w", **TEXT) as file:  # type: ignore[call-overload]
            writer = csv.writer(file)
            writer.writerow(header)
            writer.writerows(_rows(result))

    return write_atomic(path, write)


def _rows(result: "Evaluation") -> Iterator[list[str]]:
    videos, captions = result.video_ids, result.caption_ids
    for place, (caption, text) in enumerate(zip(captions, result.caption_texts, strict=True)):
        video = videos[int(result.video_of_caption[place])]
        found = _listing(result.ranks.top_t2v, place, videos)
        yield ["t2v", caption, video, text, _number(result.ranks.t2v[place]), *found]
    for place, video in enumerate(videos):
        found = _listing(result.ranks.top_v2t, place, captions)
        yield ["v2t", video, video, "", _number(result.ranks.v2t[place]), *found]


def _number(rank: float) -> str:
    """Ranks are whole or halves."""
    return f"{rank:.1f}".removesuffix(".0")


def _listing(top: Top | None, query: int, names: tuple[str, ...]) -> list[str]:
    if top is None:
        return []
    pairs = zip(top.ids[query].tolist(), top.scores[query].tolist(), strict=True)
    return [cell for candidate, score in pairs for cell in (names[candidate], f"{score:.6f}")]


def read_queries(path: Path) -> Queries:
    """Read what :func:`write_queries` wrote."""
    try:
        with path.open(**TEXT) as file:  # type: ignore[call-overload]
            rows = list(csv.DictReader(file))
        captions = [row for row in rows if row["direction"] == "t2v"]
        videos = [row for row in rows if row["direction"] == "v2t"]
        place_of_video = {row["id"]: place for place, row in enumerate(videos)}
        place_of_caption = {row["id"]: place for place, row in enumerate(captions)}
        return Queries(
            video_ids=tuple(place_of_video),
            caption_texts=tuple(row["text"] for row in captions),
            video_of_caption=np.array([place_of_video[row["video"]] for row in captions], dtype=np.int64),
            ranks=Ranks(
                t2v=np.array([float(row["rank"]) for row in captions]),
                v2t=np.array([float(row["rank"]) for row in videos]),
                captioned=np.arange(len(videos)),
                top_t2v=_read_top(captions, place_of_video),
                top_v2t=_read_top(videos, place_of_caption),
            ),
        )
    except FileNotFoundError as error:
        raise EvaluationError(f"there is no {path}; it belongs beside the evaluation.json of the same run.") from error
    except (OSError, ValueError, KeyError, TypeError, csv.Error) as error:
        raise EvaluationError(f"{path} is no list of queries that an evaluation wrote: {error!r}.") from error


def _read_top(rows: list[dict[str, str]], place_of: dict[str, int]) -> Top | None:
    listed = [n for n in range(1, len(rows[0])) if rows[0].get(f"top{n}")] if rows else []
    if not listed:
        return None
    ids = [[place_of[row[f"top{n}"]] for n in listed] for row in rows]
    scores = [[float(row[f"score{n}"]) for n in listed] for row in rows]
    return Top(np.array(ids, dtype=np.int64), np.array(scores))


RESULT = "evaluation.json"
QUERIES = "queries.csv"
LISTED = 5  # candidates kept of every query
SAVED = (
    "model", "benchmark", "split", "gallery", "captions", "rule", "dual_softmax", "fingerprint", "clustering", "frames",
    "max_tokens", "seconds", "missing", "unreadable", "metrics",
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
    max_tokens: int
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
            samples = resampled([ranks], self.video_of_query(direction), self.gallery)
            found[direction] = named(*interval(samples[:, 0]))
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
        return write_atomic(target / RESULT, content)

    @classmethod
    def load(cls, path: str | Path) -> "Evaluation":
        """Read what :meth:`save` wrote: the folder, or its ``evaluation.json``."""
        file = Path(path).expanduser()
        file = file / RESULT if file.is_dir() else file
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
            content.setdefault("max_tokens", content.get("words"))  # what version 0.1 called it
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
