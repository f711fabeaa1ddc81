"""What all requests share: the index, the worker threads, the caches, the metrics."""

import asyncio
import hashlib
import hmac
import ipaddress
import logging
import sys
import threading
import time
from collections import OrderedDict
from typing import Annotated

from fastapi import Depends, Request
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from ..errors import CenterClipError
from ..search import VideoIndex
from .library import BackgroundIndexing, Library
from .media import DiskCache
from .problems import Problem
from .settings import ServeSettings
from .workers import MAX_BATCH, SentenceEncoder, WorkerPool

SEARCH_THREADS = 8  # queries that wait together share one product with all vectors
MODEL_RETRY_SECONDS = 30.0  # after a model could not be opened
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # of the request times, seconds
GUESS_SECONDS = 60.0  # how long a wrong token counts
MAX_NETWORKS = 4096  # whose wrong tokens are remembered
log = logging.getLogger("centerclip.server")


class Service:
    """The parts of a server.

    Args:
        index: the index to serve; it need not exist yet.
        settings: what the server may do.
    """

    def __init__(self, index: VideoIndex, settings: ServeSettings) -> None:
        self.settings = settings
        self.library = Library(index, settings.root_path, settings.cache / "queries")
        self.indexing = BackgroundIndexing(self.library, settings.folders)
        self.frames = DiskCache(settings.cache / "frames", settings.thumbnail_bytes)
        self.pieces = DiskCache(settings.cache / "pieces", settings.piece_bytes)
        self.tokens = TokenGuard(settings.token, settings.guesses)
        self.metrics = Metrics(self)
        self.ready = False  # whether the model is open
        self.sentences = SentenceEncoder(index.encode_texts, self.library.model_version, self.metrics.count_batch)
        self.sentences.max_batch = 1  # until the model is open: the text encoder takes one sentence without it
        self._next_try = 0.0
        # Each kind of work has its own threads: none can hold up another.
        self.search_pool = WorkerPool("search", threads=SEARCH_THREADS, max_waiting=256)
        self.info_pool = WorkerPool("info", threads=2, max_waiting=128)
        self.frame_pool = WorkerPool("frames", threads=2, max_waiting=128)
        self.download_pool = WorkerPool("downloads", threads=2, max_waiting=8)  # whole files of object storage
        self.upload_pool = WorkerPool("uploads", threads=1, max_waiting=8)
        self.piece_pool = WorkerPool("pieces", threads=1, max_waiting=4)
        self.sharpen_pool = WorkerPool("sharpen", threads=1, max_waiting=4)

    def warm_up(self) -> None:
        """Open the model in the background, so that the first search need not wait for it."""
        if self.ready or time.monotonic() < self._next_try:
            return
        self._next_try = time.monotonic() + MODEL_RETRY_SECONDS
        threading.Thread(target=self._open_model, name="server-warm-up", daemon=True).start()

    def _open_model(self) -> None:
        try:
            self.library.index.encode_texts(["a dog", "a cat"])
        except CenterClipError as error:
            log.info("not ready yet: %s", error)  # no index yet; otherwise each request reports the error
        except Exception:
            log.exception("the model could not be opened")
        else:
            self.sentences.max_batch, self.ready = MAX_BATCH, True

    async def close(self) -> None:
        """Wait for the work that is running."""
        pools = [each for each in vars(self).values() if isinstance(each, WorkerPool)]
        close = [self.sentences.close, *(pool.close for pool in pools)]
        await asyncio.gather(*map(asyncio.to_thread, close))


class TokenGuard:
    """Compares tokens in constant time, and refuses an address that has sent many wrong ones lately.

    The same wrong one counts once: a page that was left open asks again and again with the cookie of an older token.

    Args:
        token: the secret; None lets everyone in.
        guesses: wrong ones of one address in a minute, after which it has to wait.
    """

    def __init__(self, token: str | None, guesses: int = ServeSettings.guesses) -> None:
        self.token, self.guesses = token, guesses
        self._wrong: OrderedDict[str, dict[int, float]] = OrderedDict()  # network -> what was sent, hashed -> when

    @property
    def cookie(self) -> str:
        """What a browser keeps instead of the token."""
        return hmac.new((self.token or "").encode(errors="replace"), b"centerclip cookie", hashlib.sha256).hexdigest()

    def is_right(self, client: str, sent: str, *, cookie: bool = False) -> bool:
        """Whether a client has sent the token, or the cookie; raises a problem after too many that were wrong."""
        if self.token is None:
            return True
        network, now = _network_of(client), time.monotonic()
        wrong = {key: when for key, when in self._wrong.get(network, {}).items() if now - when < GUESS_SECONDS}
        if len(wrong) >= self.guesses:  # also for the right one, or guessing could go on
            detail = (
                f"This address has sent {self.guesses} wrong ones. Wait a minute, then use the one that was printed."
            )
            raise Problem("too-many-guesses", detail, headers={"retry-after": str(int(GUESS_SECONDS))})
        expected = self.cookie if cookie else self.token
        if hmac.compare_digest(sent.encode(errors="replace"), expected.encode(errors="replace")):
            return True
        self._wrong[network] = {**wrong, hash((sent, cookie)): now}
        self._wrong.move_to_end(network)
        while len(self._wrong) > MAX_NETWORKS:
            self._wrong.popitem(last=False)
        return False


def _network_of(client: str) -> str:
    """What one machine can send from: an IPv4 address, or the 2^64 of an IPv6 network."""
    try:
        address = ipaddress.ip_address(client.partition("%")[0])
    except ValueError:
        return client
    return client if address.version == 4 else str(ipaddress.ip_network((address, 64), strict=False))


class Metrics:
    """What the server has done since it started, for Prometheus.

    The registry is its own, so that several apps can live in one process.
    """

    def __init__(self, service: Service) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter(
            "centerclip_requests_total", "Requests answered.", ["method", "route", "status"], registry=registry
        )
        self.seconds = Histogram(
            "centerclip_request_seconds",
            "Time until the last byte of the response.",
            ["route"],
            buckets=BUCKETS,
            registry=registry,
        )
        self.in_flight = Gauge("centerclip_requests_in_flight", "Requests being answered.", registry=registry)
        self.sentences = Counter("centerclip_sentences_total", "Sentences encoded.", registry=registry)
        self.batches = Counter("centerclip_sentence_batches_total", "Batches of sentences encoded.", registry=registry)
        started, library = time.time(), service.library
        frames, pieces = service.frames, service.pieces
        for name, description, value in (
            ("uptime_seconds", "Seconds since the start.", lambda: time.time() - started),
            ("index_videos", "Videos in the index.", lambda: getattr(library.status(), "videos", 0)),
            ("index_segments", "Segments in the index.", lambda: getattr(library.status(), "segments", 0)),
            ("model_ready", "Whether the model is open.", lambda: service.ready),
            ("thumbnail_hits", "Thumbnails from the cache.", lambda: frames.hits),
            ("thumbnail_misses", "Thumbnails made.", lambda: frames.misses),
            ("piece_hits", "Converted pieces from the cache.", lambda: pieces.hits),
            ("piece_misses", "Pieces converted.", lambda: pieces.misses),
            ("peak_memory_bytes", "Peak memory of the process.", _peak_memory),
        ):
            Gauge(f"centerclip_{name}", description, registry=registry).set_function(value)

    def count_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request. ``route`` is the name of the route, not the path: there is no series for every video."""
        self.requests.labels(method, route, status).inc()
        self.seconds.labels(route).observe(seconds)

    def count_batch(self, size: int) -> None:
        """Count sentences that were encoded together."""
        self.batches.inc()
        self.sentences.inc(size)


def _peak_memory() -> int:
    try:
        import resource
    except ImportError:  # Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


async def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


ServiceDep = Annotated[Service, Depends(_service)]
