"""Runs a function over many jobs in worker processes, so that a crash or a hang costs one job and no more; threads."""

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

Job = TypeVar("Job")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Outcome(Generic[Job, Result]):
    """The result of a job, or the reason why there is none."""

    job: Job
    result: Result | None = None
    error: str | None = None


def run_each(
    function: Callable[[Job], Result],
    jobs: Iterable[Job],
    *,
    workers: int,
    timeout: float | None = None,
    setup: Callable[[], object] | None = None,
) -> Generator[Outcome[Job, Result], None, None]:
    """Yield the outcome of ``function(job)`` for every job, in the order in which they finish.

    Args:
        function: importable by name; jobs and results are pickled.
        jobs: taken one at a time, when a worker is free.
        workers: processes at the same time. They start fresh (spawn), because forking a process with threads can
            deadlock.
        timeout: seconds after which a job's process is killed and the job counts as failed.
        setup: called once in each new process.

    Closing the generator, or an exception in it, stops all processes at once.
    """
    pool: list[_Worker[Job, Result]] = []
    queue = iter(jobs)
    try:
        while True:
            while len(pool) < workers and _send_next(queue, worker := _Worker(function, timeout, setup)):
                pool.append(worker)
            if not pool:
                return
            remaining = min(worker.deadline for worker in pool) - time.monotonic()
            ready = wait([worker.pipe for worker in pool], None if remaining == float("inf") else max(0.0, remaining))
            for worker in list(pool):
                if worker.pipe in ready:
                    outcome = worker.receive()
                elif time.monotonic() >= worker.deadline:
                    outcome = worker.failed(f"timed out after {timeout:g} seconds")
                else:
                    continue
                if outcome is None:
                    continue
                if worker.broken or not _send_next(queue, worker):
                    pool.remove(worker)
                    worker.stop()
                yield outcome
    finally:
        for worker in pool:
            worker.stop()


def one_blas_thread() -> AbstractContextManager[object]:
    """Inside, products of NumPy take one thread, if its others would then wait with the processor running.

    So they do where a program imports NumPy before centerclip: the next part of a model would take twice as long.
    """
    if "OPENBLAS_THREAD_TIMEOUT" in os.environ:  # of the user, or of centerclip/__init__.py
        return nullcontext()
    limited: AbstractContextManager[object] = _blas_threads().limit(limits=1, user_api="blas")
    return limited


@cache
def _blas_threads() -> "ThreadpoolController":
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def usable_cores() -> int:
    """The cores this process may use: containers and job schedulers often allow fewer than the machine has."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(allowed, _most_cores or allowed)


def limit_cores(count: int) -> None:
    """Let this process use so many cores at most, because its neighbours have the others."""
    global _most_cores
    _most_cores = count


_most_cores = 0  # no limit


def cores_per_rank(world: int = 1) -> int:
    """This rank's share of the cores, at least 1: the ranks that ``torchrun`` starts on one machine divide them.

    Args:
        world: all ranks, for launchers that do not say how many of them are on this machine.
    """
    return max(1, usable_cores() // int(os.environ.get("LOCAL_WORLD_SIZE", world)))


def decoder_threads() -> int:
    """Threads that decode one video: this process's share of the cores, or one after :func:`one_thread`."""
    return 1 if _one_thread else cores_per_rank()


def one_thread() -> None:
    """Let this process decode with one thread, because its neighbours have the other cores."""
    global _one_thread
    _one_thread = True


_one_thread = False


def _send_next(queue: Iterator[Job], worker: "_Worker[Job, Result]") -> bool:
    """Send the next job to a worker; False when there is none left."""
    for job in queue:
        worker.send(job)
        return True
    return False


class _Worker(Generic[Job, Result]):
    """A process that does one job at a time. It starts with its first job."""

    def __init__(
        self, function: Callable[[Job], Result], timeout: float | None, setup: Callable[[], object] | None
    ) -> None:
        self.function, self.timeout, self.setup = function, timeout, setup
        self.process: SpawnProcess | None = None
        self.ready = self.broken = False

    def send(self, job: Job) -> None:
        if self.process is None:
            context = multiprocessing.get_context("spawn")
            self.pipe, worker_end = context.Pipe()
            self.process = context.Process(target=_serve, args=(worker_end, self.function, self.setup), daemon=True)
            self.process.start()
            worker_end.close()  # so that the death of the process closes the pipe
        self.job = job
        self.start_clock()
        with suppress(BrokenPipeError):  # it died since its last job; receive() sees the closed pipe
            self.pipe.send(job)

    def start_clock(self) -> None:
        """Start the timeout of a job, which does not include the seconds that a process takes to start."""
        self.deadline = time.monotonic() + (self.timeout if self.timeout and self.ready else float("inf"))

    def receive(self) -> Outcome[Job, Result] | None:
        """The outcome of the job; None when the process only reports that it has started."""
        try:
            if not self.ready:
                self.ready = self.pipe.recv()
                self.start_clock()
                return None
            result, error = self.pipe.recv()
        except (EOFError, OSError):
            assert self.process is not None
            self.process.join()
            return self.failed(f"its process ended with {_exit_text(self.process.exitcode)}")
        return Outcome(self.job, result, error)

    def failed(self, reason: str) -> Outcome[Job, Result]:
        self.broken = True
        return Outcome(self.job, error=reason)

    def stop(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.join()
        self.process.close()
        self.pipe.close()


def _serve(pipe: Connection, function: Callable[[Job], Result], setup: Callable[[], object] | None) -> None:
    """The main loop of a worker process: jobs in, (result, error) out, until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole process group; the parent decides
    if setup is not None:
        setup()
    pipe.send(True)
    while True:
        try:
            job = pipe.recv()
        except EOFError:
            return
        try:
            answer: tuple[Result | None, str | None] = (function(job), None)
        except Exception as error:  # of any kind: it concerns this job alone
            answer = (None, str(error) or type(error).__name__)
        try:
            pipe.send(answer)
        except BrokenPipeError:
            return


def _exit_text(code: int | None) -> str:
    """An exit code as text; signals by name."""
    if code is None or code >= 0:
        return f"exit code {code}"
    return f"signal {signal.Signals(-code).name}"
