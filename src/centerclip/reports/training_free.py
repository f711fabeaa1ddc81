"""Clustering in a model that was trained without it: how much recall each setting costs, over B, K and S.

Many settings share one pass: a video is decoded once for them, and the blocks before the first stage run once.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity

from ..cluster import Setting, Stage
from ..data import Benchmark, Clip
from ..errors import ReportError
from ..evaluation import EncodedBenchmark, Evaluation, Gain, compare, evaluate_vectors
from ..evaluation.evaluate import decode_clip, failure_text
from ..evaluation.result import differences
from ..files import write_atomic
from ..model import CenterCLIP
from ..model.pipeline import Decoded, decode_batches, default_decoders
from ..model.vectors import video_vectors
from .catalogue import file_name
from .table import Table

NONE = "none"
CLOSENESS = "closeness.json"  # written last: a result without it is not finished
SETTINGS_PER_PASS = 12  # settings that share decoding and the first blocks; results are saved after each pass
AXES = ("block B", "clusters K", "segments S, as many tokens in all")
DRAWN = {  # methods of the curves, in the notation of a setting
    "kmedoids": "medoids (the paper)",
    "kmedoids[proportional]": "medoids, weighed by cluster size",
    "means": "cluster means, weighed by cluster size",
}
TABLED = (  # compared with half the usual K
    "spectral[sigma=median]", "means[proportional=false]", "tome", "dpcknn", "dpcknn[proportional]", "kkz", "attention",
    "sampling", "random",
)  # fmt: skip
OnProgress = Callable[[int, int], None]  # videos encoded, total


@dataclass(frozen=True, eq=False)
class SettingResult:
    """One setting against no clustering, on the same frames and sentences."""

    setting: str
    result: Evaluation
    over_none: dict[str, dict[str, Gain]]  # by direction and metric
    closeness: float  # mean cosine of the videos' vectors to those without clustering
    tokens: float  # share of the patch tokens that is left after the last stage; 1 without clustering


@dataclass(frozen=True)
class Point:
    """One point of a curve."""

    axis: str
    x: int
    method: str
    setting: str


def run_settings(
    model: CenterCLIP,
    benchmark: Benchmark,
    settings: Iterable[str],
    folder: Path,
    *,
    on_progress: OnProgress = lambda done, total: None,
) -> list[SettingResult]:
    """Evaluate a model with each setting, in the paper's notation, ``none`` first. Its own clustering is restored.

    Results are kept in ``folder``, by setting, model and data, and not computed again.
    """
    wanted = [str(Setting.parse(each)) for each in settings]
    wanted = [NONE, *(each for each in dict.fromkeys(wanted) if each != NONE)]
    weights = weights_fingerprint(model)
    places = {each: folder / f"{file_name(each)}-{weights}-{benchmark.fingerprint}" for each in wanted}
    missing = [each for each, place in places.items() if not (place / CLOSENESS).exists()]
    passes = [missing[first : first + SETTINGS_PER_PASS] for first in range(0, len(missing), SETTINGS_PER_PASS)]
    for number, together in enumerate(passes):

        def show(done: int, total: int, number: int = number) -> None:
            on_progress(number * total + done, len(passes) * total)

        for setting, (result, closeness) in _evaluate(model, benchmark, together, show).items():
            result.save(places[setting])
            write_atomic(places[setting] / CLOSENESS, json.dumps({"cosine": closeness}) + "\n")
    results = {setting: Evaluation.load(place) for setting, place in places.items()}
    sizes = {"blocks": len(model.attachment.blocks), "frames": model.frames, "patches": model.attachment.patches}
    return [
        SettingResult(
            setting,
            result,
            compare(results[NONE], result),
            closeness=json.loads((places[setting] / CLOSENESS).read_text())["cosine"],
            tokens=kept_share(Setting.parse(setting).check(**sizes), model.frames, model.attachment.patches),
        )
        for setting, result in results.items()
    ]


def kept_share(setting: Setting, frames: int, patches: int) -> float:
    """The share of a video's patch tokens that is left after the last stage."""
    if not setting.stages:
        return 1.0
    last = setting.stages[-1]
    return last.segments * last.k / (frames * patches)


def sweep_points(*, blocks: int, patches: int, frames: int) -> list[Point]:
    """Curves through :func:`usual_stage`, along each of its numbers."""
    usual = usual_stage(blocks=blocks, patches=patches, frames=frames)
    places = sorted({min(blocks - 1, max(1, round(blocks * part / 6))) for part in (1, 2, 3, 4, 5)})
    most = patches * frames // usual.segments
    counts = sorted({min(most, max(1, patches * part // 8)) for part in (1, 2, 4, 8, 16)})
    cuts = [s for s in range(2, frames + 1) if frames % s == 0] or [1]
    stages = [(AXES[0], b, replace(usual, block=b)) for b in places]
    stages += [(AXES[1], n, replace(usual, k=n)) for n in counts]
    stages += [(AXES[2], s, replace(usual, segments=s, k=max(1, usual.segments * usual.k // s))) for s in cuts]
    return [Point(axis, x, method, _setting(method, stage)) for method in DRAWN for axis, x, stage in stages]


def usual_stage(*, blocks: int, patches: int, frames: int) -> Stage:
    """What B6-4,49 is to ViT-B/32 and 12 frames: the middle, three frames a segment, as many centres as patches."""
    return Stage(max(1, blocks // 2), frames // 3 if frames % 3 == 0 else 1, patches)


def sweep_settings(*, blocks: int, patches: int, frames: int) -> list[str]:
    """All settings of the curves and of the table, each once."""
    usual = usual_stage(blocks=blocks, patches=patches, frames=frames)
    drawn = [point.setting for point in sweep_points(blocks=blocks, patches=patches, frames=frames)]
    tabled = [_setting(method, replace(usual, k=max(1, patches // 2))) for method in TABLED]
    return list(dict.fromkeys([*drawn, *tabled]))


def settings_table(results: Sequence[SettingResult], model: str) -> Table:
    """One line a setting: recall, its difference to none, and how close the vectors stay. ``model`` is its name."""
    columns = ("setting", "tokens left", "T→V R@1", "over none", "T→V R@5", "T→V R@10", "T→V MnR", "V→T R@1",
               "over none", "cosine")  # fmt: skip
    rows = []
    for each in results:
        t2v, v2t = each.result.metrics["t2v"], each.result.metrics["v2t"]
        rows.append((
            f"`{each.setting}`", f"{100 * each.tokens:.0f} %", f"{t2v['R1']:.1f}", _difference(each, "t2v"),
            f"{t2v['R5']:.1f}", f"{t2v['R10']:.1f}", f"{t2v['MnR']:.2f}", f"{v2t['R1']:.1f}", _difference(each, "v2t"),
            f"{each.closeness:.3f}",
        ))  # fmt: skip
    first = results[0].result
    notes = (
        "Over none: the difference to no clustering with its 95 % bootstrap interval over videos; * where it excludes "
        "zero.",
        "Cosine: mean cosine of the videos' vectors to those without clustering.",
    )
    label = f"Clustering put into the model {model} as it is; {first.frames} frames; {first.label()}."
    return Table("Clustering without training (beyond the paper)", label, columns, tuple(rows), notes)


def to_json(results: Sequence[SettingResult]) -> dict[str, Any]:
    """The numbers behind the table, for programs."""
    return {
        "label": results[0].result.label(),
        "frames": results[0].result.frames,
        "trials": [
            {
                "setting": each.setting,
                "tokens": each.tokens,
                "metrics": each.result.metrics,
                "over_none": differences(each.over_none)["difference"],
                "intervals": differences(each.over_none)["intervals"],
                "cosine": each.closeness,
            }
            for each in results
        ],
    }


def weights_fingerprint(model: CenterCLIP) -> str:
    """Eight hex digits that change with the weights, the number of frames, the rule or the protocol."""
    content = f"{model.fingerprint()} {model.frames} {model.rule} {model.max_tokens} {model.protocol}"
    return hashlib.sha256(content.encode()).hexdigest()[:8]


def _evaluate(
    model: CenterCLIP, benchmark: Benchmark, settings: Sequence[str], on_progress: OnProgress
) -> dict[str, tuple[Evaluation, float]]:
    """Every batch is decoded once and goes through the blocks that all settings share once."""
    began, before = time.perf_counter(), model.clustering
    parts: dict[str, list[tuple[Tensor, Tensor, Tensor]]] = {setting: [] for setting in settings}
    done = 0
    batches = decode_batches(benchmark.videos, partial(decode_clip, model), model.batch_size(), default_decoders(model))
    try:
        for batch in batches:
            rgb, mask = _stacked(batch)
            plain: Tensor | None = None
            for setting, (vectors, real) in encode_with_each(model, rgb, mask, [NONE, *settings]):
                whole = video_vectors(vectors, real)
                plain = whole if plain is None else plain
                if setting in parts:
                    parts[setting].append((vectors.cpu(), real.cpu(), cosine_similarity(whole, plain).cpu()))
            done += len(batch)
            on_progress(done, len(benchmark))
        texts = model.encode_text(benchmark.captions, half=False).cpu()
        found = {}
        for setting in settings:
            model.set_clustering(setting)
            segments, masks, closeness = (torch.cat(each) for each in zip(*parts[setting], strict=True))
            encoded = EncodedBenchmark(benchmark, segments, masks, texts)
            found[setting] = (evaluate_vectors(model, encoded, started=began), closeness.mean().item())
    finally:
        model.set_clustering(before)
    return found


def _stacked(batch: list[Decoded[Clip, Any]]) -> tuple[Tensor, Tensor]:
    """rgb ``[V, T, size, size, 3]`` and mask ``[V, T]`` of decoded videos."""
    for each in batch:
        if each.error is not None:
            raise ReportError(f"video {each.item.id} ({each.item.path}) cannot be read: {failure_text(each.error)}")
    windows = [each.windows[0] for each in batch]
    masks = [window.mask for window in windows if window.mask is not None]
    return torch.from_numpy(np.stack([window.rgb for window in windows])), torch.from_numpy(np.stack(masks))


@torch.inference_mode()
def encode_with_each(
    model: CenterCLIP, rgb: Tensor, mask: Tensor, settings: Sequence[str]
) -> Iterator[tuple[str, tuple[Tensor, Tensor]]]:
    """The same videos with every setting; blocks before the first stage run once for all of them.

    Args:
        model: is left with the last setting.
        rgb: uint8 ``[V, T, size, size, 3]``.
        mask: ``[V, T]``.
        settings: in the paper's notation.

    Yields:
        each setting with its segments ``[V, S, D]`` and their mask ``[V, S]``.
    """
    pixels = model.preprocess.normalise(rgb.to(model.device))
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


def _setting(method: str, stage: Stage) -> str:
    return str(Setting.parse(f"{method}:{stage}"))


def _difference(result: SettingResult, direction: str) -> str:
    gain = result.over_none[direction]["R1"]
    return f"{gain}{'*' if gain.clear else ''}"
