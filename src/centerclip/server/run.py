"""Runs the application: connections that have a limit, and a stop that lets running requests end."""

import asyncio
import errno
import socket
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..errors import CenterClipError
from ..search import VideoIndex
from .app import create_app
from .settings import ServeSettings

HEADER_SECONDS = 20  # for a request's first lines
KEEP_ALIVE = 30  # seconds that a quiet connection stays open
STOP_SECONDS = 20  # for running requests, after Ctrl-C
TRIES = 20  # ports after the first
BACKLOG = 512


class PortTaken(CenterClipError):
    """Another program listens there."""


def bind(host: str, port: int, *, others: bool) -> socket.socket:
    """A socket that listens; with ``others`` on one of the next ports when the first is taken."""
    last: OSError | None = None
    for number in range(port, min(port + (TRIES if others and port else 1), 65_536)):
        try:
            family = socket.getaddrinfo(host, number, type=socket.SOCK_STREAM)[0][0]
            found = socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:
            raise CenterClipError(f"--host {host}: {error.strerror or error}") from error
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((host, number))
            found.listen(BACKLOG)  # whoever comes before the server is up waits for it
        except OSError as error:
            found.close()
            last = error
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                break
            continue
        found.set_inheritable(True)
        return found
    reason = "is taken by another program" if last and last.errno == errno.EADDRINUSE else f"cannot be used ({last})"
    raise PortTaken(f"port {port} of {host} {reason}; choose another with --port")


def serve(index: VideoIndex, settings: ServeSettings, listening: socket.socket, *, log_level: str = "warning") -> None:
    """Serve until Ctrl-C or SIGTERM; then finish what runs."""
    make_server(index, settings, log_level=log_level).run(sockets=[listening])


def make_server(index: VideoIndex, settings: ServeSettings, *, log_level: str = "warning") -> uvicorn.Server:
    """A server that is not running yet."""

    class Protocol(BoundedProtocol):
        most = settings.connections

    config = uvicorn.Config(
        create_app(index, settings),
        http=Protocol,
        ws="none",
        lifespan="on",
        log_level=log_level,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=STOP_SECONDS,
    )
    return uvicorn.Server(config)


class BoundedProtocol(H11Protocol):
    """HTTP/1.1 that closes connections beyond a number, and those that take too long to say what they want."""

    most = 512

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has connected."""
        super().connection_made(transport)
        self._patience: asyncio.TimerHandle | None = None
        if len(self.connections) > self.most:
            transport.close()
            return
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Something came from the client."""
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:  # the first lines are not complete yet
            self._wait()
        elif self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        if self._patience is not None:
            self._patience.cancel()
        super().connection_lost(exc)

    def _wait(self) -> None:
        if self._patience is None:
            self._patience = self.loop.call_later(HEADER_SECONDS, self._give_up)

    def _give_up(self, *_: Any) -> None:
        self._patience = None
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self.transport.close()
