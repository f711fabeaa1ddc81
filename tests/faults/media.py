"""Damages media files by seed, and passes each through everything that reads media, in a process with limits.

A file may be read or refused with a ``VideoError``. Anything else counts against us: another exception, a crash, more
than ``MAX_SECONDS`` of processor time (not of the clock, which depends on what else the machine does), more memory than
``MAX_BYTES``."""

import multiprocessing
import resource
import shutil
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random

import psutil
from PIL import Image

from tests.search.collection import picture
from tests.video.clips import make_clip

MAX_SECONDS = 20.0  # of processor time, for one file
MAX_WAIT = 240.0  # seconds of the clock: a process that waits for something uses no processor time
MAX_BYTES = 1_500 * 2**20
LEAST_SIZE = 30_000  # bytes; smaller files take no less time
INTEGERS = (0, 1, 2, 7, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 2**63 - 1, 2**64 - 1)


def originals(folder: Path) -> list[Path]:
    """Small files of common kinds."""
    folder.mkdir(parents=True, exist_ok=True)
    made = [make_clip(folder / name, frames=24, g=8) for name in ("a.mp4", "a.mkv", "a.ts", "a.flv")]
    made += [make_clip(folder / "b.avi", codec="mpeg4", frames=24), make_clip(folder / "b.mpg", codec="mpeg2video")]
    made += [make_clip(folder / "c.webm", codec="libvpx-vp9", frames=24, g=8)]
    options = {"movflags": "frag_keyframe+empty_moov"}
    made += [make_clip(folder / "d.mov", frames=24, g=8, muxer_options=options)]
    for name in ("e.jpg", "e.png", "e.webp"):
        Image.fromarray(picture(1)).save(folder / name)
        made.append(folder / name)
    return made


def mutate(content: bytes, chance: Random) -> bytes:
    """Another content: bits flipped, a tail cut off, parts swapped, doubled or lost, integers of headers changed."""
    data = bytearray(content)
    for _ in range(chance.choice((1, 1, 2, 4))):
        size = len(data)
        if not size:
            break
        kind = chance.choice(("bits", "bits", "integer", "integer", "integer", "cut", "swap", "double", "lose"))
        first, length = chance.randrange(size), chance.choice((1, 4, 16, 256, 4096))
        second = chance.randrange(size)
        if kind == "bits":
            for _ in range(chance.choice((1, 8, 64))):
                place = chance.randrange(size)
                data[place : place + 1] = bytes([data[place] ^ 1 << chance.randrange(8)])
        elif kind == "integer":  # headers are at the start, or as MP4's at the end
            place = chance.choice((first, first % 2048, max(0, size - 1 - first % 4096)))
            width, order = chance.choice((1, 2, 4, 8)), chance.choice(("big", "little"))
            value = chance.choice((*INTEGERS, chance.getrandbits(64))) % 256**width
            data[place : place + width] = value.to_bytes(width, order)
        elif kind == "cut":
            del data[first:]
        elif kind == "swap":
            one, other = bytes(data[first : first + length]), bytes(data[second : second + length])
            data[first : first + length], data[second : second + length] = other, one
        elif kind == "double":
            data[first:first] = data[second : second + length]
        else:
            del data[first : first + length]
    return bytes(data)


def use(path: Path, scratch: Path) -> str:
    """Pass a file through all that reads media; what became of it: "read", or the reason of the first refusal."""
    from concurrent.futures import ThreadPoolExecutor

    from centerclip.video import VideoError, probe, read_frames, stream_segments, stream_windows
    from centerclip.video.container import Limits
    from centerclip.video.cut import codec_of, copy_clip, encode_clip, encode_piece, thumbnail
    from centerclip.video.info import timing_of
    from centerclip.video.photo import is_photo, read_photo
    from centerclip.video.sampling import Windows
    from centerclip.video.selection import DETAILS
    from centerclip.video.sound import stream_sound
    from centerclip.video.subtitles import read_lines

    limits = Limits(seconds=MAX_WAIT, pixels=64_000_000, memory=2**29)
    windows = Windows(12, 4, 1.0)

    def delivered(*_: object) -> None:
        pass

    def index(detail: str) -> None:
        with ThreadPoolExecutor(2) as pool:
            stream_segments(path, DETAILS[detail], 12, 3, delivered, short_side=32, limits=limits, pool=pool)

    steps = [
        lambda: probe(path, limits=limits),
        lambda: timing_of(path, limits=limits),
        lambda: read_frames(path, 4, short_side=32, limits=limits),
        lambda: stream_windows(path, windows.times, 12, delivered, short_side=32, limits=limits),
        lambda: index("normal"),
        lambda: index("fast"),
        lambda: [None for _ in stream_sound(path, limits=limits)],
        lambda: encode_piece(path, scratch / "piece.mp4", 0),
        lambda: copy_clip(path, scratch / "clip.mp4", 0.2, 0.6),
        lambda: encode_clip(path, scratch / "encoded.mp4", 0.2, 0.6),
    ]
    if is_photo(path):
        steps = [lambda: read_photo(path, short_side=32, limits=limits)]
    reasons = []
    for step in [*steps, lambda: thumbnail(path, 0.3, 64, limits=limits), lambda: codec_of(path)]:
        try:
            step()
        except VideoError as error:
            reasons.append(error.reason)
    read_lines(path, [], duration=1.0)
    return reasons[0] if reasons else "read"


@dataclass
class Outcome:
    """Counts of a run."""

    files: int = 0
    became: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    slowest: float = 0.0  # seconds of processor time for one file
    memory: int = 0  # most bytes

    def __str__(self) -> str:
        became = ", ".join(f"{reason} {count:,}" for reason, count in self.became.most_common())
        faults = f"{len(self.faults)} faults" + "".join(f"\n  {fault}" for fault in self.faults)
        return (
            f"media: {self.files:,} damaged files: {became}; slowest {self.slowest:.1f} s of processor time, "
            f"most memory {self.memory / 2**20:,.0f} MB; {faults}"
        )


def fuzz(
    files: list[Path],
    folder: Path,
    seed: int,
    count: int,
    until: float = float("inf"),
    outcome: Outcome | None = None,
) -> Outcome:
    """Damage ``count`` files, or until a time of ``time.monotonic``, and use each; faulty ones stay in ``folder``.

    Small files are damaged more often than large ones: as many of each as take about the same time.

    Args:
        files: what to damage copies of.
        folder: for the copies.
        seed: names the damage, together with a number for each file.
        count: files in all, those of ``outcome`` included.
        until: a time of ``time.monotonic``.
        outcome: of an earlier part of the same run, which goes on.
    """
    outcome = outcome or Outcome()
    folder.mkdir(parents=True, exist_ok=True)
    weights = [1 / max(path.stat().st_size, LEAST_SIZE) for path in files]
    worker = _Worker(folder)
    try:
        for number in range(outcome.files, count):
            if time.monotonic() > until:
                break
            chance = Random(f"{seed}-{number}")
            (original,) = chance.choices(files, weights)
            path = folder / f"{seed}-{number}{original.suffix}"
            path.write_bytes(mutate(original.read_bytes(), chance))
            became, seconds, memory = worker.use(path)
            outcome.files += 1
            outcome.slowest, outcome.memory = max(outcome.slowest, seconds), max(outcome.memory, memory)
            if became.startswith("FAULT"):
                outcome.faults.append(f"{path.name} of {original.name}: {became}")
                worker.stop()
                worker = _Worker(folder)
            else:
                outcome.became[became] += 1
                path.unlink()
    finally:
        worker.stop()
    return outcome


class _Worker:
    """A process that uses files, and is watched while it does."""

    def __init__(self, folder: Path) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.scratch = folder / "scratch"
        self.process = context.Process(target=_serve, args=(theirs, self.scratch), daemon=True)
        self.process.start()
        theirs.close()
        self.pipe.recv()  # it has imported what it needs
        self.watched = psutil.Process(self.process.pid)

    def use(self, path: Path) -> tuple[str, float, int]:
        """What became of a file, with the processor time and memory that it took."""
        began, before = time.monotonic(), self._seconds()
        self.pipe.send(path)
        while True:
            try:
                if self.pipe.poll(0.25):
                    became, memory = self.pipe.recv()
                    seconds = self._seconds() - before
                    if memory > MAX_BYTES:
                        became = f"FAULT: {memory / 2**20:,.0f} MB of memory ({became})"
                    elif seconds > MAX_SECONDS:
                        became = f"FAULT: {seconds:.0f} s ({became})"
                    return became, seconds, memory
            except (EOFError, ConnectionError):
                self.process.join()
                return f"FAULT: the process ended with {self.process.exitcode}", 0.0, 0
            seconds = self._seconds() - before
            if seconds > MAX_SECONDS or time.monotonic() - began > MAX_WAIT:
                return f"FAULT: still busy after {seconds:.0f} s of processor time", seconds, 0

    def _seconds(self) -> float:
        times = self.watched.cpu_times()
        return times.user + times.system

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()
        shutil.rmtree(self.scratch, ignore_errors=True)


def _serve(pipe: Connection, scratch: Path) -> None:
    """Use files until the pipe closes; memory is what the process has taken beyond what it started with."""
    scratch.mkdir(exist_ok=True)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (8 * 2**30, 8 * 2**30))
    import centerclip.video.reader  # noqa: F401 - what takes time, before the clock starts

    pipe.send("ready")
    while True:
        try:
            path = pipe.recv()
        except EOFError:
            return
        try:
            became = use(path, scratch)
        except BaseException as error:
            became = f"FAULT: {type(error).__name__}: {error} in {_where(error)}"
        pipe.send((became, _peak_memory()))


def _peak_memory() -> int:
    """Bytes. Not ``ru_maxrss``: on Linux a process begins with that of the process that started it."""
    with suppress(OSError), Path("/proc/self/status").open(encoding="ascii") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _where(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace else "?"
