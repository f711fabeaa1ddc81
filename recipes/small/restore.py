"""Go on from the bundled model: its 8-bit weights in float32 again, as ``text.py`` and ``vision.py`` start from them.

    python recipes/small/restore.py WORK [--model FOLDER]

Writes ``WORK/init-restored``, for ``--init``, and ``WORK/text-0``, for ``--text`` and ``--start``. WORK holds init/ and
what the cache has written of the teacher's vectors and the tokens: the space in which both towers were trained is found
again from them, as the rotation of the teacher's main components that fits the model's own vectors best. What training
leaves as it is (word embeddings, the lower halves of both towers) stays that of init/.
"""

import argparse
import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import torch
from cache import LOWER
from onnx import numpy_helper
from safetensors.numpy import load_file, save_file
from text import Texts
from vectors import Space
from vision import PATCHES, Upper

from centerclip.bundled import SMALL, resolve_model

TEXT_FROZEN = 3  # layers of the text tower that no step of run.sh trains
FILES = 32  # of tokens, that the space is found from


def weights(path: Path) -> dict[str, np.ndarray]:
    """The float32 matrices [out, in] and vectors of a graph, by the names they have in the Hugging Face folder."""
    graph = onnx.load(str(path)).graph
    kept = {item.name: numpy_helper.to_array(item) for item in graph.initializer}
    out: dict[str, np.ndarray] = {}
    for name, array in kept.items():
        if name.endswith("/q"):
            scale, name = kept[f"{name[:-2]}/s"], name[:-2]
            if array.dtype == np.uint8:  # MatMulNBits: [out, blocks, 32] around 128, a scale for each block
                array = ((array.astype(np.float32) - 128) * scale[..., None]).reshape(len(array), -1)
            else:
                array = (array.astype(np.float32) * scale).T
        elif array.ndim == 2 and name.endswith(".weight"):
            array = array.T
        stem, _, kind = name.rpartition(".")
        parent, _, joined = stem.rpartition(".")
        both = joined.split("+")  # matrices that stand side by side: a.query+key+value.weight
        if len(both) == 1:
            out[name] = array
        else:
            pieces = np.split(array, len(both))
            out |= {f"{parent}.{part}.{kind}": piece for part, piece in zip(both, pieces, strict=True)}
    return out


def restored(init: dict[str, np.ndarray], vision: Path, text: Path) -> dict[str, np.ndarray]:
    """The weights of a folder with those in their places that were trained."""
    found, state = weights(vision) | weights(text), dict(init)
    frozen = [f"vision_model.encoder.layer.{place}." for place in range(LOWER)]
    frozen += [f"text_model.encoder.layer.{place}." for place in range(TEXT_FROZEN)]
    for name, array in init.items():
        if name not in found or "embeddings" in name or name.startswith(tuple(frozen)):
            continue
        scale = None  # of DINOv2's layers: a conversion multiplied it into the matrix in front
        for number, dense in ((1, "attention.output.dense."), (2, "mlp.fc2.")):
            if dense in name and name.startswith("vision_model."):
                scale = init[f"{name.split(dense)[0]}layer_scale{number}.lambda1"]
        if scale is not None:
            found[name] = found[name] / (scale[:, None] if found[name].ndim == 2 else scale)
        assert found[name].shape == array.shape, name
        state[name] = np.ascontiguousarray(found[name], np.float32)
    return state


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
    start, text = args.work / "init-restored", args.work / "text-0"
    shutil.copytree(args.work / "init", start, dirs_exist_ok=True)
    state = restored(
        load_file(args.work / "init/model.safetensors"),
        args.model / "vision-int8.onnx",
        args.model / "text-int8.onnx",
    )
    save_file(state, start / "model.safetensors", metadata={"format": "pt"})
    width = json.loads((start / "config.json").read_text())["projection_dim"]
    upper, own, teacher = Upper(start, width).eval(), [], []
    paths = sorted(args.work.glob("tokens/*-[0-9]/*.npy"))
    taught = [path for path in paths if (args.work / "teacher" / path.parent.name / path.name).exists()]
    for path in taught[:FILES]:
        tokens = torch.from_numpy(np.load(path).astype(np.float32))
        sizes = torch.full((len(tokens), tokens.shape[1] - 1), PATCHES / (tokens.shape[1] - 1))
        own.append(upper(tokens, sizes).numpy())
        teacher.append(np.load(args.work / "teacher" / path.parent.name / path.name).astype(np.float32))
    ours, theirs = np.concatenate(own), np.concatenate(teacher)
    space = rotated(Space.fit(theirs, width), theirs, ours)
    print(f"{len(ours)} views, cosine to the teacher {(space(theirs) * ours).sum(1).mean():.4f}")
    text.mkdir(exist_ok=True)
    space.save(text / "space.npz")
    torch.save({"model": Texts(start, width).state_dict(), "scale": float(np.log(60)), "step": 0}, text / "best.pt")


if __name__ == "__main__":
    main()
