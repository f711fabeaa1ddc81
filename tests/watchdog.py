"""Kills a test run that hangs, with every process it started, whatever it waits in.

pytest-timeout interrupts a test that waits in Python. A test that waits in C, with signals blocked or with Python's
lock held, is out of its reach, and processes that the test started would stay. So another process watches the run.
"""

import contextlib
import subprocess
import sys
import time
from select import select

import psutil

SECONDS = 240.0  # for one test; pytest-timeout ends those it can end earlier


class Watchdog:
    """A process that waits for a line per test and kills this process's tree when none comes in time."""

    def __init__(self, seconds: float = SECONDS) -> None:
        own = psutil.Process().pid
        self.process = subprocess.Popen(
            [sys.executable, __file__, str(own), str(seconds)], stdin=subprocess.PIPE, text=True, start_new_session=True
        )

    def tell(self, test: str) -> None:
        """A test begins, or the time between tests."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(f"{test}\n")
            self.process.stdin.flush()

    def close(self) -> None:
        """The run is over."""
        self.process.communicate()


def watch(target: psutil.Process, seconds: float) -> None:
    """Wait for lines on standard input; its end is the end of the run."""
    current, deadline = "the start of the run", time.monotonic() + 10 * seconds
    while True:
        ready, _, _ = select([sys.stdin], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            break
        line = sys.stdin.readline()
        if not line:
            return
        current, deadline = line.strip(), time.monotonic() + seconds
    print(f"\n{current} has not ended after {seconds:g} seconds: the run is killed", file=sys.stderr, flush=True)
    with contextlib.suppress(psutil.NoSuchProcess):
        target.suspend()  # so that it starts no more processes
        for process in target.children(recursive=True):
            if process.pid != psutil.Process().pid:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
        target.kill()


if __name__ == "__main__":
    watch(psutil.Process(int(sys.argv[1])), float(sys.argv[2]))
