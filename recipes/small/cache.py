"""What does not change in training, computed once for every view; resumable, two files for each 256 views.

    python recipes/small/cache.py WORK [--sets val-whole train-0] [--worker 0 --workers 2]

``teacher/SET/00000.npy``: vectors of CLIP's ViT-B/16 image tower for the clean view, float16 [256, 512].
``tokens/SET/00000.npy``: what the frozen lower half of the student makes of the degraded view, float16 [256, 1 + 128,
384]: the class token and a random half of the patch tokens. Sets for evaluation are neither degraded nor halved.
Each worker takes every n-th file that is still missing; one process a core is faster than threads.
"""

import argparse
import random
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic
from parts import IMAGENET_MEAN, IMAGENET_STD, SIZE
from photos import CHUNK, ORDER, Photos, View, degrade, pixels
from safetensors.numpy import load_file

CLIP_MEAN, CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
BATCH = 4  # beyond it the time for a picture rises again
LOWER = 6  # blocks that stay as they are; an index clusters after them
HALF = 128  # patch tokens that are kept of 256
TOKENS_OF_VAL = 768  # photographs on which runs are compared


def lower_half(work: Path) -> None:
    """Cut the lower blocks out of DINOv2's ONNX file, with our positions for 224 px, and store them in int8."""
    whole = onnx.shape_inference.infer_shapes(onnx.load(str(work / "dinov2.onnx")))
    cut = onnx.utils.Extractor(whole).extract_model(
        ["input", "/Cast_output_0"], [f"/blocks.{LOWER - 1}/Add_1_output_0"]
    )
    positions = load_file(work / "init/model.safetensors")["vision_model.embeddings.position_embeddings"]
    del cut.graph.input[1]
    cut.graph.initializer.append(numpy_helper.from_array(positions, "/Cast_output_0"))
    onnx.save(cut, str(work / "lower.onnx"))
    options = {"weight_type": QuantType.QInt8, "per_channel": True, "op_types_to_quantize": ["MatMul"]}
    quantize_dynamic(work / "lower.onnx", work / "lower.partial", **options, extra_options={"MatMulConstBOnly": True})
    (work / "lower.partial").rename(work / "lower.int8.onnx")


class Cache:
    """The two towers and the folders that they fill."""

    def __init__(self, work: Path) -> None:
        self.work, self.photos = work, Photos(work / "photos")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.teacher, self.lower = (
            onnxruntime.InferenceSession(str(work / name), options, providers=["CPUExecutionProvider"])
            for name in ("teacher.onnx", "lower.int8.onnx")
        )

    def fill(self, name: str, chunk: int, views: list[View], *, taught: bool = True) -> None:
        """Compute and write what is missing of a chunk of a set."""
        if taught:
            self._write(self.work / "teacher" / name / f"{chunk:05}.npy", views, self._teacher)
        if name[-1].isdigit():
            rng = random.Random(f"{name} {chunk}")
            self._write(self.work / "tokens" / name / f"{chunk:05}.npy", views, lambda part: self._halved(part, rng))
        elif name in ("val-whole", "flickr-val-whole") and chunk * CHUNK < TOKENS_OF_VAL:
            self._write(self.work / "tokens" / name / f"{chunk:05}.npy", views, self._all_tokens)

    def _write(self, path: Path, views: list[View], encode) -> None:  # type: ignore[no-untyped-def]
        if path.exists():
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = np.concatenate([encode(views[start : start + BATCH]) for start in range(0, len(views), BATCH)])
        with path.with_suffix(".partial").open("wb") as file:
            np.save(file, rows.astype(np.float16))
        path.with_suffix(".partial").rename(path)
        print(path, flush=True)

    def _teacher(self, views: list[View]) -> np.ndarray:
        pictures = [view.open(self.photos.root) for view in views]
        vectors = self.teacher.run(["image_embeds"], {"pixel_values": pixels(pictures, SIZE, CLIP_MEAN, CLIP_STD)})[0]
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    def _all_tokens(self, views: list[View]) -> np.ndarray:
        pictures = [view.open(self.photos.root) for view in views]
        return self.lower.run(None, {"input": pixels(pictures, SIZE, IMAGENET_MEAN, IMAGENET_STD)})[0]

    def _halved(self, views: list[View], rng: random.Random) -> np.ndarray:
        pictures = [degrade(view.open(self.photos.root), SIZE, rng) for view in views]
        tokens = self.lower.run(None, {"input": pixels(pictures, SIZE, IMAGENET_MEAN, IMAGENET_STD)})[0]
        kept = np.array([[0, *rng.sample(range(1, tokens.shape[1]), HALF)] for _ in views])
        return np.take_along_axis(tokens, kept[..., None], axis=1)


def main() -> None:
    """Write the files that are missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--sets", nargs="*", help="only these, such as train-0; all by default")
    parser.add_argument("--files", type=int, help="at most so many files of 256 views in a set")
    parser.add_argument("--tokens-only", action="store_true", help="no teacher's vectors: enough for the text tower")
    parser.add_argument("--worker", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    if not (args.work / "lower.int8.onnx").exists():
        lower_half(args.work)
    cache = Cache(args.work)
    for name, files in ORDER:
        if args.sets and name not in args.sets:
            continue
        views = cache.photos.views(name)
        most = min(files or -(-len(views) // CHUNK), args.files or len(views))
        for chunk in range(args.worker, most, args.workers):
            part = views[chunk * CHUNK : (chunk + 1) * CHUNK]
            cache.fill(name, chunk, part, taught=not args.tokens_only)


if __name__ == "__main__":
    main()
