"""``evaluate(model, benchmark)``: encode, in one process or shared by several, and rank.

The numbers are the same for any number of processes: so are the batches, and ranks are exact. Encoding is in float32,
on a GPU too: the half precision that search uses there could change some ranks. ``save_features`` exports the vectors.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch import distributed as dist

from ..data import Benchmark, Clip
from ..distributed import Processes
from ..errors import EvaluationError, first_few
from ..files import write_atomic
from ..model import CenterCLIP
from ..model.pipeline import Deliver, Window, encode_in_order, read_squares
from ..model.vectors import Rule, video_vectors
from ..video import VideoError
from .metrics import summaries
from .ranking import rank_vectors
from .result import TOP_CANDIDATES, Evaluation, write_csv

Form = Literal["safetensors", "npz"]
Spans = list[tuple[float, float]]  # start and end of every segment that is real, in seconds
TEXT_BATCH = 256  # sentences; a small tensor even for large models
OnProgress = Callable[[str, int, int], None]  # kind of work ("videos", "sentences"), finished, total


def no_progress(kind: str, finished: int, total: int) -> None:
    """For those who do not watch."""


@dataclass(frozen=True, eq=False)
class EncodedBenchmark:
    """The vectors of a benchmark, on the CPU."""

    benchmark: Benchmark  # without the videos that could not be read
    segments: Tensor  # [V, S, D], each of norm 1
    mask: Tensor  # [V, S], True where a segment is real
    texts: Tensor  # [C, D], each of norm 1; [0, D] when captions were left out
    spans: tuple[Spans, ...] = ()  # of each video
    unreadable: dict[str, str] = field(default_factory=dict)  # why, by video id


def evaluate(
    model: CenterCLIP,
    benchmark: Benchmark,
    *,
    rule: Rule | None = None,
    dual_softmax: bool = False,
    batch_size: int | None = None,
    workers: int | None = None,
    group: Processes | None = None,
    allow_unreadable: bool = False,
    on_progress: OnProgress = no_progress,
) -> Evaluation:
    """Measure retrieval in both directions on one split of a benchmark.

    With several processes all of them call it; they share the encoding, and every one returns the same numbers, which
    are also those of one process alone.

    Args:
        model: put in evaluation mode, and back.
        benchmark: a loaded split.
        rule: the similarity rule; the model's own by default.
        dual_softmax: rank by dual softmax, which uses all queries at once. The label of the result says so.
        batch_size: videos encoded at a time; from the free memory by default.
        workers: threads that decode; by default as many as keep the model busy.
        group: the processes of ``torchrun``; this one alone by default.
        allow_unreadable: leave out videos that cannot be read; the label of the result says so.
        on_progress: called with ``"videos"`` or ``"sentences"``, the number finished, and the total.

    Raises:
        EvaluationError: a video cannot be read, or the model gives NaN.
    """
    start = time.perf_counter()
    encoded = encode_benchmark(
        model, benchmark, batch_size=batch_size, workers=workers, group=group,
        allow_unreadable=allow_unreadable, on_progress=on_progress,
    )  # fmt: skip
    return evaluate_vectors(model, encoded, rule=rule, dual_softmax=dual_softmax, started=start)


def evaluate_vectors(
    model: CenterCLIP, encoded: EncodedBenchmark, *, rule: Rule | None = None, dual_softmax: bool = False,
    started: float | None = None,
) -> Evaluation:  # fmt: skip
    """:func:`evaluate` for a benchmark that is already encoded; ``started`` is the ``perf_counter`` of the start."""
    started = time.perf_counter() if started is None else started
    benchmark, rule = encoded.benchmark, rule or model.rule
    videos = video_vectors(encoded.segments, encoded.mask, rule=rule)
    _check(videos, lambda place: f"video {benchmark.videos[place].id} ({benchmark.videos[place].path})")
    _check(encoded.texts, lambda place: f"caption {benchmark.captions[place]!r}")
    owners = torch.tensor(benchmark.video_of_caption)
    scale = float(model.backbone.logit_scale.detach().exp()) if dual_softmax else None
    ranks = rank_vectors(encoded.texts, videos, owners, dual_softmax_scale=scale, top=TOP_CANDIDATES)
    return Evaluation(
        metrics=summaries(ranks), ranks=ranks, rule=rule, dual_softmax=dual_softmax,
        benchmark=benchmark.name, split=benchmark.split, fingerprint=benchmark.fingerprint,
        gallery=len(benchmark), captions=len(benchmark.captions), missing=benchmark.missing,
        uncaptioned=benchmark.uncaptioned, unreadable=encoded.unreadable,
        video_ids=tuple(clip.id for clip in benchmark.videos), caption_texts=benchmark.captions,
        video_of_caption=owners.numpy(),
        clustering=str(model.clustering), frames=model.frames, max_tokens=model.max_tokens, protocol=model.protocol,
        seconds=time.perf_counter() - started,
    )  # fmt: skip


def encode_benchmark(
    model: CenterCLIP,
    benchmark: Benchmark,
    *,
    captions: bool = True,
    batch_size: int | None = None,
    workers: int | None = None,
    group: Processes | None = None,
    allow_unreadable: bool = False,
    on_progress: OnProgress = no_progress,
) -> EncodedBenchmark:
    """Encode all videos and, unless ``captions`` is off, their captions.

    With several processes all of them call it, and all get everything. The arguments, and what is raised, are those of
    :func:`evaluate`. Batches are the same with any number of processes, which take turns: rounding inside a model may
    depend on what else is in a batch. Equal sentences are encoded once, so they have equal vectors.
    """
    group = group or Processes(0, 1, model.device)
    # The smallest of the processes' batch sizes: free memory may differ, batches must not.
    size = int(_together(group, torch.tensor([batch_size or model.batch_size()])).min())
    segments, mask, spans, unreadable = _encode_videos(model, benchmark, group, size, workers, on_progress)
    if unreadable and not allow_unreadable:
        first, reason = next(iter(unreadable.items()))
        raise EvaluationError(
            f"{len(unreadable):,} of {len(benchmark):,} videos of {benchmark.name} {benchmark.split} cannot be read: "
            f"{first_few(list(unreadable))}. {first}: {reason} Replace them, or accept a smaller gallery with "
            "--allow-unreadable (allow_unreadable=True)."
        )
    kept = tuple(clip for clip in benchmark.videos if clip.id not in unreadable)
    if not kept:
        raise EvaluationError(
            f"none of the {len(benchmark):,} videos of {benchmark.name} {benchmark.split} can be read."
        )
    benchmark = replace(benchmark, videos=kept) if unreadable else benchmark
    texts = _encode_sentences(model, benchmark.captions if captions else (), group, on_progress)
    return EncodedBenchmark(benchmark, segments, mask, texts, tuple(spans[clip.id] for clip in kept), unreadable)


def _own(group: Processes, count: int, batch: int) -> list[int]:
    """The items that this process encodes: every ``world``-th batch."""
    return [item for item in range(count) if item // batch % group.world == group.rank]


def _together(group: Processes, own: Tensor) -> Tensor:
    """The rows of all processes, on the CPU; NCCL wants them on the GPU in between."""
    return own if group.world == 1 else group.gather(own.to(group.device)).cpu()


def _encode_sentences(model: CenterCLIP, sentences: Sequence[str], group: Processes, on_progress: OnProgress) -> Tensor:
    """Sentences to vectors ``[C, D]`` of norm 1, each distinct one encoded once."""
    # Sentences of similar length share a batch, because a batch is as wide as its longest.
    distinct = sorted(set(sentences), key=lambda sentence: (len(sentence), sentence))
    mine = _own(group, len(distinct), TEXT_BATCH)
    parts = [torch.zeros(0, model.width)]
    for first in range(0, len(mine), TEXT_BATCH):
        batch = mine[first : first + TEXT_BATCH]
        parts.append(model.encode_text([distinct[place] for place in batch], half=False).cpu())
        on_progress("sentences", min(len(distinct), (first + len(batch)) * group.world), len(distinct))
    vectors, places = _together(group, torch.cat(parts)), _together(group, torch.tensor(mine, dtype=torch.int64))
    row = {distinct[place]: position for position, place in enumerate(places.tolist())}
    return vectors[torch.tensor([row[sentence] for sentence in sentences], dtype=torch.int64)]


def _encode_videos(
    model: CenterCLIP, benchmark: Benchmark, group: Processes, size: int, workers: int | None, on_progress: OnProgress
) -> tuple[Tensor, Tensor, dict[str, Spans], dict[str, str]]:
    """segments ``[V, S, D]``, mask ``[V, S]`` and spans of the videos that can be read, and why others cannot."""
    mine = _own(group, len(benchmark), size)
    segments = [torch.zeros(0, model.segments, model.width)]
    masks = [torch.zeros(0, model.segments, dtype=torch.bool)]
    places: list[int] = []
    spans: dict[str, Spans] = {}
    failures: dict[str, str] = {}
    clips = [benchmark.videos[place] for place in mine]
    results = encode_in_order(model, clips, partial(decode_clip, model), batch_size=size, decoders=workers, half=False)
    for number, each in enumerate(results):
        on_progress("videos", min(len(benchmark), (number + 1) * group.world), len(benchmark))
        if each.error is not None:
            failures[each.item.id] = failure_text(each.error)
            continue
        segments.append(torch.from_numpy(each.segments)[None])
        masks.append(torch.from_numpy(each.mask)[None])
        places.append(mine[number])
        spans[each.item.id] = each.info or []
    if group.world > 1:
        everyones: list[tuple[dict[str, Spans], dict[str, str]]] = [({}, {})] * group.world
        dist.all_gather_object(everyones, (spans, failures))
        spans = {video: each for own, _ in everyones for video, each in own.items()}
        failures = {video: reason for _, own in everyones for video, reason in own.items()}
    order = _together(group, torch.tensor(places, dtype=torch.int64)).argsort()
    found = {clip.id: failures[clip.id] for clip in benchmark.videos if clip.id in failures}
    return _together(group, torch.cat(segments))[order], _together(group, torch.cat(masks))[order], spans, found


def decode_clip(model: CenterCLIP, clip: Clip, deliver: Deliver) -> Spans:
    """Decode the frames of a benchmark's video that ``model`` takes; returns the times of its segments."""
    frames = read_squares(model.preprocess, clip.path, model.frames, end=clip.end)
    deliver(0, Window(frames.rgb, frames.mask))
    end = frames.duration if clip.end is None else min(clip.end, frames.duration)
    return model.spans((0.0, end), int(frames.mask.sum()))


def failure_text(error: Exception) -> str:
    """Why a video cannot be read, without its path."""
    return f"{error.detail}. {error.advice}" if isinstance(error, VideoError) else str(error)


def _check(vectors: Tensor, name: Callable[[int], str]) -> None:
    (wrong,) = torch.where(~vectors.isfinite().all(dim=1))
    if len(wrong):
        raise EvaluationError(
            f"the model gives NaN or infinity for {len(wrong):,} of {len(vectors):,} vectors, first for "
            f"{name(int(wrong[0]))}; its weights may be damaged, or training may have diverged."
        )


def save_features(
    encoded: EncodedBenchmark,
    folder: str | Path,
    *,
    rule: Rule,
    about: Mapping[str, str],
    form: Form = "safetensors",
) -> list[Path]:
    """Write the vectors of a benchmark, each file atomically.

    Row ``i`` of the tensors of ``videos`` is the video of the lines in ``videos.csv`` whose ``row`` is ``i``, one line
    for each real segment; row ``i`` of ``texts`` is line ``i`` of ``texts.csv``, counted from 0 below the header.
    There are no ``texts`` where there are no captions.

    Args:
        encoded: ``segments [V, S, D]``, ``mask [V, S]``, ``texts [C, D]``, and the times of segments.
        folder: where the files go that are returned.
        rule: how ``vectors [V, D]`` are made of segments: their dot products with texts are the similarities.
        about: kept in safetensors files as metadata.
        form: ``safetensors`` or ``npz``.
    """
    target = Path(folder).expanduser()
    target.mkdir(parents=True, exist_ok=True)
    clips = encoded.benchmark.videos
    tensors = {
        "segments": encoded.segments.numpy(),
        "mask": encoded.mask.numpy(),
        "vectors": video_vectors(encoded.segments, encoded.mask, rule=rule).numpy(),
    }
    lines = [
        (row, clip.id, clip.path, segment, f"{start:.3f}", f"{end:.3f}")
        for row, (clip, clip_spans) in enumerate(zip(clips, encoded.spans, strict=True))
        for segment, (start, end) in enumerate(clip_spans)
    ]
    header = ("row", "id", "path", "segment", "start", "end")
    written = [
        write_atomic(target / f"videos.{form}", _tensor_writer(tensors, form, about)),
        write_csv(target / "videos.csv", header, lines),
    ]
    if len(encoded.texts):
        owners = (clips[place].id for place in encoded.benchmark.video_of_caption)
        pairs = zip(encoded.benchmark.captions, owners, strict=True)
        vectors = {"vectors": encoded.texts.numpy()}
        written += [
            write_atomic(target / f"texts.{form}", _tensor_writer(vectors, form, about)),
            write_csv(target / "texts.csv", ("caption", "video"), pairs),
        ]
    return written


def _tensor_writer(tensors: dict[str, np.ndarray], form: Form, about: Mapping[str, str]) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        from safetensors.numpy import save_file

        if form == "safetensors":
            save_file({name: np.ascontiguousarray(each) for name, each in tensors.items()}, path, dict(about))
            return
        with path.open("wb") as file:  # given a name, NumPy would add a suffix
            np.savez(file, **tensors)  # type: ignore[arg-type]

    return write
