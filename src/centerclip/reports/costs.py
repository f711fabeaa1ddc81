"""What a row costs: memory in training and time to encode a video, each beside no clustering in the same run."""

import statistics
import threading
import time
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any

import torch

from ..cluster import Setting
from ..model import CenterCLIP
from ..model.measure import moving_pixels, saved_bytes

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
    began = _now(model.device)
    model.video_features(pixels)
    return _now(model.device) - began


def _now(device: torch.device) -> float:
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
