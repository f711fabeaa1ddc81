"""Videos: the list, one of them, its frames and its file."""

from enum import IntEnum
from fnmatch import fnmatch
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from fastapi import Path as InPath
from fastapi.responses import FileResponse, Response

from ..search import VideoEntry
from ..search.store import Floats
from .answers import span, video_answer, video_fields
from .problems import Problem
from .schemas import ProblemAnswer, VideoDetail, VideoList
from .search_routes import PROBLEM, QueryName, Sentence, VideoIdInPath, query_vector
from .service import Service, Shared
from .stream import file_response, media_type
from .transcode import PIECE, codec_of

router = APIRouter(tags=["videos"])
LASTING = "private, max-age=31536000, immutable"  # the id is a hash of the content: a frame never changes
GONE: dict[int | str, dict[str, Any]] = {404: PROBLEM, 409: PROBLEM, 410: PROBLEM, 422: PROBLEM, 503: PROBLEM}
BYTES: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}


class Width(IntEnum):
    """Of a frame. A few sizes, so that the cache is not filled with the same picture in every one."""

    SMALL = 160
    MEDIUM = 320
    LARGE = 640


@router.get("/videos", summary="All videos", responses={404: PROBLEM, 422: PROBLEM, 503: PROBLEM})
async def videos(
    service: Shared,
    name: Annotated[str | None, Query(max_length=200, description="Part of the file's name, or a pattern.")] = None,
    folder: Annotated[str | None, Query(max_length=64, description="Id of a folder.")] = None,
    sort: Annotated[
        Literal["place", "added", "modified", "duration"], Query(description="Newest or longest first.")
    ] = "place",
    offset: Annotated[int, Query(ge=0, le=10**9, description="How many to pass over.")] = 0,
    limit: Annotated[int, Query(ge=1, le=500, description="How many at most.")] = 60,
) -> VideoList:
    """The videos of the index, by place, or the newest or longest first."""
    return await service.look_lane.run(_list, service, name, folder, sort, offset, limit)


@router.get("/videos/{video_id}", summary="One video, segment by segment", responses={404: PROBLEM, 422: PROBLEM})
async def video(service: Shared, video_id: VideoIdInPath, q: Sentence = None, query: QueryName = None) -> VideoDetail:
    """A video, and with a query how well each of its segments answers it."""
    vector = await query_vector(service, q, query)
    return await service.look_lane.run(_detail, service, video_id, vector)


@router.get(
    "/videos/{video_id}/frames/{time}.jpg",
    summary="A frame",
    response_class=FileResponse,
    responses=GONE | {200: {"content": {"image/jpeg": BYTES}, "description": "The frame at a time."}},
)
async def frame(
    service: Shared,
    video_id: VideoIdInPath,
    time: Annotated[float, InPath(ge=0, le=1e6, allow_inf_nan=False, description="Seconds.", examples=[12.5])],
    width: Annotated[Width, Query(description="Pixels, at most.")] = Width.MEDIUM,
) -> Response:
    """The frame that is on the screen at a time, to a tenth of a second."""
    path = await service.frame_lane.run(_jpeg, service, video_id, time, width)
    return FileResponse(path, media_type="image/jpeg", headers={"cache-control": LASTING})


@router.head("/videos/{video_id}/stream", include_in_schema=False)
@router.get(
    "/videos/{video_id}/stream",
    summary="The file, or converted pieces of it",
    response_class=Response,
    responses=GONE
    | {
        200: {"content": {"video/*": BYTES}, "description": "The whole file."},
        206: {"content": {"video/*": BYTES}, "description": "The part that `Range` asks for."},
        416: {"model": ProblemAnswer, "content": {"application/problem+json": {}}, "description": "No such part."},
    },
)
async def stream(
    request: Request,
    service: Shared,
    video_id: VideoIdInPath,
    convert: Annotated[
        Literal["mp4"] | None, Query(alias="as", description="H.264 in MP4, for what browsers cannot play.")
    ] = None,
    piece: Annotated[int, Query(ge=0, le=10**6, description=f"Which {PIECE:g} seconds of it, with `as`.")] = 0,
) -> Response:
    """The file as it is, with HTTP ranges; or 30 seconds of it, converted."""
    if convert is None:
        file, path, size = await service.look_lane.run(service.library.open_file, video_id)
        kind, tag = media_type(path), video_id
    else:
        made = await service.piece_lane.run(_piece, service, video_id, piece)
        file, kind, tag = made.open("rb", buffering=0), "video/mp4", f"{video_id}-{piece}"
        size = made.stat().st_size
    return file_response(
        request,
        file,
        size,
        kind=kind,
        tag=tag,
        lane=service.file_lane,
        stall_seconds=service.settings.stall_seconds,
    )


def _list(service: Service, name: str | None, folder: str | None, sort: str, offset: int, limit: int) -> VideoList:
    library = service.library
    below = library.folder(folder) if folder else None
    entries = [entry for entry in library.entries() if _passes(entry, name, below)]
    if sort != "place":
        entries.sort(key=lambda entry: -getattr(entry, sort))
    shown = [video_answer(library, entry) for entry in entries[offset : offset + limit]]
    return VideoList(total=len(entries), offset=offset, videos=shown)


def _passes(entry: VideoEntry, name: str | None, below: Path | None) -> bool:
    paths = [entry.path, *entry.copies]
    if below is not None:
        paths = [path for path in paths if path.is_relative_to(below)]
    if name:
        wanted = name.casefold()
        pattern = wanted if any(letter in wanted for letter in "*?[") else f"*{wanted}*"
        paths = [path for path in paths if fnmatch(path.name.casefold(), pattern)]
    return bool(paths)


def _detail(service: Service, video_id: str, vector: Floats | None) -> VideoDetail:
    library = service.library
    fields = video_fields(library, library.index.video(video_id))
    spans = [span(*part) for part in library.index.segments(video_id, vector=vector)]
    state, codec, playable = _file_state(service, video_id)
    return VideoDetail.model_validate(
        {**fields, "file": state, "codec": codec, "playable": playable, "piece_seconds": PIECE, "spans": spans}
    )


def _file_state(service: Service, video_id: str) -> tuple[str, str | None, bool]:
    from ..video.errors import VideoError

    try:
        codec, playable = codec_of(service.library.path_of(video_id))
    except Problem as problem:
        return {"file-changed": "changed"}.get(problem.kind, "missing"), None, False
    except VideoError:
        return "unreadable", None, False
    return "there", codec, playable


def _jpeg(service: Service, video_id: str, time: float, width: int) -> Path:
    library = service.library
    entry = library.index.video(video_id)
    if time > entry.duration + 1:
        raise Problem("not-found", f"The video ends at {entry.duration:.1f} seconds.")
    at = min(time, max(0.0, entry.duration - 0.05))
    return service.thumbnails.jpeg(video_id, library.path_of(video_id), at, width)


def _piece(service: Service, video_id: str, number: int) -> Path:
    entry = service.library.index.video(video_id)
    if number * PIECE >= entry.duration:
        raise Problem("not-found", f"The video ends at {entry.duration:.1f} seconds.")
    return service.pieces.piece(video_id, service.library.path_of(video_id), number)
