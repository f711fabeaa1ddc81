"""Clustering in a model that was trained without it: how much recall each setting costs, for which arithmetic.

Many settings share one pass: a video is decoded once for them, and the blocks before the first stage run once.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity

from ..cluster import Setting, Stage
from ..cluster.setting import divisors
from ..data import Benchmark, Clip
from ..errors import ReportError
from ..evaluation import EncodedBenchmark, Evaluation, Gain, compare, evaluate_vectors
from ..evaluation.costs import multiply_adds, time_settings
from ..evaluation.evaluate import failure_text
from ..files import write_atomic
from ..model import CenterCLIP
from ..model.pipeline import Decoded, Deliver, Window, decode_batches, default_decoders, read_squares
from ..model.vectors import video_vectors
from .catalogue import file_name, with_frames

NONE = "none"
CLOSENESS = "closeness.json"  # written last: a result without it is not finished
TIMES = "times.json"
SETTINGS_PER_PASS = 12  # settings that share decoding and the first blocks; results are saved after each pass
OnProgress = Callable[[int, int], None]  # videos encoded, total


@dataclass(frozen=True, eq=False)
class SettingResult:
    """One setting against no clustering, on the same videos and sentences."""

    setting: str  # with ", 6 frames" where it takes only so many of the model's
    result: Evaluation
    over_none: dict[str, dict[str, Gain]]  # by direction and metric
    closeness: float  # mean cosine of the videos' vectors to those without clustering
    least: float  # the smallest of them
    multiply_adds: int  # of the vision tower on one video
    faster: float | None = None  # times as fast as no clustering, one video, in the same run; None if not measured

    @property
    def first_found(self) -> int:
        """How many videos are ranked first for their first sentence."""
        ids, ranks = self.result.caption_ids, self.result.ranks.t2v
        return sum(bool(rank == 1) for name, rank in zip(ids, ranks, strict=True) if name.endswith("#0"))


def run_settings(
    model: CenterCLIP,
    benchmark: Benchmark,
    settings: Iterable[str],
    folder: Path,
    *,
    timed: bool = False,
    on_progress: OnProgress = lambda done, total: None,
) -> list[SettingResult]:
    """Evaluate a model with each setting, in the paper's notation, ``none`` first. Its own clustering is restored.

    A setting may take a part of the frames, ``none, 6 frames``: every second of 12. Results are kept in ``folder``, by
    setting, model and data, and not computed again; ``timed`` adds times, which need a quiet machine.
    """
    weights, frames, before = weights_fingerprint(model), model.frames, model.clustering
    named = (with_frames(each, frames) for each in settings)
    usual = [clustering + (f", {taken} frames" if taken != frames else "") for clustering, taken in named]
    wanted = list(dict.fromkeys([NONE, *usual]))
    for clustering, taken in (with_frames(each, frames) for each in wanted):
        if not 1 <= taken <= frames or frames % taken:
            raise ReportError(f"{clustering}, {taken} frames: every so many of {frames} are taken; {divisors(frames)}")
    places = {each: folder / f"{file_name(each)}-{weights}-{benchmark.fingerprint}" for each in wanted}
    missing = [each for each, place in places.items() if not (place / CLOSENESS).exists()]
    passes = [missing[first : first + SETTINGS_PER_PASS] for first in range(0, len(missing), SETTINGS_PER_PASS)]
    for number, together in enumerate(passes):

        def show(done: int, total: int, number: int = number) -> None:
            on_progress(number * total + done, len(passes) * total)

        for setting, (result, cosines) in _evaluate(model, benchmark, together, show).items():
            result.save(places[setting])
            closeness = {"cosine": cosines.mean().item(), "least": cosines.min().item()}
            write_atomic(places[setting] / CLOSENESS, json.dumps(closeness) + "\n")
    try:
        for setting, place in places.items():
            if timed and not (place / TIMES).exists():
                seconds, none = time_settings(model, [with_frames(setting, frames), (NONE, frames)])
                write_atomic(place / TIMES, json.dumps({"encode_ms": 1000 * seconds, "none_ms": 1000 * none}) + "\n")
    finally:
        model.set_clustering(before, frames=frames)
    results = {setting: Evaluation.load(place) for setting, place in places.items()}
    tower = model.attachment
    found = []
    for setting, place in places.items():
        closeness = json.loads((place / CLOSENESS).read_text())
        times = json.loads((place / TIMES).read_text()) if (place / TIMES).exists() else None
        clustering, taken = with_frames(setting, frames)
        arithmetic = multiply_adds(
            model.backbone.config.vision_config, Setting.parse(clustering), taken, tower.patches, tower.prefix
        )
        faster = times["none_ms"] / times["encode_ms"] if times else None
        gains = compare(results[NONE], results[setting])
        found.append(
            SettingResult(setting, results[setting], gains, closeness["cosine"], closeness["least"], arithmetic, faster)
        )
    return found


def usual_stage(*, blocks: int, patches: int, frames: int) -> Stage:
    """What B6-4,49 is to ViT-B/32 and 12 frames: the middle, three frames a segment, as many centres as patches."""
    return Stage(max(1, blocks // 2), frames // 3 if frames % 3 == 0 else 1, patches)


def weights_fingerprint(model: CenterCLIP) -> str:
    """Eight hex digits that change with the weights, the number of frames, the rule or the protocol."""
    content = f"{model.fingerprint()} {model.frames} {model.rule} {model.max_tokens} {model.protocol}"
    return hashlib.sha256(content.encode()).hexdigest()[:8]


def _evaluate(
    model: CenterCLIP, benchmark: Benchmark, settings: Sequence[str], on_progress: OnProgress
) -> dict[str, tuple[Evaluation, Tensor]]:
    """Every batch is decoded once and goes through the blocks that all settings share once.

    Returns:
        the evaluation of each setting, and the cosines ``[V]`` of its vectors to those of no clustering.
    """
    began, before, frames = time.perf_counter(), model.clustering, model.frames
    parts: dict[str, list[tuple[Tensor, Tensor, Tensor]]] = {setting: [] for setting in settings}
    done = 0

    def decode(clip: Clip, deliver: Deliver) -> None:  # with the frames of now: they change while threads decode
        read = read_squares(model.preprocess, clip.path, frames, end=clip.end)
        deliver(0, Window(read.rgb, read.mask))

    batches = decode_batches(benchmark.videos, decode, model.batch_size(), default_decoders(model))
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
            clustering, taken = with_frames(setting, frames)
            model.set_clustering(clustering, frames=taken)
            segments, masks, cosines = (torch.cat(each) for each in zip(*parts[setting], strict=True))
            encoded = EncodedBenchmark(benchmark, segments, masks, texts)
            found[setting] = (evaluate_vectors(model, encoded, started=began), cosines)
    finally:
        model.set_clustering(before, frames=frames)
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
        settings: in the paper's notation, or with fewer frames (:func:`run_settings`).

    Yields:
        each setting with its segments ``[V, S, D]`` and their mask ``[V, S]``.
    """
    pixels, frames = model.preprocess.normalise(rgb.to(model.device)), rgb.shape[1]
    parsed = {name: (Setting.parse(with_frames(name, frames)[0]), with_frames(name, frames)[1]) for name in settings}
    # "attention" needs its block to run, and shifts change blocks from the first on; so does a stage before it (B0).
    shared = {
        name: each.stages[0].block
        for name, (each, taken) in parsed.items()
        if each.stages and each.stages[0].block and each.method != "attention" and taken == frames
    }
    blocks, outputs, handles = model.attachment.blocks, {}, []

    def keep(number: int, _block: nn.Module, _inputs: Any, output: Any) -> None:
        outputs[number] = output

    model.set_clustering(NONE, frames=frames)
    try:
        for number in set(shared.values()):
            handles.append(blocks[number - 1].register_forward_hook(partial(keep, number)))
        plain = model.video_features(pixels, mask)
    finally:
        for handle in handles:
            handle.remove()
    for name, (setting, taken) in parsed.items():
        if setting.method == NONE and taken == frames:
            yield name, plain
            continue
        places = slice((frames // taken - 1) // 2, None, frames // taken)
        real = mask[:, places].clone()
        real[:, 0] = True  # of a very short video too: what fills it up repeats its last frame
        model.set_clustering(setting, frames=taken)
        with _already_run(blocks, shared.get(name, 0), outputs):
            yield name, model.video_features(pixels[:, places], real)


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
