"""Exports vectors for other tools: tensors as safetensors or npz, and CSV files that say what their rows are."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import numpy as np

from ..data import Clip
from ..files import write_atomic
from ..model import CenterCLIP
from ..model.vectors import Rule, video_vectors
from ..parallel import usable_cores
from ..video import probe
from .evaluate import EncodedBenchmark, OnProgress, no_progress
from .result import write_csv

Form = Literal["safetensors", "npz"]
Spans = Sequence[tuple[float, float]]  # start and end of every segment that is real, in seconds


def spans_of(model: CenterCLIP, encoded: EncodedBenchmark, on_progress: OnProgress = no_progress) -> list[Spans]:
    """Start and end of the segments of every video: those of ``model.encode_video(path).spans``, up to its ``end``."""

    def spans(clip: Clip) -> Spans:
        facts = probe(clip.path)
        end, frames = facts.duration, facts.frames
        if clip.end is not None and clip.end < end:
            end, frames = clip.end, round(frames * clip.end / end)
        return model.spans((0.0, end), min(frames, model.frames))

    clips, all_spans = encoded.benchmark.videos, []
    with ThreadPoolExecutor(usable_cores()) as pool:
        for each in pool.map(spans, clips):
            all_spans.append(each)
            on_progress("times", len(all_spans), len(clips))
    return all_spans


def save_features(
    encoded: EncodedBenchmark,
    spans: Sequence[Spans],
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
        encoded: ``segments [V, S, D]``, ``mask [V, S]``, ``texts [C, D]``.
        spans: start and end of the real segments of every video.
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
        for row, (clip, clip_spans) in enumerate(zip(clips, spans, strict=True))
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
