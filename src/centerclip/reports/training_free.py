"""Clustering put into a model that was trained without it: how much recall each setting costs."""

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity

from ..cluster import Setting
from ..data import Benchmark
from ..data.loader import Loader
from ..evaluation import Comparison, EncodedBenchmark, Evaluation, compare, evaluate_vectors
from ..evaluation.whole_files import write_whole
from ..model import CenterCLIP
from ..model.encoded import video_vectors

NONE = "none"
CLOSENESS = "closeness.json"  # written last: a result without it is not finished
TOGETHER = 12  # settings that share decoding and first blocks; what is found is kept after as many
OnProgress = Callable[[int, int], None]  # videos encoded, of how many


@dataclass(frozen=True, eq=False)
class Trial:
    """One setting against no clustering, on the same frames and sentences."""

    setting: str
    result: Evaluation
    against_none: Comparison
    closeness: float  # mean cosine of the videos' vectors to those without clustering
    tokens: float  # tokens of a segment after the last stage, as a part of those before; 1 without clustering


def run_settings(
    model: CenterCLIP,
    benchmark: Benchmark,
    settings: Iterable[str],
    folder: Path,
    *,
    on_progress: OnProgress = lambda done, total: None,
) -> list[Trial]:
    """Evaluate a model with each setting, ``none`` first.

    Results are kept in ``folder``, by setting, model and data, and not computed again.

    Args:
        model: its clustering is changed, and put back.
        benchmark: a loaded split.
        settings: in the paper's notation.
        folder: where the results are kept.
        on_progress: called after every batch.
    """
    wanted = [str(Setting.parse(each)) for each in settings]
    wanted = [NONE, *(each for each in dict.fromkeys(wanted) if each != NONE)]
    weights = weights_fingerprint(model)
    places = {each: folder / f"{file_name(each)}-{weights}-{benchmark.fingerprint}" for each in wanted}
    missing = [each for each, place in places.items() if not (place / CLOSENESS).exists()]
    parts = [missing[first : first + TOGETHER] for first in range(0, len(missing), TOGETHER)]
    for number, part in enumerate(parts):

        def show(done: int, total: int, number: int = number) -> None:
            on_progress(number * total + done, len(parts) * total)

        for setting, (result, closeness) in _evaluate(model, benchmark, part, show).items():
            result.save(places[setting])
            content = json.dumps({"cosine": closeness}) + "\n"
            write_whole(places[setting] / CLOSENESS, partial(Path.write_text, data=content))
    found = {setting: Evaluation.load(place) for setting, place in places.items()}
    return [
        Trial(
            setting,
            result,
            compare(found[NONE], result),
            closeness=json.loads((places[setting] / CLOSENESS).read_text())["cosine"],
            tokens=kept_share(Setting.parse(setting), model.frames, model.attachment.patches),
        )
        for setting, result in found.items()
    ]


def kept_share(setting: Setting, frames: int, patches: int) -> float:
    """Patch tokens that are left after the last stage, as a part of all patch tokens of the video."""
    if not setting.stages:
        return 1.0
    last = setting.stages[-1]
    return last.segments * last.k / (frames * patches)


def file_name(setting: str) -> str:
    """A setting as part of a file's name."""
    return "".join(letter if letter.isalnum() or letter in "-." else "_" for letter in setting)


def weights_fingerprint(model: CenterCLIP) -> str:
    """Eight hex digits that change with the weights, the number of frames or the rule."""
    digest = hashlib.sha256(f"{model.frames} {model.rule} {model.words}".encode())
    for name, value in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.detach().double().sum().cpu().numpy().tobytes())
    return digest.hexdigest()[:8]


def _evaluate(
    model: CenterCLIP, benchmark: Benchmark, settings: Sequence[str], on_progress: OnProgress
) -> dict[str, tuple[Evaluation, float]]:
    """Every batch is decoded once and goes through the blocks that all settings share once."""
    began, before = time.perf_counter(), model.clustering
    segments: dict[str, list[Tensor]] = {setting: [] for setting in settings}
    masks: dict[str, list[Tensor]] = {setting: [] for setting in settings}
    closeness: dict[str, list[Tensor]] = {setting: [] for setting in settings}
    size, done = model.preprocess.short_side or model.preprocess.size, 0
    loader = Loader(benchmark, training=False, batch_size=model.batch_size(), frames=model.frames, size=size)
    try:
        for batch in loader.epoch():
            plain: Tensor | None = None
            for setting, (vectors, real) in encode_with_each(model, batch["rgb"], batch["mask"], [NONE, *settings]):
                whole = video_vectors(vectors, real)
                plain = whole if plain is None else plain
                if setting in segments:
                    segments[setting].append(vectors.cpu())
                    masks[setting].append(real.cpu())
                    closeness[setting].append(cosine_similarity(whole, plain).cpu())
            done += len(batch["rgb"])
            on_progress(done, len(benchmark))
        texts = model.encode_text(benchmark.captions).cpu()
        found = {}
        for setting in settings:
            model.set_clustering(setting)
            encoded = EncodedBenchmark(benchmark, torch.cat(segments[setting]), torch.cat(masks[setting]), texts)
            result = evaluate_vectors(model, encoded, started=began)
            found[setting] = (result, torch.cat(closeness[setting]).mean().item())
    finally:
        loader.close()
        model.set_clustering(before)
    return found


@torch.inference_mode()
def encode_with_each(
    model: CenterCLIP, rgb: Tensor, mask: Tensor, settings: Sequence[str]
) -> Iterator[tuple[str, tuple[Tensor, Tensor]]]:
    """The same videos with every setting; blocks before the first stage run once for all of them.

    Args:
        model: is left with the last setting.
        rgb: uint8 ``[V, T, H, W, 3]``.
        mask: ``[V, T]``.
        settings: in the paper's notation.

    Yields:
        each setting with its segments ``[V, S, D]`` and their mask ``[V, S]``.
    """
    pixels = model.preprocess(rgb.to(model.device))
    parsed = {setting: Setting.parse(setting) for setting in settings}
    # "attention" needs its block to run, and shifts change blocks from the first on.
    shared = {name: each.stages[0].block for name, each in parsed.items() if each.stages and each.method != "attention"}
    blocks, outputs, handles = model.attachment.blocks, {}, []

    def keep(number: int, _block: nn.Module, _inputs: Any, output: Any) -> None:
        outputs[number] = output

    model.set_clustering(NONE)
    try:
        for number in set(shared.values()):
            handles.append(blocks[number - 1].register_forward_hook(partial(keep, number)))
        plain = model.video_features(pixels, mask)
    finally:
        for handle in handles:
            handle.remove()
    for name, setting in parsed.items():
        if setting.method == NONE:
            yield name, plain
            continue
        model.set_clustering(setting)
        with _already_run(blocks, shared.get(name, 0), outputs):
            yield name, model.video_features(pixels, mask)


@contextmanager
def _already_run(blocks: nn.ModuleList, count: int, outputs: dict[int, Any]) -> Iterator[None]:
    """For the length of a block, the first ``count`` transformer blocks give what they gave before, for nothing."""
    replaced: list[Any] = list(blocks[:count])
    for block in replaced:
        block.forward = lambda *_inputs, **_named: outputs[count]
    try:
        yield
    finally:
        for block in replaced:
            del block.forward
