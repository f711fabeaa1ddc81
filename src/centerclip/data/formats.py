"""How every benchmark writes its annotations, and what the papers say a split holds."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import AnnotationError
from ..files import VIDEO_SUFFIXES
from .annotations import AnnotationFiles, Captions, gather, members, pick, read_csv, read_text, strings


@dataclass(frozen=True)
class Published:
    """How many videos and captions a split has in the papers; captions are None where they do not say."""

    videos: int
    captions: int | None = None


@dataclass(frozen=True)
class Format:
    """One benchmark.

    Args:
        name: what people type.
        read: ``(files, split) -> {video id: captions}`` for the splits ``train``, ``val`` and ``test``.
        published: figures by split, or by splits together such as ``train+val`` when ``val`` is held out of the
            training list.
        note: one line about the splits, for people.
    """

    name: str
    read: Callable[[AnnotationFiles, str], Captions]
    published: Mapping[str, Published] = field(default_factory=dict)
    note: str = ""


MSRVTT_FILE = "MSRVTT_data.json"


def _read_msrvtt(files: AnnotationFiles, split: str, *, training: str) -> Captions:
    """The captions of a split; ``training`` is the list in use, ``7k`` or ``9k``."""
    if split == "test":
        rows = files.rows("MSRVTT_JSFUSION_test.csv", columns=("video_id", "sentence"))
        return gather((row["video_id"], row["sentence"]) for row in rows)
    listed = [row["video_id"] for row in files.rows(f"MSRVTT_train.{training}.csv", columns=("video_id",))]
    data = files.json(MSRVTT_FILE)
    try:
        own_split = {video["video_id"]: video["split"] for video in data["videos"]}
        captions = gather((sentence["video_id"], sentence["caption"]) for sentence in data["sentences"])
    except (KeyError, TypeError, AttributeError) as error:
        raise AnnotationError(f"{MSRVTT_FILE} is not in the form of MSR-VTT: {error!r} stands in the way.") from error
    wanted = [video for video in listed if (own_split.get(video) == "validate") == (split == "val")]
    return pick(captions, wanted, source=MSRVTT_FILE)


_TEST = Published(1_000, 1_000)
_NOTE = "val is the part of the training list that MSR-VTT marks as validation; train+val is the whole list"
MSRVTT_9K = Format(
    name="msrvtt",
    read=partial(_read_msrvtt, training="9k"),
    published={"train+val": Published(9_000, 180_000), "test": _TEST},
    note=_NOTE,
)
MSRVTT_7K = Format(
    name="msrvtt-7k",
    read=partial(_read_msrvtt, training="7k"),
    published={"train+val": Published(7_010, 140_200), "test": _TEST},
    note=_NOTE,
)
MSVD_JSON, MSVD_PICKLE = "captions_msvd.json", "raw-captions.pkl"


def _read_msvd(files: AnnotationFiles, split: str) -> Captions:
    """The captions of the videos that ``{split}_list.txt`` names."""
    source = files.find(MSVD_JSON, MSVD_PICKLE)
    content = files.json(MSVD_JSON) if source.name.startswith(MSVD_JSON) else files.pickle(MSVD_PICKLE)
    if not isinstance(content, dict):
        raise AnnotationError(f"{source} must map video ids to sentences, not be a {type(content).__name__}.")
    captions = gather(
        (str(video), _sentence(sentence, f"{source}, video {video}"))
        for video, sentences in content.items()
        for sentence in members(sentences, source=f"{source}, video {video}")
    )
    return pick(captions, files.lines(f"{split}_list.txt"), source=str(source))


def _sentence(sentence: Any, source: str) -> str:
    """A sentence that is a string, or a list of words."""
    return sentence if isinstance(sentence, str) else " ".join(strings(sentence, source=source))


MSVD = Format(
    name="msvd",
    read=_read_msvd,
    published={"train": Published(1_200, 48_774), "val": Published(100, 4_290), "test": Published(670, 27_763)},
)
LSMDC_FILES = {
    "train": "LSMDC16_annos_training.csv",
    "val": "LSMDC16_annos_val.csv",
    "test": "LSMDC16_challenge_1000_publictect.csv",
}


def _read_lsmdc(files: AnnotationFiles, split: str) -> Captions:
    """The sentences of a split; quotation marks are part of them."""
    pairs = []
    for number, line in enumerate(files.lines(LSMDC_FILES[split]), start=1):
        fields = line.split("\t")
        if len(fields) < 5:  # five when there is no sentence
            raise AnnotationError(
                f"{files.find(LSMDC_FILES[split])}, line {number}: {len(fields)} fields between tabs, 6 were expected."
            )
        pairs.append((fields[0].strip(), " ".join(fields[5:])))
    return gather(pairs)


LSMDC = Format(
    name="lsmdc",
    read=_read_lsmdc,
    published={
        "train": Published(101_079, 101_079),
        "val": Published(7_408, 7_408),
        "test": Published(1_000, 1_000),
    },
    note="LSMDC has 118,081 clips in all; the 1,000 of the test are what results are reported on",
)


def _read_activitynet(files: AnnotationFiles, split: str) -> Captions:
    """One paragraph for each video of a split."""
    name = "val_1.json" if split == "test" else "train.json"
    content = files.json(name)
    if not isinstance(content, dict) or not all(isinstance(video, dict) for video in content.values()):
        raise AnnotationError(f"{files.find(name)} must map video ids to their sentences.")
    return gather(
        (video, " ".join(strings(annotation.get("sentences"), source=f"{name}, {video}")))
        for video, annotation in content.items()
        if split == "test" or held_out(video) == (split == "val")
    )


ACTIVITYNET = Format(
    name="activitynet",
    read=_read_activitynet,
    published={"train+val": Published(10_009, 10_009), "test": Published(4_917, 4_917)},
    note="test is val_1; val is held out of the training file (about 1 video in 20); a caption is a whole paragraph",
)


def _read_didemo(files: AnnotationFiles, split: str) -> Captions:
    """One paragraph for each video of a split."""
    table, original = f"didemo_{split}_label.csv", f"{split}_data.json"
    source = files.find(table, original)
    described = _from_table(files, table) if source.name.startswith(table) else _from_original(files, original)
    return {video: [" ".join(sentences)] for video, sentences in gather(described).items()}


def _from_table(files: AnnotationFiles, name: str) -> Iterator[tuple[str, str]]:
    for row in files.rows(name, columns=("video_path", "text")):
        yield _video(row["video_path"]), row["text"]


def _from_original(files: AnnotationFiles, name: str) -> Iterator[tuple[str, str]]:
    try:
        for moment in files.json(name):
            yield _video(moment["video"]), moment["description"]
    except (KeyError, TypeError, AttributeError) as error:
        raise AnnotationError(f"{name} is not in the form of DiDeMo: {error!r} stands in the way.") from error


def _video(path: str) -> str:
    """The id in a path of someone else's machine. Some names end in a dot where the extension was lost."""
    return without_extension(path.replace("\\", "/").rsplit("/", 1)[-1]).rstrip(".")


DIDEMO = Format(
    name="didemo",
    read=_read_didemo,
    published={"train": Published(8_395, 8_395), "val": Published(1_065, 1_065), "test": Published(1_004, 1_004)},
    note="a caption is a whole paragraph",
)
FOLDER_FILES = ("captions.csv", "captions.jsonl")


def _read_folder(files: AnnotationFiles, split: str) -> Captions:
    """The captions of a split of ``captions.csv`` or ``captions.jsonl``."""
    return read_table(files.find(*FOLDER_FILES), split)


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


FOLDER = Format(name="folder", read=_read_folder)


def held_out(video: str) -> bool:
    """Whether a training video belongs to the validation part, for benchmarks that have none: about 1 in 20.

    It depends on the id alone, so a copy of the data that lacks some videos still splits the others the same way.
    """
    return int.from_bytes(hashlib.sha256(video.encode(errors="surrogatepass")).digest()[:8]) % 20 == 0


def without_extension(name: str) -> str:
    """A file name without its extension, if that is one of a video: ids such as ``film_00.23.28.886`` have dots too."""
    stem, dot, extension = name.rpartition(".")
    return stem if dot and f".{extension.lower()}" in VIDEO_SUFFIXES else name
