"""What clustering saves, against no clustering in the same run: time by engine and precision, and memory of training.

``encoder_costs`` and ``memory_costs`` measure vision towers of real sizes with random weights (`centerclip bench`),
``measure_costs`` a model that was trained (the tables of `centerclip report`). Settings take turns after a run that
warms up, and medians are compared, because other work on a machine comes and goes.
"""

import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..cluster import Setting, SigmaWarning
from ..errors import SettingError
from ..model import CenterCLIP
from ..model.engine import OnnxEncoder
from ..model.precision import BFLOAT16_FLAGS, drawn_frames, processor_flags

if TYPE_CHECKING:
    from ..model.pipeline import Floats, VideoEncoder

PATCH_SIZES = {"ViT-B/32": 32, "ViT-B/16": 16}
SIZES = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12}
TEXT_SIZES = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 1}
IMAGE_SIZE, VECTOR_WIDTH = 224, 512
# The settings of the paper's tables: tower, frames, clustering.
PAPER = (
    ("ViT-B/32", 12, ("B6-6,49", "B6-4,49", "B6-3,49", "spectral:B6-4,49", "spectral:B6-3,49")),
    ("ViT-B/32", 60, ("B6-15,49", "B6-12,49", "spectral:B6-20,49", "spectral:B6-15,49")),
    ("ViT-B/16", 12, ("B6-4,160", "spectral:B6-4,160")),
    ("ViT-B/16", 60, ("B6-15,160", "spectral:B6-15,160")),
)
MIN_ROUNDS = 7
MIN_SECONDS = 1.0  # a small model takes milliseconds, and a few of those say little
PROC = Path("/proc/self")


@dataclass(frozen=True)
class EncoderCost:
    """One line of the encoder table."""

    tower: str
    frames: int
    clustering: str
    engine: str
    precision: str
    milliseconds: float  # a video
    ratio: float  # how many times as fast as no clustering in float32 on the first engine, in the same run
    cosine: float  # mean, to the vectors in float32 with the same clustering
    share: float  # of the time, in clustering
    giga_multiply_adds: float


def encoder_costs(
    tower: str,
    frames: int,
    settings: Iterable[str],
    *,
    engines: Sequence[str] = ("torch", "onnxruntime"),
    rounds: int = 5,
    device: str = "cpu",
) -> Iterator[EncoderCost]:
    """Time each setting on each engine in each precision that the machine has, and no clustering first.

    Args:
        tower: of ``PATCH_SIZES``.
        frames: of the video.
        settings: in the paper's notation.
        engines: which to time.
        rounds: medians are over as many.
        device: that torch runs on; ONNX Runtime is timed on the processor alone.
    """
    patches = (IMAGE_SIZE // PATCH_SIZES[tower]) ** 2
    wanted = list(dict.fromkeys(["none", *(str(Setting.parse(each)) for each in settings)]))
    sizes = {"blocks": SIZES["num_hidden_layers"], "frames": frames, "patches": patches}
    counted = {name: Setting.parse(name).check(**sizes) for name in wanted}
    rgb = drawn_frames(IMAGE_SIZE, frames)[None]
    with random_model(tower) as folder:
        encoders = _encoders(folder, engines, frames, device)
        runs: dict[tuple[str, int], list[tuple[float, float]]] = {}
        vectors: dict[tuple[str, int], Floats] = {}
        for _ in range(rounds):
            for name in wanted:
                for number, encoder in enumerate(encoders):
                    try:
                        encoder.set_clustering(name, frames=frames)
                    except SettingError:  # ONNX Runtime cannot run it
                        continue
                    _timed(encoder, rgb)
                    vectors[name, number], seconds, clustering = _timed(encoder, rgb)
                    runs.setdefault((name, number), []).append((seconds, clustering))
    vision = SimpleNamespace(num_channels=3, patch_size=PATCH_SIZES[tower], **SIZES)
    none = statistics.median(seconds for seconds, _ in runs["none", 0])
    for number, encoder in enumerate(encoders):
        for name in (name for name in wanted if (name, number) in runs):
            exact = min(other for setting, other in runs if setting == name)  # of each engine, float32 is the first
            seconds, clustering = (statistics.median(column) for column in zip(*runs[name, number], strict=True))
            yield EncoderCost(
                tower,
                frames,
                name,
                encoder.engine,
                encoder.precision,
                1000 * seconds,
                none / seconds,
                float((vectors[name, number] * vectors[name, exact]).sum(axis=-1).mean()),
                clustering / seconds,
                multiply_adds(vision, counted[name], frames, patches) / 1e9,
            )


def _timed(encoder: "VideoEncoder", rgb: Any) -> "tuple[Floats, float, float]":
    """Vectors of a video, the seconds that they took, and those of them that clustering took."""
    stages: Any = getattr(encoder, "attachment", encoder)  # torch's hooks count them, or ONNX Runtime's encoder itself
    stages.synchronise = encoder.on_gpu
    before, start = stages.clustering_seconds, time.perf_counter()
    vectors, _ = encoder.encode_windows(rgb, np.ones(rgb.shape[:2], dtype=bool), half=False)
    return vectors, time.perf_counter() - start, stages.clustering_seconds - before


def _encoders(folder: Path, engines: Sequence[str], frames: int, device: str) -> "list[VideoEncoder]":
    """The same model on each engine in each precision, the first one in float32."""
    encoders: list[VideoEncoder] = []
    if "torch" in engines:
        for precision in ("float32", "bfloat16"):
            if precision == "float32" or device != "cpu" or BFLOAT16_FLAGS & processor_flags():
                encoders.append(CenterCLIP.from_pretrained(folder, frames=frames, device=device, precision=precision))
    if "onnxruntime" in engines and device == "cpu":
        exact = OnnxEncoder(folder, frames=frames, device="cpu", precision="float32")
        encoders += [exact, exact.in_precision("int8")]
    return encoders


def multiply_adds(config: Any, setting: Setting, frames: int, patches: int, prefix: int = 1) -> int:
    """Multiply-adds of a vision tower on one video: patches, blocks and attention; clustering not included."""
    width = config.hidden_size
    inner = getattr(config, "intermediate_size", None) or round(width * config.mlp_ratio)  # DINOv2 has the ratio
    setting = setting.check(blocks=config.num_hidden_layers, frames=frames, patches=patches)
    total = frames * patches * config.num_channels * config.patch_size**2 * width
    sequences, length, seen = frames, patches + prefix, patches + prefix
    stages = {stage.block: number for number, stage in enumerate(setting.stages)}
    for block in range(config.num_hidden_layers + 1):
        if block:
            total += sequences * length * (4 * width * width + 2 * width * inner + 2 * seen * width)
        if block in stages:
            stage = setting.stages[stages[block]]
            sequences, length = stage.segments, stage.k + prefix
            packed = setting.of_stage(stages[block]).follows_content  # all segments of a video in one sequence
            seen = sequences * length if packed else length
    return total


@contextmanager
def random_model(tower: str) -> Iterator[Path]:
    """The folder of a CLIP with a vision tower of a real size, next to no text tower and random weights.

    It, and the cache for what it is converted to, are gone at the end. Nothing is downloaded.
    """
    from safetensors.torch import save_file
    from transformers import CLIPConfig, CLIPModel

    torch.manual_seed(0)
    special = {"vocab_size": 3, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
    config = CLIPConfig(
        vision_config={**SIZES, "image_size": IMAGE_SIZE, "patch_size": PATCH_SIZES[tower]},
        text_config={**TEXT_SIZES, **special, "max_position_embeddings": 8},
        projection_dim=VECTOR_WIDTH,
    )
    before = os.environ.get("CENTERCLIP_CACHE")
    with tempfile.TemporaryDirectory(prefix="centerclip-bench-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch, "random")
        config.save_pretrained(folder)
        save_file(CLIPModel(config).state_dict(), folder / "model.safetensors", metadata={"format": "pt"})
        (folder / "vocab.json").write_text('{"<|startoftext|>": 0, "<|endoftext|>": 1, "a</w>": 2}')
        (folder / "merges.txt").write_text("#version: 0.2\n")
        os.environ["CENTERCLIP_CACHE"] = scratch
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", SigmaWarning)  # random weights need not suit the paper's sigma
                yield folder
        finally:
            del os.environ["CENTERCLIP_CACHE"]
            os.environ |= {} if before is None else {"CENTERCLIP_CACHE": before}


@dataclass(frozen=True)
class MemoryCost:
    """One line of the memory table."""

    tower: str
    frames: int
    clustering: str
    megabytes: float  # saved for the backward pass, a video
    ratio: float  # against no clustering


def memory_costs(tower: str, frames: int, settings: Iterable[str], *, device: str = "cpu") -> list[MemoryCost]:
    """Bytes that autograd keeps for the backward pass of one video, with and without clustering."""
    saved: dict[str, int] = {}
    with random_model(tower) as folder:
        model = CenterCLIP.from_pretrained(folder, frames=frames, device=device, precision="float32")
        for setting in ("none", *settings):
            model.set_clustering(setting)
            saved[setting] = saved_bytes(model.backbone.vision_model, _pixels(model))
    return [MemoryCost(tower, frames, name, each / 2**20, each / saved["none"]) for name, each in saved.items()]


def _pixels(model: CenterCLIP) -> Tensor:
    """One video ``[frames, 3, size, size]`` of a scene that drifts by a few pixels a frame, as the model takes it."""
    rgb = torch.from_numpy(drawn_frames(model.preprocess.size, model.frames))
    return model.preprocess.normalise(rgb.to(model.device))


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


def measure_costs(model: CenterCLIP, *, peak_gb: float | None = None, rounds: int = MIN_ROUNDS) -> Costs:
    """Time and memory of one video; with and without clustering take turns."""
    before, was_training = model.clustering, model.training
    pixels, saved = _pixels(model), {}
    model.eval()
    try:
        for setting in (before, Setting()):
            model.set_clustering(setting)
            saved[setting.method == "none"] = saved_bytes(model.backbone.vision_model, pixels) / 1e6
        seconds, of_none = time_settings(model, [(before, model.frames), ("none", model.frames)], rounds=rounds)
    finally:
        model.set_clustering(before)
        model.train(was_training)
    device = model.device
    return Costs(
        device=torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        encode_ms=1000 * seconds,
        none_encode_ms=1000 * of_none,
        saved_mb=saved[before.method == "none"],
        none_saved_mb=saved[True],
        peak_gb=peak_gb,
    )


def time_settings(
    model: CenterCLIP, settings: Sequence[tuple[str | Setting, int]], *, rounds: int = MIN_ROUNDS
) -> list[float]:
    """Seconds that one video takes with each setting and number of frames, which take turns; the clustering is lost."""
    times: list[list[float]] = [[] for _ in settings]
    began = time.perf_counter()
    while len(times[0]) <= rounds or time.perf_counter() - began < MIN_SECONDS:
        for spent, (setting, frames) in zip(times, settings, strict=True):
            model.set_clustering(setting, frames=frames)
            pixels = _pixels(model)[None]
            with torch.inference_mode():
                start = _now(model.device)
                model.video_features(pixels)
                spent.append(_now(model.device) - start)
    return [statistics.median(spent[1:]) for spent in times]  # the first one warms up


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


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
