"""Ranks by the definition, one comparison at a time: slow, and shares nothing with the package."""

from collections.abc import Sequence


def ranks(similarity: Sequence[Sequence[float]], owners: Sequence[int]) -> tuple[list[float], list[float]]:
    """Ranks of captions, and of the videos that have captions."""
    captions, videos = range(len(similarity)), range(len(similarity[0]))
    t2v = [_rank(similarity[c][owners[c]], [similarity[c][v] for v in videos if v != owners[c]]) for c in captions]
    captioned = [v for v in videos if v in owners]
    v2t = []
    for video in captioned:
        best = {v: max(similarity[c][video] for c in captions if owners[c] == v) for v in captioned}
        v2t.append(_rank(best[video], [score for v, score in best.items() if v != video]))
    return t2v, v2t


def _rank(own: float, rivals: list[float]) -> float:
    return 1 + sum(rival > own for rival in rivals) + 0.5 * sum(rival == own for rival in rivals)
