"""The text-video retrieval tasks of mteb, the embedding benchmark: ``centerclip evaluate MODEL --mteb MSRVTTT2V``.

mteb hands over videos as torchcodec decoders, which do not load beside our torch. So the column is read undecoded, and
our own reader takes the bytes.
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mteb
import numpy as np
from datasets import Dataset, Video
from mteb.models.abs_encoder import AbsEncoder
from mteb.models.model_meta import ModelMeta, ScoringFunction

from ..data.get import HOSTED
from ..errors import EvaluationError
from ..video import VideoError

if TYPE_CHECKING:
    from ..model import CenterCLIP

# The tasks, and how their hosted test sets differ from those that papers report on.
TASKS = {hosted.task: hosted.note for hosted in HOSTED.values()}
CHUNK = 32  # videos in temporary files at a time
METRICS = {"R1": "recall_at_1", "R5": "recall_at_5", "R10": "recall_at_10", "nDCG10": "ndcg_at_10"}
OnProgress = Callable[[int, int], object]  # (videos done, videos in all)


@dataclass(frozen=True)
class MtebResult:
    """What a model reaches on a task, in per cent."""

    task: str
    queries: int
    gallery: int
    metrics: dict[str, float]  # R1, R5, R10, nDCG10
    unreadable: int  # videos that could not be decoded; they are never found
    note: str  # how the test set differs from the papers'


class MtebEncoder(AbsEncoder):
    """A CenterCLIP model as mteb takes one. Videos and sentences alone; the scores are dot products."""

    def __init__(self, model: "CenterCLIP", name: str, on_progress: OnProgress | None = None) -> None:
        self.model = model
        self.sentences = self.videos = self.unreadable = 0  # encoded so far
        self._on_progress = on_progress or (lambda done, total: None)
        self.mteb_model_meta = ModelMeta(
            loader=None,
            name=name if name.count("/") == 1 else f"centerclip/{Path(name).name}",
            revision=model.fingerprint(),
            release_date=None,
            languages=None,
            n_parameters=sum(each.numel() for each in model.parameters()),
            memory_usage_mb=None,
            max_tokens=model.max_tokens,
            embed_dim=model.width,
            license=None,
            open_weights=None,
            public_training_code=None,
            public_training_data=None,
            framework=["PyTorch"],
            similarity_fn_name=ScoringFunction.DOT_PRODUCT,
            use_instructions=False,
            training_datasets=None,
            modalities=["text", "video"],
        )

    def encode(self, inputs: Any, *, batch_size: int | None = None, **_: Any) -> Any:
        """Sentences or videos of mteb's loader to vectors ``[B, D]``."""
        dataset: Dataset = inputs.dataset
        if "video" not in dataset.column_names:
            self.sentences += len(dataset)
            return self.model.encode_query(list(dataset["text"]))
        self.videos += len(dataset)
        return np.stack(list(self._encode_videos(dataset.cast_column("video", Video(decode=False)))))

    def _encode_videos(self, dataset: Dataset) -> Iterator[Any]:
        for first in range(0, len(dataset), CHUNK):
            rows = dataset[first : first + CHUNK]["video"]
            with tempfile.TemporaryDirectory(prefix="centerclip-") as folder:
                paths = [_as_file(row, Path(folder) / str(number)) for number, row in enumerate(rows)]
                for number, each in enumerate(self.model.iter_videos(paths), start=first + 1):
                    if isinstance(each, VideoError):
                        self.unreadable += 1
                    elif isinstance(each, Exception):
                        raise each
                    self._on_progress(number, len(dataset))
                    yield np.zeros(self.model.width) if isinstance(each, Exception) else each.vector.cpu().numpy()


def find_tasks(names: Sequence[str]) -> list[Any]:
    """Tasks of mteb by name; ``"all"`` for those of :data:`TASKS`.

    Raises:
        EvaluationError: there is no such task, or it is of another kind.
    """
    tasks = []
    for name in TASKS if list(names) == ["all"] else names:
        try:
            task = mteb.get_task(name)
        except KeyError as error:
            near = get_close_matches(name, TASKS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"choose from {', '.join(TASKS)}, or all"
            raise EvaluationError(f"mteb has no task {name}; {hint}") from error
        if set(task.metadata.modalities) != {"text", "video"} or "Retrieval" not in task.metadata.type:
            raise EvaluationError(f"{name} is no retrieval of videos by text; choose from {', '.join(TASKS)}, or all")
        tasks.append(task)
    return tasks


def run_tasks(
    model: "CenterCLIP", tasks: Sequence[Any], *, name: str = "model", on_progress: OnProgress | None = None
) -> list[MtebResult]:
    """Run a model on retrieval tasks of mteb.

    Args:
        model: that encodes sentences and videos.
        tasks: of mteb, or of the same class.
        name: of the model.
        on_progress: called with the videos done and all videos of a task.
    """
    results = []
    for task in tasks:
        encoder = MtebEncoder(model, name, on_progress)
        (result,) = mteb.evaluate(encoder, task, cache=None, show_progress_bar=False, co2_tracker=False).task_results
        (scores,) = result.scores[task.metadata.eval_splits[0]]
        metrics = {key: 100 * float(scores[metric]) for key, metric in METRICS.items()}
        title = task.metadata.name
        counts = encoder.sentences, encoder.videos
        results.append(MtebResult(title, *counts, metrics, encoder.unreadable, TASKS.get(title, "")))
    return results


def _as_file(row: dict[str, Any], path: Path) -> Path:
    """A video of a data set as a file: where it is, or its bytes written to ``path``."""
    if row["bytes"] is None:
        return Path(row["path"])
    path.write_bytes(row["bytes"])
    return path
