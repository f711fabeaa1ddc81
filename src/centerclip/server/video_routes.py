"""Videos of the index: the list, one with its segments, its frames, and its file with HTTP ranges."""

import asyncio
import os
from enum import IntEnum
from fnmatch import fnmatch
from io import FileIO
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from fastapi import Path as PathParam
from fastapi import Query as QueryParam
from fastapi.responses import FileResponse, Response
from starlette.types import Message, Receive, Scope, Send

from ..search import Query, VideoEntry
from ..video.cut import PIECE_SECONDS, codec_of
from ..video.errors import VideoError
from .problems import Problem, problem_responses
from .schemas import Video, VideoDetail, VideoList, span, video_fields
from .search_routes import FolderId, NamePattern, QueryName, Sentence, VideoIdParam, encode_query
from .service import Service, ServiceDep

# The id is a hash of the content, so a frame never changes; the file may go, or be replaced by one that is not indexed.
CACHE_FRAME = "private, max-age=31536000, immutable"
CACHE_FILE = "private, max-age=3600"
# What the browser is told; it looks into the file anyway where it does not know the container.
MEDIA_TYPES = {
    ".mp4": "video/mp4",
    ".m4v": "video/mp4",
    ".mov": "video/mp4",
    ".webm": "video/webm",
    ".ogv": "video/ogg",
    ".mkv": "video/x-matroska",
    ".avi": "video/x-msvideo",
    ".ts": "video/mp2t",
    ".mpg": "video/mpeg",
}
BINARY: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}
FILE_PROBLEMS = problem_responses(404, 409, 410, 422, 503)
router = APIRouter(tags=["videos"])


class FrameWidth(IntEnum):
    """Pixels. A few sizes only, so that the cache does not hold the same frame in every one."""

    SMALL = 160
    MEDIUM = 320
    LARGE = 640


@router.get("/videos", summary="All videos", responses=problem_responses(404, 422, 503))
async def videos(
    service: ServiceDep,
    name: NamePattern = None,
    folder: FolderId = None,
    sort: Annotated[
        Literal["place", "added", "modified", "duration"], QueryParam(description="Newest or longest first.")
    ] = "place",
    offset: Annotated[int, QueryParam(ge=0, le=10**9, description="How many to skip.")] = 0,
    limit: Annotated[int, QueryParam(ge=1, le=500, description="How many at most.")] = 60,
) -> VideoList:
    """The videos of the index, by place, or the newest or longest first."""
    return await service.info_pool.run(_list, service, name, folder, sort, offset, limit)


@router.get("/videos/{video_id}", summary="One video, segment by segment", responses=problem_responses(404, 422))
async def video(
    service: ServiceDep, video_id: VideoIdParam, q: Sentence = None, query: QueryName = None
) -> VideoDetail:
    """A video, and with a query how well each of its segments matches it."""
    encoded = await encode_query(service, q, query)
    return await service.info_pool.run(_detail, service, video_id, encoded)


@router.get(
    "/videos/{video_id}/frames/{time}.jpg",
    summary="A frame",
    response_class=Response,
    responses=FILE_PROBLEMS | {200: {"content": {"image/jpeg": BINARY}, "description": "The frame at this time."}},
)
async def frame(
    service: ServiceDep,
    video_id: VideoIdParam,
    time: Annotated[float, PathParam(ge=0, le=1e6, allow_inf_nan=False, description="Seconds.", examples=[12.5])],
    width: Annotated[FrameWidth, QueryParam(description="Pixels, at most.")] = FrameWidth.MEDIUM,
) -> Response:
    """The frame that is on the screen at this time, to a tenth of a second."""
    path = await service.frame_pool.run(_thumbnail, service, video_id, time, width)
    return FileResponse(path, media_type="image/jpeg", headers={"cache-control": CACHE_FRAME})


@router.head("/videos/{video_id}/stream", include_in_schema=False)
@router.get(
    "/videos/{video_id}/stream",
    summary="The file, or converted pieces of it",
    response_class=Response,
    responses=FILE_PROBLEMS
    | problem_responses(416)
    | {
        200: {"content": {"video/*": BINARY}, "description": "The whole file."},
        206: {"content": {"video/*": BINARY}, "description": "The part named by `Range`."},
    },
)
async def stream(
    request: Request,
    service: ServiceDep,
    video_id: VideoIdParam,
    convert: Annotated[
        Literal["mp4"] | None, QueryParam(alias="as", description="H.264 in MP4, for files that browsers cannot play.")
    ] = None,
    piece: Annotated[
        int, QueryParam(ge=0, le=10**6, description=f"Which {PIECE_SECONDS:g} seconds of it, with `as`.")
    ] = 0,
) -> Response:
    """The file as it is, with HTTP ranges; or 30 seconds of it, converted."""
    if convert is None:
        file, path = await service.info_pool.run(service.library.open_file, video_id)
        etag = f'"{video_id}"'
    else:
        file, path = await service.piece_pool.run(_open_piece, service, video_id, piece)
        etag = f'"{video_id}-{piece}"'
    if etag in request.headers.get("if-none-match", ""):
        file.close()
        return Response(status_code=304, headers={"etag": etag, "cache-control": CACHE_FILE})
    return OpenFileResponse(file, path, etag, service.settings.stall_seconds)


class OpenFileResponse(FileResponse):
    """A file that is already open, with HTTP ranges; it is closed in the end.

    Args:
        file: open; this is what is sent, whatever its path leads to by now.
        path: of the file; gives the media type.
        etag: changes whenever the content does.
        stall_seconds: a client that reads nothing for so long is cut off.
    """

    chunk_size = 256 * 1024

    def __init__(self, file: FileIO, path: Path, etag: str, stall_seconds: float) -> None:
        self.file, self.stall_seconds = file, stall_seconds
        # FileResponse opens a path: this one is the open file itself. Windows has no such path, but there nobody can
        # replace a file that is open.
        same_file = f"/dev/fd/{file.fileno()}" if os.name == "posix" else path
        super().__init__(
            same_file,
            headers={"etag": etag, "cache-control": CACHE_FILE},
            media_type=MEDIA_TYPES.get(path.suffix.lower(), "application/octet-stream"),
            stat_result=os.fstat(file.fileno()),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""

        async def send_in_time(message: Message) -> None:
            if message.get("status") in (400, 416):  # Starlette's own are plain text
                size = os.fstat(self.file.fileno()).st_size
                headers = {"content-range": f"bytes */{size}"}
                raise Problem("bad-range", f"The file has {size} bytes.", headers=headers)
            await asyncio.wait_for(send(message), self.stall_seconds)

        try:
            await super().__call__(scope, receive, send_in_time)
        except TimeoutError:
            return  # the server closes the connection of a response that is not complete
        finally:
            self.file.close()


def _list(service: Service, name: str | None, folder: str | None, sort: str, offset: int, limit: int) -> VideoList:
    library = service.library
    below = library.folder(folder) if folder else None
    entries = [entry for entry in library.videos() if _matches(entry, name, below)]
    if sort != "place":
        entries.sort(key=lambda entry: -getattr(entry, sort))
    page = [Video.model_validate(video_fields(library, entry)) for entry in entries[offset : offset + limit]]
    return VideoList(total=len(entries), offset=offset, videos=page)


def _matches(entry: VideoEntry, name: str | None, below: Path | None) -> bool:
    paths = [entry.path, *entry.copies]
    if below is not None:
        paths = [path for path in paths if path.is_relative_to(below)]
    if name:
        pattern = name.casefold()
        if not any(letter in pattern for letter in "*?["):
            pattern = f"*{pattern}*"
        paths = [path for path in paths if fnmatch(path.name.casefold(), pattern)]
    return bool(paths)


def _detail(service: Service, video_id: str, query: Query | None) -> VideoDetail:
    library = service.library
    fields = video_fields(library, library.index.video(video_id))
    spans = [span(*segment) for segment in library.index.segments(video_id, query=query)]
    state, codec, playable = _file_state(service, video_id)
    return VideoDetail.model_validate(
        {**fields, "file": state, "codec": codec, "playable": playable, "piece_seconds": PIECE_SECONDS, "spans": spans}
    )


def _file_state(service: Service, video_id: str) -> tuple[str, str | None, bool]:
    try:
        codec, playable = codec_of(service.library.path_of(video_id))
    except Problem as problem:
        return "changed" if problem.kind == "file-changed" else "missing", None, False
    except VideoError:
        return "unreadable", None, False
    return "there", codec, playable


def _thumbnail(service: Service, video_id: str, time: float, width: int) -> Path:
    duration = service.library.index.video(video_id).duration
    if time > duration + 1:  # a second of tolerance: times are rounded
        raise _past_the_end(duration)
    last = max(0.0, duration - 0.05)
    return service.thumbnails.jpeg(video_id, service.library.path_of(video_id), min(time, last), width)


def _open_piece(service: Service, video_id: str, number: int) -> tuple[FileIO, Path]:
    duration = service.library.index.video(video_id).duration
    if number * PIECE_SECONDS >= duration:
        raise _past_the_end(duration)
    path = service.pieces.piece(video_id, service.library.path_of(video_id), number)
    return path.open("rb", buffering=0), path


def _past_the_end(duration: float) -> Problem:
    return Problem("not-found", f"The video ends at {duration:.1f} seconds.")
