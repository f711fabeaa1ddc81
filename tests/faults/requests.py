"""Malformed, slow and hostile requests over raw sockets, by seed; and many clients at once."""

import socket
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from urllib.parse import urlsplit

import httpx

PATHS = (
    "/", "/docs", "/static/page.js", "/api/search?q=a", "/api/videos", "/api/videos/{id}", "/api/videos/{id}/similar",
    "/api/videos/{id}/stream", "/api/videos/{id}/stream?as=mp4", "/api/videos/{id}/frames/0.5.jpg", "/api/status",
    "/api/videos/{id}/clip.mp4?start=0&seconds=1", "/api/folders", "/metrics", "/healthz", "/api/openapi.json",
    "/api/login", "/api/timeline", "/api/available-folders?path=.", "*", "http://evil.example/", "//", "/%00", "/%ff",
    "/api/videos/../../etc/passwd", "/api/search?q=%ff%fe", "/api/search?q=" + "a" * 5000, "/" + "a" * 70_000,
)  # fmt: skip
HEADERS = (
    "range: bytes=0-", "range: bytes=-1", "range: bytes=99999999999-", "range: bytes=5-1", "range: bytes=0-1,3-4",
    "range: bytes=" + ",".join(f"{n}-{n}" for n in range(500)), "range: lines=1", "if-range: x", "if-none-match: *",
    "origin: http://evil.example", "origin: null", "sec-fetch-site: cross-site", "cookie: centerclip=\"\\",
    "cookie: " + "a=b; " * 500, "authorization: Bearer \xff", "authorization: Basic eDp5", "expect: 100-continue",
    "content-length: -1", "content-length: 5, 6", "content-length: 99999999999999999999", "transfer-encoding: chunked",
    "transfer-encoding: gzip, chunked", "content-encoding: gzip", "upgrade: websocket\r\nconnection: upgrade",
    "connection: close", "connection: keep-alive, x", "x: " + "a" * 30_000, "accept: " + "*/*," * 1000, "x\x00: y",
    " folded: header", "host: evil.example", "host:", "content-type: multipart/form-data; boundary=x",
    "content-type: multipart/form-data", "content-type: application/json; charset=\xff", "x-forwarded-for: 127.0.0.1",
)  # fmt: skip
FORM = b'--x\r\ncontent-disposition: form-data; name="%s"\r\n\r\n%s\r\n--x--\r\n'
BODIES = (
    b"", b"{}", b'{"path": "/etc"}', b'{"token": ""}', b"[" * 50_000, b'{"a":' * 20_000, b"\xff" * 100, b"\0" * 70_000,
    b"5\r\nhello\r\n0\r\n\r\n", b"ffffffffffffffff\r\n", FORM % (b'file"; filename="a', b"GIF89a"), b"--x\r\n" * 5000,
    FORM % (b"q", b"a" * 5000), b'{"moments": [], "format": "edl"}', b'{"moments": "x"}',
)  # fmt: skip


def request(chance: Random, video_id: str) -> bytes:
    """A request that may be anything from valid to noise."""
    method = chance.choice(("GET", "GET", "HEAD", "POST", "DELETE", "PUT", "OPTIONS", "PATCH", "BREW", "get", ""))
    path = chance.choice(PATHS).replace("{id}", chance.choice((video_id, video_id, "0" * 32, "x", "../x")))
    version = chance.choice(("HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/9.9", "HTTP", ""))
    headers = [] if chance.random() < 0.05 else ["host: localhost"]
    headers += chance.sample(HEADERS, chance.choice((0, 1, 1, 2, 5)))
    body = chance.choice(BODIES) if chance.random() < 0.5 else b""
    if body and chance.random() < 0.7:
        headers.append(f"content-length: {len(body)}")
    lines = [f"{method} {path} {version}", *headers, "", ""]
    whole = "\r\n".join(lines).encode("latin-1") + body
    if chance.random() < 0.1:
        data = bytearray(whole)
        for _ in range(8):
            data[chance.randrange(len(data))] = chance.randrange(256)
        whole = bytes(data)
    return whole * chance.choice((1, 1, 1, 2))  # pipelined, sometimes


@dataclass
class Outcome:
    """Counts of a run."""

    sent: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        statuses = ", ".join(f"{status} {count:,}" for status, count in sorted(self.statuses.items()))
        return f"requests: {self.sent:,} ({statuses}); {len(self.faults)} faults" + "".join(
            f"\n  {fault}" for fault in self.faults
        )


def attack(
    address: str, video_id: str, seed: int, count: int, until: float = float("inf"), outcome: Outcome | None = None
) -> Outcome:
    """Send hostile requests; a 5xx other than 503 is a fault, and so is a server that answers no more.

    With an ``outcome``, of an earlier part of the same run, that run goes on to ``count`` requests in all.
    """
    outcome, parts = outcome or Outcome(), urlsplit(address)
    for number in range(outcome.sent, count):
        if time.monotonic() > until:
            break
        chance = Random(f"{seed}-{number}")
        sent = request(chance, video_id)
        with socket.create_connection((parts.hostname, parts.port), timeout=60) as connection:
            connection.settimeout(20)
            try:
                cut = chance.randrange(len(sent) + 1) if chance.random() < 0.1 else len(sent)
                connection.sendall(sent[:cut])
                with suppress(OSError):  # it may have answered and closed the connection already
                    connection.shutdown(socket.SHUT_WR)
                head = connection.recv(64)
            except (ConnectionError, TimeoutError) as error:
                head = type(error).__name__.encode()
        status = head.split(b" ")[1].decode("latin-1") if head.startswith(b"HTTP/1.1 ") else head.decode("latin-1")
        outcome.sent += 1
        outcome.statuses[status or "closed"] += 1
        if status == "TimeoutError" or (status.startswith("5") and status != "503"):
            outcome.faults.append(f"seed {seed}-{number}: {status} for {sent[:120]!r}")
    with httpx.Client(base_url=address, timeout=60) as client:
        if client.get("/healthz").status_code != 200:
            outcome.faults.append("the server does not answer any more")
    return outcome


def load(address: str, video_id: str, clients: int, seconds: float) -> tuple[Outcome, list[int]]:
    """Many clients that ask as pages do, for some seconds; also how many answers each has got."""
    outcome, lock, until = Outcome(), threading.Lock(), time.monotonic() + seconds
    answers = [0] * clients

    def ask(number: int) -> None:
        chance, video = Random(number), f"/api/videos/{video_id}"
        frames = [f"{video}/frames/{tenth / 10}.jpg" for tenth in range(10)]
        paths = ["/", "/api/videos", "/api/status", video, *frames, *(f"/api/search?q={n}" for n in range(20))]
        paths += [f"{video}/similar", f"{video}/stream?as=mp4", f"{video}/clip.mp4?start=0&seconds=1"]
        with httpx.Client(base_url=address, timeout=60) as client:
            while time.monotonic() < until:
                path = chance.choice(paths)
                try:
                    status = str(client.get(path).status_code)
                except httpx.TransportError as error:
                    status = type(error).__name__
                with lock:
                    outcome.sent += 1
                    outcome.statuses[status] += 1
                    answers[number] += status == "200"
                    if status not in ("200", "503", "429"):
                        outcome.faults.append(f"{status} for {path}")

    threads = [threading.Thread(target=ask, args=[number]) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcome, answers
