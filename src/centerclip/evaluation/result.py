"""The result of an evaluation: every number keeps its split, gallery, rule, protocol and data with it.

It is saved as ``evaluation.json``, and as ``queries.csv`` with one line for every query: its rank and best candidates.
Two of the same queries are compared by resampling both together: hard queries are hard for both, so their spread
cancels out.
"""

import csv
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import EvaluationError
from ..files import write_atomic
from .metrics import DIRECTIONS, NAMES, Metrics, interval, resampled, summaries
from .ranking import Ranks, Top

RESULT = "evaluation.json"
QUERIES = "queries.csv"
TOP_CANDIDATES = 5  # of every query, in queries.csv
SAVED = (
    "model", "benchmark", "split", "gallery", "captions", "rule", "protocol", "dual_softmax", "fingerprint",
    "clustering", "frames", "max_tokens", "seconds", "missing", "uncaptioned", "unreadable", "metrics",
)  # fmt: skip
QUERY_COLUMNS = ("direction", "id", "video", "text", "rank")
TEXT_MODE = {"encoding": "utf-8", "errors": "surrogatepass", "newline": ""}  # ids may be file names in any encoding
Intervals = dict[str, dict[str, tuple[float, float]]]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Metrics of a model on one split, with the rank of every query behind them."""

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
    uncaptioned: tuple[str, ...] = ()  # videos whose captions are all blank
    unreadable: dict[str, str] = field(default_factory=dict)  # why, by video id
    model: str = ""
    protocol: str = "clean"  # of the model: "published", the authors' procedure, or "clean"

    def label(self) -> str:
        """What the numbers are measured on, in one line."""
        kinds = {"missing": self.missing, "without a caption": self.uncaptioned, "unreadable": self.unreadable}
        absent = [f"{len(videos):,} {kind}" for kind, videos in kinds.items() if videos]
        gallery = f"{self.gallery:,} videos"
        if absent:
            total = self.gallery + sum(map(len, kinds.values()))
            gallery = f"{self.gallery:,} of {total:,} videos ({', '.join(absent)})"
        parts = [f"{self.benchmark} {self.split}", gallery, f"{self.captions:,} captions"]
        parts += [f"rule {self.rule}", f"protocol {self.protocol}"]
        if self.dual_softmax:
            parts.append("DUAL SOFTMAX over all queries")
        return ", ".join([*parts, f"data {self.fingerprint}"])

    def setting(self) -> str:
        """The model's setting: clustering and frames."""
        return f"{self.clustering}, {self.frames} frames"

    @cached_property
    def caption_ids(self) -> tuple[str, ...]:
        """``video#number`` for every caption; numbers start at 0 for each video."""
        counts: dict[int, int] = {}
        ids = []
        for video in self.video_of_caption.tolist():
            number = counts[video] = counts.get(video, -1) + 1
            ids.append(f"{self.video_ids[video]}#{number}")
        return tuple(ids)

    def video_of_query(self, direction: str) -> np.ndarray:
        """The video of each query of a direction: the caption's, or the query itself."""
        return self.video_of_caption if direction == "t2v" else np.arange(self.gallery)

    @cached_property
    def intervals(self) -> Intervals:
        """95 % bootstrap intervals of all metrics, ``(low, high)``, nested as ``metrics``."""
        return Seeds((self,)).intervals

    def interval(self, direction: str = "t2v", metric: str = "R1") -> tuple[float, float]:
        """The 95 % bootstrap interval of one metric: its spread over other videos of the same kind."""
        return self.intervals[direction][metric]

    def to_json(self) -> dict[str, Any]:
        """Everything but the individual queries, for programs."""
        content = {"label": self.label()} | {name: getattr(self, name) for name in SAVED}
        return content | {"intervals": self.intervals}

    def save(self, folder: str | Path) -> Path:
        """Write ``evaluation.json`` and ``queries.csv`` into a folder, each atomically."""
        target = Path(folder).expanduser()
        target.mkdir(parents=True, exist_ok=True)
        _write_queries(self, target / QUERIES)
        content = json.dumps(self.to_json(), indent=2) + "\n"
        return write_atomic(target / RESULT, content)

    @classmethod
    def load(cls, path: str | Path) -> "Evaluation":
        """Read what :meth:`save` wrote: the folder, or its ``evaluation.json``."""
        file = Path(path).expanduser()
        file = file / RESULT if file.is_dir() else file
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
            saved = {name: content[name] for name in SAVED}
        except FileNotFoundError as error:
            raise EvaluationError(f"{file} does not exist; `centerclip evaluate --output DIR` writes one.") from error
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise EvaluationError(f"{file} is not a saved evaluation: {error!r}.") from error
        saved |= {name: tuple(saved[name]) for name in ("missing", "uncaptioned")}
        result = cls(**saved, **_read_queries(file.with_name(QUERIES)))
        if not _nearly_equal(summaries(result.ranks), result.metrics):
            raise EvaluationError(f"{file} and {QUERIES} beside it are from different evaluations; run it again.")
        return result


def check_same(first: Evaluation, second: Evaluation) -> None:
    """Raise EvaluationError, with what differs, unless both are of the same split, gallery and data."""
    pairs = (
        ("split", first.split, second.split),
        ("gallery", f"{first.gallery:,} videos", f"{second.gallery:,} videos"),
        ("captions", f"{first.captions:,}", f"{second.captions:,}"),
        ("data", first.fingerprint, second.fingerprint),
    )
    differing = "; ".join(f"{name} {a} against {b}" for name, a, b in pairs if a != b)
    if differing:
        raise EvaluationError(f"these evaluations cannot be compared because their data differ: {differing}.")


def paired_samples(results: Sequence[Evaluation], direction: str) -> np.ndarray:
    """Metrics of resampled benchmarks, ``[samples, results, 5]``; the same videos are drawn for all results."""
    first = results[0]
    ranks = [_aligned(first, each, direction) for each in results]
    return resampled(ranks, first.video_of_query(direction), first.gallery)


def _aligned(first: Evaluation, second: Evaluation, direction: str) -> np.ndarray:
    """The ranks of ``second`` in the query order of ``first``: annotation files may list videos in another order."""
    wanted, given = (each.caption_ids if direction == "t2v" else each.video_ids for each in (first, second))
    place = {query: position for position, query in enumerate(given)}
    if place.keys() != set(wanted):
        raise EvaluationError("these evaluations cannot be compared because their queries differ.")
    ranks: np.ndarray = getattr(second.ranks, direction)[[place[query] for query in wanted]]
    return ranks


@dataclass(frozen=True, eq=False)
class Seeds:
    """Evaluations of the same queries, one for each seed, in the order of the seeds."""

    results: tuple[Evaluation, ...]

    def __post_init__(self) -> None:
        if not self.results:
            raise EvaluationError("a mean over seeds needs at least one evaluation.")
        for other in self.results[1:]:
            check_same(self.results[0], other)

    @cached_property
    def metrics(self) -> Metrics:
        """The mean of every metric over the seeds."""
        return {each: {name: float(np.mean(self.values(each, name))) for name in NAMES} for each in DIRECTIONS}

    def values(self, direction: str, metric: str) -> list[float]:
        """One metric of every seed."""
        return [result.metrics[direction][metric] for result in self.results]

    @cached_property
    def intervals(self) -> Intervals:
        """95 % intervals of the means, over videos; the seeds are not resampled."""
        means = {direction: paired_samples(self.results, direction).mean(axis=1) for direction in DIRECTIONS}
        bounds = {direction: zip(*interval(samples), strict=True) for direction, samples in means.items()}
        return {
            direction: {name: (float(low), float(high)) for name, (low, high) in zip(NAMES, pairs, strict=True)}
            for direction, pairs in bounds.items()
        }


@dataclass(frozen=True)
class Gain:
    """The difference of one metric between two settings."""

    mean: float
    low: float  # end of the 95 % interval over videos
    high: float
    seeds: tuple[float, ...]  # the gain of each seed over the same seed

    @property
    def clear(self) -> bool:
        """Whether the interval excludes zero."""
        return self.low > 0 or self.high < 0

    def __str__(self) -> str:
        text = f"{self.mean:+.1f} [{self.low:+.1f}, {self.high:+.1f}]"
        return text if len(self.seeds) == 1 else f"{text}, seeds {min(self.seeds):+.1f} to {max(self.seeds):+.1f}"


def gains(first: Seeds, second: Seeds, direction: str = "t2v") -> dict[str, Gain]:
    """``second`` minus ``first`` by metric, by a paired bootstrap over videos of the means over seeds.

    Raises:
        EvaluationError: they are of different data, or have different numbers of seeds.
    """
    if len(first.results) != len(second.results):
        raise EvaluationError(
            f"{len(first.results)} seeds cannot be compared with {len(second.results)}; run the same number of both."
        )
    check_same(first.results[0], second.results[0])
    samples = paired_samples((*first.results, *second.results), direction)  # [samples, 2 * count, 5]
    count = len(first.results)
    bounds = zip(*interval(samples[:, count:].mean(axis=1) - samples[:, :count].mean(axis=1)), strict=True)
    found = {}
    for name, (low, high) in zip(NAMES, bounds, strict=True):
        values = zip(first.values(direction, name), second.values(direction, name), strict=True)
        differences = [b - a for a, b in values]
        found[name] = Gain(float(np.mean(differences)), float(low), float(high), tuple(differences))
    return found


def compare(first: Evaluation, second: Evaluation) -> dict[str, dict[str, Gain]]:
    """``second`` minus ``first``, by direction and metric; EvaluationError unless split, gallery and data are equal."""
    return {direction: gains(Seeds((first,)), Seeds((second,)), direction) for direction in DIRECTIONS}


def differences(compared: dict[str, dict[str, Gain]]) -> dict[str, Any]:
    """What :func:`compare` found, for programs: ``difference`` and ``intervals``, nested as metrics are."""
    return {
        "difference": {each: {name: gain.mean for name, gain in found.items()} for each, found in compared.items()},
        "intervals": {each: {name: (g.low, g.high) for name, g in found.items()} for each, found in compared.items()},
    }


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> Path:
    """Write a CSV file atomically."""

    def write(partial: Path) -> None:
        with partial.open("w", **TEXT_MODE) as file:  # type: ignore[call-overload]
            writer = csv.writer(file)
            writer.writerow(header)
            writer.writerows(rows)

    return write_atomic(path, write)


def _write_queries(result: Evaluation, path: Path) -> None:
    """One line a query: captions first, then videos. Scores are those that were ranked by."""
    ranks, videos, captions = result.ranks, result.video_ids, result.caption_ids
    numbers = range(1, 1 + max(0 if top is None else top.ids.shape[1] for top in (ranks.top_t2v, ranks.top_v2t)))
    candidates = [name for n in numbers for name in (f"top{n}", f"score{n}")]
    owners = [videos[place] for place in result.video_of_caption.tolist()]
    of_captions = zip(captions, owners, result.caption_texts, strict=True)
    rows = [
        *_query_rows("t2v", of_captions, ranks.t2v, ranks.top_t2v, videos),
        *_query_rows("v2t", ((video, video, "") for video in videos), ranks.v2t, ranks.top_v2t, captions),
    ]
    write_csv(path, [*QUERY_COLUMNS, *candidates], rows)


def _query_rows(
    direction: str, queries: Iterable[tuple[str, str, str]], ranks: np.ndarray, top: Top | None, names: Sequence[str]
) -> Iterator[list[str]]:
    for place, (query, rank) in enumerate(zip(queries, ranks, strict=True)):
        best = () if top is None else zip(top.ids[place].tolist(), top.scores[place].tolist(), strict=True)
        cells = [cell for candidate, score in best for cell in (names[candidate], f"{score:.6f}")]
        yield [direction, *query, f"{rank:.1f}".removesuffix(".0"), *cells]  # ranks are whole or halves


def _read_queries(path: Path) -> dict[str, Any]:
    """The fields of an :class:`Evaluation` that ``queries.csv`` holds."""
    try:
        with path.open(**TEXT_MODE) as file:  # type: ignore[call-overload]
            rows = list(csv.DictReader(file))
        captions = [row for row in rows if row["direction"] == "t2v"]
        videos = [row for row in rows if row["direction"] == "v2t"]
        place_of_video = {row["id"]: place for place, row in enumerate(videos)}
        place_of_caption = {row["id"]: place for place, row in enumerate(captions)}
        return {
            "video_ids": tuple(place_of_video),
            "caption_texts": tuple(row["text"] for row in captions),
            "video_of_caption": np.array([place_of_video[row["video"]] for row in captions], dtype=np.int64),
            "ranks": Ranks(
                t2v=np.array([float(row["rank"]) for row in captions]),
                v2t=np.array([float(row["rank"]) for row in videos]),
                captioned=np.arange(len(videos)),
                top_t2v=_read_top(captions, place_of_video),
                top_v2t=_read_top(videos, place_of_caption),
            ),
        }
    except FileNotFoundError as error:
        raise EvaluationError(f"{path} is missing; it belongs beside the evaluation.json of the same run.") from error
    except (OSError, ValueError, KeyError, TypeError, csv.Error) as error:
        raise EvaluationError(f"{path} is not the queries.csv of an evaluation: {error!r}.") from error


def _read_top(rows: list[dict[str, str]], place_of: dict[str, int]) -> Top | None:
    numbers = [n for n in range(1, len(rows[0])) if rows[0].get(f"top{n}")] if rows else []
    if not numbers:
        return None
    ids = [[place_of[row[f"top{n}"]] for n in numbers] for row in rows]
    scores = [[float(row[f"score{n}"]) for n in numbers] for row in rows]
    return Top(np.array(ids, dtype=np.int64), np.array(scores))


def _nearly_equal(first: Metrics, second: Metrics) -> bool:
    """Whether metrics agree but for the last digits, in which machines may differ."""
    return all(
        math.isclose(value, second[direction][name], abs_tol=1e-6)
        for direction, values in first.items()
        for name, value in values.items()
    )
