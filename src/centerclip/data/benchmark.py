"""Any benchmark by name, ``load("msrvtt", root)``: videos with their files and captions, and a fingerprint of them."""

import hashlib
import json
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path, PurePosixPath

from ..errors import AbsentError, AnnotationError, DataError, MissingVideosError
from ..files import find_videos
from .annotations import AnnotationFiles, Captions
from .formats import (
    ACTIVITYNET,
    DIDEMO,
    FOLDER,
    LSMDC,
    MSRVTT_7K,
    MSRVTT_9K,
    MSVD,
    Format,
    read_table,
    without_extension,
)


@dataclass(frozen=True)
class Clip:
    """One video of a benchmark and the sentences that describe it."""

    id: str
    path: Path
    captions: tuple[str, ...]


@dataclass(frozen=True)
class Benchmark:
    """The videos of one split, in the order of the annotation files.

    ``missing`` are annotated videos without a file; they are not in ``videos``, so ``len(benchmark)`` is the real
    gallery size.
    """

    name: str
    split: str
    videos: tuple[Clip, ...]
    missing: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.videos)

    @cached_property
    def captions(self) -> tuple[str, ...]:
        """All captions, video after video: the rows of a similarity matrix [captions, videos]."""
        return tuple(caption for clip in self.videos for caption in clip.captions)

    @cached_property
    def video_of_caption(self) -> tuple[int, ...]:
        """For each of ``captions``, its video's place in ``videos``."""
        return tuple(place for place, clip in enumerate(self.videos) for _ in clip.captions)

    @cached_property
    def fingerprint(self) -> str:
        """Twelve hex digits that change when an id or a caption does, and not with order, paths or machine."""
        content = sorted((clip.id, clip.captions) for clip in self.videos)
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:12]

    def __str__(self) -> str:
        lost = f", {len(self.missing):,} missing" if self.missing else ""
        return (
            f"{self.name} {self.split}: {len(self.videos):,} videos, {len(self.captions):,} captions{lost} "
            f"[{self.fingerprint}]"
        )


def walk_videos(root: Path, *, skip: Path | None = None) -> Iterator[Path]:
    """All video files under ``root``, in a fixed order; hidden ones and the folder ``skip`` are passed by."""
    if not root.is_dir():
        raise DataError(f"{root} is not a folder. Name the folder that holds the videos with --root.")
    yield from find_videos(root, skip=skip)


@dataclass(frozen=True)
class VideoFiles:
    """The video files of one folder by id: a name or a relative path, with or without its extension."""

    root: Path
    paths: dict[str, Path]

    @classmethod
    def under(cls, root: Path) -> "VideoFiles":
        """Walk ``root``. Of several files with the same id the one in the outermost folder counts."""
        found = [(path.relative_to(root), path) for path in walk_videos(root)]
        found.sort(key=lambda entry: (len(entry[0].parts), entry[0]))
        paths: dict[str, Path] = {}
        for relative, path in found:
            for key in (relative.as_posix(), relative.name):
                paths.setdefault(_plain(key), path)
                paths.setdefault(_plain(without_extension(key)), path)
        return cls(root, paths)

    def find(self, video: str) -> Path | None:
        """The file of a video, or None. An id that points outside the folder is an error, whatever lies there.

        ``dog.mov`` also finds ``dog.mp4``: small copies have another extension than their originals.
        """
        key = PurePosixPath(_plain(video.replace("\\", "/")))
        if key.is_absolute() or ".." in key.parts or "\0" in video:
            raise AnnotationError(f"video {video!r} points outside {self.root}; ids are names or relative paths.")
        return self.paths.get(str(key)) or self.paths.get(without_extension(str(key)))


def _plain(key: str) -> str:
    """One spelling for names that some systems store with separate accents."""
    return unicodedata.normalize("NFC", key)


FORMATS = {each.name: each for each in (MSRVTT_9K, MSRVTT_7K, MSVD, LSMDC, ACTIVITYNET, DIDEMO, FOLDER)}
ALIASES = {"msrvtt-9k": "msrvtt"}
SPLITS = ("train", "val", "test")
SPLIT_ALIASES = {"1k-a": "test", "val_1": "test", "val1": "test", "all": "+".join(SPLITS)}


def load(
    name: str,
    root: str | Path,
    split: str = "test",
    *,
    annotations: str | Path | None = None,
    allow_missing: bool = False,
    files: VideoFiles | None = None,
) -> Benchmark:
    """Load one split of a benchmark.

    Args:
        name: ``msrvtt`` (training-9K), ``msrvtt-7k``, ``msvd``, ``lsmdc``, ``activitynet``, ``didemo`` or ``folder``.
        root: the folder with the videos, in any sub-folders.
        split: ``train``, ``val`` or ``test``, or several joined by ``+``.
        annotations: the folder with the annotation files, by default ``root`` or ``root/annotations``. For ``folder``
            it may be the CSV or JSONL file itself.
        allow_missing: leave out videos without a file instead of raising :class:`MissingVideosError`.
        files: the files of ``root``, when they were walked before.
    """
    captions = read_captions(name, root, split, annotations=annotations)
    files = files or VideoFiles.under(Path(root).expanduser())
    videos, missing = [], []
    taken: dict[Path, str] = {}
    for video, sentences in captions.items():
        path = files.find(video)
        if path is None:
            missing.append(video)
        else:
            videos.append(Clip(video, path, tuple(sentences)))
            if taken.setdefault(path, video) != video:
                raise AnnotationError(f"videos {taken[path]} and {video} are both found in {path}; rename one of them.")
    if missing and not (allow_missing and videos):
        raise MissingVideosError(missing, annotated=len(captions), where=str(root))
    return Benchmark(format_of(name).name, split, tuple(videos), tuple(missing))


def read_captions(name: str, root: str | Path, split: str, *, annotations: str | Path | None = None) -> Captions:
    """The captions of a split, ``{video id: sentences}``, without looking for videos. The split is never empty."""
    form = format_of(name)
    root = Path(root).expanduser()
    source = Path(annotations).expanduser() if annotations else None
    captions: Captions = {}
    for part in split_names(split):
        if source and source.is_file():
            if form is not FOLDER:
                raise AnnotationError(f"{source} is a file; name the folder that holds the files of {form.name}.")
            read = read_table(source, part)
        else:
            folders = (source,) if source else (root, root / "annotations")
            read = form.read(AnnotationFiles(folders), part)
        if twice := captions.keys() & read.keys():
            raise AnnotationError(f"video {min(twice)} of {form.name} stands in more than one split of {split}.")
        captions |= read
    if not captions:
        raise AbsentError(f"{form.name} has no videos in the split {split}.")
    return captions


def format_of(name: str) -> Format:
    """The benchmark of that name."""
    known = ALIASES.get(name.lower(), name.lower())
    if known not in FORMATS:
        guess = get_close_matches(known, FORMATS, n=1)
        hint = f"; did you mean {guess[0]}?" if guess else "."
        raise AnnotationError(f"there is no benchmark {name!r}; known are {', '.join(FORMATS)}{hint}")
    return FORMATS[known]


def split_names(split: str) -> list[str]:
    """The single splits of ``train+val``: several may be joined."""
    parts = SPLIT_ALIASES.get(split.lower(), split.lower()).split("+")
    parts = [SPLIT_ALIASES.get(part, part) for part in parts]
    if not set(parts) <= set(SPLITS) or len(set(parts)) < len(parts):
        raise AnnotationError(f"there is no split {split!r}; take {', '.join(SPLITS)} or some of them joined by '+'.")
    return parts
