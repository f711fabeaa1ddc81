"""Work that takes time, away from the event loop: each kind on its own few threads, behind a queue with an end.

So a film that takes long to decode holds up no search, and a client that asks for more than can be done is told so
instead of filling the memory.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

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
