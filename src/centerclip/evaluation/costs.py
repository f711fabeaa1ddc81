"""What clustering saves: time, arithmetic and training memory, each against no clustering in the same run.

``encoder_costs`` and ``memory_costs`` measure vision towers of the real sizes with random weights (`centerclip bench`),
``measure_costs`` a model that was trained (the tables of `centerclip report`). Settings take turns, and medians are
compared, because other work on a machine comes and goes.
"""

import statistics
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..cluster import Clusters, Setting, SigmaWarning
from ..cluster.segments import METHODS, Chooser, chooser_for
from ..model import CenterCLIP
from ..model.attachment import attach, detach, token_layout

PATCH_SIZES = {"ViT-B/32": 32, "ViT-B/16": 16}
# Methods that choose by the tokens alone, so that choosing can be timed, or left out, apart from the blocks.
SEPARABLE = tuple(name for name in METHODS if name != "attention")
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
    speedup: float  # against no clustering, in the same run
    limit: float  # the speed-up if choosing tokens took no time
    share: float  # of the time, in choosing tokens
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
        image_size=224, patch_size=PATCH_SIZES[name],
    )  # fmt: skip
    return CLIPVisionModel(config).eval().to(device)


def moving_pixels(frames: int, device: str | torch.device = "cpu", *, size: int = 224) -> Tensor:
    """One video ``[frames, 3, size, size]``: a blurred image that drifts by a few pixels a frame."""
    generator = torch.Generator().manual_seed(0)
    coarse = torch.randn(1, 3, 40, 40, generator=generator)
    scene = torch.nn.functional.interpolate(coarse, size + 76, mode="bicubic")[0]
    shifts = [(3 * frame % 70, 2 * frame % 70) for frame in range(frames)]
    video = torch.stack([scene[:, top : top + size, left : left + size] for top, left in shifts])
    return (video + 0.1 * torch.randn(video.shape, generator=generator)).to(device)


def encoder_costs(
    tower: str, frames: int, settings: Iterable[str], *, rounds: int = 5, device: str | torch.device = "cpu"
) -> Iterator[EncoderCost]:
    """Time each setting against no clustering: every one once a round, medians over the rounds."""
    model = make_tower(tower, device)
    pixels = moving_pixels(frames, device)
    patches, _ = token_layout(model)
    sizes = {"blocks": model.config.num_hidden_layers, "frames": frames, "patches": patches}
    parsed = [setting.check(**sizes) for setting in map(Setting.parse, settings) if setting.method != "none"]
    choosing: dict[str, list[float]] = {str(setting): [] for setting in parsed}
    runs: dict[str, Callable[[], float]] = {"none": lambda: _seconds(model, pixels)}
    for setting in parsed:
        runs[str(setting)] = _clustered(model, pixels, setting, choosing[str(setting)])
        if setting.method in SEPARABLE:
            runs[f"free {setting}"] = _without_choosing(model, pixels, setting)
    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("ignore", SigmaWarning)  # random weights need not suit the paper's sigma
        times = _medians(runs, rounds)
    none = times["none"]
    count = multiply_adds(model.config, Setting.parse("none"), frames, patches)
    yield EncoderCost(tower, frames, "none", none, 1.0, 1.0, 0.0, count / 1e9)
    for setting in parsed:
        seconds = times[str(setting)]
        share = statistics.median(choosing[str(setting)][1:]) / seconds  # the first run warms up
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
        with _attached(model, Setting.parse(setting), frames), warnings.catch_warnings():
            warnings.simplefilter("ignore", SigmaWarning)
            saved = saved_bytes(model, pixels)
        yield MemoryCost(tower, frames, setting, saved / 2**20, saved / none)


def saved_bytes(model: Any, pixels: Tensor) -> int:
    """What a forward pass keeps for the backward pass, without the weights; each storage counted once."""
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    saved: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor.detach()  # an output that its own operation keeps would never be freed

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = model(pixels).pooler_output  # alive until counted, so no storage is reused
    del output
    return sum(saved.values())


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


MIN_ROUNDS = 7
MIN_SECONDS = 1.0  # a small model takes milliseconds, and a few of those say little


@dataclass(frozen=True)
class Costs:
    """Measured on one machine; ``none`` is the same model without clustering."""

    device: str  # "cpu", or the name of the GPU
    encode_ms: float  # a video of float pixels, one at a time
    none_encode_ms: float
    saved_mb: float  # what one video keeps for the backward pass
    none_saved_mb: float
    # The most memory in use during training: of the GPU, or resident on a CPU; None where it was not measured.
    peak_gb: float | None = None

    def to_json(self) -> dict[str, Any]:
        """For ``costs.json``."""
        return asdict(self)


def measure_costs(model: CenterCLIP, *, peak_gb: float | None = None, rounds: int = MIN_ROUNDS) -> Costs:
    """Time and memory of one video; with and without clustering take turns."""
    device, before = model.device, model.clustering
    pixels = moving_pixels(model.frames, device, size=model.preprocess.size)[None]
    settings: dict[str, str | Setting] = {"clustered": before, "none": "none"}
    times: dict[str, list[float]] = {name: [] for name in settings}
    saved: dict[str, float] = {}
    was_training = model.training
    model.eval()
    try:
        for name, setting in settings.items():
            model.set_clustering(setting)
            saved[name] = saved_bytes(model.backbone.vision_model, pixels[0]) / 1e6
        began = time.perf_counter()
        while len(times["none"]) <= rounds or time.perf_counter() - began < MIN_SECONDS:
            for name, setting in settings.items():
                model.set_clustering(setting)
                with torch.inference_mode():
                    times[name].append(_seconds(model.video_features, pixels))
    finally:
        model.set_clustering(before)
        model.train(was_training)
    return Costs(
        device=torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        encode_ms=1000 * statistics.median(times["clustered"][1:]),  # the first one warms up
        none_encode_ms=1000 * statistics.median(times["none"][1:]),
        saved_mb=saved["clustered"],
        none_saved_mb=saved["none"],
        peak_gb=peak_gb,
    )


PROC = Path("/proc/self")


class PeakMemory:
    """The most memory in use while the block runs: of the GPU, or resident on a CPU.

    Attributes:
        gb: known after the block. None where it cannot be measured: on a CPU only Linux keeps a peak that can be reset,
            and the one that ``getrusage`` has elsewhere is of the whole life of the process.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.gb: float | None = None
        self._measured = True

    def __enter__(self) -> "PeakMemory":
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        else:
            try:
                (PROC / "clear_refs").write_text("5")  # makes VmHWM the memory in use now; see proc(5)
            except OSError:
                self._measured = False
        return self

    def __exit__(self, *_error: object) -> None:
        if self.device.type == "cuda":
            self.gb = torch.cuda.max_memory_allocated(self.device) / 1e9
        elif self._measured:
            status = dict(line.split(":", 1) for line in (PROC / "status").read_text().splitlines())
            self.gb = int(status["VmHWM"].split()[0]) * 1024 / 1e9


@contextmanager
def _attached(model: Any, setting: Setting, frames: int, chooser: Chooser | None = None) -> Iterator[None]:
    """Clustering for the length of a block."""
    attach(model, setting, frames=frames, chooser=chooser)
    try:
        yield
    finally:
        detach(model)


def _clustered(model: Any, pixels: Tensor, setting: Setting, choosing: list[float]) -> Callable[[], float]:
    """A timed run with a setting; it also adds the seconds that choosing tokens took to ``choosing``."""
    chooser: Chooser | None = None
    if setting.method in SEPARABLE:
        merged = len(pixels) // setting.stages[0].segments
        choose = chooser_for(setting.method, setting.options, merged, token_layout(model)[0], False, None)

        def timed(tokens: Tensor, k: int) -> Tensor | Clusters:
            start = _now(tokens.device)
            clusters = choose(tokens, k)
            choosing[-1] += _now(tokens.device) - start
            return clusters

        chooser = timed

    def run() -> float:
        choosing.append(0.0)
        with _attached(model, setting, len(pixels), chooser):
            return _seconds(model, pixels)

    return run


def _without_choosing(model: Any, pixels: Tensor, setting: Setting) -> Callable[[], float]:
    """A timed run with ids that cost nothing: the limit that the remaining arithmetic sets."""

    def first_tokens(tokens: Tensor, k: int) -> Clusters:
        order = torch.arange(tokens.shape[1], device=tokens.device).expand(len(tokens), -1)
        return Clusters(order[:, :k], order % k)

    def run() -> float:
        with _attached(model, setting, len(pixels), first_tokens):
            return _seconds(model, pixels)

    return run


def _medians(runs: dict[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """Seconds of each, after one round that warms up."""
    times = [{name: run() for name, run in runs.items()} for _ in range(1 + rounds)]
    return {name: statistics.median(each[name] for each in times[1:]) for name in runs}


def _seconds(function: Callable[[Tensor], object], pixels: Tensor) -> float:
    start = _now(pixels.device)
    function(pixels)
    return _now(pixels.device) - start


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
