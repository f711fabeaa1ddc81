"""Videos of the index: the list, one with its segments, its frames, and its file with HTTP ranges."""

import os
import shutil
from enum import IntEnum
from io import FileIO
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from fastapi import Path as PathParam
from fastapi.responses import FileResponse, Response
from starlette.types import Message, Receive, Scope, Send

from ..errors import CenterClipError
from ..files import is_address, valid_text
from ..integrations.desktop import has_desktop, reveal
from ..search import Hit, Query, VideoEntry
from ..search.filters import Filters
from ..search.store import File
from ..video.cut import PIECE_SECONDS, codec_of, copy_clip, encode_clip, encode_piece
from ..video.errors import VideoError
from .library import Library
from .media import frame
from .middleware import is_local
from .problems import Problem, problem_responses
from .schemas import Video, VideoDetail, VideoList, video_fields
from .search_routes import (
    SECOND,
    FilterOptions,
    QueryName,
    Sentence,
    VideoIdParam,
    encode_query,
    option,
)
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
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".png": "image/png",
    ".webp": "image/webp",
    ".heic": "image/heic",
    ".heif": "image/heif",
}
MAX_CLIP_SECONDS = 600.0  # one clip is cut at a time, and others wait for it
BINARY: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}
FILE_PROBLEMS = problem_responses(404, 409, 410, 422, 503)
# A change of the index or of the screen.
CHANGE: dict[str, Any] = {"status_code": 204, "responses": problem_responses(403, 404, 409, 410, 422, 503)}
Sorting = Literal["place", "title", "added", "modified", "duration"]
router = APIRouter(tags=["videos"])


class FrameWidth(IntEnum):
    """Pixels. A few sizes only, so that the cache does not hold the same frame in every one."""

    SMALL = 160
    MEDIUM = 320
    LARGE = 640


@router.get("/videos", summary="All videos", responses=problem_responses(404, 422, 503))
async def list_videos(
    service: ServiceDep,
    filters: FilterOptions,
    sort: Annotated[Sorting, option("The newest or longest first, or by folder or name.", "added")] = "place",
    offset: Annotated[int, option("How many to skip.", 60, ge=0, le=10**9)] = 0,
    limit: Annotated[int, option("How many at most.", 60, ge=1, le=500)] = 60,
) -> VideoList:
    """The videos of the index, by place or name, or the newest or longest first."""
    return await service.info_pool.run(_list, service, filters, sort, offset, limit)


@router.get("/videos/{video_id}", summary="One video, segment by segment", responses=problem_responses(404, 422))
async def get_video(
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
async def get_frame(
    service: ServiceDep,
    video_id: VideoIdParam,
    time: Annotated[float, PathParam(description="Seconds.", examples=[12.5], **SECOND)],
    width: Annotated[FrameWidth, option("Pixels, at most.", 320)] = FrameWidth.MEDIUM,
) -> Response:
    """The frame that is on the screen at this time, to a tenth of a second."""
    content = await service.frame_pool.run(_thumbnail, service, video_id, time, width)
    return Response(content, media_type="image/jpeg", headers={"cache-control": CACHE_FRAME})


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
        Literal["mp4"] | None, option("H.264 in MP4, for files that browsers cannot play.", "mp4", alias="as")
    ] = None,
    piece: Annotated[int, option(f"Which {PIECE_SECONDS:g} seconds of it, with `as`.", 1, ge=0, le=10**6)] = 0,
) -> Response:
    """The file as it is, with HTTP ranges; or 30 seconds of it, converted."""
    if convert is None:
        remote = await service.info_pool.run(service.library.is_remote, video_id)
        pool = service.download_pool if remote else service.info_pool
        file, path = await pool.run(_open_whole, service, video_id)
        etag = f'"{video_id}"'
    else:
        file, path = await service.piece_pool.run(_open_piece, service, video_id, piece), Path("piece.mp4")
        etag = f'"{video_id}-{piece}"'
    if etag in request.headers.get("if-none-match", ""):
        file.close()
        return Response(status_code=304, headers={"etag": etag, "cache-control": CACHE_FILE})
    return OpenFileResponse(file, path, etag)


@router.get(
    "/videos/{video_id}/clip.mp4",
    summary="A moment as a file",
    response_class=Response,
    responses=FILE_PROBLEMS | {200: {"content": {"video/mp4": BINARY}, "description": "The moment, with its sound."}},
)
async def get_clip(
    service: ServiceDep,
    video_id: VideoIdParam,
    start: Annotated[float, option("Seconds.", 12.5, **SECOND)],
    seconds: Annotated[float, option("How long it is.", 7, ge=0.1, le=MAX_CLIP_SECONDS)],
) -> Response:
    """A part of the video, to keep: copied without loss from the keyframe before, or encoded where MP4 needs it."""
    file, name = await service.piece_pool.run(_open_clip, service, video_id, start, start + seconds)
    return OpenFileResponse(file, Path(name), f'"{video_id}-{start}-{seconds}"', filename=name)


@router.post(
    "/videos/{video_id}/sharpen",
    summary="Index a moment more finely",
    responses=problem_responses(403, 404, 409, 410, 422, 503),
)
async def sharpen_moment(
    service: ServiceDep,
    video_id: VideoIdParam,
    start: Annotated[float, option("Of the moment, seconds.", 12.5, **SECOND)],
    end: Annotated[float, option("Of the moment, seconds.", 42.5, **SECOND)],
    q: Sentence = None,
    query: QueryName = None,
) -> VideoDetail:
    """Read a moment again, a frame a second where the index has fewer, and keep that; what is fine stays as it is."""
    if not service.settings.sharpen:
        raise Problem("not-allowed", "The server was started with --no-sharpen.")
    encoded = await encode_query(service, q, query)
    return await service.sharpen_pool.run(_sharpen, service, video_id, start, end, encoded)


@router.post("/videos/{video_id}/reveal", summary="Show the file in the file manager", **CHANGE)
async def reveal_file(service: ServiceDep, request: Request, video_id: VideoIdParam) -> None:
    """Open the file's folder on the server's machine, if the request comes from there and it has a desktop."""
    if not (is_local(request) and has_desktop()):
        raise Problem("not-allowed", "Files can be shown in the file manager of the server's own machine only.")
    await service.info_pool.run(_reveal, service, video_id)


@router.delete("/videos/{video_id}", summary="Remove a video from the index", **CHANGE)
async def remove_video(service: ServiceDep, video_id: VideoIdParam) -> None:
    """Forget a video, if the server was started with `--allow-folders`. The file stays."""
    service.indexing.check_allowed()
    await service.info_pool.run(service.library.index.video, video_id)
    await service.upload_pool.run(service.indexing.remove, videos=(video_id,))


class OpenFileResponse(FileResponse):
    """A file that is already open, with HTTP ranges; it is closed in the end.

    Args:
        file: open; this is what is sent, whatever its path leads to by now.
        path: of the file; gives the media type.
        etag: changes whenever the content does.
        filename: for the client to save it as.
    """

    chunk_size = 256 * 1024

    def __init__(self, file: FileIO, path: Path, etag: str, filename: str | None = None) -> None:
        self.file = file
        # FileResponse opens a path: this one is the open file itself. Windows has no such path, but there nobody can
        # replace a file that is open.
        same_file = f"/dev/fd/{file.fileno()}" if os.name == "posix" else path
        super().__init__(
            same_file,
            headers={"etag": etag, "cache-control": CACHE_FILE},
            media_type=MEDIA_TYPES.get(path.suffix.lower(), "application/octet-stream"),
            stat_result=os.fstat(file.fileno()),
            filename=filename,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""

        async def send_or_explain(message: Message) -> None:
            if message.get("status") in (400, 416):  # Starlette's own are plain text
                size = os.fstat(self.file.fileno()).st_size
                headers = {"content-range": f"bytes */{size}"}
                raise Problem("bad-range", f"The file has {size} bytes.", headers=headers)
            await send(message)

        try:
            await super().__call__(scope, receive, send_or_explain)
        finally:
            self.file.close()


def _list(service: Service, options: dict[str, Any], sort: str, offset: int, limit: int) -> VideoList:
    library = service.library
    folder = str(library.folder(options["folder"])) if options["folder"] else None
    total, entries = list_entries(library, Filters(**{**options, "folder": folder}), sort, offset, limit)
    page = [Video.model_validate(video_fields(library, entry)) for entry in entries]
    return VideoList(total=total, offset=offset, videos=page)


def list_entries(
    library: Library, filters: Filters, sort: str, offset: int, limit: int
) -> tuple[int, list[VideoEntry]]:
    """How many videos pass the filters, and ``limit`` of them from ``offset`` on, sorted as :data:`Sorting` says."""
    entries = [entry for entry in library.videos() if _matches(entry, filters)]
    if sort == "title":
        entries.sort(key=lambda entry: entry.title.casefold())
    elif sort != "place":
        entries.sort(key=lambda entry: -getattr(entry, sort))
    return len(entries), entries[offset : offset + limit]


def _matches(entry: VideoEntry, filters: Filters) -> bool:
    # Copies have a time of their own, which a list does not show.
    files = (File(str(path), 0, round(entry.modified * 1e9), entry.video_id) for path in (entry.path, *entry.copies))
    return filters.keep_video(entry) and any(map(filters.keep_file, files))


def _detail(service: Service, video_id: str, query: Query | None) -> VideoDetail:
    library = service.library
    fields = video_fields(library, library.index.video(video_id))
    segments = library.index.segments(video_id, query=query)
    spans = [{"start": start, "end": end, "score": score} for start, end, score in segments]
    moments = [] if query is None else [vars(moment) for moment in library.index.moments(video_id, query)]
    fields |= {"piece_seconds": PIECE_SECONDS, "spans": spans, "moments": moments, **_file_state(service, video_id)}
    return VideoDetail.model_validate(fields)


def _sharpen(service: Service, video_id: str, start: float, end: float, query: Query | None) -> VideoDetail:
    duration = service.library.index.video(video_id).duration
    with service.library.unchanged(video_id) as path:
        service.library.index.sharpen([Hit(video_id, path, start, end, 0.0, (), duration)])
    return _detail(service, video_id, query)


def _file_state(service: Service, video_id: str) -> dict[str, object]:
    state, codec, playable, audible = "there", None, False, True
    try:
        with service.library.unchanged(video_id) as path:
            codec, playable, audible = codec_of(path)
    except Problem as problem:
        state = "changed" if problem.kind == "file-changed" else "missing"
    except VideoError:
        state = "unreadable"
    return {"file": state, "codec": codec, "playable": playable, "audible": audible}


def _reveal(service: Service, video_id: str) -> None:
    path = service.library.path_of(video_id)
    try:
        reveal(path)
    except CenterClipError as error:
        raise Problem("failed", f"{str(error).capitalize()}.") from error


def _thumbnail(service: Service, video_id: str, time: float, width: int) -> bytes:
    video = service.library.index.video(video_id)
    if time > video.duration + 1:  # a second of tolerance: times are rounded
        raise _past_the_end(video.duration)
    time = min(time, max(0.0, video.duration - 0.05))
    return frame(service.frames, service.library, video_id, time, width)


def _open_whole(service: Service, video_id: str) -> tuple[FileIO, Path]:
    """The file of a video; of one in object storage a copy."""
    library = service.library
    path = library.path_of(video_id) if library.is_remote(video_id) else None
    if path is None or not is_address(path):
        return library.open_file(video_id)

    def make(target: Path) -> None:
        with library.unchanged(video_id) as source, source.open("rb") as file, target.open("wb") as copy:
            shutil.copyfileobj(file, copy, 2**20)

    return service.pieces.open_or_make(f"{video_id}{path.suffix.lower()}", make), path


def _open_piece(service: Service, video_id: str, number: int) -> FileIO:
    duration = service.library.index.video(video_id).duration
    if number * PIECE_SECONDS >= duration:
        raise _past_the_end(duration)

    def make(target: Path) -> None:
        with service.library.unchanged(video_id) as source:
            encode_piece(source, target, number)

    return service.pieces.open_or_make(f"{video_id}-{number}.mp4", make)


def _open_clip(service: Service, video_id: str, start: float, end: float) -> tuple[FileIO, str]:
    """A part of a video, and what to call it."""
    entry = service.library.index.video(video_id)
    if start >= entry.duration:
        raise _past_the_end(entry.duration)

    def make(target: Path) -> None:
        with service.library.unchanged(video_id) as source:
            try:
                copy_clip(source, target, start, end)
            except VideoError:  # MP4 does not take every codec
                encode_clip(source, target, start, end)

    file = service.pieces.open_or_make(f"{video_id}-{start:.2f}-{end:.2f}.mp4", make)
    times = "-".join(f"{int(time // 60)}.{time % 60:04.1f}" for time in (start, end))
    return file, f"{valid_text(entry.title)} {times}.mp4"


def _past_the_end(duration: float) -> Problem:
    return Problem("not-found", f"The video ends at {duration:.1f} seconds.")
