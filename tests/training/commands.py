"""Runs ``centerclip`` as a process of its own that starts in a moment: torch is imported once, in a fork server.

A process can be told to send itself a signal at the n-th call of a function, so that what interrupts it does not depend
on how fast the machine is.
"""

import multiprocessing
import os
import pkgutil
import sys
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import torch

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(  # all that takes seconds to import, and is else imported where it is used
    ["centerclip.cli", "centerclip.training.loop", "torch.utils.tensorboard", "matplotlib.pyplot", __name__]
    + [f"transformers.models.clip.{name}_clip" for name in ("configuration", "modeling", "tokenization")]
)
END_SECONDS = 240  # a process that hangs is killed before the test's own time is over


@dataclass(frozen=True)
class Signal:
    """Sent by a process to itself when ``function`` is called the ``call``-th time."""

    number: int
    function: str
    call: int


@dataclass(frozen=True)
class Done:
    code: int
    stdout: str
    stderr: str


def centerclip(folder: Path, *arguments: object, signal: Signal | None = None) -> Done:
    """Run a command; ``folder`` keeps its output."""
    folder.mkdir(parents=True, exist_ok=True)
    process = CONTEXT.Process(target=_run, args=(folder, [str(each) for each in arguments], signal))
    process.start()
    process.join(END_SECONDS)
    if process.exitcode is None:
        process.kill()
        process.join()
    assert process.exitcode is not None
    return Done(process.exitcode, (folder / "stdout").read_text(), (folder / "stderr").read_text())


def _run(folder: Path, arguments: list[str], signal: Signal | None) -> None:
    from centerclip.cli import main

    for stream, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
    torch.set_num_threads(1)  # sums in a fixed order
    sys.argv = ["centerclip", *arguments]
    if signal is not None:
        _send_at_call(signal)
    main()


def _send_at_call(signal: Signal) -> None:
    owner, name = signal.function.rsplit(".", 1)
    function = getattr(pkgutil.resolve_name(owner), name)
    calls = count(1)

    def interrupted(*arguments: object, **options: object) -> object:
        if next(calls) == signal.call:
            os.kill(os.getpid(), signal.number)
        return function(*arguments, **options)

    setattr(pkgutil.resolve_name(owner), name, interrupted)
