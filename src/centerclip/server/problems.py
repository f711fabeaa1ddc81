"""Errors as application/problem+json (RFC 9457): what went wrong, and what a person can do about it."""

import logging
import re
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import HTTPException, RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException as StarletteHTTPException

from ..errors import CenterClipError
from ..search import DiskFull, IndexBusy, IndexNotFound, QueryError, UnknownVideo
from ..video.errors import MissingFile, VideoError

MEDIA_TYPE = "application/problem+json"
# kind -> (status, title). The kind is the last part of `type`, for programs; the title is the same for all of a kind.
KINDS = {
    "bad-query": (422, "Invalid query"),
    "bad-request": (400, "Invalid request"),
    "token-needed": (401, "A token is required"),
    "not-allowed": (403, "Not allowed"),
    "not-found": (404, "Not found"),
    "unknown-video": (404, "No such video in the index"),
    "unknown-folder": (404, "No such folder in the index"),
    "unknown-query": (404, "The query has expired"),
    "wrong-method": (405, "Method not allowed"),
    "too-slow": (408, "The upload took too long"),
    "index-busy": (409, "The index is being updated"),
    "file-changed": (409, "The file has changed since it was indexed"),
    "file-missing": (410, "The file is missing"),
    "too-large": (413, "The upload is too large"),
    "wrong-type": (415, "Not an image or a video"),
    "bad-range": (416, "The file has no such range"),
    "unreadable-video": (422, "The video cannot be read"),
    "too-many-requests": (429, "Too many requests at once"),
    "too-many-guesses": (429, "Too many wrong tokens"),
    "failed": (500, "Internal server error"),
    "index-unusable": (500, "The index cannot be used"),
    "busy": (503, "The server is busy"),
    "not-ready": (503, "The server is not ready yet"),
    "no-index": (503, "There is no index yet"),
    "disk-full": (507, "The server's disk is full"),
}
WITH_BODY = (400, 408, 413)  # what any route that takes a body may answer
log = logging.getLogger("centerclip.server")


class ProblemDetails(BaseModel):
    """What went wrong (RFC 9457)."""

    type: str = Field(examples=["urn:centerclip:problem:unknown-video"])
    title: str = Field(examples=["No such video in the index"])
    status: int = Field(examples=[404])
    detail: str = Field(examples=["It may have been removed. Search again."])


class Problem(HTTPException):
    """A response that says what went wrong.

    Args:
        kind: one of ``KINDS``.
        detail: what happened in this case, and what to do; nothing that a stranger must not know.
        headers: further headers of the response.
        more: further members of the JSON object.
    """

    def __init__(self, kind: str, detail: str, *, headers: dict[str, str] | None = None, **more: Any) -> None:
        status, self.title = KINDS[kind]
        self.kind, self.more = kind, more
        super().__init__(status, detail, headers)

    def response(self) -> JSONResponse:
        """The HTTP response."""
        content = {
            "type": f"urn:centerclip:problem:{self.kind}",
            "title": self.title,
            "status": self.status_code,
            "detail": self.detail,
            **self.more,
        }
        headers = {"cache-control": "no-store", **(self.headers or {})}
        return JSONResponse(content, self.status_code, headers, media_type=MEDIA_TYPE)


def problem_of(error: CenterClipError) -> Problem:
    """What to tell a client about an error; paths of this machine are left out."""
    if isinstance(error, IndexNotFound):
        return Problem("no-index", "Make one with centerclip index on the server's machine; the page has the command.")
    if isinstance(error, UnknownVideo):
        return Problem("unknown-video", "It may have been removed. Search again.")
    if isinstance(error, IndexBusy):
        return Problem("index-busy", "Wait until the other process has finished, then try again.")
    if isinstance(error, MissingFile):
        return Problem("file-missing", "Restore the file, or index its folder again.")
    if isinstance(error, VideoError):
        return Problem("unreadable-video", f"{error.detail}. {error.advice}", reason=error.reason)
    if isinstance(error, QueryError):
        return Problem("bad-query", str(error))
    log.error("%s", error)
    if isinstance(error, DiskFull):
        return Problem("disk-full", "Free some space there, then try again. What was indexed so far is safe.")
    return Problem("index-unusable", "See the server's output.")


def problem_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The ``responses`` of a route that may answer with these statuses, for the OpenAPI document."""
    return {status: {"model": ProblemDetails, "content": {MEDIA_TYPE: {}}} for status in statuses}


def install(app: FastAPI) -> None:
    """Make every error of an app a problem+json response."""

    @app.exception_handler(StarletteHTTPException)
    async def http_error(request: Request, error: StarletteHTTPException) -> JSONResponse:
        if isinstance(error, Problem):
            return error.response()
        kind = {404: "not-found", 405: "wrong-method", 413: "too-large"}.get(error.status_code, "bad-request")
        headers = dict(error.headers) if error.headers else {}
        if error.status_code == 405:  # the router names the methods of one route only
            headers["Allow"] = ", ".join(_methods(app, request.url.path)) or headers.get("Allow", "")
        return Problem(kind, str(error.detail), headers=headers).response()

    @app.exception_handler(RequestValidationError)
    async def validation_error(request: Request, error: RequestValidationError) -> JSONResponse:
        errors = [{"where": ".".join(map(str, item["loc"])), "what": item["msg"]} for item in error.errors()]
        first = f"{errors[0]['where']}: {errors[0]['what']}" if errors else "The request does not match the API."
        return Problem("bad-query", first, errors=errors).response()

    @app.exception_handler(CenterClipError)
    async def centerclip_error(request: Request, error: CenterClipError) -> JSONResponse:
        return problem_of(error).response()


def _methods(app: FastAPI, path: str) -> list[str]:
    """The methods that a path takes: those of the OpenAPI document, and HEAD where GET is."""
    return [
        name
        for template, methods in app.openapi()["paths"].items()
        if re.fullmatch(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(template)), path)
        for method in methods
        for name in (["GET", "HEAD"] if method == "get" else [method.upper()])
    ]
