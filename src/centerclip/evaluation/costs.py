"""What clustering saves: time, arithmetic and training memory, each beside no clustering in the same run."""

import statistics
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from ..cluster import Clusters, Setting, SigmaWarning
from ..cluster.segments import METHODS, Chooser, chooser_for
from ..model import CenterCLIP
from ..model.attachment import attach, detach, token_layout

SIZES = {"ViT-B/32": 32, "ViT-B/16": 16}
CHOOSING = tuple(name for name in METHODS if name != "attention")  # by the tokens alone, so that it can be timed
# The settings of the paper's tables: tower, frames, clustering.
PAPER = (
    ("ViT-B/32", 12, ("B6-6,49", "B6-4,49", "B6-3,49", "spectral:B6-4,49", "spectral:B6-3,49")),
    ("ViT-B/32", 60, ("B6-15,49", "B6-12,49", "spectral:B6-20,49", "spectral:B6-15,49")),
    ("ViT-B/16", 12, ("B6-4,160", "spectral:B6-4,160")),
    ("ViT-B/16", 60, ("B6-15,160", "spectral:B6-15,160")),
)


@dataclass(frozen=True)
class EncoderCost:
    """One line of the encoder table."""

    tower: str
    frames: int
    clustering: str
    seconds: float  # a video
    speedup: float  # against no clustering, same run
    limit: float  # the speed-up if the ids were given for free
    share: float  # of the time that goes into clustering
    giga_multiply_adds: float


@dataclass(frozen=True)
class MemoryCost:
    """One line of the memory table."""

    tower: str
    frames: int
    clustering: str
    megabytes: float  # saved for the backward pass, a video
    ratio: float  # against no clustering


def make_tower(name: str, device: str | torch.device = "cpu") -> Any:
    """A CLIP vision tower of a real size with random weights: nothing is downloaded."""
    from transformers import CLIPVisionConfig, CLIPVisionModel

    torch.manual_seed(0)
    config = CLIPVisionConfig(
        hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12,
        image_size=224, patch_size=SIZES[name],
    )  # fmt: skip
    return CLIPVisionModel(config).eval().to(device)


def moving_pixels(frames: int, device: str | torch.device = "cpu", *, size: int = 224) -> Tensor:
    """One video ``[frames, 3, size, size]``: a soft picture that drifts by a few pixels a frame."""
    generator = torch.Generator().manual_seed(0)
    coarse = torch.randn(1, 3, 40, 40, generator=generator)
    scene = torch.nn.functional.interpolate(coarse, size + 76, mode="bicubic")[0]
    shifts = [(3 * frame % 70, 2 * frame % 70) for frame in range(frames)]
    video = torch.stack([scene[:, top : top + size, left : left + size] for top, left in shifts])
    return (video + 0.1 * torch.randn(video.shape, generator=generator)).to(device)


def encoder_costs(
    tower: str, frames: int, settings: Iterable[str], *, rounds: int = 5, device: str | torch.device = "cpu"
) -> Iterator[EncoderCost]:
    """Time each setting against no clustering: every form once a round, medians over the rounds."""
    model = make_tower(tower, device)
    pixels = moving_pixels(frames, device)
    patches, _ = token_layout(model)
    parsed = [setting for setting in map(Setting.parse, settings) if setting.method != "none"]
    inside: dict[str, list[float]] = {str(setting): [] for setting in parsed}
    forms: dict[str, Callable[[], float]] = {"none": lambda: _timed(model, pixels)}
    for setting in parsed:
        forms[str(setting)] = _clustered(model, pixels, setting, inside[str(setting)])
        if setting.method in CHOOSING:
            forms[f"free {setting}"] = _for_free(model, pixels, setting)
    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("ignore", SigmaWarning)  # random weights need not suit the paper's sigma
        times = _race(forms, rounds, inside)
    none = times["none"]
    count = multiply_adds(model.config, Setting.parse("none"), frames, patches)
    yield EncoderCost(tower, frames, "none", none, 1.0, 1.0, 0.0, count / 1e9)
    for setting in parsed:
        seconds, share = times[str(setting)], statistics.median(inside[str(setting)]) / times[str(setting)]
        count = multiply_adds(model.config, setting, frames, patches)
        limit = none / times.get(f"free {setting}", seconds)
        yield EncoderCost(tower, frames, str(setting), seconds, none / seconds, limit, share, count / 1e9)


def memory_costs(
    tower: str, frames: int, settings: Iterable[str], *, device: str | torch.device = "cpu"
) -> Iterator[MemoryCost]:
    """Bytes that autograd keeps for the backward pass of one video, with and without clustering."""
    model = make_tower(tower, device)
    pixels = moving_pixels(frames, device)
    none = saved_bytes(model, pixels)
    yield MemoryCost(tower, frames, "none", none / 2**20, 1.0)
    for setting in (each for each in settings if each != "none"):
        with attached(model, Setting.parse(setting), frames), warnings.catch_warnings():
            warnings.simplefilter("ignore", SigmaWarning)
            saved = saved_bytes(model, pixels)
        yield MemoryCost(tower, frames, setting, saved / 2**20, saved / none)


def saved_bytes(model: Any, pixels: Tensor) -> int:
    """What a forward pass keeps for the backward pass, without the weights; each storage counted once."""
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    seen: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            seen[storage.data_ptr()] = storage.nbytes()
        return tensor.detach()  # an output that its own operation keeps would never be freed

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        kept = model(pixels).pooler_output  # alive until counted, so no storage is reused
    del kept
    return sum(seen.values())


def multiply_adds(config: Any, setting: Setting, frames: int, patches: int, prefix: int = 1) -> int:
    """Multiply-adds of a vision tower on one video: patches, blocks and attention; clustering not included."""
    width, inner = config.hidden_size, config.intermediate_size
    total = frames * patches * config.num_channels * config.patch_size**2 * width
    sequences, length = frames, patches + prefix
    stages = {stage.block: stage for stage in setting.stages}
    for block in range(1, config.num_hidden_layers + 1):
        per_token = 4 * width * width + 2 * width * inner
        total += sequences * (length * per_token + 2 * length * length * width)
        if block in stages:
            sequences, length = stages[block].segments, stages[block].k + prefix
    return total


@contextmanager
def attached(model: Any, setting: Setting, frames: int, chooser: Any = None) -> Iterator[None]:
    """Clustering for the length of a block."""
    attach(model, setting, frames=frames, chooser=chooser)
    try:
        yield
    finally:
        detach(model)


def _race(forms: dict[str, Callable[[], float]], rounds: int, inside: dict[str, list[float]]) -> dict[str, float]:
    for form in forms.values():  # warm up
        form()
    for values in inside.values():
        values.clear()
    times: dict[str, list[float]] = {name: [] for name in forms}
    for _ in range(rounds):
        for name, form in forms.items():
            times[name].append(form())
    return {name: statistics.median(values) for name, values in times.items()}


def _timed(model: Any, pixels: Tensor) -> float:
    start = _now(pixels)
    model(pixels)
    return _now(pixels) - start


def _clustered(model: Any, pixels: Tensor, setting: Setting, inside: list[float]) -> Callable[[], float]:
    """Runs with a setting, and notes how long the choice of tokens itself took."""
    spent = [0.0]
    chooser: Chooser | None = None
    if setting.method in CHOOSING:
        merged = len(pixels) // setting.stages[0].segments
        choose = chooser_for(setting.method, setting.options, merged, token_layout(model)[0], False, None)

        def watched(tokens: Tensor, k: int) -> Tensor | Clusters:
            start = _now(tokens)
            found = choose(tokens, k)
            spent[0] += _now(tokens) - start
            return found

        chooser = watched

    def run() -> float:
        spent[0] = 0.0
        with attached(model, setting, len(pixels), chooser):
            taken = _timed(model, pixels)
        inside.append(spent[0])
        return taken

    return run


def _for_free(model: Any, pixels: Tensor, setting: Setting) -> Callable[[], float]:
    """Runs with ids that cost nothing: the limit that the remaining arithmetic sets."""

    def given(tokens: Tensor, k: int) -> Clusters:
        order = torch.arange(tokens.shape[1], device=tokens.device).expand(len(tokens), -1)
        return Clusters(order[:, :k], order % k)

    def run() -> float:
        with attached(model, setting, len(pixels), given):
            return _timed(model, pixels)

    return run


def _now(tensor: Tensor) -> float:
    if tensor.device.type == "cuda":
        torch.cuda.synchronize(tensor.device)
    return time.perf_counter()


ROUNDS = 7  # at the least
SECONDS = 1.0  # at the least: a small model takes milliseconds, and a few of those say little
SAMPLE_SECONDS = 0.2


@dataclass(frozen=True)
class Costs:
    """Measured on one machine; ``none`` is the same model without clustering."""

    device: str  # "cpu", or the name of the GPU
    encode_ms: float  # a video of float pixels, one at a time
    none_encode_ms: float
    saved_mb: float  # what one video keeps for the backward pass
    none_saved_mb: float
    peak_gb: float | None = None  # of training: GPU memory on a GPU, resident memory of the process on a CPU

    def to_json(self) -> dict[str, Any]:
        """For ``costs.json``."""
        return asdict(self)


def measure_costs(model: CenterCLIP, *, peak_gb: float | None = None, rounds: int = ROUNDS) -> Costs:
    """Time and memory of one video; with and without clustering take turns."""
    device, before = model.device, model.clustering
    pixels = moving_pixels(model.frames, device, size=model.preprocess.size)[None]
    times: dict[str, list[float]] = {"own": [], "none": []}
    saved: dict[str, float] = {}
    settings: dict[str, str | Setting] = {"own": before, "none": "none"}
    was_training = model.training
    model.eval()
    try:
        for name, setting in settings.items():
            model.set_clustering(setting)
            saved[name] = saved_bytes(model.backbone.vision_model, pixels[0]) / 1e6
        began = time.perf_counter()
        turn = 0
        while turn <= rounds or time.perf_counter() - began < SECONDS:
            for name, setting in settings.items():
                model.set_clustering(setting)
                taken = _encode(model, pixels)
                if turn:  # the first one warms up
                    times[name].append(taken)
            turn += 1
    finally:
        model.set_clustering(before)
        model.train(was_training)
    return Costs(
        device=torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        encode_ms=1000 * statistics.median(times["own"]),
        none_encode_ms=1000 * statistics.median(times["none"]),
        saved_mb=saved["own"],
        none_saved_mb=saved["none"],
        peak_gb=peak_gb,
    )


@torch.inference_mode()
def _encode(model: CenterCLIP, pixels: torch.Tensor) -> float:
    began = _device_now(model.device)
    model.video_features(pixels)
    return _device_now(model.device) - began


def _device_now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


class PeakMemory:
    """The most memory in use while the block runs: of the GPU, or resident on a CPU; ``.gb`` afterwards."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.gb = 0.0
        self._stop = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "PeakMemory":
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        else:
            self._watcher.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.device.type == "cuda":
            self.gb = torch.cuda.max_memory_allocated(self.device) / 1e9
        else:
            self._stop.set()
            self._watcher.join()

    def _watch(self) -> None:
        import psutil

        process = psutil.Process()
        while True:
            self.gb = max(self.gb, process.memory_info().rss / 1e9)
            if self._stop.wait(SAMPLE_SECONDS):
                return
