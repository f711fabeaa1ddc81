"""Sentences of all clients are encoded together: those that come while a batch is at work make the next one."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator

import numpy as np

from ..search.store import Floats
from .lanes import Lane
from .metrics import Metrics
from .problems import Problem

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
