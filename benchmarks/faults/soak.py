"""The fault harnesses of tests/faults for as long as you like; prints counts, and ends with 1 if something was lost.

make soak MINUTES=60
PYTHONPATH=. python benchmarks/faults/soak.py media --minutes 60 --seed 5 --media ~/Videos
PYTHONPATH=. python benchmarks/faults/soak.py kills --count 300
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import httpx
import psutil

from centerclip import VideoIndex
from centerclip.files import find_videos
from tests.faults import kills, media, requests
from tests.search.collection import clip, save_model
from tests.training.commands import Signal, centerclip
from tests.training.world import RECIPE, make_world

MANY_FILES = 100_000
TRAIN_POINTS = ("centerclip.training.loop.compute_gradients", "os.fsync", "pathlib.Path.replace", "torch.save")


def soak_kills(folder: Path, seed: int, count: int, until: float) -> bool:
    """Index, reindex, remove, move and export, killed in turn: half at named points, half at any moment."""
    killer, number = kills.Killer(folder), 0
    while killer.outcome.kills < count and time.monotonic() < until:
        operation = kills.OPERATIONS[number % len(kills.OPERATIONS)]
        killer.kill(operation, Random(f"{seed}-{number}"), at_a_point=number // len(kills.OPERATIONS) % 2 == 0)
        number += 1
    print(killer.outcome)
    return not killer.outcome.lost


def soak_train(folder: Path, seed: int, count: int, until: float) -> bool:
    """Training, killed at a random call of a named function, and resumed to its end: the same weights."""
    world, recipe = make_world(folder / "world", clips=8, frames=4), folder / "recipe.toml"
    recipe.write_text(RECIPE)
    chance, killed, points, different = Random(seed), 0, Counter[str](), []

    def run(target: Path, signal: Signal | None = None) -> int:
        options = ["--root", world, "-o", target, "--workers", "0", "--set", "train.checkpoint_minutes=1e-9"]
        return centerclip(folder / "output", "train", recipe, *options, signal=signal).code

    def weights(target: Path) -> bytes:
        return (target / "best" / "model.safetensors").read_bytes()

    assert run(folder / "undisturbed") == 0
    number = 0
    while killed < count and time.monotonic() < until:
        target, number = folder / f"run-{number}", number + 1
        for _ in range(3):  # several times in one run
            function = chance.choice(TRAIN_POINTS)
            if run(target, Signal(9, function, chance.randrange(1, 12))) == -9:
                killed += 1
                points[function.rpartition(".")[2]] += 1
        if run(target) != 0 or weights(target) != weights(folder / "undisturbed"):
            different.append(target.name)
    places = ", ".join(f"{point} {times}" for point, times in points.most_common())
    print(f"train: {killed:,} kills ({places}) in {number} runs; {len(different)} ended with other weights {different}")
    return not different


def soak_media(folder: Path, seed: int, count: int, until: float, more: list[Path]) -> bool:
    """Damaged media, of generated files and of yours."""
    files = media.originals(folder / "originals") + [path for path in more if path.stat().st_size < 4_000_000]
    outcome = media.fuzz(files, folder / "damaged", seed, count, until)
    print(f"{outcome} (of {len(files)} files, seed {seed})")
    for fault in outcome.faults:
        name = fault.partition(" ")[0]
        (folder / "damaged" / name).rename(Path(tempfile.gettempdir()) / f"centerclip-fault-{name}")
    return not outcome.faults


def soak_files(folder: Path, seed: int, count: int, until: float) -> bool:
    """Many small files: all are found, and a second run reads none of them."""
    total = min(count, MANY_FILES)
    videos = folder / "videos"
    original = clip(folder / "a.mp4", 1, seconds=1)
    for number in range(total):
        place = videos / f"{number // 1000:03}" / f"{number:06}.mp4"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.hardlink_to(original)
    index = VideoIndex(folder / "index", model=save_model(folder / "model"))
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


def soak_server(folder: Path, seed: int, count: int, until: float) -> bool:
    """A server: hostile requests, then 64 and 256 clients, its memory before and after."""
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
        sound = True
        outcome = requests.attack(address, video_id, seed, count, until)
        print(outcome)
        sound &= not outcome.faults
        for clients in (64, 256):
            seconds = max(5.0, (until - time.monotonic()) / 2)
            requests.load(address, video_id, clients, 5.0)  # until all threads and caches are there
            before = process.memory_info().rss
            outcome, answers = requests.load(address, video_id, clients, seconds)
            after = process.memory_info().rss
            print(
                f"{clients} clients, {seconds:.0f} s: {outcome}; answers to a client {min(answers)} to {max(answers)}; "
                f"memory {before / 2**20:,.0f} MB, afterwards {after / 2**20:,.0f} MB"
            )
            sound &= not outcome.faults and min(answers) > 0 and after < 1.2 * before + 50 * 2**20
            until += seconds / 2
        return sound and "Traceback" not in (folder / "log").read_text()
    finally:
        server.terminate()
        server.wait(60)


def _answers(address: str) -> bool:
    try:
        return httpx.get(f"{address}/healthz").status_code == 200
    except httpx.TransportError:
        return False


PARTS: dict[str, Callable[..., bool]] = {
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
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument(
        "--media", type=Path, action="append", default=[], help="a folder with files to damage copies of"
    )
    given = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    failed = []
    for name in given.parts or PARTS:
        with tempfile.TemporaryDirectory(prefix="centerclip-soak-", ignore_cleanup_errors=True) as folder:
            more = {"more": list(find_videos(*given.media))} if name == "media" else {}
            until = time.monotonic() + 60 * given.minutes
            if not PARTS[name](Path(folder), given.seed, given.count, until, **more):
                failed.append(name)
    print(f"seed {given.seed}: " + (f"faults in {', '.join(failed)}" if failed else "no faults"))
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
