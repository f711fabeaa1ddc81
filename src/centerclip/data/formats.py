"""How each benchmark writes its annotations, and how many videos and captions the papers report for each split.

A reader turns the published files into ``{video id: captions}`` for ``train``, ``val`` and ``test``. Models are
selected on ``val``, so a benchmark that publishes none has a part of its training list held out. That is the protocol
``clean``; what the authors do otherwise with a benchmark, the protocol ``published``, is in its :class:`Format` too.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from ..errors import AbsentError, AnnotationError
from ..extend import datasets
from ..files import VIDEO_SUFFIXES
from .annotations import (
    AnnotationFiles,
    Captions,
    captions_by_video,
    read_csv,
    read_text,
    require_list,
    require_strings,
    select_videos,
)

Protocol = Literal["published", "clean"]  # the authors' procedure, or our more careful one
Reader = Callable[[AnnotationFiles, str], Captions]


@dataclass(frozen=True)
class Published:
    """How many videos and captions a split has in the papers; captions are None where they do not say.

    ``shorter`` is another list of the split that is in use, with fewer videos.
    """

    videos: int
    captions: int | None = None
    shorter: "Published | None" = None

    def for_count(self, videos: int) -> "Published":
        """The figures of the list that has so many videos; of the full one if none has."""
        return self.shorter if self.shorter and self.shorter.videos == videos else self


@dataclass(frozen=True)
class Format:
    """One benchmark."""

    name: str  # what people type
    read: Reader  # (files, split) -> {video id: captions} for the splits ``train``, ``val`` and ``test``
    # Figures by split, or by splits together such as ``train+val`` when ``val`` is held out of the training list.
    published: Mapping[str, Published] = field(default_factory=dict)
    note: str = ""  # one line about the splits, for people
    authors_train: str = "train"  # splits that the authors train on
    authors_read: Reader | None = None  # ``read`` as the authors do, where that differs
    authors_end: float | None = None  # seconds of a video from its start that the authors use; None for all

    def train_split(self, protocol: Protocol) -> str:
        """The split to train on."""
        return self.authors_train if protocol == "published" else "train"

    def select_split(self, protocol: Protocol) -> str:
        """The split that chooses the best epoch."""
        return "test" if protocol == "published" else "val"

    def reader(self, protocol: Protocol) -> Reader:
        """What reads its annotations."""
        return self.authors_read or self.read if protocol == "published" else self.read

    def end(self, protocol: Protocol) -> float | None:
        """Seconds at which videos end, if they are cut."""
        return self.authors_end if protocol == "published" else None


def _read_msrvtt(files: AnnotationFiles, split: str, *, training: str) -> Captions:
    """MSR-VTT: 10,000 videos of 20 sentences; the training-7K and training-9K lists, and the 1,000 pairs of test 1k-A.

    ``val`` are the 497 videos of the training list that the data set itself marks ``validate``; ``train`` is the rest
    of the list, ``train+val`` all of it. ``training`` is the list in use, ``7k`` or ``9k``.
    """
    if split == "test":
        rows = files.rows("MSRVTT_JSFUSION_test.csv", columns=("video_id", "sentence"))
        return captions_by_video((row["video_id"], row["sentence"]) for row in rows)
    listed = [row["video_id"] for row in files.rows(f"MSRVTT_train.{training}.csv", columns=("video_id",))]
    name = "MSRVTT_data.json"
    data = files.json(name)
    try:
        marked = {video["video_id"]: video["split"] for video in data["videos"]}
        captions = captions_by_video((sentence["video_id"], sentence["caption"]) for sentence in data["sentences"])
    except (KeyError, TypeError, AttributeError) as error:
        raise AnnotationError(f"{files.find(name)} is not in the format of MSR-VTT: {error!r}.") from error
    wanted = [video for video in listed if (marked.get(video) == "validate") == (split == "val")]
    return select_videos(captions, wanted, source=name)


def _msrvtt(name: str, training: str, published: Published) -> Format:
    note = "val is the part of the training list that MSR-VTT marks as validation; train+val is the whole list"
    figures = {"train+val": published, "test": Published(1_000, 1_000)}
    return Format(name, partial(_read_msrvtt, training=training), figures, note, authors_train="train+val")


def _splits(*videos: int) -> dict[str, Published]:
    """The figures of train, val and test, with one caption for each video."""
    return {split: Published(count, count) for split, count in zip(("train", "val", "test"), videos, strict=True)}


def _read_msvd(files: AnnotationFiles, split: str, *, pickle_first: bool = False) -> Captions:
    """MSVD: 1,970 videos of about 40 sentences, in either of the two caption files that are in use.

    ``captions_msvd.json`` holds ``{id: [sentence, ...]}``; ``raw-captions.pkl``, which the authors read, holds
    ``{id: [[word, ...], ...]}``. ``{split}_list.txt`` names the videos of a split.
    """
    json_name, pickle_name = "captions_msvd.json", "raw-captions.pkl"
    source = files.find(*((pickle_name, json_name) if pickle_first else (json_name, pickle_name)))
    content = files.json(json_name) if source.name.startswith(json_name) else files.pickle(pickle_name)
    if not isinstance(content, dict):
        raise AnnotationError(f"{source} must map video ids to sentences, not be a {type(content).__name__}.")

    def sentence(value: Any, where: str) -> str:
        return value if isinstance(value, str) else " ".join(require_strings(value, source=where))

    captions = captions_by_video(
        (str(video), sentence(value, f"{source}, video {video}"))
        for video, sentences in content.items()
        for value in require_list(sentences, source=f"{source}, video {video}")
    )
    return select_videos(captions, files.lines(f"{split}_list.txt"), source=str(source))


_LSMDC_FILES = {
    "train": "LSMDC16_annos_training.csv",
    "val": "LSMDC16_annos_val.csv",
    "test": "LSMDC16_challenge_1000_publictect.csv",
}


def _read_lsmdc(files: AnnotationFiles, split: str) -> Captions:
    """LSMDC: clips of films, one sentence each, in tab-separated files without a header.

    A line is ``clip, start, end, start, end, sentence``; times are repeated in the clip's name, which has dots in it.
    Quotation marks are part of the sentence.
    """
    pairs = []
    for number, line in enumerate(files.lines(_LSMDC_FILES[split]), start=1):
        fields = line.split("\t")
        if len(fields) < 5:  # five when there is no sentence
            path = files.find(_LSMDC_FILES[split])
            raise AnnotationError(f"{path}, line {number} has {len(fields)} tab-separated fields instead of 6.")
        pairs.append((fields[0].strip(), " ".join(fields[5:])))
    return captions_by_video(pairs)


ACTIVITYNET_FILES = "video_path.json"
ACTIVITYNET_BROKEN = {"v_NHznDFD3V3k"}  # in the authors' list of files, but they leave it out


def _read_activitynet(files: AnnotationFiles, split: str) -> Captions:
    """ActivityNet Captions: all sentences of a video joined into one paragraph. ``test`` is ``val_1``.

    ``val`` is held out of the training file, because ``val_1`` is what results are reported on. Where the authors' list
    of files is among the annotations, ``video_path.json``, only its videos count: the authors had not all of them.
    """
    name = "val_1.json" if split == "test" else "train.json"
    content = files.json(name)
    if not isinstance(content, dict) or not all(isinstance(video, dict) for video in content.values()):
        raise AnnotationError(f"{files.find(name)} must map video ids to their sentences.")
    try:
        paths = files.json(ACTIVITYNET_FILES)
        if not isinstance(paths, dict):
            raise AnnotationError(f"{files.find(ACTIVITYNET_FILES)} must map video ids to paths.")
        listed = {f"v_{video}" for video in paths} - ACTIVITYNET_BROKEN
    except AbsentError:
        listed = set(content)
    return captions_by_video(
        (video, " ".join(require_strings(annotation.get("sentences"), source=f"{name}, {video}")))
        for video, annotation in content.items()
        if video in listed and (split == "test" or held_out(video) == (split == "val"))
    )


def _read_didemo(files: AnnotationFiles, split: str) -> Captions:
    """DiDeMo: all descriptions of a video joined into one paragraph.

    Two layouts are in use: ``didemo_{split}_label.csv``, whose rows hold paragraphs, and the original
    ``{split}_data.json``, whose entries each describe one moment.
    """
    table, original = f"didemo_{split}_label.csv", f"{split}_data.json"
    source = files.find(table, original)
    try:
        if source.name.startswith(table):
            pairs = [(row["video_path"], row["text"]) for row in files.rows(table, columns=("video_path", "text"))]
        else:
            pairs = [(moment["video"], moment["description"]) for moment in files.json(original)]
        captions = captions_by_video((_didemo_id(path), description) for path, description in pairs)
    except (KeyError, TypeError, AttributeError) as error:
        raise AnnotationError(f"{source} is not in the format of DiDeMo: {error!r}.") from error
    return {video: [" ".join(descriptions)] if descriptions else [] for video, descriptions in captions.items()}


def _didemo_id(path: str) -> str:
    """The id in a path of someone else's machine. Some names end in a dot where the extension was lost."""
    return without_extension(path.replace("\\", "/").rsplit("/", 1)[-1]).rstrip(".")


def _read_folder(files: AnnotationFiles, split: str) -> Captions:
    """Your own videos: ``captions.csv`` or ``captions.jsonl``."""
    return read_table(files.find("captions.csv", "captions.jsonl"), split)


def read_table(path: Path, split: str) -> Captions:
    """The captions of a split of one CSV or JSONL file of ``video, caption[, split]``.

    Without a ``split`` about 1 video in 20 is held out as ``val`` and the others are ``train``. A video may be in
    several rows, once for each caption.
    """
    rows = list(_json_rows(path) if ".jsonl" in path.name.lower() else read_csv(path, ("video", "caption")))
    splits: dict[str, str] = {}
    for row in rows:
        video = row["video"]
        row_split = row.get("split") or ("val" if held_out(video) else "train")
        if splits.setdefault(video, row_split) != row_split:
            raise AnnotationError(f"{path}: video {video} is in two splits, {splits[video]} and {row_split}.")
    return captions_by_video((row["video"], row["caption"]) for row in rows if splits[row["video"]] == split)


def _json_rows(path: Path) -> Iterator[dict[str, str]]:
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            raise AnnotationError(f"{path}, line {number} is not JSON: {error}.") from error
        if not isinstance(row, dict) or not all(isinstance(row.get(key), str) for key in ("video", "caption")):
            raise AnnotationError(f'{path}, line {number} must have the form {{"video": "...", "caption": "..."}}.')
        yield {key: value for key, value in row.items() if isinstance(value, str)}


def held_out(video: str) -> bool:
    """Whether a training video belongs to the validation part, for benchmarks that have none: about 1 in 20.

    It depends on the id alone, so a copy of the data that lacks some videos still splits the others the same way.
    """
    return int.from_bytes(hashlib.sha256(video.encode(errors="surrogatepass")).digest()[:8]) % 20 == 0


def without_extension(name: str) -> str:
    """A file name without its extension, if that is one of a video: ids such as ``film_00.23.28.886`` have dots too."""
    stem, dot, extension = name.rpartition(".")
    return stem if dot and f".{extension.lower()}" in VIDEO_SUFFIXES else name


FOLDER = Format(name="folder", read=_read_folder)
FORMATS = {
    each.name: each
    for each in (
        _msrvtt("msrvtt", "9k", Published(9_000, 180_000)),
        _msrvtt("msrvtt-7k", "7k", Published(7_010, 140_200)),
        Format(
            name="msvd",
            read=_read_msvd,
            published={"train": Published(1_200, 48_774), "val": Published(100, 4_290), "test": Published(670, 27_763)},
            authors_read=partial(_read_msvd, pickle_first=True),
        ),
        Format(
            "lsmdc",
            _read_lsmdc,
            _splits(101_079, 7_408, 1_000),
            "LSMDC has 118,081 clips in all; results are reported on the 1,000 of the test split",
        ),
        Format(
            name="activitynet",
            read=_read_activitynet,
            published={
                "train+val": Published(10_009, 10_009, shorter=Published(9_933, 9_933)),
                "test": Published(4_917, 4_917, shorter=Published(4_869, 4_869)),
            },
            note="test is val_1; val is held out of the training file (about 1 video in 20); a caption is a whole "
            "paragraph. The authors' list of files, video_path.json, leaves 9,933 videos for training and 4,869 for "
            "test; results on different lists cannot be compared",
            authors_train="train+val",
        ),
        Format(
            "didemo", _read_didemo, _splits(8_395, 1_065, 1_004), "a caption is a whole paragraph", authors_end=31.0
        ),
        FOLDER,
    )
}
datasets.reserve(FORMATS)


def find_format(name: str) -> Format | None:
    """A benchmark that is built in, or a data set of someone else (:mod:`centerclip.extend`); None if there is none."""
    extension = None if name in FORMATS else datasets.get(name)
    if extension is None:
        return FORMATS.get(name)
    figures = {split: Published(*counts) for split, counts in extension.settings.get("published", {}).items()}
    return Format(name, extension.target, figures, extension.settings.get("note", ""))
