"""Results of the index as the API shows them."""

from pathlib import Path

from ..search import Hit, Results, VideoEntry
from .library import Library, valid_text
from .schemas import Found, SearchAnswer, Span, Video

PREFIX = "/api/v1"


def search_answer(library: Library, results: Results, query: str | None = None) -> SearchAnswer:
    """Results of a search."""
    return SearchAnswer(
        convincing=results.convincing,
        confidence=round(results.confidence, 4),
        seconds=round(results.seconds, 5),
        query=query,
        hits=[_found(library, hit) for hit in results],
    )


def frame_url(video_id: str, time: float) -> str:
    """Where a frame of a video is."""
    return f"{PREFIX}/videos/{video_id}/frames/{max(0.0, time):.1f}.jpg"


def stream_url(video_id: str) -> str:
    """Where the file of a video is."""
    return f"{PREFIX}/videos/{video_id}/stream"


def video_fields(library: Library, entry: VideoEntry) -> dict[str, object]:
    """The fields of a video of the index."""
    return {
        "video_id": entry.video_id,
        "title": valid_text(entry.title),
        "place": library.place(entry.path),
        "copies": _places(library, entry.copies),
        "duration": round(entry.duration, 3),
        "width": entry.width,
        "height": entry.height,
        "modified": entry.modified,
        "added": entry.added,
        "segments": entry.segments,
        "note": entry.note,
        "thumbnail": frame_url(entry.video_id, entry.duration / 2),
        "stream": stream_url(entry.video_id),
    }


def video_answer(library: Library, entry: VideoEntry) -> Video:
    """A video of the index."""
    return Video.model_validate(video_fields(library, entry))


def span(start: float, end: float, score: float) -> Span:
    """A part of a video."""
    return Span(start=round(max(0.0, start), 3), end=round(end, 3), score=round(score, 5))


def _found(library: Library, hit: Hit) -> Found:
    return Found(
        video_id=hit.video_id,
        title=valid_text(hit.title),
        place=library.place(hit.path),
        start=round(hit.start, 3),
        end=round(hit.end, 3),
        score=round(hit.score, 5),
        duration=round(hit.duration, 3),
        moments=[span(moment.start, moment.end, moment.score) for moment in hit.moments],
        copies=_places(library, hit.copies),
        duplicates=_places(library, hit.duplicates),
        thumbnail=frame_url(hit.video_id, (hit.start + hit.end) / 2),
        stream=stream_url(hit.video_id),
    )


def _places(library: Library, paths: tuple[Path, ...]) -> list[str]:
    return [library.place(path) for path in paths]
