"""What indexing costs and what its details find: fast, normal and fine, on films of several kinds.

    python benchmarks/indexing.py speed                       # ViT-B/32's sizes, random weights; makes its films
    python benchmarks/indexing.py speed --quick               # short films of 640 x 360
    python benchmarks/indexing.py speed --media CLIPS         # also H.264 clips of a folder joined without encoding
    python benchmarks/indexing.py memory
    python benchmarks/indexing.py recall MODEL film           # the bundled clips of real pictures
    python benchmarks/indexing.py recall demo minivtt DATA/minivtt
    python benchmarks/indexing.py recall MODEL captions captions.csv          # columns: file, caption
    python benchmarks/indexing.py recall MODEL joined captions.csv            # the same clips as one film
    python benchmarks/indexing.py still MODEL film            # also: captions captions.csv

``speed`` indexes each film with each detail, beside two other ways: a plain loop that decodes everything and encodes a
frame a second, and reading the keyframes alone, which nothing can beat. "decode" and "encode" are processor seconds for
a minute of video, which a machine with other work to do prolongs little; "wait" is the share of the time in which the
model has nothing to encode. Goals, on the film with cuts: normal at least 8 times and fast at least 15 times as quick
as fine; fast within twice the larger of reading keyframes and encoding; and fine, divided over the cores, at least 1.25
times as quick as read by one thread.

``recall`` asks for every sentence: whether the first hit is right (R@1), and where in the right video: R@1 at overlaps
(IoU) of 0.3 and 0.5, and the median error of the start. Differences from fine are paired, with 95 % intervals.

``still`` makes a scene of every clip that stands still for 30 seconds but for noise, and indexes these scenes twice:
as they are indexed, where frames that show the same are encoded once, and with every frame encoded. It prints how many
frames were encoded and whether searches find the same.
"""

import argparse
import csv
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest import mock

import av
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from centerclip import VideoIndex
from centerclip.data.minivtt import read_events
from centerclip.evaluation.costs import random_model
from centerclip.files import find_videos
from centerclip.model.engine import OnnxEncoder
from centerclip.model.pipeline import Bools, Floats, Pixels
from centerclip.parallel import usable_cores
from centerclip.search import IndexReport
from centerclip.search.indexer import Indexer
from centerclip.search.query import Query, open_model
from centerclip.search.sqlite import SqliteStore
from centerclip.search.store import File
from centerclip.video import Limits, VideoError, read_times
from centerclip.video.container import DEFAULT_LIMITS, open_source
from centerclip.video.frames import FrameConverter
from centerclip.video.sampling import ORDER, Windows

RATE = 30
SHOTS = (2.0, 8.0)  # seconds of a shot, from and to
PATIENT = Limits(seconds=24 * 3600.0)  # the machine may have other work to do
out = Console(width=140)


# ---- films --------------------------------------------------------------------------------------------------------


def make_film(path: Path, size: tuple[int, int], seconds: float, codec: str, *, seed: int = 0, **options: str) -> None:
    """Encode shots of a camera that pans over textures, with grain, at the bit rate of web video (1080p: 3 Mbit/s)."""
    width, height = size
    random = np.random.default_rng(seed)
    grain = random.integers(0, 8, (5, height, width), dtype=np.uint8)
    settings = {"preset": "veryfast" if codec == "libx264" else "ultrafast"} | options
    if codec == "libx265":
        settings["x265-params"] = f"log-level=none:{settings.pop('x265')}"
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream(codec, rate=RATE, options=settings)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.bit_rate = round(3e6 * width * height / (1920 * 1080))
        left, scene, colour = 0.0, grain[0], grain[0]
        for number in range(round(seconds * RATE)):
            if left <= 0:
                left = random.uniform(*SHOTS)
                cell = int(random.choice([4, 8, 24, 60]))
                coarse = random.integers(10, 230, (height // cell + 1, 2 * width // cell + 1), dtype=np.uint8)
                scene = np.kron(coarse, np.ones((cell, cell), np.uint8))[:height, : 2 * width]
                colour = np.broadcast_to(
                    random.integers(60, 200, (height // 2, 1), dtype=np.uint8), (height // 2, width)
                )
            left -= 1 / RATE
            shift = number * 3 % width
            light = scene[:, shift : shift + width] + grain[number % len(grain)]
            frame = av.VideoFrame.from_ndarray(np.concatenate([light, colour]), format="yuv420p")
            frame.pts, frame.time_base = number, Fraction(1, RATE)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


def make_clips(folder: Path, count: int, seconds: float) -> None:
    """Short clips: every tenth is encoded, the others are the same under another title."""
    folder.mkdir()
    for number in range(count):
        target = folder / f"{number:03}.mp4"
        if number % 10 == 0:
            source = target
            make_film(target, (640, 360), seconds, "libx264", seed=number)
            continue
        with av.open(str(source)) as clip, av.open(str(target), "w") as copy:
            copy.metadata["title"] = "x" * number
            stream = copy.add_stream_from_template(clip.streams.video[0])
            for packet in clip.demux(video=0):
                if packet.dts is not None:
                    packet.stream = stream
                    copy.mux(packet)


def join_whole(clips: Sequence[Path], film: Path) -> dict[str, tuple[float, float]]:
    """Join clips, and leave out those that cannot be decoded from their own keyframes on inside the film."""
    while True:
        places = join(clips, film)
        broken = {
            name
            for name, (start, end) in places.items()
            if read_times(film, np.arange(start + 0.05, end, 0.5).tolist(), short_side=32, limits=PATIENT).note
        }
        if not broken:
            return places
        out.print(f"left out of the film: {', '.join(sorted(broken))}")
        clips = [clip for clip in clips if clip.name in places.keys() - broken]


def join(clips: Sequence[Path], film: Path) -> dict[str, tuple[float, float]]:
    """Join H.264 clips of any size without encoding them; where each of them is, in seconds, by its name.

    Where sizes differ, frames are scaled to that of the first clip, as any player does.
    """
    places: dict[str, tuple[float, float]] = {}
    tick, offset = Fraction(1, 90_000), 0
    with av.open(str(film), "w", format="mpegts") as container:
        stream = None
        for clip in clips:
            with av.open(str(clip)) as source:
                video: Any = source.streams.video[0]
                packets: list[Any] = [packet for packet in source.demux(video) if packet.size]
                timed = all(packet.pts is not None and packet.dts is not None for packet in packets)
                if video.codec_context.name != "h264" or not timed:
                    continue
                stream = stream or container.add_stream_from_template(video)
                annex_b = av.bitstream.BitStreamFilterContext("h264_mp4toannexb", video)
                first = min(packet.pts for packet in packets)
                earliest = min(packet.dts for packet in packets)
                unit = video.time_base / tick
                end = 0
                packet: Any
                for packet in [each for raw in packets for each in annex_b.filter(raw)]:
                    packet.pts = offset + round((packet.pts - earliest) * unit)
                    packet.dts = offset + round((packet.dts - earliest) * unit)
                    end = max(end, packet.pts + round((packet.duration or 0) * unit))
                    packet.time_base, packet.stream = tick, stream
                    container.mux(packet)
                begin = offset + round((first - earliest) * unit)
                places[clip.name] = float(begin * tick), float(end * tick)
                offset = end
    start = min(begin for begin, _ in places.values())
    return {name: (begin - start, end - start) for name, (begin, end) in places.items()}


# ---- speed --------------------------------------------------------------------------------------------------------


class TimedModel:
    """A model that counts the seconds it takes; with ``idle`` it takes none, and its vectors mean nothing."""

    def __init__(self, model: OnnxEncoder, *, idle: bool = False) -> None:
        self.model, self.idle, self.seconds = model, idle, 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def encode_windows(self, rgb: Pixels, mask: Bools, *, half: bool = True) -> tuple[Floats, Bools]:
        """Vectors ``[V, S, D]``."""
        if self.idle:
            vectors = self.nothing(len(rgb), self.segments)
            return vectors, np.ones(vectors.shape[:2], dtype=bool)
        with self.timed():
            return self.model.encode_windows(rgb, mask, half=half)

    def encode_segments(self, rgb: Pixels, lengths: Sequence[int], *, half: bool = True) -> Floats | None:
        """Vectors ``[S, D]``."""
        if self.idle:
            return self.nothing(len(lengths))
        with self.timed():
            return self.model.encode_segments(rgb, lengths, half=half)

    def nothing(self, *shape: int) -> Floats:
        """Vectors that mean nothing."""
        return np.full((*shape, self.width), self.width**-0.5, dtype=np.float32)

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Counts the seconds inside a ``with`` block."""
        began = time.perf_counter()
        yield
        self.seconds += time.perf_counter() - began


def index_files(model: Any, files: Sequence[Path], detail: str) -> tuple[float, IndexReport]:
    """Seconds to index files into a new store, hashing and commits included."""
    found = [File(str(path), path.stat().st_size, path.stat().st_mtime_ns, "") for path in files]
    with tempfile.TemporaryDirectory() as place:
        store = SqliteStore(Path(place), model.width)
        store.view()
        report, began = IndexReport(), time.perf_counter()
        windows = Windows(model.frames, model.segments, 1.0)
        Indexer(store, model, windows, detail=detail, may_be_copies=()).run(found, report)
        seconds = time.perf_counter() - began
    if report.failed or report.added != len(files):
        raise SystemExit(f"not indexed: {report.failed}")
    return seconds, report


def plain_loop(model: Any, files: Sequence[Path]) -> float:
    """Seconds to decode every frame and encode one a second, one thing after the other."""
    began = time.perf_counter()
    for path in files:
        window: list[Pixels] = []
        with open_source(path, DEFAULT_LIMITS) as source:
            convert, taken = FrameConverter(source, model.preprocess.read_size), -1.0
            for frame in source.container.decode(source.stream):
                if frame.time is not None and frame.time >= taken + 1:
                    taken = frame.time
                    window.append(convert(frame))
                if len(window) == model.frames:
                    encode_plainly(model, window)
                    window = []
        if window:
            encode_plainly(model, window + window[-1:] * (model.frames - len(window)))
    return time.perf_counter() - began


def encode_plainly(model: Any, window: Sequence[Pixels]) -> None:
    model.encode_windows(model.preprocess.to_square(np.stack(window))[None], np.ones((1, model.frames), dtype=bool))


def read_keyframes(model: Any, files: Sequence[Path]) -> float:
    """Seconds to read the keyframes alone, at the size of the model."""
    began = time.perf_counter()
    for path in files:
        with open_source(path, DEFAULT_LIMITS) as source:
            convert = FrameConverter(source, model.preprocess.read_size)
            source.stream.codec_context.skip_frame = "NONKEY"
            for frame in source.container.decode(source.stream):
                convert(frame)
    return time.perf_counter() - began


def speed(arguments: argparse.Namespace) -> None:
    """Print a table of all films and details."""
    sizes = {"quick": (640, 360), "full": (1920, 1080)}["quick" if arguments.quick else "full"]
    seconds = arguments.seconds or (40 if arguments.quick else 180)
    gop: Any = {"sc_threshold": "0"}
    with tempfile.TemporaryDirectory() as scratch, opened(arguments) as model:
        folder = Path(scratch)
        films = {
            "cuts, keyint 250": lambda path: make_film(path, sizes, seconds, "libx264", g="250"),
            "keyframe every 1 s": lambda path: make_film(
                path, sizes, seconds, "libx264", g="30", keyint_min="30", **gop
            ),
            "keyframe every 10 s": lambda path: make_film(path, sizes, seconds, "libx264", g="300", **gop),
            "H.265": lambda path: make_film(path, sizes, seconds, "libx265", x265="keyint=250"),
            "phone, 4K": lambda path: make_film(
                path, (2 * sizes[0], 2 * sizes[1]), seconds / 6, "libx264", g="30", keyint_min="30", bf="0", **gop
            ),
        }
        table = Table(
            "film", "length", "detail", "hours an hour", "decode", "encode", "wait", "x fine", "x plain", "x keyframes"
        )
        for name, make in films.items():
            if arguments.film in (None, name):
                make(folder / "film.mp4")
                add_rows(table, name, model, [folder / "film.mp4"], arguments)
        if arguments.film in (None, "short clips"):
            make_clips(folder / "clips", 20 if arguments.quick else 200, 6)
            add_rows(table, "short clips", model, sorted((folder / "clips").iterdir()), arguments)
        if arguments.media is not None and arguments.film in (None, "joined"):
            join_whole(list(find_videos(arguments.media)), folder / "joined.ts")
            add_rows(table, "joined clips", model, [folder / "joined.ts"], arguments)
        table.title = f"{arguments.model or 'random ViT-B/32'}, {model.precision}, {usable_cores()} cores"
    out.print(table)


def add_rows(table: Table, film: str, model: OnnxEncoder, files: Sequence[Path], arguments: argparse.Namespace) -> None:
    """Measure every way to index a film, in turn, and keep the best run of each."""
    # Seconds in all, while the model works; processor seconds of decoding alone, in all.
    ways: dict[str, list[tuple[float, float, float, float]]] = {}
    length = 0.0
    for _ in range(arguments.repeats):
        for detail in (*ORDER, "fine, one thread"):
            timed, idle = TimedModel(model), TimedModel(model, idle=True)
            whole = mock.patch("centerclip.video.reader._parts", return_value=[])
            with whole if detail.endswith("thread") else mock.MagicMock():
                began = time.process_time()
                index_files(idle, files, detail.split(",")[0])
                decode, began = time.process_time() - began, time.process_time()
                seconds, report = index_files(timed, files, detail.split(",")[0])
            length = report.video_seconds
            ways.setdefault(detail, []).append((seconds, timed.seconds, decode, time.process_time() - began))
        ways.setdefault("plain loop", []).append((plain_loop(model, files), 0.0, 0.0, 0.0))
        ways.setdefault("keyframes alone", []).append((read_keyframes(model, files), 0.0, 0.0, 0.0))
    best = {way: min(runs) for way, runs in ways.items()}
    for way, (seconds, encode, decoded, processor) in best.items():
        minute = 60 / length
        shares = f"{minute * decoded:.2f} s", f"{minute * (processor - decoded):.2f} s", f"{1 - encode / seconds:.0%}"
        table.add_row(
            film, f"{length:.0f} s", way, f"{length / seconds:.1f}",
            *(share if way.startswith(ORDER) else "" for share in shares),
            *(f"{best[other][0] / seconds:.2f}" for other in ("fine", "plain loop", "keyframes alone")),
        )  # fmt: skip
    fine, fast, limit = best["fine"][0], best["fast"], max(best["keyframes alone"][0], best["fast"][1])
    out.print(
        f"{film}: normal {fine / best['normal'][0]:.1f} times as quick as fine (goal on the film with cuts: 8), fast "
        f"{fine / fast[0]:.1f} times (15); fast takes {fast[0] / limit:.2f} times the larger of keyframes and encoding "
        f"(at most 2); fine {best['fine, one thread'][0] / fine:.2f} times as quick as with one thread (1.25)"
    )


@contextmanager
def opened(arguments: argparse.Namespace) -> Iterator[OnnxEncoder]:
    """The model: one that is named, or one of ViT-B/32's sizes with random weights."""
    if arguments.model is not None:
        yield open_model(arguments.model, None, None)  # type: ignore[misc]
        return
    with random_model("ViT-B/32") as folder:
        yield OnnxEncoder(
            folder, clustering="kmedoids[proportional]:B6-4,1/3", frames=12, precision=arguments.precision
        )


def memory(arguments: argparse.Namespace) -> None:
    """Print the peak memory after a few clips, after many, and after a film of ten minutes."""
    with tempfile.TemporaryDirectory() as scratch, opened(arguments) as model:
        folder = Path(scratch)
        make_clips(folder / "clips", 20, 6)
        clips = sorted((folder / "clips").iterdir())
        make_film(folder / "film.mp4", (640, 360), 600, "libx264", g="250")
        for detail in ORDER:
            marks = []
            for files in (clips[:5], clips, [folder / "film.mp4"]):
                index_files(TimedModel(model, idle=True), files, detail)
                marks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
            after = ", ".join(f"{mark:.0f} MB" for mark in marks)
            out.print(f"{detail}: {after} after 5 clips, after 20, and after a film of ten minutes")


# ---- recall -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sentence:
    """What is asked for, and where it is: in which file, and from when to when, if that is known."""

    text: str
    video: str
    start: float = 0.0
    end: float = 0.0


def read_sentences(kind: str, source: Path | None, folder: Path) -> tuple[Path, list[Sentence]]:
    """The folder of videos and the sentences about them."""
    if kind == "film":
        from centerclip.bundled import film_clips

        home = film_clips()
        with (home / "clips.csv").open(encoding="utf-8", newline="") as rows:
            sentences = [
                Sentence(row["query"], row["clip"], float(row["start"]), float(row["end"]))
                for row in csv.DictReader(rows)
                if row["query"]
            ]
        return home, sentences
    if source is None:
        raise SystemExit(f"recall {kind} needs a file or folder")
    if kind == "minivtt":
        events = read_events(source)
        test = [clip for clip in events.values() if clip.split == "test"]
        paths = {path.stem: path for path in find_videos(source)}
        for clip in test:
            shutil.copy(paths[clip.video], folder / f"{clip.video}.mp4")
        return folder, [
            Sentence(event.caption, f"{clip.video}.mp4", event.start, event.end)
            for clip in test
            if len(clip.events) > 1
            for event in clip.events
        ]
    with source.open(encoding="utf-8", newline="") as rows:
        captions = {row["file"]: row["caption"] for row in csv.DictReader(rows)}
    if kind == "captions":
        for file in captions:
            (folder / Path(file).name).symlink_to((source.parent / file).resolve())
        return folder, [Sentence(caption, Path(file).name) for file, caption in captions.items()]
    places = join_whole([source.parent / file for file in captions], folder / "film.ts")
    names = {Path(file).name: caption for file, caption in captions.items()}
    return folder, [Sentence(names[name], "film.ts", *span) for name, span in places.items()]


def ask(index: VideoIndex, sentences: Sequence[Sentence], *, joined: bool) -> dict[str, NDArray]:
    """For each sentence: whether the first hit is right, the overlap with its place, and the error of the start."""
    vectors = index.encode_texts([sentence.text for sentence in sentences])
    ids = {entry.path.name: entry.video_id for entry in index.videos()}
    right, overlap, error = [], [], []
    for sentence, vector in zip(sentences, vectors, strict=True):
        query = Query(vector, has_text=True)
        first = index.search(query=query, where="video", top=1, collapse=False)[0]
        (here,) = index.search(query=query, where="video", top=1, name=sentence.video, collapse=False)
        assert here.video_id == ids[sentence.video]
        middle = (first.start + first.end) / 2
        right.append(sentence.start <= middle < sentence.end if joined else first.video_id == ids[sentence.video])
        shared = min(here.end, sentence.end) - max(here.start, sentence.start)
        total = max(here.end, sentence.end) - min(here.start, sentence.start)
        overlap.append(max(0.0, shared) / max(total, 1e-9))
        error.append(abs(here.start - sentence.start))
    return {"R@1": np.array(right, float), "overlap": np.array(overlap), "error": np.array(error)}


def recall(arguments: argparse.Namespace) -> None:
    """Print what each detail finds."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "videos"
        folder.mkdir()
        videos, sentences = read_sentences(arguments.kind, arguments.source, folder)
        has_times = any(sentence.end for sentence in sentences)
        found = {}
        for detail in reversed(ORDER):
            index = VideoIndex(Path(scratch) / detail, model=arguments.model)
            report = index.add(videos, detail=detail, only="videos")
            if report.failed:
                out.print(f"unreadable: {report.failed}")
            known = {entry.path.name for entry in index.videos()}
            asked = [sentence for sentence in sentences if sentence.video in known]
            found[detail] = ask(index, asked, joined=arguments.kind == "joined") | {
                "segments": np.array(report.segments)
            }
    random = np.random.default_rng(0)
    count = len(found["fine"]["R@1"])
    draws = random.integers(0, count, (2000, count))
    columns = ["detail", "segments", "R@1", "against fine"]
    if has_times:
        columns += ["IoU 0.3", "against fine", "IoU 0.5", "against fine", "start error, median"]
    table = Table(*columns, title=f"{arguments.model}, {arguments.kind}: {count} sentences")
    for detail, rows in found.items():
        cells = [detail, f"{int(rows['segments']):,}"]
        measures = [(lambda each: each["R@1"])]
        if has_times:
            measures += [lambda each: each["overlap"] >= 0.3, lambda each: each["overlap"] >= 0.5]
        for measure in measures:
            mine, fine = measure(rows).astype(float), measure(found["fine"]).astype(float)
            low, high = np.quantile((mine - fine)[draws].mean(axis=1), [0.025, 0.975])
            lost, won = int(((fine > 0) & (mine == 0)).sum()), int(((fine == 0) & (mine > 0)).sum())
            cells += [f"{100 * mine.mean():.1f}", f"-{lost} +{won} [{100 * low:+.1f}, {100 * high:+.1f}]"]
        if has_times:
            cells.append(f"{statistics.median(rows['error'].tolist()):.2f} s")
        table.add_row(*cells)
    out.print(table)


IS_STILL = "centerclip.video.selection.is_still"
STILL_SECONDS, STILL_NOISE = 30, 2  # of a scene, and grey levels by which its pixels differ from frame to frame


def make_still(source: Path, target: Path, time: float) -> None:
    """Encode the frame of a clip at a time as a scene that stands still, with the noise of a camera."""
    frame = read_times(source, [time]).rgb[0]
    frame = frame[: len(frame) // 2 * 2, : frame.shape[1] // 2 * 2].astype(np.int16)
    random = np.random.default_rng(0)
    with av.open(str(target), "w") as container:
        stream: Any = container.add_stream("libx264", rate=5, options={"g": "25"})
        (stream.height, stream.width), stream.pix_fmt = frame.shape[:2], "yuv420p"
        for _ in range(5 * STILL_SECONDS):
            noisy = frame + random.integers(-STILL_NOISE, STILL_NOISE + 1, frame.shape)
            picture = av.VideoFrame.from_ndarray(noisy.clip(0, 255).astype(np.uint8), format="rgb24")
            container.mux(stream.encode(picture))
        container.mux(stream.encode(None))


def still(arguments: argparse.Namespace) -> None:
    """Print what it saves and what it changes to encode still scenes once."""
    with tempfile.TemporaryDirectory() as scratch:
        folder, scenes = Path(scratch) / "videos", Path(scratch) / "scenes"
        folder.mkdir()
        scenes.mkdir()
        videos, sentences = read_sentences(arguments.kind, arguments.source, folder)
        asked = []
        for number, sentence in enumerate(sentences):
            name = f"{number:03}.mp4"
            middle = (sentence.start + sentence.end) / 2
            try:
                make_still(videos / sentence.video, scenes / name, middle)
            except VideoError as error:
                out.print(f"left out: {error}")
                continue
            asked.append(Sentence(sentence.text, name))
        table = Table(
            "detail", "frames encoded", "of", "R@1", "R@1 of all frames", "other first hits", "score, at most"
        )
        open_model(arguments.model, None, None)  # where precisions are compared first, their frames do not count
        ways: list[Any] = [nullcontext(), mock.patch(IS_STILL, return_value=False)]
        for detail in ORDER:
            found = []
            for place, patched in enumerate(ways):
                index = VideoIndex(Path(scratch) / f"{detail}-{place}", model=arguments.model)
                with patched, count_frames() as frames:
                    index.add(scenes, detail=detail)
                vectors = index.encode_texts([sentence.text for sentence in asked])
                first = [
                    index.search(query=Query(vector, has_text=True), where="video", top=1, collapse=False)[0]
                    for vector in vectors
                ]
                found.append((sum(frames), first))
            (once, mine), (whole, all_frames) = found
            right = [[hit.path.name == each.video for hit, each in zip(hits, asked, strict=True)] for _, hits in found]
            table.add_row(
                detail, f"{once:,}", f"{whole:,}",
                *(f"{100 * statistics.mean(each):.1f}" for each in right),
                str(sum(a.path != b.path for a, b in zip(mine, all_frames, strict=True))),
                f"{max(abs(a.score - b.score) for a, b in zip(mine, all_frames, strict=True)):.4f}",
            )  # fmt: skip
        table.title = f"{arguments.model}, {len(asked)} scenes that stand still for {STILL_SECONDS} s"
    out.print(table)


@contextmanager
def count_frames() -> Iterator[list[int]]:
    """Collects how many frames went through the first part of the tower, run by run."""
    counts: list[int] = []
    run, encode = OnnxEncoder._run, OnnxEncoder.encode_segments

    def counted(self: OnnxEncoder, session: Any, repeats: Any, **inputs: Any) -> Any:
        if "rgb" in inputs:
            counts.append(int((~repeats).sum()))
        return run(self, session, repeats, **inputs)

    def of_segments(self: OnnxEncoder, rgb: Pixels, *others: Any, **options: Any) -> Any:
        counts.append(len(rgb))
        return encode(self, rgb, *others, **options)

    with mock.patch.multiple(OnnxEncoder, _run=counted, encode_segments=of_segments):
        yield counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(required=True)
    fast = commands.add_parser("speed")
    fast.add_argument("--film", help="this one alone")
    fast.add_argument("--media", type=Path, help="a folder of clips to be joined into one more film")
    fast.add_argument("--seconds", type=float, help="length of the films")
    fast.add_argument("--repeats", type=int, default=2)
    size = commands.add_parser("memory")
    for each in (fast, size):
        each.add_argument("--quick", action="store_true")
        each.add_argument("--precision", default="auto", help="of the random weights: auto, float32 or int8")
        each.add_argument("--model", help="a name, folder or file; random weights by default")
    fast.set_defaults(run=speed)
    size.set_defaults(run=memory)
    find = commands.add_parser("recall")
    find.add_argument("model")
    find.add_argument("kind", choices=["film", "minivtt", "captions", "joined"])
    find.add_argument("source", type=Path, nargs="?")
    find.set_defaults(run=recall)
    scenes = commands.add_parser("still")
    scenes.add_argument("model")
    scenes.add_argument("kind", choices=["film", "captions"])
    scenes.add_argument("source", type=Path, nargs="?")
    scenes.set_defaults(run=still)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
