"""The ASGI application: the API, its errors, its middleware, and the page."""

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.responses import Response
from fastapi.routing import APIRoute
from fastapi.security import APIKeyCookie, HTTPBearer
from starlette.middleware.cors import CORSMiddleware

from .. import __version__
from ..search import VideoIndex
from . import problems, search_routes, server_routes, video_routes
from .middleware import COOKIE, AccessControl, ApiAliases, BodyLimits, RequestLimits
from .schemas import PREFIX
from .service import Service
from .settings import ServeSettings

DESCRIPTION = """Find videos, and the moment inside them, with a sentence, an image or a clip.

`/api/...` is the newest version of the API; `/api/v1/...` does not change. Errors are `application/problem+json`.
If the server requires a token, send `Authorization: Bearer TOKEN`.
"""
# For the OpenAPI document; the middleware checks them.
SECURITY = [
    Depends(HTTPBearer(scheme_name="token", description="The token that the server printed.", auto_error=False)),
    Depends(APIKeyCookie(name=COOKIE, scheme_name="cookie", description="What `login` sets.", auto_error=False)),
]
STATIC = Path(__file__).parent / "static"
MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
PAGES = {"index.html": "/", "api.html": "/docs"}  # other files: /static/NAME


def create_app(index: VideoIndex, settings: ServeSettings | None = None) -> FastAPI:
    """The page and the API over an index.

    Args:
        index: the index to serve; it need not exist yet, and other processes may write to it.
        settings: what the server may do; the defaults are for one person on this machine.
    """
    settings = settings or ServeSettings()
    service = Service(index, settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.warm_up()
        yield
        await service.close()

    app = _App(
        title="CenterCLIP",
        version=__version__,
        description=DESCRIPTION,
        openapi_url="/api/v1/openapi.json",
        docs_url=None,  # FastAPI's load scripts from another site; ours is at /docs
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
        lifespan=lifespan,
    )
    app.state.service = service
    problems.install(app)
    for router in (search_routes.router, video_routes.router, server_routes.router, server_routes.public):
        private = router is not server_routes.public
        responses = problems.problem_responses(401, 429) if private else {}
        app.include_router(router, prefix=PREFIX, dependencies=SECURITY if private else [], responses=responses)
        for route in router.routes:
            if isinstance(route, APIRoute) and "GET" in (route.methods or ()):
                path, kind = PREFIX + route.path, route.response_class
                app.add_api_route(path, route.endpoint, methods=["HEAD"], response_class=kind, include_in_schema=False)
    app.include_router(_page_routes())
    # The one added last sees a request first.
    app.add_middleware(BodyLimits, settings=settings)
    app.add_middleware(AccessControl, settings=settings, tokens=service.tokens)
    app.add_middleware(
        CORSMiddleware,
        allow_origins=settings.origins,
        allow_methods=["GET", "HEAD", "POST", "DELETE"],
        allow_headers=["authorization", "content-type", "range"],
        expose_headers=["content-range", "etag"],
    )
    app.add_middleware(ApiAliases, root_path=settings.root_path)
    app.add_middleware(RequestLimits, settings=settings, metrics=service.metrics)
    return app


class _App(FastAPI):
    """FastAPI; its document says that a token is not required where the server has none."""

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document."""
        if self.openapi_schema is None:
            paths = super().openapi()["paths"].values()
            for operation in (operation for methods in paths for operation in methods.values()):
                if "security" in operation and self.state.service.settings.token is None:
                    operation["security"].append({})
        assert self.openapi_schema is not None
        return self.openapi_schema


def _page_routes() -> APIRouter:
    """A route for every file of the page."""
    router = APIRouter(include_in_schema=False)
    for path in sorted(STATIC.iterdir()):
        if path.suffix in MEDIA_TYPES:
            url = PAGES.get(path.name, f"/static/{path.name}")
            router.add_api_route(url, _StaticFile(path), methods=["GET", "HEAD"], name="page")
    return router


class _StaticFile:
    """A file that is read once and served from memory, so that no request leads to a path."""

    def __init__(self, path: Path) -> None:
        self.content, self.media_type = path.read_bytes(), MEDIA_TYPES[path.suffix]
        self.etag = f'"{hashlib.blake2b(self.content, digest_size=8).hexdigest()}"'

    async def __call__(self, request: Request) -> Response:
        headers = {"etag": self.etag, "cache-control": "no-cache"}
        if self.etag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(self.content, headers=headers, media_type=self.media_type)
