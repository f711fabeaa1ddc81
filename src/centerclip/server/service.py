"""What all requests share: the index, the threads, the caches, the counters."""

import asyncio
import logging
import threading
import time
from typing import Annotated

from fastapi import Depends, Request

from ..errors import CenterClipError
from ..search import VideoIndex
from .library import Indexing, Library
from .media import DiskCache, Pieces, Thumbnails
from .metrics import Metrics
from .settings import ServeSettings
from .workers import Lane, SentenceEncoder

AGAIN = 30.0  # seconds until a model that could not be opened is tried again
log = logging.getLogger("centerclip.server")


class Service:
    """The parts of a server.

    Args:
        index: what is served; it need not be there yet.
        settings: what the server may do.
    """

    def __init__(self, index: VideoIndex, settings: ServeSettings) -> None:
        self.settings = settings
        self.library = Library(index)
        self.metrics = Metrics()
        self.sentences = SentenceEncoder(index.encode_texts, self.library.stamp, self.metrics)
        self.sentences.largest = 1  # until the model is open: one sentence can do without it
        self.thumbnails = Thumbnails(DiskCache(settings.cache / "frames", settings.thumbnail_bytes))
        self.pieces = Pieces(DiskCache(settings.cache / "pieces", settings.piece_bytes))
        self._next_try = 0.0
        self.indexing = Indexing(self.library, settings.folders)
        # Each kind of work has its own threads: none can hold up another.
        self.search_lane = Lane("search", threads=2, waiting=256)
        self.look_lane = Lane("look", threads=2, waiting=128)
        self.frame_lane = Lane("frames", threads=2, waiting=128)
        self.upload_lane = Lane("uploads", threads=1, waiting=8)
        self.piece_lane = Lane("pieces", threads=1, waiting=4)
        self.file_lane = Lane("files", threads=4, waiting=512)

    @property
    def ready(self) -> bool:
        """Whether the model is open."""
        return self.sentences.largest > 1

    def warm_up(self) -> None:
        """Open the model in the background: the first search shall not wait for it. Tried again after a while."""
        if self.ready or time.monotonic() < self._next_try:
            return
        self._next_try = time.monotonic() + AGAIN
        threading.Thread(target=self._open_model, name="web-warm-up", daemon=True).start()

    def _open_model(self) -> None:
        from .workers import LARGEST

        try:
            self.library.index.encode_texts(["a dog", "a cat"])
        except CenterClipError as error:
            log.info("not ready yet: %s", error)  # there is no index yet, or requests will say what is wrong
        except Exception:
            log.exception("the model could not be opened")
        else:
            self.sentences.largest = LARGEST

    async def close(self) -> None:
        """Finish what runs."""
        lanes = [self.search_lane, self.look_lane, self.frame_lane, self.upload_lane, self.piece_lane, self.file_lane]
        closing = [self.sentences.close, *(lane.close for lane in lanes)]
        await asyncio.gather(*(asyncio.to_thread(close) for close in closing))


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


Shared = Annotated[Service, Depends(_service)]
