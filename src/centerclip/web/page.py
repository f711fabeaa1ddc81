"""The page: a few files, read once and served from memory, so that there is no folder to look into."""

import hashlib
from pathlib import Path

from fastapi import APIRouter, Request
from fastapi.responses import Response

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
