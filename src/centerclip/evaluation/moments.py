"""Whether a sentence about one event finds the right moment inside its video."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from ..data import Benchmark
from ..data.minivtt import ClipEvents, read_events
from ..errors import EvaluationError
from ..model import CenterCLIP
from .evaluate import OnProgress, no_progress


@dataclass(frozen=True)
class MomentScore:
    """How often the best segment overlaps the event that was asked for, among events of videos with several."""

    right: int
    asked: int
    chance: float  # per cent right when a segment is drawn at random
    one_event: int  # events left out: alone in their video, so every segment is right

    @property
    def accuracy(self) -> float:
        """Per cent."""
        return 100 * self.right / self.asked


def score_moments(
    model: CenterCLIP, benchmark: Benchmark, root: str | Path, *, on_progress: OnProgress = no_progress
) -> MomentScore:
    """Ask for every event of the videos with two or more, and look whether the best segment of its video overlaps it.

    Args:
        model: encodes each video as a whole, in its number of segments.
        benchmark: a split of a MiniVTT folder.
        root: that folder, with ``events.jsonl``.
        on_progress: called with ``"videos"``, how many are finished, and how many there are.
    """
    timed = read_events(root)
    unknown = [clip.id for clip in benchmark.videos if clip.id not in timed]
    if unknown:
        raise EvaluationError(f"{root} has no event times of {len(unknown):,} videos, first of {unknown[0]}.")
    several = [clip for clip in benchmark.videos if len(timed[clip.id].events) > 1]
    if not several:
        raise EvaluationError(f"no video of {benchmark.name} {benchmark.split} has two events.")
    right, asked, chance = 0, 0, 0.0
    videos = model.iter_videos([clip.path for clip in several], half=False)
    for number, (clip, video) in enumerate(zip(several, videos, strict=True), start=1):
        if isinstance(video, Exception):
            raise EvaluationError(f"a video cannot be read: {video}") from video
        events = timed[clip.id]
        texts = model.encode_text([event.caption for event in events.events], half=False)
        best = (texts @ video.segments.T).argmax(dim=1)
        overlaps = _overlaps(events, video.spans)  # [events, segments]
        right += int(overlaps[torch.arange(len(best)), best.cpu()].sum())
        chance += float(overlaps.float().mean(dim=1).sum())
        asked += len(best)
        on_progress("videos", number, len(several))
    return MomentScore(right, asked, 100 * chance / asked, one_event=len(benchmark) - len(several))


def _overlaps(events: ClipEvents, spans: Sequence[tuple[float, float]]) -> torch.Tensor:
    """bool ``[events, segments]``: whether they share at least half of the shorter of the two."""
    first, last = torch.tensor([(event.start, event.end) for event in events.events], dtype=torch.float64).T[..., None]
    start, end = torch.tensor(spans, dtype=torch.float64).T
    shared = torch.minimum(end, last) - torch.maximum(start, first)
    return (shared / torch.minimum(end - start, last - first)).float() >= 0.5
