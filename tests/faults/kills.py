"""Kills an operation (SIGKILL) at the places where it could hurt, or at any moment, and checks what is left.

The places are every SQL statement (so before and after each commit), and before and after every fsync and rename."""

import hashlib
import os
import shutil
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from centerclip.search import IndexNotFound, VideoIndex
from tests.search.collection import clip, save_model
from tests.training.commands import CONTEXT

VIDEOS = 5
Content = dict[str, tuple[str, str]]  # path -> id of its video, hash of its vectors


class World:
    """Videos, a model, an index of all of them, and the same videos at another place."""

    def __init__(self, folder: Path) -> None:
        self.videos, self.elsewhere, self.model = folder / "videos", folder / "elsewhere", folder / "model"
        for number in range(VIDEOS):
            clip(self.videos / f"{number}.mp4", number, seconds=1 + number % 2)
        shutil.copytree(self.videos, self.elsewhere)
        save_model(self.model)
        self.index = folder / "index"
        index = VideoIndex(self.index, model=self.model)
        index.add(self.videos)
        index.close()
        self.whole = self.index / "index.db"

    def start(self, operation: str, folder: Path) -> None:
        """What an operation begins with."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        if operation in ("reindex", "refine", "remove", "move"):
            shutil.copy(self.whole, folder / "index.db")


def perform(operation: str, world: World, folder: Path, tell: Callable[[Any], None] = lambda progress: None) -> None:
    """One of ``OPERATIONS``, in this process."""
    from centerclip.search import copy, indexer

    indexer.COMMIT_SECONDS = 0.0
    index = VideoIndex(folder, model=world.model)
    if operation in ("index", "reindex"):
        index.add(world.videos, reindex=operation == "reindex", on_progress=tell)
    elif operation == "refine":
        index.add(finer=True, on_progress=tell)
    elif operation == "copy":
        copy.VIDEOS_AT_A_TIME = 2
        copy.copy_index(world.index, folder)
    elif operation == "remove":
        index.remove(world.videos / "0.mp4", world.videos / "3.mp4")
    elif operation == "move":
        index.move_root(world.videos, world.elsewhere)
    elif operation == "export":
        from centerclip.model.engine import export_model

        export_model(world.model, folder / "exported", precision="float32")


OPERATIONS = ("index", "reindex", "refine", "remove", "move", "copy", "export")


def content(operation: str, folder: Path) -> Content:
    """What an operation has left, in a form that can be compared; checks that it is sound."""
    if operation == "export":
        target = folder / "exported"
        if not (target / "centerclip.json").exists():  # then nobody takes it for a model
            return {}
        files = sorted(path for path in target.iterdir() if not path.name.startswith("."))
        return {path.name: ("", hashlib.md5(path.read_bytes()).hexdigest()) for path in files}
    if not (folder / "index.db").exists():
        return {}
    with closing(sqlite3.connect(folder / "index.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    index = VideoIndex(folder)
    try:
        view = index._open().store.view()
    except IndexNotFound:
        return {}
    assert {file.video for file in view.files.values()} == set(view.videos), "a video without a file, or the reverse"
    found = {
        path: (file.video, hashlib.md5(view.segments(file.video).vectors.tobytes()).hexdigest())
        for path, file in view.files.items()
    }
    index.close()
    return found


@dataclass
class Outcome:
    """Counts of a run."""

    kills: int = 0
    ended: int = 0  # runs that were over before they could be killed
    points: Counter[str] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        points = ", ".join(f"{point} {count}" for point, count in self.points.most_common())
        lost = "".join(f"\n  {each}" for each in self.lost)
        return f"kills: {self.kills:,} ({points}); {self.ended} ended before; {len(self.lost)} lost something{lost}"


class Killer:
    """Kills operations of a world again and again.

    Args:
        folder: for everything; the expected contents come from runs that nobody kills.
        operations: which.
    """

    def __init__(self, folder: Path, operations: tuple[str, ...] = OPERATIONS) -> None:
        self.world, self.folder = World(folder / "world"), folder
        self.outcome, self.expected, self.before = Outcome(), {}, {}
        self.events: dict[str, int] = {}
        self.seconds: dict[str, float] = {}
        for operation in operations:
            target = folder / operation
            self.world.start(operation, target)
            self.before[operation] = content(operation, target)
            began = time.monotonic()
            assert self._child(operation, target, None) == 0, f"{operation} fails when nobody kills it"
            self.seconds[operation] = time.monotonic() - began
            self.events[operation] = len(self._log().splitlines())
            self.expected[operation] = content(operation, target)

    def kill(self, operation: str, chance: Random, *, at_a_point: bool) -> None:
        """Kill an operation once, check what is left, run it again to its end, and compare."""
        target = self.folder / operation
        self.world.start(operation, target)
        event = chance.randrange(1, self.events[operation] + 1) if at_a_point else None
        delay = None if at_a_point else chance.random() * self.seconds[operation]
        code = self._child(operation, target, event, delay)
        log = self._log().splitlines()
        if code != -signal.SIGKILL:
            self.outcome.ended += 1
        else:
            self.outcome.kills += 1
            self.outcome.points[(log[-1].partition(" ")[0] if log else "start") if at_a_point else "any moment"] += 1
        try:
            left = content(operation, target)
            done = max((int(line.partition(" ")[2]) for line in log if line.startswith("done")), default=0)
            assert len(left) >= done or operation not in ("index",), f"{len(left)} of {done} that were reported"
            if operation in ("remove", "move"):
                assert left in (self.before[operation], self.expected[operation]), "neither as before nor as after"
            if operation == "export" and left:
                assert left == self.expected[operation], "half a model that is taken for one"
            if operation != "move" or left == self.before[operation]:
                perform(operation, self.world, target)
            assert content(operation, target) == self.expected[operation], "another content than without the kill"
        except Exception as error:
            point = f"event {event}" if at_a_point else f"after {delay:.2f} s"
            self.outcome.lost.append(f"{operation}, {point}: {type(error).__name__}: {error}")

    def _log(self) -> str:
        path = self.folder / "events"
        return path.read_text() if path.exists() else ""

    def _child(self, operation: str, target: Path, event: int | None, delay: float | None = None) -> int:
        (self.folder / "events").unlink(missing_ok=True)
        process = CONTEXT.Process(target=_run, args=(operation, self.world, target, event, self.folder / "events"))
        process.start()
        process.join(delay or 240)
        process.kill()
        process.join()
        return process.exitcode or 0


def _run(operation: str, world: World, target: Path, event: int | None, log: Path) -> None:
    """In a process of its own: write every event into a file, and die at one of them."""
    os.environ["OMP_NUM_THREADS"] = "1"
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    numbers = iter(range(1, 10**9))

    def note(name: str) -> None:
        os.write(out, f"{name}\n".encode())
        if next(numbers) == event:
            os.kill(os.getpid(), signal.SIGKILL)

    for name in ("fsync", "replace", "rename"):
        setattr(os, name, _noted(getattr(os, name), name, note))
    from centerclip.search import sqlite

    connect = sqlite.connect

    def traced(path: Path, mode: str) -> sqlite3.Connection:
        connection = connect(path, mode)
        connection.set_trace_callback(lambda statement: note(statement.split()[0].upper().replace("--", "trigger")))
        return connection

    sqlite.connect = traced
    perform(operation, world, target, lambda progress: os.write(out, f"done {progress.finished}\n".encode()))


def _noted(function: Callable[..., Any], name: str, note: Callable[[str], None]) -> Callable[..., Any]:
    def noted(*arguments: Any, **options: Any) -> Any:
        note(f"before-{name}")
        result = function(*arguments, **options)
        note(f"after-{name}")
        return result

    return noted
