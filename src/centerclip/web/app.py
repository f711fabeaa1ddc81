"""The web application: put together here, nothing else."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from .. import __version__
from ..search import VideoIndex
from . import page, problems, search_routes, service_routes, video_routes
from .limits import Aliases, Bodies, Counted
from .security import Guard
from .service import Service
from .settings import ServeSettings

DESCRIPTION = """Find videos, and the moment inside them, with a sentence, a picture or a clip.

`/api/...` is the newest version, `/api/v1/...` stays as it is. Errors are `application/problem+json`. Where the server
asks for a token, send `Authorization: Bearer TOKEN`.
"""


def create_app(index: VideoIndex, settings: ServeSettings | None = None) -> FastAPI:
    """The page and the API over an index.

    Args:
        index: what to serve; it need not be there yet, and others may write to it meanwhile.
        settings: what the server may do; the defaults are for one person on this machine.
    """
    settings = settings or ServeSettings()
    service = Service(index, settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.warm_up()
        yield
        await service.close()

    app = FastAPI(
        title="CenterCLIP",
        version=__version__,
        description=DESCRIPTION,
        openapi_url="/api/v1/openapi.json",
        docs_url=None,  # they fetch a page from elsewhere; ours is at /docs
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
    )
    app.state.service = service
    problems.install(app)
    for router in (search_routes.router, video_routes.router, service_routes.router):
        app.include_router(router, prefix="/api/v1")
    app.include_router(page.page_routes())
    # The last one added is the first to see a request.
    app.add_middleware(Bodies, settings=settings)
    app.add_middleware(Guard, settings=settings)
    app.add_middleware(Aliases)
    app.add_middleware(Counted, settings=settings, metrics=service.metrics)
    return app
