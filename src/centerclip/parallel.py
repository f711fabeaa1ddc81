"""Runs a function over many jobs in processes of their own, so that a crash or a hang costs one job and no more."""

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Generic, TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Outcome(Generic[Job, Result]):
    """What became of a job: a result, or the reason why there is none."""

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
    """Yield the outcome of ``function(job)`` for every job, as they finish.

    Args:
        function: importable by name; jobs and results are pickled.
        jobs: taken one at a time, when a worker is free.
        workers: processes at the same time. They start fresh (spawn), because forking beside threads can lock up.
        timeout: seconds after which a job's process is killed and the job counts as failed.
        setup: called once in each new process.

    Closing the generator, or an exception in it, ends all processes at once.
    """
    crew: list[_Worker[Job, Result]] = []
    todo = iter(jobs)
    try:
        while True:
            while len(crew) < workers and _give_next(todo, worker := _Worker(function, timeout, setup)):
                crew.append(worker)
            if not crew:
                return
            soonest = min(worker.deadline for worker in crew) - time.monotonic()
            ready = wait([worker.pipe for worker in crew], None if soonest == float("inf") else max(0.0, soonest))
            for worker in list(crew):
                late = time.monotonic() >= worker.deadline
                if worker.pipe not in ready and not late:
                    continue
                outcome = worker.take() if worker.pipe in ready else worker.failed(f"no end after {timeout:g} seconds")
                if outcome is None:
                    continue
                if worker.broken or not _give_next(todo, worker):
                    crew.remove(worker)
                    worker.end()
                yield outcome
    finally:
        for worker in crew:
            worker.end()


def _give_next(todo: Iterator[Job], worker: "_Worker[Job, Result]") -> bool:
    """Hand the next job to a worker; False when there is none left."""
    for job in todo:
        worker.give(job)
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

    def give(self, job: Job) -> None:
        if self.process is None:
            context = multiprocessing.get_context("spawn")
            self.pipe, theirs = context.Pipe()
            self.process = context.Process(target=_serve, args=(theirs, self.function, self.setup), daemon=True)
            self.process.start()
            theirs.close()  # so that the death of the process ends the pipe
        self.job = job
        self.start_clock()
        with suppress(BrokenPipeError):  # it died since its last job, which the end of the pipe will tell
            self.pipe.send(job)

    def start_clock(self) -> None:
        """A job's time does not include the seconds that a process takes to start."""
        self.deadline = time.monotonic() + (self.timeout if self.timeout and self.ready else float("inf"))

    def take(self) -> Outcome[Job, Result] | None:
        """The outcome of the job; None when the process only says that it has started."""
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

    def end(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.join()
        self.process.close()
        self.pipe.close()


def _serve(pipe: Connection, function: Callable[[Job], Result], setup: Callable[[], object] | None) -> None:
    """The life of a worker process: jobs in, (result, error) out, until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
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
        except Exception as error:  # whatever it is, it is this job's, and the next one may be fine
            answer = (None, str(error) or type(error).__name__)
        try:
            pipe.send(answer)
        except BrokenPipeError:
            return


def _exit_text(code: int | None) -> str:
    """An exit code in words: signals have names."""
    if code is None or code >= 0:
        return f"exit code {code}"
    return f"signal {signal.Signals(-code).name}"


def usable_cores() -> int:
    """The cores this process may use: containers and job schedulers often give fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
