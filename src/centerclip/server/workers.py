"""Work that takes time, away from the event loop, and sentences of all clients encoded together.

Each kind of work has its own few threads behind a queue with an end. So a film that takes long to decode holds up no
search, and a client that asks for more than can be done is told so instead of filling the memory."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

import numpy as np

from ..search.store import Floats
from .metrics import Metrics
from .problems import Problem

Result = TypeVar("Result")
Given = ParamSpec("Given")


class Lane:
    """A few threads for one kind of work.

    Args:
        name: of the kind.
        threads: how many pieces of work at the same time.
        waiting: how many may wait; further ones are refused.
    """

    def __init__(self, name: str, threads: int, waiting: int) -> None:
        self.name, self.most = name, threads + waiting
        self.under_way = 0  # touched by the event loop alone
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=f"web-{name}")

    async def run(self, work: Callable[Given, Result], *given: Given.args, **named: Given.kwargs) -> Result:
        """Do the work on one of the threads; raises a ``busy`` problem when too much waits."""
        if self.under_way >= self.most:
            raise Problem("busy", "Try again in a moment.", headers={"retry-after": "2"})
        loop = asyncio.get_running_loop()
        self.under_way += 1
        future = self._pool.submit(partial(work, *given, **named))
        # Counted until it is done, even when the client has gone and nobody waits for it.
        future.add_done_callback(partial(self._tell, loop))
        return await asyncio.wrap_future(future)

    def _tell(self, loop: asyncio.AbstractEventLoop, future: "Future[Any]") -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._done)

    def _done(self) -> None:
        self.under_way -= 1

    def close(self) -> None:
        """Take nothing more; what waits is dropped, what runs is waited for."""
        self._pool.shutdown(wait=True, cancel_futures=True)


LARGEST = 32  # sentences of a batch
WAITING = 512  # sentences that may wait
REMEMBERED = 1024  # vectors of sentences that were asked for lately: a page asks several times about one


class SentenceEncoder:
    """Turns sentences into vectors ``[D]``, for many requests at once.

    Nobody waits for a batch to fill: whoever comes first starts, and those who come meanwhile go together.

    Args:
        encode: sentences to vectors ``[B, D]``.
        model: names the model in use: vectors are remembered as long as it stays the same.
        metrics: counts the batches.
    """

    def __init__(self, encode: Callable[[list[str]], Floats], model: Callable[[], Hashable], metrics: Metrics) -> None:
        self._encode, self._model, self._metrics = encode, model, metrics
        self._lane = Lane("sentences", threads=1, waiting=1)
        self._waiting: dict[str, list[asyncio.Future[Floats]]] = {}
        self._worker: asyncio.Task[None] | None = None
        self._known: OrderedDict[tuple[Hashable, str], Floats] = OrderedDict()
        self.largest = LARGEST

    async def vector(self, sentence: str) -> Floats:
        """The vector ``[D]`` of a sentence."""
        key = (self._model(), sentence)
        if key in self._known:
            self._known.move_to_end(key)
            return self._known[key]
        if len(self._waiting) >= WAITING:
            raise Problem("busy", "Try again in a moment.", headers={"retry-after": "2"})
        future: asyncio.Future[Floats] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(sentence, []).append(future)
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        vector = await future
        self._known[key] = vector
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return vector

    async def _work(self) -> None:
        while self._waiting:
            sentences = list(self._waiting)[: self.largest]
            await self._answer({sentence: self._waiting.pop(sentence) for sentence in sentences})

    async def _answer(self, asked: dict[str, list[asyncio.Future[Floats]]]) -> None:
        try:
            vectors = await self._lane.run(self._encode, list(asked))
        except Exception as error:
            if len(asked) > 1:  # one of them may be at fault: the others shall not suffer
                for sentence, futures in asked.items():
                    await self._answer({sentence: futures})
                return
            for future in _open(asked):
                future.set_exception(error)
            return
        self._metrics.batch(len(asked))
        for futures, vector in zip(asked.values(), vectors, strict=True):
            for future in futures:
                if not future.done():  # the client may have gone
                    future.set_result(np.ascontiguousarray(vector))

    def close(self) -> None:
        """Stop the thread."""
        self._lane.close()


def _open(asked: dict[str, list[asyncio.Future[Floats]]]) -> Iterator[asyncio.Future[Floats]]:
    return (future for futures in asked.values() for future in futures if not future.done())
