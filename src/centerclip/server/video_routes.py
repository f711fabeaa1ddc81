"""Files over HTTP with ranges, so that a player can jump; read in threads, sent as fast as the client takes it."""

import asyncio
import re
from collections.abc import AsyncIterator
from enum import IntEnum
from fnmatch import fnmatch
from io import FileIO
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from fastapi import Path as InPath
from fastapi import Query as InQuery
from fastapi.responses import FileResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from ..search import Query, VideoEntry
from ..video.cut import PIECE, codec_of
from .problems import Problem
from .schemas import ProblemAnswer, VideoDetail, VideoList, span, video_answer, video_fields
from .search_routes import PROBLEM, QueryName, Sentence, VideoIdInPath, encoded_query
from .service import Service, Shared
from .workers import Lane

CHUNK = 256 * 1024
RANGE = re.compile(r"bytes=(\d*)-(\d*)$", re.ASCII)
# What the browser is told; it looks into the file anyway where it does not know the container.
TYPES = {".mp4": "video/mp4", ".m4v": "video/mp4", ".mov": "video/mp4", ".webm": "video/webm", ".ogv": "video/ogg"}
TYPES |= {".mkv": "video/x-matroska", ".avi": "video/x-msvideo", ".ts": "video/mp2t", ".mpg": "video/mpeg"}


def media_type(path: Path) -> str:
    """The media type of a file by its suffix."""
    return TYPES.get(path.suffix.lower(), "application/octet-stream")


class FileStream(StreamingResponse):
    """Part of an open file. It ends, and the file is closed, when its client has taken nothing for too long."""

    def __init__(self, file: FileIO, first: int, last: int, lane: Lane, stall_seconds: float, **options: Any) -> None:
        self.file, self.stall_seconds = file, stall_seconds
        super().__init__(_chunks(file, first, last, lane), **options)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer."""

        async def in_time(message: object) -> None:
            await asyncio.wait_for(send(message), self.stall_seconds)  # type: ignore[arg-type]

        try:
            await super().__call__(scope, receive, in_time)
        except TimeoutError:
            return  # the server closes the connection of an answer that is not complete
        finally:
            self.file.close()


def file_response(
    request: Request, file: FileIO, size: int, *, kind: str, tag: str, lane: Lane, stall_seconds: float
) -> Response:
    """Answer with a file, or the part of it that is asked for.

    Args:
        request: may have ``Range``, ``If-Range`` and ``If-None-Match``.
        file: open, at its start; closed when the answer is over.
        size: bytes of the file.
        kind: media type.
        tag: changes whenever the content does.
        lane: threads to read in.
        stall_seconds: how long the client may take nothing.
    """
    etag = f'"{tag}"'
    headers = {"accept-ranges": "bytes", "etag": etag, "cache-control": "private, max-age=3600"}
    if etag in request.headers.get("if-none-match", ""):
        file.close()
        return Response(status_code=304, headers=headers)
    try:
        part = _part(request, size, etag)
    except Problem:
        file.close()
        raise
    first, last = part or (0, size - 1)
    if part:
        headers["content-range"] = f"bytes {first}-{last}/{size}"
    headers["content-length"] = str(last - first + 1)
    status = 206 if part else 200
    if request.method == "HEAD":
        file.close()
        return Response(status_code=status, headers=headers, media_type=kind)
    return FileStream(file, first, last, lane, stall_seconds, status_code=status, headers=headers, media_type=kind)


def _part(request: Request, size: int, etag: str) -> tuple[int, int] | None:
    """First and last byte that are asked for; None for the whole file, as for several parts at once."""
    asked = request.headers.get("range")
    if asked is None or request.headers.get("if-range", etag) != etag:
        return None
    found = RANGE.match(asked.strip().replace(" ", ""))
    if found is None or not any(found.groups()) or any(len(digits) > 18 for digits in found.groups()):
        return None
    start, end = found.groups()
    first = int(start) if start else max(0, size - int(end))
    last = min(int(end), size - 1) if start and end else size - 1
    if start and end and int(end) < int(start):
        return None  # not a range at all: to be passed over
    if first >= size or (not start and int(end) == 0):
        raise Problem("bad-range", f"The file has {size} bytes.", headers={"content-range": f"bytes */{size}"})
    return first, last


async def _chunks(file: FileIO, first: int, last: int, lane: Lane) -> AsyncIterator[bytes]:
    place = first
    while place <= last:
        chunk = await lane.run(_read, file, place, min(CHUNK, last + 1 - place))
        if not chunk:  # the file became shorter meanwhile
            return
        place += len(chunk)
        yield chunk


def _read(file: FileIO, place: int, count: int) -> bytes:
    file.seek(place)
    return file.read(count)


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
    name: Annotated[str | None, InQuery(max_length=200, description="Part of the file's name, or a pattern.")] = None,
    folder: Annotated[str | None, InQuery(max_length=64, description="Id of a folder.")] = None,
    sort: Annotated[
        Literal["place", "added", "modified", "duration"], InQuery(description="Newest or longest first.")
    ] = "place",
    offset: Annotated[int, InQuery(ge=0, le=10**9, description="How many to pass over.")] = 0,
    limit: Annotated[int, InQuery(ge=1, le=500, description="How many at most.")] = 60,
) -> VideoList:
    """The videos of the index, by place, or the newest or longest first."""
    return await service.look_lane.run(_list, service, name, folder, sort, offset, limit)


@router.get("/videos/{video_id}", summary="One video, segment by segment", responses={404: PROBLEM, 422: PROBLEM})
async def video(service: Shared, video_id: VideoIdInPath, q: Sentence = None, query: QueryName = None) -> VideoDetail:
    """A video, and with a query how well each of its segments answers it."""
    wanted = await encoded_query(service, q, query)
    return await service.look_lane.run(_detail, service, video_id, wanted)


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
    width: Annotated[Width, InQuery(description="Pixels, at most.")] = Width.MEDIUM,
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
        Literal["mp4"] | None, InQuery(alias="as", description="H.264 in MP4, for what browsers cannot play.")
    ] = None,
    piece: Annotated[int, InQuery(ge=0, le=10**6, description=f"Which {PIECE:g} seconds of it, with `as`.")] = 0,
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


def _detail(service: Service, video_id: str, wanted: Query | None) -> VideoDetail:
    library = service.library
    fields = video_fields(library, library.index.video(video_id))
    spans = [span(*part) for part in library.index.segments(video_id, query=wanted)]
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
