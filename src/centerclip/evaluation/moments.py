"""Sentence-to-moment retrieval: R@1 and R@5 at an IoU, in the sentence's own video and in the whole collection.

A moment is a run of neighbouring segments of a video. In one video runs are ranked by how far their similarities are
above the mean of the video: their summed difference to it, divided by the root of their number (a scan statistic, which
has nothing to tune). Between videos, the best run of each is ranked by its mean similarity.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..data import Benchmark
from ..data.annotations import AnnotationFiles
from ..data.minivtt import read_events
from ..errors import AnnotationError, EvaluationError
from ..model import CenterCLIP
from .evaluate import EncodedBenchmark, OnProgress, encode_benchmark, no_progress

IOUS = (0.3, 0.5, 0.7)
TOPS = (1, 5)
SAME_MOMENT = 0.5  # of two runs of a video with a higher IoU only the better one counts
BATCH_VALUES = 2**24  # similarities of runs at a time, in the whole collection
FILES = {"activitynet": {"train": "train.json", "val": "train.json", "test": "val_1.json"}}
Moment = tuple[float, float, str]  # start and end in seconds, and a sentence about it


@dataclass(frozen=True)
class MomentScore:
    """Per cent of the sentences whose moment is among the first; keys are ``R1@0.5`` and so on."""

    in_video: dict[str, float]
    in_collection: dict[str, float]
    chance: dict[str, float]  # R1 in the video, with a run drawn at random
    sentences: int
    videos: int


def read_moments(
    benchmark: Benchmark, root: str | Path, annotations: str | Path | None = None
) -> dict[str, list[Moment]]:
    """The timed sentences of every video: of ActivityNet Captions, or the events of a MiniVTT folder.

    Raises:
        EvaluationError: the benchmark has no times, or not those of all its videos.
    """
    folder = Path(root).expanduser()
    if benchmark.name in FILES:
        source = Path(annotations).expanduser() if annotations else None
        files = AnnotationFiles((source,) if source else (folder, folder / "annotations"))
        names = dict.fromkeys(FILES[benchmark.name][part] for part in benchmark.split.split("+"))
        found = {video: moments for name in names for video, moments in _timed(files, name)}
    elif benchmark.name == "folder":
        found = {
            video: [(event.start, event.end, event.caption) for event in clip.events]
            for video, clip in read_events(folder).items()
        }
    else:
        raise EvaluationError(f"{benchmark.name} has no times of moments; activitynet and MiniVTT folders have.")
    unknown = [clip.id for clip in benchmark.videos if not found.get(clip.id)]
    if unknown:
        raise EvaluationError(f"{root} has no timed sentences of {len(unknown):,} videos, first of {unknown[0]}.")
    return {clip.id: found[clip.id] for clip in benchmark.videos}


def _timed(files: AnnotationFiles, name: str) -> Iterator[tuple[str, list[Moment]]]:
    try:
        for video, content in files.json(name).items():
            pairs = zip(content["timestamps"], content["sentences"], strict=True)
            yield video, [(float(min(times)), float(max(times)), text.strip()) for times, text in pairs]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise AnnotationError(f"{files.find(name)} is not in the format of ActivityNet Captions: {error!r}.") from error


def score_moments(
    model: CenterCLIP,
    benchmark: Benchmark,
    moments: Mapping[str, Sequence[Moment]],
    *,
    encoded: EncodedBenchmark | None = None,
    on_progress: OnProgress = no_progress,
) -> MomentScore:
    """Look for the moment of every sentence, in its video and in all videos.

    Args:
        model: encodes each video as a whole, in its number of segments: as fine as moments can be.
        benchmark: a loaded split.
        moments: of each of its videos (:func:`read_moments`).
        encoded: its vectors, where they are there already.
        on_progress: called with the kind of work, how much is finished, and the total.
    """
    encoded = encoded or encode_benchmark(model, benchmark, captions=False, on_progress=on_progress)
    clips = encoded.benchmark.videos  # without those that cannot be read
    runs = [(first, last) for first in range(model.segments) for last in range(first, model.segments)]
    spans = torch.full((len(clips), len(runs), 2), -1.0, dtype=torch.float64)  # of every run, -1 where it has padding
    for video, own in enumerate(encoded.spans):
        for place, (first, last) in enumerate(runs):
            if last < len(own):
                spans[video, place] = torch.tensor((own[first][0], own[last][1]), dtype=torch.float64)
    asked = [(video, *moment) for video, clip in enumerate(clips) for moment in moments[clip.id]]
    texts = model.encode_text([text for *_, text in asked], half=False).cpu()
    totals: dict[str, dict[str, float]] = {"video": {}, "collection": {}, "chance": {}}
    step = max(1, BATCH_VALUES // (len(clips) * len(runs)))
    for start in range(0, len(asked), step):
        some = asked[start : start + step]
        owner = torch.tensor([video for video, *_ in some])
        wanted = torch.tensor([times for _, *times, _ in some], dtype=torch.float64)  # [Q, 2]
        above, mean = _score_runs(texts[start : start + step], encoded.segments, encoded.mask, runs)  # [Q, V, runs]
        rows = torch.arange(len(some))
        own_spans = spans[owner]  # [Q, runs, 2]
        best_runs = _first_runs(above[rows, owner], own_spans, max(TOPS))  # [Q, 5]
        _count(totals["video"], _iou(own_spans[rows[:, None], best_runs], wanted[:, None]))
        real = own_spans[..., 0] >= 0
        by_chance = _iou(own_spans, wanted[:, None])
        for iou in IOUS:
            share = ((by_chance >= iou) & real).sum(1) / real.sum(1)
            totals["chance"][f"R1@{iou}"] = totals["chance"].get(f"R1@{iou}", 0.0) + float(share.sum())
        best = above.argmax(2)  # [Q, V]: the best run of each video
        videos = mean.gather(2, best[..., None])[..., 0].topk(min(max(TOPS), len(clips)), 1).indices
        found = spans[videos, best.gather(1, videos)]
        _count(totals["collection"], _iou(found, wanted[:, None]) * (videos == owner[:, None]))
        on_progress("sentences", start + len(some), len(asked))
    shares = {part: {key: 100 * count / len(asked) for key, count in each.items()} for part, each in totals.items()}
    return MomentScore(shares["video"], shares["collection"], shares["chance"], len(asked), len(clips))


def _score_runs(
    texts: Tensor, segments: Tensor, mask: Tensor, runs: Sequence[tuple[int, int]]
) -> tuple[Tensor, Tensor]:
    """How far every run is above the mean of its video, and its mean similarity, ``[Q, V, runs]`` each.

    Args:
        texts: ``[Q, D]``.
        segments: ``[V, S, D]``.
        mask: ``[V, S]``; runs with a segment that is not real get minus infinity.
        runs: first and last segment.
    """
    similarity = torch.einsum("qd,vsd->qvs", texts.double(), segments.double()) * mask
    sums = torch.nn.functional.pad(similarity.cumsum(2), (1, 0))  # [Q, V, S + 1]
    first, last = torch.tensor(runs).T
    length = last - first + 1
    total = sums[..., last + 1] - sums[..., first]
    real = mask.sum(1)  # padding is at the end
    middle = sums[..., -1] / real
    valid = last < real[:, None]  # [V, runs]
    above = (total - length * middle[..., None]) / length.sqrt()
    none = float("-inf")
    return torch.where(valid, above, none), torch.where(valid, total / length, none)


def _first_runs(scores: Tensor, spans: Tensor, count: int) -> Tensor:
    """The best ``count`` runs of scores ``[Q, runs]``, best first, of which no two are nearly the same.

    Where fewer are left, the best one is repeated.
    """
    scores, chosen = scores.clone(), list[Tensor]()
    rows = torch.arange(len(scores))
    for _ in range(count):
        best = scores.argmax(1)
        best = torch.where(scores[rows, best].isinf(), chosen[0] if chosen else best, best)
        chosen.append(best)
        scores[_iou(spans, spans[rows, best][:, None]) > SAME_MOMENT] = float("-inf")
    return torch.stack(chosen, 1)


def _iou(first: Tensor, second: Tensor) -> Tensor:
    """Intersection over union of spans ``[..., 2]``."""
    shared = (torch.minimum(first[..., 1], second[..., 1]) - torch.maximum(first[..., 0], second[..., 0])).clamp(min=0)
    return shared / ((first[..., 1] - first[..., 0]) + (second[..., 1] - second[..., 0]) - shared).clamp(min=1e-9)


def _count(totals: dict[str, float], overlaps: Tensor) -> None:
    """Add how many rows of overlaps ``[Q, ranked]`` have one of each IoU among the first."""
    for top in TOPS:
        for iou in IOUS:
            hits = (overlaps[:, :top] >= iou).any(1).sum()
            totals[f"R{top}@{iou}"] = totals.get(f"R{top}@{iou}", 0.0) + float(hits)


def to_rows(score: MomentScore) -> list[tuple[str, Any]]:
    """Lines of a table: what is searched, and its figures in the order of ``R1@0.3 ... R5@0.7``."""
    keys = [f"R{top}@{iou}" for top in TOPS for iou in IOUS]
    parts = {"in its video": score.in_video, "in the whole collection": score.in_collection, "by chance": score.chance}
    return [(name, [each.get(key, np.nan) for key in keys]) for name, each in parts.items()]
