"""Go on from the bundled model: its 8-bit weights in float32 again, as ``text.py`` and ``vision.py`` start from them.

    python recipes/small/restore.py WORK [--model FOLDER]

Writes ``WORK/text-0`` and ``WORK/vision-0``. WORK holds photos/, init/ and the teacher's vectors and the tokens of
``train-0``, as far as the cache has come: the space in which both towers were trained is found again from them, as the
rotation of the teacher's main components that fits the model's own vectors best. What training leaves as it is (word
embeddings, the lower halves of both towers) stays that of init/.
"""

import argparse
from pathlib import Path

import numpy as np
import onnx
import torch
from cache import LOWER
from onnx import numpy_helper
from text import Texts
from vectors import Space
from vision import PATCHES, Upper

from centerclip.bundled import SMALL, resolve_model

TEXT_FROZEN = 3  # layers of the text tower that no step of run.sh trains
FEW = 32  # files of tokens that the space is found from


def weights(path: Path) -> dict[str, np.ndarray]:
    """The float32 matrices [in, out] and vectors of a graph, by the names they have in the Hugging Face folder."""
    graph = onnx.load(str(path)).graph
    kept = {item.name: numpy_helper.to_array(item) for item in graph.initializer}
    out: dict[str, np.ndarray] = {}
    for name, array in kept.items():
        if not name.endswith("/q"):
            out[name] = array
            continue
        scale = kept[f"{name[:-2]}/s"]
        if array.dtype == np.uint8:  # MatMulNBits: [out, blocks, 32] around 128, a scale for each block
            out[name[:-2]] = ((array.astype(np.float32) - 128) * scale[..., None]).reshape(len(array), -1).T
        else:
            out[name[:-2]] = array.astype(np.float32) * scale
    for name in list(out):  # matrices that stand side by side: a.b.query+key+value.weight
        stem, _, kind = name.rpartition(".")
        parent, _, joined = stem.rpartition(".")
        if "+" in joined:
            both = joined.split("+")
            pieces = np.split(out.pop(name), len(both), axis=-1)
            out |= {f"{parent}.{part}.{kind}": piece for part, piece in zip(both, pieces, strict=True)}
    return out


def fill(module: torch.nn.Module, found: dict[str, np.ndarray], prefix: str) -> None:
    """Put weights into a module; matrices of a graph stand the other way round. All but layer scales must be there."""
    for name, tensor in module.state_dict().items():
        if "layer_scale" in name:
            continue  # part of the matrix before it: see unscaled
        array = torch.from_numpy(np.array(found[f"{prefix}{name}"]))
        tensor.copy_(array.T if array.dim() == 2 else array)


def unscaled(upper: Upper) -> None:
    """Take the layer scales of init/ out of the matrices that a conversion multiplied them into."""
    for block in upper.blocks:
        for scale, dense in ((block.layer_scale1, block.attention.output.dense), (block.layer_scale2, block.mlp.fc2)):
            dense.weight /= scale.lambda1[:, None]
            dense.bias /= scale.lambda1


def rotated(space: Space, teacher: np.ndarray, own: np.ndarray) -> Space:
    """The space turned so that the teacher's vectors lie as near as can be to the model's own."""
    left, _, right = np.linalg.svd(space(teacher).T @ own)
    return Space(space.mean, (space.basis @ (left @ right)).astype(np.float32))


@torch.no_grad()
def main() -> None:
    """Write both folders."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--model", type=Path, default=resolve_model(SMALL))
    args = parser.parse_args()
    found = weights(args.model / "vision-int8.onnx")
    width = found["visual_projection.weight"].shape[1]
    upper = Upper(args.work / "init", width).eval()
    for place, block in enumerate(upper.blocks):
        fill(block, found, f"vision_model.encoder.layer.{LOWER + place}.")
    fill(upper.norm, found, "vision_model.layernorm.")
    fill(upper.projection, found, "visual_projection.")
    unscaled(upper)
    rows, targets = [], []
    for path in sorted((args.work / "tokens/train-0").glob("*.npy"))[:FEW]:
        tokens = torch.from_numpy(np.load(path).astype(np.float32))
        targets.append(np.load(args.work / "teacher/train-0" / path.name).astype(np.float32))
        sizes = torch.full((len(tokens), tokens.shape[1] - 1), PATCHES / (tokens.shape[1] - 1))
        rows.append(upper(tokens, sizes).numpy())
    own, teacher = np.concatenate(rows), np.concatenate(targets)
    space = rotated(Space.fit(teacher, width), teacher, own)
    print(f"{len(own)} views, cosine to the teacher {(space(teacher) * own).sum(1).mean():.4f}")

    texts, found = Texts(args.work / "init", width), weights(args.model / "text-int8.onnx")
    for place, layer in enumerate(texts.tower.encoder.layer):
        if place >= TEXT_FROZEN:
            fill(layer, found, f"text_model.encoder.layer.{place}.")
    fill(texts.tower.pooler, found, "text_model.pooler.")
    fill(texts.projection, found, "text_projection.")
    for folder in ("text-0", "vision-0"):
        (args.work / folder).mkdir(exist_ok=True)
    space.save(args.work / "text-0/space.npz")
    torch.save({"model": texts.state_dict(), "scale": float(np.log(60)), "step": 0}, args.work / "text-0/best.pt")
    mean = {f"module.{name}": tensor for name, tensor in upper.state_dict().items()}
    torch.save({"mean": mean}, args.work / "vision-0/checkpoint.pt")


if __name__ == "__main__":
    main()
