"""Slow work, away from the event loop, and sentences of all clients encoded together.

Each kind of work has its own few threads behind a bounded queue. So a film that takes long to decode holds up no
search, and a client that asks for more than can be done gets an error instead of filling the memory.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

import numpy as np

from ..search.store import Floats
from .problems import Problem

MAX_BATCH = 32  # sentences
MAX_WAITING = 512  # sentences
CACHED_SENTENCES = 1024  # a page asks several times about the same one
Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")


class WorkerPool:
    """A few threads for one kind of work.

    Args:
        name: of the kind of work.
        threads: how many jobs run at once.
        max_waiting: how many jobs may wait; further ones are refused.
    """

    def __init__(self, name: str, threads: int, max_waiting: int) -> None:
        self.max_jobs = threads + max_waiting
        self._jobs = 0  # running and waiting; touched by the event loop alone
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=f"server-{name}")

    async def run(self, work: Callable[Arguments, Result], *args: Arguments.args, **named: Arguments.kwargs) -> Result:
        """Do the work on one of the threads; raises a ``busy`` problem when too many jobs wait."""
        if self._jobs >= self.max_jobs:
            raise _busy()
        loop = asyncio.get_running_loop()
        self._jobs += 1
        future = self._threads.submit(partial(work, *args, **named))
        # Counted until it is done, even when the client has disconnected and nobody awaits it.
        future.add_done_callback(partial(self._report_done, loop))
        return await asyncio.wrap_future(future)

    def _report_done(self, loop: asyncio.AbstractEventLoop, future: "Future[Any]") -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._count_done)

    def _count_done(self) -> None:
        self._jobs -= 1

    def close(self) -> None:
        """Drop the jobs that wait, and wait for those that run."""
        self._threads.shutdown(wait=True, cancel_futures=True)


class SentenceEncoder:
    """Encodes sentences to vectors ``[D]``, for many requests at once.

    Nothing waits for a batch to fill: the first sentence starts at once, and those that arrive while it is encoded make
    the next batch.

    Args:
        encode: sentences to vectors ``[B, D]``.
        model_version: changes with the model; vectors are cached as long as it stays the same.
        on_batch: called with the size of every batch.
    """

    def __init__(
        self,
        encode: Callable[[list[str]], Floats],
        model_version: Callable[[], Hashable],
        on_batch: Callable[[int], None],
    ) -> None:
        self._encode, self._model_version, self._on_batch = encode, model_version, on_batch
        self._pool = WorkerPool("sentences", threads=1, max_waiting=1)
        self._waiting: dict[str, list[asyncio.Future[Floats]]] = {}
        self._worker: asyncio.Task[None] | None = None
        self._cache: OrderedDict[tuple[Hashable, str], Floats] = OrderedDict()
        self.max_batch = MAX_BATCH

    async def vector(self, sentence: str) -> Floats:
        """The vector ``[D]`` of a sentence."""
        key = (self._model_version(), sentence)
        if key in self._cache:
            self._cache.move_to_end(key)
            return self._cache[key]
        if len(self._waiting) >= MAX_WAITING:
            raise _busy()
        future: asyncio.Future[Floats] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(sentence, []).append(future)
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        vector = await future
        self._cache[key] = vector
        while len(self._cache) > CACHED_SENTENCES:
            self._cache.popitem(last=False)
        return vector

    async def _work(self) -> None:
        while self._waiting:
            sentences = list(self._waiting)[: self.max_batch]
            await self._encode_batch({sentence: self._waiting.pop(sentence) for sentence in sentences})

    async def _encode_batch(self, batch: dict[str, list[asyncio.Future[Floats]]]) -> None:
        try:
            vectors = await self._pool.run(self._encode, list(batch))
        except Exception as error:
            if len(batch) > 1:  # one of them may be at fault: the others shall not fail with it
                for sentence, futures in batch.items():
                    await self._encode_batch({sentence: futures})
                return
            for future in next(iter(batch.values())):
                if not future.done():
                    future.set_exception(error)
            return
        self._on_batch(len(batch))
        for futures, vector in zip(batch.values(), vectors, strict=True):
            for future in futures:
                if not future.done():  # the client may have disconnected
                    future.set_result(np.ascontiguousarray(vector))

    def close(self) -> None:
        """Stop the thread."""
        self._pool.close()


def _busy() -> Problem:
    return Problem("busy", "Try again in a moment.", headers={"retry-after": "2"})
