"""Whether order and motion are understood: sentences of MiniVTT's pairs against their clip and its twin."""

from dataclasses import dataclass
from pathlib import Path

from ..data.minivtt import ClipEvents, read_events
from ..errors import EvaluationError
from ..model.vectors import Rule, video_vectors
from .evaluate import EncodedBenchmark


@dataclass(frozen=True)
class PairScore:
    """Per cent of the sentences that are closer to their clip than to its twin; 50 by chance."""

    accuracy: dict[str, float]  # by what tells the twins apart: order, motion, roles; and all
    sentences: dict[str, int]


def score_pairs(encoded: EncodedBenchmark, root: str | Path, *, rule: Rule) -> PairScore:
    """Compare every sentence with the two clips of its pair; equal similarities count half.

    Args:
        encoded: the test split of a folder of ``centerclip data make minivtt-order``.
        root: that folder.
        rule: the similarity rule.
    """
    events = read_events(root)
    clips = encoded.benchmark.videos
    place = {clip.id: number for number, clip in enumerate(clips)}
    scores = encoded.texts @ video_vectors(encoded.segments, encoded.mask, rule=rule).T  # [C, V]
    right: dict[str, float] = {}
    asked: dict[str, int] = {}
    for row, owner in enumerate(encoded.benchmark.video_of_caption):
        video = clips[owner].id
        twin = f"pair{int(video.removeprefix('pair')) ^ 1:05d}" if video.removeprefix("pair").isdigit() else ""
        if twin not in place or video not in events:
            raise EvaluationError(
                f"{root}: video {video} has no twin; `centerclip data make minivtt-order` makes pairs."
            )
        mine, other = float(scores[row, owner]), float(scores[row, place[twin]])
        for kind in (_kind(events[video]), "all"):
            right[kind] = right.get(kind, 0.0) + (mine > other) + 0.5 * (mine == other)
            asked[kind] = asked.get(kind, 0) + 1
    return PairScore({kind: 100 * right[kind] / asked[kind] for kind in right}, asked)


def _kind(clip: ClipEvents) -> str:
    if len(clip.events) > 1:
        return "order"
    return "roles" if clip.events[0].partner else "motion"
