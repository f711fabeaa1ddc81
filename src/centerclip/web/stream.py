"""Files over HTTP with ranges, so that a player can jump; read in threads, sent as fast as the client takes it."""

import asyncio
import re
from collections.abc import AsyncIterator
from io import FileIO
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from .lanes import Lane
from .problems import Problem

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
