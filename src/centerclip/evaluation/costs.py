"""What clustering saves in training: memory, and the time of a trained model, against no clustering in the same run.

``memory_costs`` measures vision towers of the real sizes with random weights (`centerclip bench memory`),
``measure_costs`` a model that was trained (the tables of `centerclip report`). Settings take turns, and medians are
compared, because other work on a machine comes and goes. How long encoding takes by engine: :mod:`.speed`.
"""

import statistics
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..cluster import Setting, SigmaWarning
from ..model import CenterCLIP
from ..model.attachment import attach, detach
from ..model.precision import drawn_frames
from ..model.preprocess import Preprocess
from .speed import IMAGE_SIZE, tower_config


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
    return CLIPVisionModel(CLIPVisionConfig(**tower_config(name)["vision_config"])).eval().to(device)


def moving_pixels(frames: int, device: str | torch.device = "cpu", *, size: int = IMAGE_SIZE) -> Tensor:
    """One video ``[frames, 3, size, size]`` of a scene that drifts by a few pixels a frame."""
    return Preprocess(size=size).normalise(torch.from_numpy(drawn_frames(size, frames)).to(device))


def memory_costs(
    tower: str, frames: int, settings: Iterable[str], *, device: str | torch.device = "cpu"
) -> Iterator[MemoryCost]:
    """Bytes that autograd keeps for the backward pass of one video, with and without clustering."""
    model = make_tower(tower, device)
    pixels = moving_pixels(frames, device)
    none = saved_bytes(model, pixels)
    yield MemoryCost(tower, frames, "none", none / 2**20, 1.0)
    for setting in (each for each in settings if each != "none"):
        attach(model, setting, frames=frames)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SigmaWarning)
            saved = saved_bytes(model, pixels)
        detach(model)
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


def _seconds(function: Callable[[Tensor], object], pixels: Tensor) -> float:
    start = _now(pixels.device)
    function(pixels)
    return _now(pixels.device) - start


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
