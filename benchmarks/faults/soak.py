"""The fault harnesses of tests/faults for as long as you like; prints counts, and ends with 1 if something was lost.

make soak MINUTES=60
PYTHONPATH=. python benchmarks/faults/soak.py media --minutes 60 --seed 5 --media ~/Videos
PYTHONPATH=. python benchmarks/faults/soak.py kills --count 300 --seed 1 --state soak   # run again, it goes on
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import httpx
import psutil

from centerclip import VideoIndex
from centerclip.files import find_videos, write_atomic
from tests.faults import kills, media, requests
from tests.search.collection import clip, save_model
from tests.training.commands import Signal, centerclip
from tests.training.world import RECIPE, make_world

MANY_FILES = 100_000
MAX_MEDIA_BYTES = 4_000_000  # larger files of yours are not damaged: each takes too long
AT_A_TIME = 25  # requests between two notes of the counts
FILES_AT_A_TIME = 250  # damaged files; each time a process starts, which takes as long as a dozen of them
LOAD_SECONDS = 60.0  # at least, for 64 and for 256 clients
MAX_TRACE = 4_000  # letters of an error in the server's log
WARM_UP_SECONDS = 10.0  # until all threads and caches are there, before memory is compared
TRAIN_POINTS = ("centerclip.training.loop.compute_gradients", "os.fsync", "pathlib.Path.replace", "torch.save")
Counts = TypeVar("Counts")


@dataclass
class Run:
    """What a part is given.

    Attributes:
        folder: for its files; gone at the end.
        seed: with the number of each kill, file or request it says what is done.
        count: most of them.
        until: a time of ``time.monotonic``.
        state: a folder that keeps the counts, so that a run that was stopped goes on; None: nothing is kept.
        media: files to damage copies of, beside generated ones.
    """

    folder: Path
    seed: int
    count: int
    until: float
    state: Path | None
    media: list[Path]

    def resume(self, part: str, counts: Counts) -> Counts:
        """The counts of a part so far, in place of empty ones."""
        if self.state is not None and (kept := self.state / f"{part}-{self.seed}.json").exists():
            for name, value in json.loads(kept.read_text()).items():
                setattr(counts, name, Counter(value) if isinstance(value, dict) else value)
        return counts

    def keep(self, part: str, counts: Any) -> None:
        """Note the counts of a part."""
        if self.state is not None:
            self.state.mkdir(parents=True, exist_ok=True)
            write_atomic(self.state / f"{part}-{self.seed}.json", json.dumps(vars(counts)))

    def goes_on(self, done: int) -> bool:
        """Whether there is something left to do, and time for it."""
        return done < self.count and time.monotonic() < self.until


def soak_kills(run: Run) -> bool:
    """Index, reindex, refine, remove, move, copy and export, killed in turn: half at named points, half at any time."""
    killer = kills.Killer(run.folder)
    outcome = killer.outcome = run.resume("kills", kills.Outcome())
    while run.goes_on(outcome.kills):
        number = outcome.kills + outcome.ended
        operation = kills.OPERATIONS[number % len(kills.OPERATIONS)]
        killer.kill(operation, Random(f"{run.seed}-{number}"), at_a_point=number // len(kills.OPERATIONS) % 2 == 0)
        run.keep("kills", outcome)
    print(outcome)
    return not outcome.lost


@dataclass
class TrainOutcome:
    """Counts of killed training runs."""

    runs: int = 0
    kills: int = 0
    points: Counter[str] = field(default_factory=Counter)
    different: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        points = ", ".join(f"{point} {count}" for point, count in self.points.most_common())
        different = f"{len(self.different)} ended with other weights {self.different or ''}".rstrip()
        return f"train: {self.kills:,} kills ({points}) in {self.runs} runs; {different}"


def soak_train(run: Run) -> bool:
    """Training, killed at a random call of a named function, and resumed to its end: the same weights."""
    folder, outcome = run.folder, run.resume("train", TrainOutcome())
    world, recipe = make_world(folder / "world", clips=8, frames=4), folder / "recipe.toml"
    recipe.write_text(RECIPE)

    def train(target: Path, signal: Signal | None = None) -> int:
        options = ["--root", world, "-o", target, "--workers", "0", "--set", "train.checkpoint_minutes=1e-9"]
        return centerclip(folder / "output", "train", recipe, *options, signal=signal).code

    def weights(target: Path) -> bytes:
        return (target / "best" / "model.safetensors").read_bytes()

    assert train(folder / "undisturbed") == 0
    while run.goes_on(outcome.kills):
        chance, target = Random(f"{run.seed}-{outcome.runs}"), folder / f"run-{outcome.runs}"
        for _ in range(3):  # several times in one run
            function = chance.choice(TRAIN_POINTS)
            if train(target, Signal(9, function, chance.randrange(1, 12))) == -9:
                outcome.kills += 1
                outcome.points[function.rpartition(".")[2]] += 1
        if train(target) != 0 or weights(target) != weights(folder / "undisturbed"):
            outcome.different.append(target.name)
        outcome.runs += 1
        run.keep("train", outcome)
    print(outcome)
    return not outcome.different


def soak_media(run: Run) -> bool:
    """Damaged media, of generated files and of yours."""
    yours = [path for path in run.media if path.stat().st_size < MAX_MEDIA_BYTES]
    files, damaged = media.originals(run.folder / "originals") + yours, run.folder / "damaged"
    outcome = run.resume("media", media.Outcome())
    while run.goes_on(outcome.files):
        some = min(run.count, outcome.files + FILES_AT_A_TIME)
        media.fuzz(files, damaged, run.seed, some, run.until, outcome)
        for faulty in damaged.glob(f"{run.seed}-*"):
            faulty.rename(Path(tempfile.gettempdir()) / f"centerclip-fault-{faulty.name}")
        run.keep("media", outcome)
    print(f"{outcome} (of {len(files)} files, seed {run.seed})")
    return not outcome.faults


def soak_files(run: Run) -> bool:
    """Many small files: all are found, and a second run reads none of them."""
    total = min(run.count, MANY_FILES)
    videos = run.folder / "videos"
    original = clip(run.folder / "a.mp4", 1, seconds=1)
    for start in range(0, total, 1000):  # a file has 65,000 names at most
        folder = videos / f"{start // 1000:03}"
        folder.mkdir(parents=True)
        shutil.copyfile(original, folder / f"{start:06}.mp4")
        for number in range(start + 1, min(start + 1000, total)):
            (folder / f"{number:06}.mp4").hardlink_to(folder / f"{start:06}.mp4")
    index = VideoIndex(run.folder / "index", model=save_model(run.folder / "model"))
    began = time.monotonic()
    first = index.add(videos)
    between = time.monotonic()
    second = index.add()
    seconds, peak = (between - began, time.monotonic() - between), psutil.Process().memory_info().rss / 2**20
    print(
        f"files: {total:,} files of one content: {first.added} added, {first.recognised:,} recognised in "
        f"{seconds[0]:.0f} s; again in {seconds[1]:.1f} s, {second.unchanged:,} unchanged; {peak:,.0f} MB"
    )
    return second.unchanged == total and not first.failed


def soak_server(run: Run) -> bool:
    """A server: hostile requests for a third of the time, then 64 and 256 clients, its memory before and after."""
    folder = run.folder
    for number in range(8):
        clip(folder / "videos" / f"{number}.mp4", number)
    index = VideoIndex(folder / "index", model=save_model(folder / "model"))
    index.add(folder / "videos")
    video_id = index.videos()[0].video_id
    command = [sys.executable, "-m", "centerclip", "serve", "--index", str(folder / "index"), "--no-open"]
    with (folder / "log").open("w") as log:
        options = ["--port", "18765", "--cache", str(folder / "cache")]
        server = subprocess.Popen([*command, *options], stdout=log, stderr=log)
    address = "http://127.0.0.1:18765"
    process = psutil.Process(server.pid)
    try:
        while not _answers(address):
            assert server.poll() is None, (folder / "log").read_text()
            time.sleep(0.2)
        third = max(LOAD_SECONDS, (run.until - time.monotonic()) / 3)
        attacked = run.resume("server", requests.Outcome())
        while run.goes_on(attacked.sent) and run.until - time.monotonic() > 2 * third:
            some = min(run.count, attacked.sent + AT_A_TIME)
            requests.attack(address, video_id, run.seed, some, outcome=attacked)
            run.keep("server", attacked)
        print(attacked)
        sound = not attacked.faults
        for clients in (64, 256):
            requests.load(address, video_id, clients, WARM_UP_SECONDS)
            before = process.memory_info().rss
            outcome, answers = requests.load(address, video_id, clients, third)
            after = process.memory_info().rss
            print(
                f"{clients} clients, {third:.0f} s: {outcome}; answers to a client {min(answers)} to {max(answers)}; "
                f"memory {before / 2**20:,.0f} MB, afterwards {after / 2**20:,.0f} MB"
            )
            sound &= not outcome.faults and min(answers) > 0 and after < 1.2 * before + 50 * 2**20
        _, found, trace = (folder / "log").read_text().partition("Traceback")
        if found:
            print(f"the server's log has a {found}{trace[:MAX_TRACE]}")
        return sound and not found
    finally:
        server.terminate()
        server.wait(60)


def _answers(address: str) -> bool:
    try:
        return httpx.get(f"{address}/healthz").status_code == 200
    except httpx.TransportError:
        return False


PARTS: dict[str, Callable[[Run], bool]] = {
    "kills": soak_kills,
    "train": soak_train,
    "media": soak_media,
    "files": soak_files,
    "server": soak_server,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="what to do; everything by default")
    parser.add_argument("--minutes", type=float, default=10.0, help="for each part")
    parser.add_argument("--count", type=int, default=10**9, help="most kills, files or requests of each part")
    parser.add_argument("--seed", type=int, default=None, help="repeats a run; the time by default")
    parser.add_argument(
        "--media", type=Path, action="append", default=[], help="a folder with files to damage copies of"
    )
    parser.add_argument("--state", type=Path, help="a folder that keeps the counts: run again, a part goes on")
    given = parser.parse_args()
    if given.state is not None and given.seed is None:
        parser.error("--state needs a --seed, which says what a run that goes on does next")
    seed = int(time.time()) if given.seed is None else given.seed
    os.environ["OMP_NUM_THREADS"] = "1"
    failed = []
    for name in given.parts or PARTS:
        with tempfile.TemporaryDirectory(prefix="centerclip-soak-", ignore_cleanup_errors=True) as folder:
            files = list(find_videos(*given.media)) if name == "media" else []
            until = time.monotonic() + 60 * given.minutes
            if not PARTS[name](Run(Path(folder), seed, given.count, until, given.state, files)):
                failed.append(name)
    print(f"seed {seed}: " + (f"faults in {', '.join(failed)}" if failed else "no faults"))
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
