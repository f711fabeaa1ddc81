"""A model for others: the card that says what it is, and the upload to the Hugging Face hub."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import ModelError, first_line
from ..files import write_atomic
from .hub import is_hub_name

if TYPE_CHECKING:
    from .centerclip import CenterCLIP

CARD_FILE = "README.md"
RECALLS = {"R1": "recall_at_1", "R5": "recall_at_5", "R10": "recall_at_10"}
DIRECTIONS = {"t2v": "text to video", "v2t": "video to text"}
ABOUT = (
    "A text-to-video retrieval model for CenterCLIP: a CLIP whose vision tower keeps only the centre tokens of "
    "neighbouring frames."
)
USE = """## Use

```sh
pip install centerclip
centerclip index ~/Videos --model {name}
centerclip search "a dog runs on the beach"
```

```python
from centerclip import CenterCLIP

model = CenterCLIP.from_pretrained("{name}")
videos = model.encode_document(["dog.mp4"])  # [1, {width}]
query = model.encode_query("a dog runs")  # [{width}]
print(model.similarity(query, videos))
```"""
METHOD = """## Method

Zhao, Zhu, Wang, Yang: *CenterCLIP: Token Clustering for Efficient Text-Video Retrieval*, SIGIR 2022,
[doi:10.1145/3477495.3531950](https://doi.org/10.1145/3477495.3531950)."""


class Result(Protocol):
    """What an evaluation says: :class:`~centerclip.evaluation.Evaluation` is one."""

    benchmark: str
    metrics: dict[str, dict[str, float]]

    def label(self) -> str:
        """Data, split, rule and protocol."""


def model_card(
    model: "CenterCLIP", name: str, *, license: str | None = None, results: Sequence[Result] = (), note: str = ""
) -> str:
    """The text of a model card: metadata that the hub reads, how to use the model, and its results.

    Args:
        model: that is described.
        name: of the model on the hub, ``"owner/name"``.
        license: its identifier on the hub, such as ``"mit"``.
        results: evaluations of the model.
        note: what people should know beside: the training data, limits.
    """
    from huggingface_hub import EvalResult, ModelCardData

    source = str(getattr(model.backbone.config, "name_or_path", "") or "")
    evaluated = [
        EvalResult(
            task_type="text-to-video-retrieval",
            dataset_type=result.benchmark,
            dataset_name=result.label(),
            metric_type=metric,
            metric_value=round(result.metrics["t2v"][key], 2),
        )
        for result in results
        for key, metric in RECALLS.items()
    ]
    data = ModelCardData(
        library_name="centerclip",
        pipeline_tag="feature-extraction",
        tags=["centerclip", "clip", "text-to-video-retrieval", "video-search"],
        license=license,
        base_model=source if is_hub_name(source) else None,
        model_name=name if evaluated else None,
        eval_results=evaluated or None,
    )
    sections = [_settings(model), note, USE.format(name=name, width=model.width)]
    sections += [f"## Results\n\n{_table(results)}"] if results else []
    text = "\n\n".join(filter(None, [f"# {name}", ABOUT, *sections, METHOD]))
    return f"---\n{data.to_yaml()}\n---\n\n{text}\n"


def push(model: "CenterCLIP", name: str, card: str, *, private: bool | None, message: str, revision: str | None) -> str:
    """Upload a model with its card; returns the address of the commit. The client of the hub knows who you are.

    Raises:
        ModelError: the name is not ``owner/name``, or the hub refuses.
    """
    from huggingface_hub import HfApi

    if not is_hub_name(name):
        raise ModelError(f'"{name}" cannot be a model on the Hugging Face hub: write owner/name')
    api = HfApi()
    with tempfile.TemporaryDirectory(prefix="centerclip-") as scratch:
        model.save_pretrained(scratch)
        write_atomic(Path(scratch) / CARD_FILE, card)
        try:
            api.create_repo(name, private=private, exist_ok=True)
            if revision is not None:
                api.create_branch(name, branch=revision, exist_ok=True)
            commit = api.upload_folder(repo_id=name, folder_path=scratch, commit_message=message, revision=revision)
        except Exception as error:  # of the client: many kinds, one thing to say
            raise ModelError(
                f'"{name}" could not be uploaded: {first_line(error)}. `hf auth login` with a token that may write '
                "comes first"
            ) from error
    return str(commit.commit_url)


def _settings(model: "CenterCLIP") -> str:
    rows: dict[str, Any] = {
        "architecture": type(model.backbone).__name__,
        "clustering": f"`{model.clustering}`",
        "frames of a video": model.frames,
        "tokens of a sentence": model.max_tokens,
        "width of the vectors": model.width,
        "similarity": model.rule,
        "weights": f"{sum(each.numel() for each in model.parameters()) / 1e6:.1f} M",
        "fingerprint": f"`{model.fingerprint()}`",
    }
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items())])


def _table(results: Sequence[Result]) -> str:
    lines = ["| data | direction | R@1 | R@5 | R@10 |", "|---|---|---|---|---|"]
    for result in results:
        for direction, title in DIRECTIONS.items():
            values = " | ".join(f"{result.metrics[direction][name]:.1f}" for name in RECALLS)
            lines.append(f"| {result.label()} | {title} | {values} |")
    return "\n".join(lines)
