"""Runs the application with uvicorn: a port, limits on connections, and a stop that lets running requests finish."""

import asyncio
import errno
import logging
import multiprocessing
import os
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.context import SpawnProcess

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
RESPAWN_SECONDS = 1.0  # before a worker that has died is replaced
BACKLOG = 512  # connections that wait until the server is up

log = logging.getLogger("centerclip.server")


def bind(host: str, port: int, *, try_next: bool) -> socket.socket:
    """A socket that listens on a port, or with ``try_next`` on one of those after it when it is taken."""
    last: OSError | None = None
    for number in range(port, min(port + (PORTS_TO_TRY if try_next and port else 1), 65_536)):
        try:
            family = socket.getaddrinfo(host, number, type=socket.SOCK_STREAM)[0][0]
            # Named, since asyncio sends at once (TCP_NODELAY) only then; else a client waits 40 ms for its answer.
            listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
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


def serve_with_workers(
    address: str | None,
    device: str | None,
    settings: ServeSettings,
    listening: socket.socket,
    workers: int,
    *,
    log_level: str = "warning",
) -> None:
    """Serve with processes that share a port and the limits, until Ctrl-C or SIGTERM; one that dies is replaced."""
    arguments = address, device, settings.shared_by(workers), listening, log_level
    context = multiprocessing.get_context("spawn")
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())

    def start() -> SpawnProcess:
        process = context.Process(target=_work, args=arguments)
        process.start()
        return process

    processes = [start() for _ in range(workers)]
    while not stopped.wait(RESPAWN_SECONDS):
        for place, process in enumerate(processes):
            if not process.is_alive():
                log.error("a worker has ended with code %s; another one takes its place", process.exitcode)
                processes[place] = start()
    for process in processes:
        process.terminate()
    for process in processes:
        process.join()


def _work(
    address: str | None, device: str | None, settings: ServeSettings, listening: socket.socket, log_level: str
) -> None:
    threading.Thread(target=_stop_with_parent, name="server-parent", daemon=True).start()
    with suppress(KeyboardInterrupt):
        serve(VideoIndex(address, device=device), settings, listening, log_level=log_level)


def _stop_with_parent() -> None:
    """Stop this worker when the process that started it ends, even killed: the port would stay taken."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)


def make_server(index: VideoIndex, settings: ServeSettings, *, log_level: str = "warning") -> uvicorn.Server:
    """A server of the page and the API that is not running yet."""
    return http_server(create_app(index, settings), settings, log_level=log_level)


def http_server(app: ASGIApp, settings: ServeSettings, *, log_level: str = "warning") -> uvicorn.Server:
    """A server of any application, with the limits of the settings, that is not running yet."""

    class Protocol(BoundedProtocol):
        max_connections, stall_seconds = settings.connections, settings.stall_seconds

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
    """HTTP/1.1 with limits that uvicorn has no setting for: on connections, and on the time that a client takes to send
    a request's headers and to read what it is sent."""

    max_connections, stall_seconds = 512, 120.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has connected."""
        super().connection_made(transport)
        self._timers: dict[str, asyncio.TimerHandle] = {}
        if len(self.connections) > self.max_connections:
            transport.close()
            return
        transport.set_write_buffer_limits(high=0)  # so writing is paused whenever something waits to be sent
        self._start_timer("headers", HEADER_SECONDS, self._close_if_idle)

    def data_received(self, data: bytes) -> None:
        """The client has sent something."""
        try:
            super().data_received(data)
        except h11.LocalProtocolError:  # uvicorn refuses what is not HTTP even after it has begun to answer
            self.transport.abort()
            return
        if self.conn.their_state is h11.IDLE:  # the headers are not complete yet
            self._start_timer("headers", HEADER_SECONDS, self._close_if_idle)
        else:
            self._stop_timer("headers")

    def send_400_response(self, msg: str) -> None:
        """What the client has sent is not HTTP. A request that it had begun with is over: nothing more can be sent."""
        try:
            super().send_400_response(msg)
        finally:
            if self.cycle is not None:
                self.cycle.disconnected = True
                self.cycle.message_event.set()

    def pause_writing(self) -> None:
        """The client has not read all that it was sent yet. One that never does loses its connection.

        ``close`` would wait for it to read the rest, and its place would be taken for ever.
        """
        super().pause_writing()
        self._start_timer("reading", self.stall_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """The client has read all that it was sent."""
        self._stop_timer("reading")
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has disconnected."""
        for name in list(self._timers):
            self._stop_timer(name)
        super().connection_lost(exc)

    def _start_timer(self, name: str, seconds: float, action: Callable[[], object]) -> None:
        if name not in self._timers:
            self._timers[name] = self.loop.call_later(seconds, action)

    def _stop_timer(self, name: str) -> None:
        if name in self._timers:
            self._timers.pop(name).cancel()

    def _close_if_idle(self) -> None:
        self._stop_timer("headers")
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self.transport.close()
