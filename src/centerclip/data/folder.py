"""Your own videos: a CSV or JSONL file of ``video, caption[, split]``.

Without a ``split`` about 1 video in 20 is held out as ``val`` and the others are ``train``. A video may stand in
several rows, once for each caption.
"""

import json
from collections.abc import Iterator
from pathlib import Path

from .annotations import AnnotationFiles, Captions, gather, read_csv, read_text
from .benchmark import held_out
from .errors import AnnotationError
from .formats import Format

NAMES = ("captions.csv", "captions.jsonl")


def read(files: AnnotationFiles, split: str) -> Captions:
    """The captions of a split of ``captions.csv`` or ``captions.jsonl``."""
    return read_table(files.find(*NAMES), split)


def read_table(path: Path, split: str) -> Captions:
    """The captions of a split of one CSV or JSONL file."""
    rows = list(_json_rows(path) if ".jsonl" in path.name.lower() else read_csv(path, ("video", "caption")))
    splits: dict[str, str] = {}
    for row in rows:
        video = row["video"]
        own = row.get("split") or ("val" if held_out(video) else "train")
        if splits.setdefault(video, own) != own:
            raise AnnotationError(f"{path}: video {video} stands in two splits, {splits[video]} and {own}.")
    return gather((row["video"], row["caption"]) for row in rows if splits[row["video"]] == split)


def _json_rows(path: Path) -> Iterator[dict[str, str]]:
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            raise AnnotationError(f"{path}, line {number} is not JSON: {error}.") from error
        if not isinstance(row, dict) or not all(isinstance(row.get(key), str) for key in ("video", "caption")):
            raise AnnotationError(f'{path}, line {number}: {{"video": "...", "caption": "..."}} was expected.')
        yield {key: value for key, value in row.items() if isinstance(value, str)}


FOLDER = Format(name="folder", read=read)
