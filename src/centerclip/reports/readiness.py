"""Before a lab starts: are the benchmarks, the weights, the GPUs and the disk there that the tables need?"""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..data import DataError
from ..data.errors import first_few
from ..data.verify import verify
from ..errors import CenterClipError
from .catalogue import reports
from .plan import make_plans
from .runs import data_folder

RUN_GB = 4.2  # of one run of ViT-B, 150 M weights: two checkpoints of weights and two moments, and the best model
GPU_GB = 14.0  # the least that a table of the paper takes on each of its GPUs


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at: fine or not, and in words."""

    ok: bool
    what: str
    detail: str


def check_benchmarks(root: Path) -> Iterator[Finding]:
    """Look at everything that the paper's tables need, one thing after the other. Videos are counted, not opened."""
    if not root.is_dir():
        raise DataError(f"there is no folder {root}; make one with msrvtt, msvd, lsmdc and activitynet in it.")
    plans = [plan for report in reports().values() for plan in make_plans(report, small=False)]
    for name in dict.fromkeys(plan.recipe.data.benchmark for plan in plans):
        yield _benchmark(name, root)
    for start in dict.fromkeys(plan.recipe.model.start for plan in plans):
        yield _weights(start)
    yield _gpus()
    free = shutil.disk_usage(Path.cwd()).free / 1e9
    needed = RUN_GB * len({str(plan.recipe) for plan in plans})
    yield Finding(free > needed, "disk", f"{free:,.0f} GB free here; all runs together take about {needed:,.0f} GB")


def _benchmark(name: str, root: Path) -> Finding:
    place = data_folder(root, name)
    try:
        found = verify(name, place, quick=True)
    except CenterClipError as error:
        return Finding(False, name, f"{error} Looked in {place}.")
    wrong = [f"{split}: {why}" for split, why in found.absent.items()]
    if found.missing:
        wrong.append(f"{len(found.missing):,} videos have no file: {first_few(found.missing)}")
    wrong += found.differences
    if wrong:
        return Finding(False, name, "; ".join(wrong))
    sizes = ", ".join(f"{check.videos:,} {check.split}" for check in found.splits if "+" not in check.split)
    return Finding(True, name, f"{sizes}; `centerclip data verify {name} --root {place}` also opens every video")


def _weights(start: str) -> Finding:
    from huggingface_hub import try_to_load_from_cache

    if Path(start).exists():
        return Finding(True, "weights", f"{start} is a folder or file")
    names = ("model.safetensors", "pytorch_model.bin")
    if any(isinstance(try_to_load_from_cache(start, name), str) for name in names):
        return Finding(True, "weights", f"{start} is in the Hugging Face cache")
    return Finding(False, "weights", f"{start} is not on this machine; fetch it with `hf download {start}`")


def _gpus() -> Finding:
    import torch

    if not torch.cuda.is_available():
        return Finding(False, "GPUs", "none; on a laptop run reports with --data minivtt")
    sizes = [torch.cuda.get_device_properties(each).total_memory / 1e9 for each in range(torch.cuda.device_count())]
    found = f"{len(sizes)} with at least {min(sizes):.0f} GB; the tables' settings take {GPU_GB:.0f} to 26 GB on each"
    return Finding(min(sizes) > GPU_GB, "GPUs", found)
