"""The paper's methods on MiniVTT, each trained the same way from the same start: recall, encoding time, memory.

    python benchmarks/minivtt.py --root DATA/minivtt --start runs/minivtt-stills/best

Runs are kept in --output and not repeated; a stopped one goes on. A table can be printed again from the logs alone.
"""

import argparse
import json
import statistics
import time
import warnings
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from centerclip import CenterCLIP
from centerclip.cluster import SigmaWarning
from centerclip.data import Benchmark, load
from centerclip.distributed import Processes
from centerclip.evaluation import Evaluation, evaluate
from centerclip.model.measure import saved_bytes
from centerclip.training.folder import finished, open_run
from centerclip.training.loop import BEST, Splits, train
from centerclip.training.recipe import Recipe, read_recipe

METHODS = {
    "none": "no clustering (CLIP4clip, meanP)",
    "B3-4,36": "k-medoids++",
    "spectral:B3-4,36": "spectral",
    "pooling:B3-4,36": "pooling",
    "sampling:B3-4,36": "token sampling",
    "token-shift": "token shift",
    "temporal-shift": "temporal shift",
}
THREE_SEEDS = ("none", "B3-4,36", "spectral:B3-4,36")
RECIPE = Path(__file__).parents[1] / "recipes" / "minivtt" / "comparison.toml"
CPU = Processes(0, 1, torch.device("cpu"))
ROUNDS = 15


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True, help="a folder that `centerclip data make minivtt` made")
    parser.add_argument("--start", default="runs/minivtt-stills/best", help="the model that all start from")
    parser.add_argument("--output", type=Path, default=Path("runs/minivtt-comparison"))
    parser.add_argument("--methods", nargs="*", default=list(METHODS), help="only these")
    given = parser.parse_args()
    warnings.simplefilter("ignore", SigmaWarning)  # sigma 2 is the paper's; where it is too small the median is used
    splits = {name: load("folder", given.root, name) for name in ("train", "val", "test")}
    results: dict[str, list[Evaluation]] = {}
    for seed in (42, 43, 44):  # a seed of all methods before the next, so that a stopped comparison is fair
        for method in given.methods:
            if seed == 42 or method in THREE_SEEDS:
                results.setdefault(method, []).append(run(method, seed, given.start, splits, given.output))
    models = {method: CenterCLIP.from_pretrained(folder_of(given.output, method, 42) / BEST) for method in results}
    show(results, encode_times(models), {name: activations(model) for name, model in models.items()}, splits)


def folder_of(output: Path, method: str, seed: int) -> Path:
    return output / f"{method.replace(':', '-').replace(',', '-')}-seed{seed}"


def run(method: str, seed: int, start: str, splits: dict[str, Benchmark], output: Path) -> Evaluation:
    """Train and test one method, or read what an earlier run of this script found."""
    folder = folder_of(output, method, seed)
    result = folder / "evaluation" / "test"
    recipe: Recipe = read_recipe(
        RECIPE, [f'model.clustering="{method}"', f"train.seed={seed}", f'model.start="{start}"']
    )
    if not (result / "evaluation.json").exists():
        open_run(folder, recipe)
        began = time.perf_counter()
        if not finished(folder):
            train(recipe, Splits(splits["train"], splits["val"]), folder, CPU)
        evaluate(CenterCLIP.from_pretrained(folder / BEST), splits["test"]).save(result)
        print(f"{method}, seed {seed}: {time.perf_counter() - began:.0f} s", flush=True)
    return Evaluation.load(result)


def encode_times(models: dict[str, CenterCLIP]) -> dict[str, float]:
    """Seconds to encode a batch of eight videos, methods taking turns; the median of several rounds."""
    videos = {name: torch.randint(0, 255, (8, model.frames, model.preprocess.size, model.preprocess.size, 3),
                                  dtype=torch.uint8) for name, model in models.items()}  # fmt: skip
    times: dict[str, list[float]] = {name: [] for name in models}
    with torch.inference_mode():
        for _ in range(ROUNDS):
            for name, model in models.items():
                began = time.perf_counter()
                model.video_features(videos[name])
                times[name].append(time.perf_counter() - began)
    return {name: statistics.median(taken) / 8 for name, taken in times.items()}


def activations(model: CenterCLIP) -> float:
    """Megabytes that one video keeps for the backward pass."""
    pixels = torch.zeros(model.frames, 3, model.preprocess.size, model.preprocess.size)
    return saved_bytes(model.backbone.vision_model, pixels) / 1e6


def show(
    results: dict[str, list[Evaluation]],
    seconds: dict[str, float],
    memory: dict[str, float],
    splits: dict[str, Benchmark],
) -> None:
    """One line a method: mean over its seeds, half of the 95 % interval over test videos, spread over seeds."""
    first = next(iter(results.values()))[0]
    base_time, base_memory = seconds.get("none"), memory.get("none")
    table = Table(title=f"{first.label()}; {len(splits['train']):,} training clips", title_justify="left")
    for column in ("method", "setting", "seeds", "R@1", "R@5", "R@10", "MnR", "v2t R@1", "encode", "activations"):
        table.add_column(column, justify="left" if column in ("method", "setting") else "right")
    for method, found in results.items():
        cells = [_cell(found, "t2v", name) for name in ("R1", "R5", "R10", "MnR")] + [_cell(found, "v2t", "R1")]
        faster = f" ({base_time / seconds[method]:.2f}x)" if base_time else ""
        less = f" ({memory[method] / base_memory:.2f})" if base_memory else ""
        table.add_row(METHODS.get(method, method), method, str(len(found)), *cells,
                      f"{1000 * seconds[method]:.1f} ms{faster}", f"{memory[method]:.1f} MB{less}")  # fmt: skip
    Console(width=170).print(table)
    print("±: half of the 95 % interval over test videos; in brackets: lowest and highest of the seeds.")
    print(json.dumps({name: [each.metrics["t2v"]["R1"] for each in found] for name, found in results.items()}))


def _cell(found: list[Evaluation], direction: str, name: str) -> str:
    values = [each.metrics[direction][name] for each in found]
    halves = [(high - low) / 2 for low, high in (each.interval(direction, name) for each in found)]
    spread = f" [{min(values):.1f}, {max(values):.1f}]" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f} ±{statistics.mean(halves):.1f}{spread}"


if __name__ == "__main__":
    main()
