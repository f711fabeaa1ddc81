"""What every request passes, in this order: limits per client, aliases, access control, limits of its body.

All are written by hand: uvicorn and Starlette have no setting for these limits.
"""

import asyncio
import ipaddress
import logging
import re
import time
from collections import Counter
from http.cookies import CookieError, SimpleCookie
from urllib.parse import SplitResult, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .problems import Problem
from .service import Metrics, TokenGuard
from .settings import ServeSettings

VERSIONED = re.compile(r"/api/v\d+(/|$)")
ALIASES = {
    "/healthz": "/api/v1/health",
    "/readyz": "/api/v1/ready",
    "/metrics": "/api/v1/metrics",
}  # where monitoring looks for them
MAX_BODY_BYTES = 64 * 1024  # of any request but an upload
COOKIE = "centerclip"
# What a page needs before it has the token; none of it is private.
MCP_PATH = "/mcp"  # of `centerclip mcp --http`
PUBLIC_PATHS = {"/api/v1/health", "/api/v1/ready", "/api/v1/login"}
OWN_SITE = ("same-origin", "none")
UNSAFE_METHODS = {"POST", "PUT", "PATCH", "DELETE"}
SECURITY_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; media-src 'self' blob:; "
        "connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}
log = logging.getLogger("centerclip.server")


class _Middleware:
    """Passes HTTP requests to :meth:`handle`, and everything else on."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self.handle if scope["type"] == "http" else self.app)(scope, receive, send)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        raise NotImplementedError


class RequestLimits(_Middleware):
    """Refuses a client with too many requests at once, and counts requests and their times."""

    def __init__(self, app: ASGIApp, settings: ServeSettings, metrics: Metrics) -> None:
        super().__init__(app)
        self.settings, self.metrics = settings, metrics
        self._running: Counter[str] = Counter()  # address -> requests
        self._proxies = [ipaddress.ip_network(each, strict=False) for each in settings.proxies]

    def _name_client(self, scope: Scope) -> None:
        """Behind a proxy that is named, the client is the last one of X-Forwarded-For that is no such proxy."""
        named = ",".join(Headers(scope=scope).getlist("x-forwarded-for")).split(",")
        for address in (client_of(scope), *(each.strip() for each in reversed(named))):
            try:
                parsed = ipaddress.ip_address(address)
            except ValueError:
                return  # what stands before it may be made up
            scope["client"] = (address, 0)
            if not any(parsed in network for network in self._proxies):
                return

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if self._proxies:
            self._name_client(scope)
        client = client_of(scope)
        status, began = 500, time.perf_counter()

        async def note_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        self.metrics.in_flight.inc()
        self._running[client] += 1
        try:
            if self._running[client] > self.settings.requests_per_client:
                problem = Problem("too-many-requests", "Wait for some to finish.", headers={"retry-after": "1"})
                await problem.response()(scope, receive, note_status)
            else:
                await self.app(scope, receive, note_status)
        finally:
            self.metrics.in_flight.dec()
            self._running[client] -= 1
            if not self._running[client]:
                del self._running[client]
            route = getattr(scope.get("route"), "name", "other")
            method = scope["method"] if scope["method"] in ("GET", "HEAD", "POST", "DELETE") else "other"
            self.metrics.count_request(method, route, status, time.perf_counter() - began)


class ApiAliases(_Middleware):
    """``/api/...`` is the newest version of the API; health and metrics are also where monitoring looks for them.

    A path prefix that a proxy did not strip is stripped here.
    """

    def __init__(self, app: ASGIApp, root_path: str) -> None:
        super().__init__(app)
        self.root_path = root_path

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        path, root = scope["path"], self.root_path
        if root and path == root:  # the page's addresses are relative to the slash
            await RedirectResponse(f"{root}/")(scope, receive, send)
            return
        if root and path.startswith(f"{root}/"):
            path = path.removeprefix(root)
        if path in ALIASES:
            path = ALIASES[path]
        elif path.startswith("/api/") and not VERSIONED.match(path):
            path = f"/api/v1/{path.removeprefix('/api/')}"
        scope["path"], scope["root_path"] = path, root
        await self.app(scope, receive, send)


class AccessControl(_Middleware):
    """Refuses requests that are not allowed, adds security headers, and keeps stack traces inside.

    Without a token the server answers only to host names of this machine: a page on the web could make its own name
    resolve to it. Requests that change something must not come from another site's page, with or without a token.
    """

    def __init__(self, app: ASGIApp, settings: ServeSettings, tokens: TokenGuard) -> None:
        super().__init__(app)
        self.settings, self.tokens = settings, tokens

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            started = True
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
                if scope["path"].startswith("/api/"):
                    headers.setdefault("api-version", "1")
                    headers.setdefault("cache-control", "no-store")
            await send(message)

        try:
            self.check(scope)
            await self.app(scope, receive, send_with_headers)
        except Problem as problem:
            await problem.response()(scope, receive, send_with_headers)
        except Exception:
            log.exception("%s %s failed", scope["method"], scope["path"])
            if started:
                raise  # the server breaks the connection, so that nobody takes the response for whole
            failed = Problem("failed", "See the server's output. Other requests are not affected.")
            await failed.response()(scope, receive, send_with_headers)

    def check(self, scope: Scope) -> None:
        """Raise a problem when a request must not be answered."""
        headers, guarded = Headers(scope=scope), self.settings.token is not None
        host = headers.get("host", "")
        name = _split(f"//{host}").hostname or ""
        if not guarded and not is_this_machine(name) and name not in self.settings.hosts:
            raise Problem("not-allowed", "The server does not answer to this host name. Use the address it printed.")
        if scope["method"] in UNSAFE_METHODS:
            origin, site = headers.get("origin"), headers.get("sec-fetch-site")
            # Browsers leave Sec-Fetch-Site out without HTTPS; behind a proxy the host is not the origin's.
            foreign = (
                origin not in (None, f"http://{host}", f"https://{host}") if site is None else site not in OWN_SITE
            )
            if foreign and origin not in self.settings.origins:
                raise Problem("not-allowed", "The request comes from another site's page.")
        private = scope["path"].startswith(("/api/", MCP_PATH)) and scope["path"] not in PUBLIC_PATHS
        if guarded and private and not self._has_token(headers, client_of(scope)):
            raise Problem(
                "token-needed",
                "Open the address that the server printed, or send the token: Authorization: Bearer TOKEN",
                headers={"www-authenticate": 'Bearer realm="centerclip"'},
            )

    def _has_token(self, headers: Headers, client: str) -> bool:
        scheme, _, sent = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return self.tokens.is_right(client, sent.strip())
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return False
        return cookie is not None and self.tokens.is_right(client, cookie.value, cookie=True)


class BodyLimits(_Middleware):
    """Limits the size of a request's body, the time it may take to arrive, and uploads, which are kept on the disk."""

    def __init__(self, app: ASGIApp, settings: ServeSettings) -> None:
        super().__init__(app)
        self.settings = settings
        self._uploads: Counter[str] = Counter()  # address -> uploads that are being received or encoded

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        is_upload = scope["path"] == "/api/v1/search" and scope["method"] == "POST"
        if not is_upload:
            await self._limited(scope, receive, send, MAX_BODY_BYTES)
            return
        client, settings = client_of(scope), self.settings
        if self._uploads[client] >= settings.uploads_per_client or self._uploads.total() >= settings.uploads:
            detail = "Too many images and clips at once. Wait until some have been searched with."
            await Problem("busy", detail, headers={"retry-after": "2"}).response()(scope, receive, send)
            return
        self._uploads[client] += 1
        try:
            # The other fields of a form take some bytes beside the file.
            await self._limited(scope, receive, send, settings.upload_bytes + MAX_BODY_BYTES)
        finally:
            self._uploads -= Counter([client])  # forgets clients that have none left

    async def _limited(self, scope: Scope, receive: Receive, send: Send, limit: int) -> None:
        too_large = Problem("too-large", f"The limit is {limit:,} bytes.")
        announced = Headers(scope=scope).get("content-length", "0")
        if not announced.isdigit() or int(announced) > limit:
            await too_large.response()(scope, receive, send)
            return
        deadline, received, complete = time.monotonic() + self.settings.body_seconds, 0, False

        async def receive_within_limits() -> Message:
            nonlocal received, complete
            if complete:  # waits for the client to disconnect, however long that takes
                return await receive()
            try:
                message = await asyncio.wait_for(receive(), max(0.001, deadline - time.monotonic()))
            except TimeoutError as error:
                raise Problem("too-slow", f"The limit is {self.settings.body_seconds:g} seconds.") from error
            received += len(message.get("body", b""))
            complete = not message.get("more_body", False)
            if received > limit:
                raise too_large
            return message

        await self.app(scope, receive_within_limits, send)


def client_of(scope: Scope) -> str:
    """The address that a request comes from."""
    return scope["client"][0] if scope.get("client") else ""


def is_this_machine(host: str) -> bool:
    """Whether a host name or address is this machine's own loopback."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def is_local(request: Request) -> bool:
    """Whether a request was made on this machine, and not to a proxy on it."""
    host, client = _split(f"//{request.headers.get('host', '')}").hostname, request.client
    forwarded = "forwarded" in request.headers or "x-forwarded-for" in request.headers
    return not forwarded and all(is_this_machine(name or "") for name in (host, client and client.host))


def _split(url: str) -> SplitResult:
    """The parts of a URL. A malformed one has the host ``?``, which no request has: it is refused like a stranger's."""
    try:
        return urlsplit(url)
    except ValueError:
        return SplitResult("", "?", "", "", "")
