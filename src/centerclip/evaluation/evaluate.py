"""``evaluate(model, benchmark)``: encode, rank, and say what the numbers are of."""

import time
from collections.abc import Callable

import torch
from torch import Tensor

from ..data import Benchmark
from ..model import CenterCLIP
from ..model.encoded import Rule, video_vectors
from .encode import EncodedBenchmark, OnProgress, encode_benchmark
from .errors import EvaluationError
from .metrics import summaries
from .result import LISTED, Evaluation
from .vectors import rank_vectors


def evaluate(
    model: CenterCLIP,
    benchmark: Benchmark,
    *,
    rule: Rule | None = None,
    dual_softmax: bool = False,
    batch_size: int | None = None,
    workers: int | None = None,
    rank: int = 0,
    world: int = 1,
    allow_unreadable: bool = False,
    on_progress: OnProgress | None = None,
) -> Evaluation:
    """Measure retrieval in both directions on one split of a benchmark.

    With several processes (``world`` > 1, inside a ``torch.distributed`` group) all of them call it; they share out the
    encoding, and every one returns the same numbers, which are also those of one process alone.

    Args:
        model: put in evaluation mode, and back.
        benchmark: a loaded split.
        rule: the similarity rule; the model's own by default.
        dual_softmax: rank by dual softmax, which sees all queries at once. The label of the result says so.
        batch_size: videos encoded at a time; from the free memory by default.
        workers: decoding processes; one for each core by default, 0 decodes in this one.
        rank: this process, of ``world``.
        world: number of processes.
        allow_unreadable: leave out videos that cannot be read; the label of the result says so.
        on_progress: called with ``"videos"`` or ``"sentences"``, how many are finished, and how many there are.

    Raises:
        EvaluationError: a video cannot be read, or the model gives NaN for one.
    """
    start = time.perf_counter()
    encoded = encode_benchmark(
        model,
        benchmark,
        batch_size=batch_size,
        workers=workers,
        rank=rank,
        world=world,
        allow_unreadable=allow_unreadable,
        on_progress=on_progress,
    )
    return evaluate_vectors(model, encoded, rule=rule, dual_softmax=dual_softmax, started=start)


def evaluate_vectors(
    model: CenterCLIP,
    encoded: EncodedBenchmark,
    *,
    rule: Rule | None = None,
    dual_softmax: bool = False,
    started: float | None = None,
) -> Evaluation:
    """The same of a benchmark that is encoded already; ``started`` is the ``perf_counter`` to count seconds from."""
    started = time.perf_counter() if started is None else started
    benchmark, rule = encoded.benchmark, rule or model.rule
    videos = video_vectors(encoded.segments, encoded.mask, rule=rule)
    _check(videos, lambda place: f"video {benchmark.videos[place].id} ({benchmark.videos[place].path})")
    _check(encoded.texts, lambda place: f"caption {benchmark.captions[place]!r}")
    owners = torch.tensor(benchmark.video_of_caption)
    scale = float(model.backbone.logit_scale.detach().exp()) if dual_softmax else None
    ranks = rank_vectors(encoded.texts, videos, owners, dual_softmax_scale=scale, top=LISTED)
    return Evaluation(
        metrics=summaries(ranks),
        benchmark=benchmark.name,
        split=benchmark.split,
        gallery=len(benchmark),
        captions=len(benchmark.captions),
        missing=benchmark.missing,
        unreadable=encoded.unreadable,
        rule=rule,
        dual_softmax=dual_softmax,
        fingerprint=benchmark.fingerprint,
        clustering=str(model.clustering),
        frames=model.frames,
        words=model.words,
        seconds=time.perf_counter() - started,
        video_ids=tuple(clip.id for clip in benchmark.videos),
        caption_texts=benchmark.captions,
        video_of_caption=owners.numpy(),
        ranks=ranks,
    )


def _check(vectors: Tensor, name: Callable[[int], str]) -> None:
    (wrong,) = torch.where(~vectors.isfinite().all(dim=1))
    if len(wrong):
        raise EvaluationError(
            f"the model gives NaN or infinity for {len(wrong):,} of {len(vectors):,} vectors, first for "
            f"{name(int(wrong[0]))}; its weights may be damaged, or training may have diverged."
        )
