"""What every request passes: counting, limits on size and speed, who may ask, security headers."""

import asyncio
import hashlib
import hmac
import ipaddress
import logging
import re
import time
from collections import Counter
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
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


log = logging.getLogger("centerclip.server")
COOKIE = "centerclip"
# What a page needs before it has the token; none of it is private.
OPEN = {"/api/v1/health", "/api/v1/login"}
CHANGING = {"POST", "PUT", "PATCH", "DELETE"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; media-src 'self' blob:; "
    "connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}


def is_token(given: str, expected: str) -> bool:
    """Compare two tokens in a time that tells nothing about them."""
    return hmac.compare_digest(given.encode(errors="replace"), expected.encode(errors="replace"))


def cookie_value(token: str) -> str:
    """What a browser keeps instead of the token."""
    return hmac.new(token.encode(errors="replace"), b"centerclip cookie", hashlib.sha256).hexdigest()


def is_this_machine(host: str) -> bool:
    """Whether a host name or address is this machine's own loopback."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Guard:
    """Refuses who may not ask, and adds security headers to every answer.

    Without a token the server answers only to names of this machine: a page elsewhere could have its own name point
    here. Requests that change something must not come from another site's page, with or without a token.
    """

    def __init__(self, app: ASGIApp, settings: ServeSettings) -> None:
        self.app, self.settings = app, settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        begun = False

        async def with_headers(message: Message) -> None:
            nonlocal begun
            begun = True
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                if scope["path"].startswith("/api/"):
                    headers.setdefault("api-version", "1")
                    headers.setdefault("cache-control", "no-store")
            await send(message)

        try:
            self.check(scope)
            await self.app(scope, receive, with_headers)
        except Problem as problem:
            await problem.response()(scope, receive, with_headers)
        except Exception:
            log.exception("%s %s failed", scope["method"], scope["path"])
            if begun:
                raise  # the server breaks the answer off, so that nobody takes it for whole
            told = Problem("failed", "The server's output says what. Other requests are not affected.")
            await told.response()(scope, receive, with_headers)

    def check(self, scope: Scope) -> None:
        """Raise a problem when a request must not be answered."""
        headers, token = Headers(scope=scope), self.settings.token
        host = headers.get("host", "")
        name = (urlsplit(f"//{host}").hostname or "") if _well_formed(host) else ""
        if token is None and not is_this_machine(name) and name not in self.settings.hosts:
            raise Problem("not-allowed", "The server does not go by this name. Use the address that it printed.")
        origin = headers.get("origin")
        if scope["method"] in CHANGING:
            foreign = headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none")
            if foreign or (origin is not None and urlsplit(origin).netloc != host):
                raise Problem("not-allowed", "This request comes from another site's page.")
        private = scope["path"].startswith("/api/") and scope["path"] not in OPEN
        if token is not None and private and not self._has_token(headers, token):
            raise Problem(
                "token-needed",
                "Open the address that the server printed, or send the token: Authorization: Bearer TOKEN",
                headers={"www-authenticate": 'Bearer realm="centerclip"'},
            )

    @staticmethod
    def _has_token(headers: Headers, token: str) -> bool:
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return is_token(given.strip(), token)
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return False
        return cookie is not None and is_token(cookie.value, cookie_value(token))


def _well_formed(host: str) -> bool:
    try:
        urlsplit(f"//{host}")
    except ValueError:
        return False
    return True
