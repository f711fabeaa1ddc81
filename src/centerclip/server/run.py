"""Runs the application with uvicorn: a port, limits on connections, and a stop that lets running requests finish."""

import asyncio
import errno
import socket

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..errors import CenterClipError, PortTaken
from ..search import VideoIndex
from .app import create_app
from .settings import ServeSettings

HEADER_SECONDS = 20  # for a client to send a request's headers
KEEP_ALIVE_SECONDS = 30  # for an idle connection
SHUTDOWN_SECONDS = 20  # for running requests, after Ctrl-C
PORTS_TO_TRY = 20  # from the first on
BACKLOG = 512  # connections that wait until the server is up


def bind(host: str, port: int, *, try_next: bool) -> socket.socket:
    """A socket that listens on a port, or with ``try_next`` on one of those after it when it is taken."""
    last: OSError | None = None
    for number in range(port, min(port + (PORTS_TO_TRY if try_next and port else 1), 65_536)):
        try:
            family = socket.getaddrinfo(host, number, type=socket.SOCK_STREAM)[0][0]
            listening = socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:
            raise CenterClipError(f"--host {host}: {error.strerror or error}") from error
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, number))
            listening.listen(BACKLOG)
        except OSError as error:
            listening.close()
            last = error
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                break
            continue
        listening.set_inheritable(True)
        return listening
    reason = "is taken by another program" if last and last.errno == errno.EADDRINUSE else f"cannot be used ({last})"
    raise PortTaken(f"port {port} of {host} {reason}; choose another with --port")


def serve(index: VideoIndex, settings: ServeSettings, listening: socket.socket, *, log_level: str = "warning") -> None:
    """Serve until Ctrl-C or SIGTERM; running requests are answered first."""
    make_server(index, settings, log_level=log_level).run(sockets=[listening])


def make_server(index: VideoIndex, settings: ServeSettings, *, log_level: str = "warning") -> uvicorn.Server:
    """A server of the page and the API that is not running yet."""
    return http_server(create_app(index, settings), settings, log_level=log_level)


def http_server(app: ASGIApp, settings: ServeSettings, *, log_level: str = "warning") -> uvicorn.Server:
    """A server of any application, with the limits of the settings, that is not running yet."""

    class Protocol(BoundedProtocol):
        max_connections = settings.connections

    config = uvicorn.Config(
        app,
        http=Protocol,
        ws="none",
        lifespan="on",
        log_level=log_level,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
    )
    return uvicorn.Server(config)


class BoundedProtocol(H11Protocol):
    """HTTP/1.1 with limits that uvicorn has no setting for: connections, and the time for a request's headers."""

    max_connections = 512

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has connected."""
        super().connection_made(transport)
        self._header_timer: asyncio.TimerHandle | None = None
        if len(self.connections) > self.max_connections:
            transport.close()
            return
        self._start_timer()

    def data_received(self, data: bytes) -> None:
        """The client has sent something."""
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:  # the headers are not complete yet
            self._start_timer()
        else:
            self._stop_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has disconnected."""
        self._stop_timer()
        super().connection_lost(exc)

    def _start_timer(self) -> None:
        if self._header_timer is None:
            self._header_timer = self.loop.call_later(HEADER_SECONDS, self._close_if_idle)

    def _stop_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _close_if_idle(self) -> None:
        self._header_timer = None
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self.transport.close()
