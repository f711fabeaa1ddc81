"""``queries.csv``: one line for every query of an evaluation, with its rank and what was found instead."""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .errors import EvaluationError
from .ranking import Ranks, Top
from .whole_files import write_whole

if TYPE_CHECKING:
    from .result import Evaluation

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

    return write_whole(path, write)


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
