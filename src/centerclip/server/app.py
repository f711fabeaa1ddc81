"""The web application, put together: the API, its errors, its middleware, and the static page, served from memory."""

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import Response

from .. import __version__
from ..search import VideoIndex
from . import problems, search_routes, server_routes, video_routes
from .middleware import Aliases, Bodies, Counted, Guard
from .service import Service
from .settings import ServeSettings

STATIC = Path(__file__).parent / "static"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".webmanifest": "application/manifest+json",
}
AT = {"index.html": "/", "api.html": "/docs"}  # other files: /static/NAME


def page_routes() -> APIRouter:
    """A route for every file of the page."""
    router = APIRouter(include_in_schema=False)
    for path in sorted(STATIC.iterdir()):
        if path.suffix in TYPES:
            place = AT.get(path.name, f"/static/{path.name}")
            router.add_api_route(place, _Static(path), methods=["GET", "HEAD"], name="page")
    return router


class _Static:
    def __init__(self, path: Path) -> None:
        self.content, self.kind = path.read_bytes(), TYPES[path.suffix]
        self.etag = f'"{hashlib.blake2b(self.content, digest_size=8).hexdigest()}"'

    async def __call__(self, request: Request) -> Response:
        headers = {"etag": self.etag, "cache-control": "no-cache"}
        if self.etag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(self.content, headers=headers, media_type=self.kind)


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
    for router in (search_routes.router, video_routes.router, server_routes.router):
        app.include_router(router, prefix="/api/v1")
    app.include_router(page_routes())
    # The last one added is the first to see a request.
    app.add_middleware(Bodies, settings=settings)
    app.add_middleware(Guard, settings=settings)
    app.add_middleware(Aliases)
    app.add_middleware(Counted, settings=settings, metrics=service.metrics)
    return app
