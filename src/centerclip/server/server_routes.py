"""The server itself: what is in the index, folders, indexing, the token, health and figures."""

import sys
from pathlib import Path

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse, Response

from .. import __version__
from . import metrics
from .middleware import COOKIE, cookie_value, is_token
from .problems import Problem
from .schemas import FolderEntry, FolderList, Health, IndexingState, Limits, NewFolder, ServerStatus, Token, Unreadable
from .search_routes import PROBLEM
from .service import Service, Shared

router = APIRouter(tags=["server"])
FAILURES = 100  # of them in the status
WEEK = 7 * 24 * 3600


@router.get("/status", summary="What is in the index", responses={503: PROBLEM})
async def status(service: Shared) -> ServerStatus:
    """Figures of the index, and how far indexing is."""
    return await service.look_lane.run(_status, service)


@router.get("/folders", summary="Folders with videos", responses={503: PROBLEM})
async def folders(service: Shared) -> FolderList:
    """The folders that were indexed and those below, for the filter `folder`."""
    found = await service.look_lane.run(service.library.folders)
    return FolderList(folders=[FolderEntry(id=f.id, name=f.name, videos=f.videos) for f in found])


@router.post(
    "/folders",
    summary="Index a folder",
    status_code=202,
    responses={403: PROBLEM, 409: PROBLEM, 422: PROBLEM},
)
async def add_folder(service: Shared, folder: NewFolder) -> ServerStatus:
    """Index a folder in the background, if the server was started with the right to. `status` tells how far it is."""
    await service.look_lane.run(service.indexing.start, folder.path)
    return await service.look_lane.run(_status, service)


@router.post("/login", summary="Let this browser in", status_code=204, responses={401: PROBLEM})
async def login(service: Shared, request: Request, given: Token) -> Response:
    """Put the token into a cookie: pictures and videos of a page cannot send the header."""
    expected = service.settings.token
    if expected is not None and not is_token(given.token, expected):
        raise Problem("token-needed", "This is not the token that the server printed.")
    answer = Response(status_code=204)
    if expected is not None:
        answer.set_cookie(
            COOKIE,
            cookie_value(expected),
            max_age=WEEK,
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
    return answer


@router.get("/health", summary="Whether the server answers")
async def health() -> Health:
    """Needs no token and says nothing else."""
    return Health(status="ok")


@router.get("/metrics", summary="Figures for Prometheus", response_class=PlainTextResponse)
async def figures(service: Shared) -> Response:
    """Requests, their times, batches of sentences, caches and the index."""
    found = await service.look_lane.run(service.library.status)
    frames, pieces = service.thumbnails.cache, service.pieces.cache
    gauges: dict[str, tuple[str, float]] = {
        "centerclip_index_videos": ("Videos in the index.", found.videos if found else 0),
        "centerclip_index_segments": ("Segments in the index.", found.segments if found else 0),
        "centerclip_model_ready": ("Whether the model is open.", int(service.ready)),
        "centerclip_thumbnail_hits": ("Thumbnails from the cache.", frames.hits),
        "centerclip_thumbnail_misses": ("Thumbnails made.", frames.misses),
        "centerclip_piece_hits": ("Converted pieces from the cache.", pieces.hits),
        "centerclip_piece_misses": ("Pieces converted.", pieces.misses),
        "centerclip_peak_memory_bytes": ("Most memory that the process took.", _peak_memory()),
    }
    return PlainTextResponse(service.metrics.text(gauges), media_type=metrics.MEDIA_TYPE)


def _peak_memory() -> int:
    try:
        import resource
    except ImportError:  # Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _status(service: Service) -> ServerStatus:
    library, run, settings = service.library, service.indexing.run, service.settings
    found = library.status()
    if found is not None:  # the index may have been made after the server was started
        service.warm_up()
    failed = list(found.failed.items())[:FAILURES] if found else []
    return ServerStatus(
        version=__version__,
        index=found is not None,
        ready=service.ready,
        model=_name_of(found.model) if found else None,
        clustering=found.clustering if found else None,
        videos=found.videos if found else 0,
        segments=found.segments if found else 0,
        hours=round(found.hours, 4) if found else 0.0,
        bytes=found.bytes if found else 0,
        unreadable=len(found.failed) if found else 0,
        failures=[Unreadable(place=library.place(Path(path)), reason=reason) for path, reason in failed],
        indexing=IndexingState(
            running=run.running or bool(found and found.busy),
            here=run.running,
            finished=run.finished,
            total=run.total,
            video_seconds=round(run.video_seconds, 1),
            seconds=round(run.seconds, 1),
            added=run.added,
            failed=run.failed,
            error=run.error,
        ),
        can_add_folders=settings.folders is not None,
        limits=Limits(bytes=settings.upload_bytes, pixels=settings.upload_pixels, clip_seconds=settings.upload_seconds),
    )


def _name_of(model: str) -> str:
    """A model's name; of a folder on this machine only the last part."""
    return Path(model).name if Path(model).is_absolute() else model
