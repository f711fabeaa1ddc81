"""How long a video takes to encode, by clustering, engine and precision: vision towers of real sizes, random weights.

Every row runs once a round, beside the others, after a run that warms up. Medians are compared, because other work on
a machine comes and goes. Without torch there are the rows of ONNX Runtime.
"""

import importlib.util
import json
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

from ..cluster import Setting, SigmaWarning
from ..errors import SettingError
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


@dataclass(frozen=True)
class EncoderCost:
    """One line of the encoder table."""

    tower: str
    frames: int
    clustering: str
    engine: str
    precision: str
    milliseconds: float  # a video
    ratio: float  # how many times as fast as no clustering in float32, on torch where there is torch, in the same run
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
        engines: which to time; torch is left out where it is not installed.
        rounds: medians are over as many.
        device: that torch runs on; ONNX Runtime is timed on the processor alone.
    """
    config = tower_config(tower)
    patches = (IMAGE_SIZE // PATCH_SIZES[tower]) ** 2
    wanted = list(dict.fromkeys(["none", *(str(Setting.parse(each)) for each in settings)]))
    sizes = {"blocks": config["vision_config"]["num_hidden_layers"], "frames": frames, "patches": patches}
    counted = {name: Setting.parse(name).check(**sizes) for name in wanted}
    rgb = drawn_frames(IMAGE_SIZE, frames)[None]
    with _random_model(config) as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", SigmaWarning)  # random weights need not suit the paper's sigma
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
    vision = SimpleNamespace(num_channels=3, **config["vision_config"])
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
    if "torch" in engines and importlib.util.find_spec("torch"):
        from ..model import CenterCLIP

        for precision in ("float32", "bfloat16"):
            if precision == "float32" or device != "cpu" or BFLOAT16_FLAGS & processor_flags():
                encoders.append(CenterCLIP.from_pretrained(folder, frames=frames, device=device, precision=precision))
    if "onnxruntime" in engines and device == "cpu":
        exact = OnnxEncoder(folder, frames=frames, device="cpu", precision="float32")
        encoders += [exact, exact.in_precision("int8")]
    return encoders


def tower_config(tower: str) -> dict[str, Any]:
    """The ``config.json`` of a CLIP with a vision tower of a real size, and next to no text tower."""
    vision = {**SIZES, "image_size": IMAGE_SIZE, "patch_size": PATCH_SIZES[tower], "model_type": "clip_vision_model"}
    special = {"vocab_size": 3, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
    text = {**TEXT_SIZES, **special, "max_position_embeddings": 8, "model_type": "clip_text_model"}
    return {"model_type": "clip", "projection_dim": VECTOR_WIDTH, "vision_config": vision, "text_config": text}


@contextmanager
def _random_model(config: dict[str, Any]) -> Iterator[Path]:
    """The folder of a model with random weights, and a cache for what it is converted to; both gone at the end."""
    from safetensors.numpy import save_file

    before = os.environ.get("CENTERCLIP_CACHE")
    with tempfile.TemporaryDirectory(prefix="centerclip-bench-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch, "random")
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(config))
        (folder / "vocab.json").write_text(json.dumps({"<|startoftext|>": 0, "<|endoftext|>": 1, "a</w>": 2}))
        (folder / "merges.txt").write_text("#version: 0.2\n")
        save_file(_random_weights(config), folder / "model.safetensors", metadata={"format": "pt"})
        os.environ["CENTERCLIP_CACHE"] = scratch
        try:
            yield folder
        finally:
            if before is None:
                del os.environ["CENTERCLIP_CACHE"]
            else:
                os.environ["CENTERCLIP_CACHE"] = before


def _random_weights(config: dict[str, Any]) -> "dict[str, Floats]":
    """Weights of a CLIP under their usual names, as they are before training."""
    random = np.random.default_rng(0)
    weights: dict[str, Floats] = {"logit_scale": np.array(2.66, dtype=np.float32)}

    def normal(name: str, *shape: int) -> None:
        weights[name] = random.standard_normal(shape, dtype=np.float32) * np.float32(0.02)

    def layer(name: str, outputs: int, inputs: int) -> None:
        normal(f"{name}.weight", outputs, inputs)
        weights[f"{name}.bias"] = np.zeros(outputs, dtype=np.float32)

    def norm(name: str, width: int) -> None:
        weights[f"{name}.weight"] = np.ones(width, dtype=np.float32)
        weights[f"{name}.bias"] = np.zeros(width, dtype=np.float32)

    for part in ("vision", "text"):
        tower, root = config[f"{part}_config"], f"{part}_model"
        width, inner = tower["hidden_size"], tower["intermediate_size"]
        for number in range(tower["num_hidden_layers"]):
            block = f"{root}.encoder.layers.{number}"
            for letter in ("q", "k", "v", "out"):
                layer(f"{block}.self_attn.{letter}_proj", width, width)
            layer(f"{block}.mlp.fc1", inner, width)
            layer(f"{block}.mlp.fc2", width, inner)
            norm(f"{block}.layer_norm1", width)
            norm(f"{block}.layer_norm2", width)
        normal(f"{'visual' if part == 'vision' else 'text'}_projection.weight", config["projection_dim"], width)
    vision, text = config["vision_config"], config["text_config"]
    width, patch = vision["hidden_size"], vision["patch_size"]
    normal("vision_model.embeddings.class_embedding", width)
    normal("vision_model.embeddings.patch_embedding.weight", width, 3, patch, patch)
    normal("vision_model.embeddings.position_embedding.weight", (vision["image_size"] // patch) ** 2 + 1, width)
    norm("vision_model.pre_layrnorm", width)
    norm("vision_model.post_layernorm", width)
    normal("text_model.embeddings.token_embedding.weight", text["vocab_size"], text["hidden_size"])
    normal("text_model.embeddings.position_embedding.weight", text["max_position_embeddings"], text["hidden_size"])
    norm("text_model.final_layer_norm", text["hidden_size"])
    return weights


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
