"""Which precision a model runs in on this machine: the fastest that stays close to float32, as measured here.

A lower precision is compared with float32 once, when a model is converted, on the processor that will use it: frames of
the film clips that come with CenterCLIP, drawn frames, and sentences. The report is kept beside the model.
"""

import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import bundled
from ..files import find_videos
from ..video import VideoError
from .pipeline import Floats, Ids, Pixels, read_squares

if TYPE_CHECKING:
    from .pipeline import VideoEncoder
    from .preprocess import Preprocess

EXACT = "float32"
# Without clustering: the mean cosine of a frame's or a sentence's vector to the one in float32, at least.
MIN_COSINE = {"bfloat16": 0.999, "int8": 0.99}
# With clustering, where other centres may be kept: the mean rank correlation, at least, of the order in which other
# videos resemble one, and the share of centres, at least, that are the same tokens. The choice is a greedy one and
# follows the smallest differences: bfloat16 keeps about 85 %, int8 70 to 80 % (benchmarks/precision.py prints what that
# costs in recall). Less than half would be another clustering.
MIN_ORDER, MIN_CENTRES = 0.95, 0.5
BFLOAT16_FLAGS = {"avx512_bf16", "amx_bf16", "bf16"}  # without one of them torch is slower in it than in float32
MIN_SPEED = 1.1  # times as fast; less is not worth any difference
WINDOWS, WINDOW_FRAMES, ROUNDS = 12, 4, 3
DRIFT = 61  # pixels that a drawn scene moves, at most
SENTENCES = (
    "a dog",
    "a child blows out the candles of a birthday cake",
    "two men play chess in a park",
    "an aerial view of a city at night",
    "waves break on a beach while a woman walks along the water with her dog",
    "someone pours coffee into a white cup, then stirs it with a spoon",
    "a red car",
    "people dancing at a wedding",
    "snow falls on a mountain road between dark trees",
    "a football player scores a goal and the crowd cheers",
    "a cat sleeps on a keyboard",
    "a man talks to the camera about a computer game",
)


@dataclass(frozen=True)
class Closeness:
    """What a lower precision keeps of float32, and what it saves."""

    precision: str
    cosine: float  # mean over frames, without clustering
    text_cosine: float  # mean over sentences
    order: float  # with clustering: mean rank correlation of the videos' neighbours
    centres: float  # with clustering: the share of centres that float32 keeps too
    speed: float  # frames a second, as a multiple of those in float32
    text_speed: float  # sentences a second, likewise
    processor: str  # that it was measured on

    @property
    def complaint(self) -> str:
        """Why it is not close enough to be used; empty where it is."""
        least = MIN_COSINE[self.precision]
        if not min(self.cosine, self.text_cosine) >= least:  # also where one is not a number
            return f"cosine to float32 {min(self.cosine, self.text_cosine):.4f}, less than {least}"
        if not self.order >= MIN_ORDER:
            return f"the order of similar videos correlates {self.order:.3f} with float32, less than {MIN_ORDER}"
        if not self.centres >= MIN_CENTRES:
            return f"clustering keeps {self.centres:.0%} of the centres of float32, less than {MIN_CENTRES:.0%}"
        return ""


NAMES = {field.name for field in fields(Closeness)}


def read_report(report: Mapping[str, Any], precision: str) -> Closeness | None:
    """What a report says of a precision on this processor; None where it says nothing that can be used."""
    line = report.get(precision)
    if not isinstance(line, dict) or set(line) != NAMES or line["processor"] != processor():
        return None
    numbers = (line[name] for name in NAMES - {"precision", "processor"})
    return Closeness(**line) if all(isinstance(number, float) for number in numbers) else None


def told(report: Mapping[str, Any]) -> list[str]:
    """A sentence for every precision that a report has, for people."""
    return [
        f"{name} on {line['processor']}: {line['speed']:.1f} times as fast as float32, cosine to it "
        f"{line['cosine']:.4f} (sentences {line['text_cosine']:.4f}), with clustering {line['centres']:.0%} of the "
        f"centres the same, order of similar videos {line['order']:.3f}"
        for name, line in report.items()
        if isinstance(line, dict) and set(line) == NAMES
    ]


def choose(report: Mapping[str, Any], precisions: Sequence[str]) -> str:
    """The fastest of the precisions that a report finds close enough to float32 on this processor."""
    best, speed = EXACT, MIN_SPEED
    for precision in precisions:
        closeness = read_report(report, precision)
        if closeness is not None and not closeness.complaint and closeness.speed >= speed:
            best, speed = precision, closeness.speed
    return best


def compatible(first: str, second: str, report: Mapping[str, Any]) -> bool:
    """Whether vectors of two precisions may be compared with each other: each is close enough to float32.

    Args:
        first: a precision, as an index remembers it.
        second: another.
        report: of the model, as its encoder has it.
    """

    def is_close(precision: str) -> bool:
        closeness = read_report(report, precision)
        return precision in (EXACT, "bfloat16", "float16") if closeness is None else not closeness.complaint

    return first == second or (is_close(first) and is_close(second))


def compare(exact: "VideoEncoder", lower: "VideoEncoder", clustering: str) -> Closeness:
    """How close a lower precision is to float32: both encode the same frames and sentences.

    Args:
        exact: the model in float32.
        lower: the same in another precision.
        clustering: that both can run, for windows of ``WINDOW_FRAMES`` frames.
    """
    windows = sample_windows(exact.preprocess)
    mask = np.ones(windows.shape[:2], dtype=bool)

    def encode(setting: str) -> tuple[list[Floats], list[list[Ids]]]:
        vectors, centres = [], []
        for encoder in (exact, lower):
            encoder.set_clustering(setting, frames=WINDOW_FRAMES)
            with encoder.record_centres() as ids:
                vectors.append(encoder.encode_windows(windows, mask)[0])
            centres.append(ids)
        return vectors, centres

    segments, centres = encode(clustering)
    return Closeness(
        precision=lower.precision,
        cosine=_cosine(*encode("none")[0]),
        text_cosine=_cosine(*(encoder.encode_sentences(SENTENCES) for encoder in (exact, lower))),
        order=_order(*(each.mean(axis=1) for each in segments)),
        centres=same_centres(*centres),
        speed=_speed(*(partial(each.encode_windows, windows[:1], mask[:1]) for each in (exact, lower))),
        text_speed=_speed(*(partial(_one_by_one, each) for each in (exact, lower))),
        processor=processor(),
    )


def sample_windows(preprocess: "Preprocess") -> Pixels:
    """Frames to compare on, ``[WINDOWS, WINDOW_FRAMES, size, size, 3]``: of photographs, then drawn ones."""
    windows = _film_windows(preprocess, 0)
    windows += [drawn_frames(preprocess.size, WINDOW_FRAMES, seed) for seed in range(WINDOWS - len(windows))]
    return np.stack(windows)


def calibration_windows(preprocess: "Preprocess") -> Pixels:
    """Frames that decide what is rounded, ``[V, WINDOW_FRAMES, size, size, 3]``: of other clips."""
    return np.stack([*_film_windows(preprocess, 1), drawn_frames(preprocess.size, WINDOW_FRAMES, WINDOWS)])


def _film_windows(preprocess: "Preprocess", first: int) -> list[Pixels]:
    """Frames of some of the bundled clips."""
    windows = []
    for clip in list(find_videos(bundled.FILM))[first::6][: WINDOWS // 2]:
        try:
            windows.append(read_squares(preprocess, clip, WINDOW_FRAMES).rgb)
        except (VideoError, OSError):
            continue
    return windows


def drawn_frames(size: int, count: int, seed: int = 0) -> Pixels:
    """Frames ``[count, size, size, 3]`` of patches of colour that drift, with noise: like photographs, roughly."""
    random = np.random.default_rng(seed)
    side = size + DRIFT
    scene = np.zeros((side, side, 3))
    for cells in (4, 16, 64):  # large shapes are strong, small ones weak
        width = -(-side // cells)
        noise = random.standard_normal((cells, cells, 3)).repeat(width, 0).repeat(width, 1)
        scene += noise[:side, :side] * 200 / cells**0.5
    starts = [(3 * step % DRIFT, 2 * step % DRIFT) for step in range(count)]
    frames = np.stack([scene[top : top + size, left : left + size] for top, left in starts])
    return (frames + 128 + 4 * random.standard_normal(frames.shape)).clip(0, 255).astype(np.uint8)


def _cosine(first: Floats, second: Floats) -> float:
    """The mean cosine of vectors ``[..., D]`` of norm 1."""
    return float((first * second).sum(axis=-1).mean())


def same_centres(first: Sequence[Ids], second: Sequence[Ids]) -> float:
    """The mean share of the ids ``[S, K]`` of a stage that are the same in both; 1 where nothing is clustered."""
    rows = [pair for two in zip(first, second, strict=True) for pair in zip(*two, strict=True)]
    return float(np.mean([len(np.intersect1d(one, other)) / len(one) for one, other in rows])) if rows else 1.0


def _order(first: Floats, second: Floats) -> float:
    """The mean rank correlation of each video's similarities to the others, ``[V, D]`` each."""
    others = ~np.eye(len(first), dtype=bool)
    ranks = []
    for vectors in (first, second):
        similarity = (vectors @ vectors.T)[others].reshape(len(vectors), -1)
        rank = similarity.argsort(axis=1).argsort(axis=1).astype(np.float64)
        rank -= rank.mean(axis=1, keepdims=True)
        ranks.append(rank / np.linalg.norm(rank, axis=1, keepdims=True))
    return float((ranks[0] * ranks[1]).sum(axis=1).mean())


def _one_by_one(encoder: "VideoEncoder") -> None:
    for sentence in SENTENCES:
        encoder.encode_sentences([sentence])


def _speed(exact: Callable[[], object], lower: Callable[[], object]) -> float:
    """How many times as fast the second is: the quickest of a few rounds, in which they take turns."""
    seconds: list[tuple[float, float]] = []
    for _ in range(ROUNDS):
        times = [time.perf_counter()]
        for run in (exact, lower):
            run()
            times.append(time.perf_counter())
        seconds.append((times[1] - times[0], times[2] - times[1]))
    return min(first for first, _ in seconds) / min(second for _, second in seconds)


@lru_cache(maxsize=1)
def processor() -> str:
    """The name of this machine's processor."""
    return _cpuinfo("model name") or platform.processor() or platform.machine()


@lru_cache(maxsize=1)
def processor_flags() -> set[str]:
    """The instructions that this machine's processor has, as far as the system tells: Linux does."""
    return set((_cpuinfo("flags") or _cpuinfo("Features")).split())


def _cpuinfo(key: str) -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(key)), "")
