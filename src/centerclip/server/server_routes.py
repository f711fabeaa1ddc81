"""The server itself: status, folders and indexing, login, health, metrics."""

from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Request
from fastapi import Path as PathParam
from fastapi.responses import PlainTextResponse, Response
from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from .. import __version__
from ..integrations.desktop import has_desktop
from ..integrations.timelines import formats
from .library import index_command
from .middleware import COOKIE, client_of, is_local
from .problems import WITH_BODY, Problem, problem_responses
from .schemas import (
    EXAMPLE_FOLDER,
    FolderChoices,
    FolderEntry,
    FolderList,
    Health,
    IndexingState,
    Limits,
    NewFolder,
    ServerStatus,
    Token,
    Unreadable,
)
from .search_routes import option
from .service import Service, ServiceDep
from .video_routes import CHANGE

MAX_FAILURES = 100  # shown in the status
FolderId = Annotated[str, PathParam(max_length=64, description="A folder's id.", examples=[EXAMPLE_FOLDER])]
WEEK = 7 * 24 * 3600  # seconds
router = APIRouter(tags=["server"])
public = APIRouter(tags=["server"])  # what needs no token


@router.get("/status", summary="What is in the index", responses=problem_responses(503))
async def get_status(service: ServiceDep, request: Request) -> ServerStatus:
    """The size of the index, and how far indexing is."""
    return await service.info_pool.run(_status, service, is_local(request))


@router.get("/folders", summary="Folders with videos", responses=problem_responses(503))
async def list_folders(service: ServiceDep) -> FolderList:
    """The folders that were indexed and those below, for the filter `folder`."""
    entries = await service.info_pool.run(service.library.folders)
    return FolderList(folders=[FolderEntry(id=entry.id, name=entry.name, videos=entry.videos) for entry in entries])


@router.post(
    "/folders",
    summary="Index a folder",
    status_code=202,
    responses=problem_responses(*WITH_BODY, 403, 409, 422),
)
async def add_folder(service: ServiceDep, request: Request, folder: NewFolder) -> ServerStatus:
    """Index a folder in the background, if the server was started with `--allow-folders`. `status` has the progress."""
    await service.info_pool.run(service.indexing.start, folder.path)
    return await service.info_pool.run(_status, service, is_local(request))


@router.get("/available-folders", summary="Folders that can be added", responses=problem_responses(403, 422))
async def list_available_folders(
    service: ServiceDep, path: Annotated[str, option("Look into this one of them.", "2024", max_length=4096)] = ""
) -> FolderChoices:
    """The folders below the one of `--allow-folders`, level by level, to choose one to index."""
    return FolderChoices(path=path, folders=await service.info_pool.run(service.indexing.subfolders, path))


@router.delete("/folders/{folder_id}", summary="Remove a folder from the index", **CHANGE)
async def remove_folder(service: ServiceDep, folder_id: FolderId) -> None:
    """Forget the videos in a folder and below, if the server was started with `--allow-folders`. The files stay."""
    folder = await service.info_pool.run(service.library.folder, folder_id)
    await service.upload_pool.run(service.indexing.remove, folder)


@public.post(
    "/login",
    summary="Log this browser in",
    status_code=204,
    responses=problem_responses(*WITH_BODY, 401, 422, 429),
)
async def login(service: ServiceDep, request: Request, body: Token) -> Response:
    """Exchange the token for a cookie: the images and videos of a page cannot send a header."""
    if not service.tokens.is_right(client_of(request.scope), body.token):
        raise Problem("token-needed", "Wrong token. Use the one that the server printed.")
    response = Response(status_code=204)
    if service.settings.token is not None:
        response.set_cookie(
            COOKIE,
            service.tokens.cookie,
            max_age=WEEK,
            httponly=True,
            samesite="strict",
            path=service.settings.root_path or "/",
            secure=request.url.scheme == "https",
        )
    return response


@public.get("/health", summary="Whether the server is up")
async def health() -> Health:
    """Needs no token and reveals nothing else."""
    return Health(status="ok")


@public.get("/ready", summary="Whether the server can answer searches", responses=problem_responses(503))
async def ready(service: ServiceDep) -> Health:
    """For a proxy: the model is open, and the index can be reached. Needs no token and reveals nothing else."""
    if not service.ready or await service.info_pool.run(service.library.model_version) is None:
        service.warm_up()
        raise Problem("not-ready", "The model is being opened, or the index cannot be reached. Try again soon.")
    return Health(status="ready")


@router.get("/metrics", summary="Metrics for Prometheus", response_class=PlainTextResponse)
async def metrics(service: ServiceDep) -> Response:
    """Requests, their times, batches of sentences, caches and the index."""
    text = await service.info_pool.run(generate_latest, service.metrics.registry)
    return PlainTextResponse(text, media_type=CONTENT_TYPE_PLAIN_0_0_4)


def _status(service: Service, local: bool) -> ServerStatus:
    library, run, settings = service.library, service.indexing.run, service.settings
    index = library.status()
    if index is not None:  # it may have been made after the server was started
        service.warm_up()
    failed = list(index.failed.items())[:MAX_FAILURES] if index else []
    return ServerStatus(
        version=__version__,
        index=index is not None,
        ready=service.ready,
        model=_name_of(index.model) if index else None,
        clustering=index.clustering if index else None,
        videos=index.videos if index else 0,
        segments=index.segments if index else 0,
        hours=round(index.hours, 4) if index else 0.0,
        bytes=index.bytes if index else 0,
        has_text=index.has_lines if index else False,
        offline=index.offline if index else 0,
        unreadable=len(index.failed) if index else 0,
        failures=[Unreadable(place=library.place(Path(path)), reason=reason) for path, reason in failed],
        indexing=IndexingState(
            **{
                **vars(run),
                "running": run.running or bool(index and index.busy),
                "here": run.running,
                "video_seconds": round(run.video_seconds, 1),
                "seconds": round(run.seconds, 1),
            }
        ),
        timelines=[suffix.removeprefix(".") for suffix in formats()],
        can_add_folders=settings.folders is not None,
        can_reveal=local and has_desktop(),
        can_sharpen=service.settings.sharpen,
        # Only who has nothing else to see is shown where the index is, and only on this machine.
        add_command=index_command(library.index.address, hide=not local or bool(index and index.videos)),
        limits=Limits(bytes=settings.upload_bytes, pixels=settings.upload_pixels, clip_seconds=settings.upload_seconds),
    )


def _name_of(model: str) -> str:
    """A model's name; of a folder on this machine only the last part."""
    return Path(model).name if Path(model).is_absolute() else model
