"""How much a client may ask for at once, and how large and how slow what it sends may be."""

import asyncio
import re
import time
from collections import Counter

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .metrics import Metrics
from .problems import Problem
from .settings import ServeSettings

VERSIONED = re.compile(r"/api/v\d+(/|$)")
SHORT = {"/healthz": "/api/v1/health", "/metrics": "/api/v1/metrics"}
SMALL_BODY = 64 * 1024  # of anything but an upload


class Aliases:
    """``/api/...`` is the newest version of the API; health and metrics are also where machines look for them."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] == "http":
            path = scope["path"]
            if path in SHORT:
                scope["path"] = SHORT[path]
            elif path.startswith("/api/") and not VERSIONED.match(path):
                scope["path"] = f"/api/v1/{path.removeprefix('/api/')}"
        await self.app(scope, receive, send)


class Counted:
    """Counts requests and their times, and refuses a client that has too many under way."""

    def __init__(self, app: ASGIApp, settings: ServeSettings, metrics: Metrics) -> None:
        self.app, self.settings, self.metrics = app, settings, metrics
        self._clients: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        client = scope["client"][0] if scope.get("client") else ""
        status, began = 500, time.perf_counter()

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        self.metrics.in_flight += 1
        self._clients[client] += 1
        try:
            if self._clients[client] > self.settings.requests_per_client:
                problem = Problem("too-many-requests", "Wait for some to end.", headers={"retry-after": "1"})
                await problem.response()(scope, receive, noted)
            else:
                await self.app(scope, receive, noted)
        finally:
            self.metrics.in_flight -= 1
            self._clients[client] -= 1
            if not self._clients[client]:
                del self._clients[client]
            route = getattr(scope.get("route"), "name", "other")
            method = scope["method"] if scope["method"] in ("GET", "HEAD", "POST") else "other"
            self.metrics.request(method, route, status, time.perf_counter() - began)


class Bodies:
    """Reads what a client sends up to a size and a time."""

    def __init__(self, app: ASGIApp, settings: ServeSettings) -> None:
        self.app, self.settings = app, settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        upload = scope["path"] == "/api/v1/search" and scope["method"] == "POST"
        # The rest of a form takes some bytes beside the file.
        most = self.settings.upload_bytes + SMALL_BODY if upload else SMALL_BODY
        problem = Problem("too-large", f"{most:,} bytes are the limit here.")
        announced = Headers(scope=scope).get("content-length", "0")
        if not announced.isdigit() or int(announced) > most:
            await problem.response()(scope, receive, send)
            return
        deadline, taken, whole = time.monotonic() + self.settings.body_seconds, 0, False

        async def bounded() -> Message:
            nonlocal taken, whole
            if whole:  # waits until the client goes, however long that takes
                return await receive()
            try:
                message = await asyncio.wait_for(receive(), max(0.001, deadline - time.monotonic()))
            except TimeoutError as error:
                raise Problem("too-slow", f"{self.settings.body_seconds:g} seconds are the limit.") from error
            taken += len(message.get("body", b""))
            whole = not message.get("more_body", False)
            if taken > most:
                raise problem
            return message

        await self.app(scope, bounded, send)
