"""Any benchmark by name, ``load("msrvtt", root)``: videos with their files and captions, and a fingerprint of them."""

import hashlib
import json
import unicodedata
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path, PurePosixPath

from ..errors import AbsentError, AnnotationError, DataError, MissingVideosError, first_few
from ..extend import datasets
from ..files import find_videos
from .annotations import AnnotationFiles, Captions
from .formats import FOLDER, FORMATS, Format, Protocol, find_format, read_table, without_extension

FORMAT_ALIASES = {"msrvtt-9k": "msrvtt"}
SPLITS = ("train", "val", "test")
SPLIT_ALIASES = {"1k-a": "test", "val_1": "test", "val1": "test", "all": "+".join(SPLITS)}


@dataclass(frozen=True)
class Clip:
    """One video of a benchmark and the sentences that describe it. Only what is before ``end`` seconds is used."""

    id: str
    path: Path
    captions: tuple[str, ...]
    end: float | None = None


@dataclass(frozen=True)
class Benchmark:
    """The videos of one split, in the order of the annotation files.

    ``missing`` are annotated videos without a file, ``uncaptioned`` those whose captions are all blank; neither are in
    ``videos``, so ``len(benchmark)`` is the real gallery size.
    """

    name: str
    split: str
    videos: tuple[Clip, ...]
    missing: tuple[str, ...] = ()
    uncaptioned: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.videos)

    @cached_property
    def captions(self) -> tuple[str, ...]:
        """All captions, video after video: the rows of a similarity matrix [captions, videos]."""
        return tuple(caption for clip in self.videos for caption in clip.captions)

    @cached_property
    def video_of_caption(self) -> tuple[int, ...]:
        """For each of ``captions``, the index of its video in ``videos``."""
        return tuple(index for index, clip in enumerate(self.videos) for _ in clip.captions)

    @cached_property
    def fingerprint(self) -> str:
        """Twelve hex digits that change when an id or a caption does, and not with order, paths or machine."""
        content = sorted((clip.id, clip.captions) for clip in self.videos)
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:12]

    def __str__(self) -> str:
        absent = f", {len(self.missing):,} missing" if self.missing else ""
        if self.uncaptioned:
            absent += f", {len(self.uncaptioned):,} left out without a caption ({first_few(self.uncaptioned)})"
        return (
            f"{self.name} {self.split}: {len(self.videos):,} videos, {len(self.captions):,} captions{absent} "
            f"[{self.fingerprint}]"
        )


def load(
    name: str,
    root: str | Path,
    split: str = "test",
    *,
    annotations: str | Path | None = None,
    allow_missing: bool = False,
    protocol: Protocol = "clean",
) -> Benchmark:
    """Load one split of a benchmark.

    Args:
        name: ``msrvtt`` (training-9K), ``msrvtt-7k``, ``msvd``, ``lsmdc``, ``activitynet``, ``didemo``, ``folder``, or
            one of an installed package (:func:`centerclip.extend.dataset`).
        root: the folder with the videos, in any sub-folders.
        split: ``train``, ``val`` or ``test``, or several joined by ``+``.
        annotations: the folder with the annotation files, by default ``root`` or ``root/annotations``. For ``folder``
            it may be the CSV or JSONL file itself.
        allow_missing: leave out videos without a file instead of raising :class:`MissingVideosError`.
        protocol: ``published`` reads MSVD's pickle before its JSON, and the first 31 s of a video of DiDeMo, as the
            authors do. Which videos are in a split does not depend on it.
    """
    captions, uncaptioned = split_captions(name, root, split, annotations=annotations, protocol=protocol)
    end = format_of(name).end(protocol)
    files = VideoFiles.under(Path(root).expanduser())
    paths = {video: files.find(video) for video in captions}
    videos = [Clip(video, path, tuple(captions[video]), end) for video, path in paths.items() if path]
    missing = [video for video, path in paths.items() if path is None]
    video_of_path: dict[Path, str] = {}
    for clip in videos:
        if (other := video_of_path.setdefault(clip.path, clip.id)) != clip.id:
            raise AnnotationError(f"videos {other} and {clip.id} both match the file {clip.path}; rename one of them.")
    if missing and not (allow_missing and videos):
        raise MissingVideosError(missing, annotated=len(captions), where=str(root))
    return Benchmark(format_of(name).name, split, tuple(videos), tuple(missing), uncaptioned)


def read_captions(
    name: str, root: str | Path, split: str, *, annotations: str | Path | None = None, protocol: Protocol = "clean"
) -> Captions:
    """The captions of a split, ``{video id: sentences}``, without looking for videos. The split is never empty."""
    return split_captions(name, root, split, annotations=annotations, protocol=protocol)[0]


def split_captions(
    name: str, root: str | Path, split: str, *, annotations: str | Path | None = None, protocol: Protocol = "clean"
) -> tuple[Captions, tuple[str, ...]]:
    """The captions of a split as :func:`read_captions` gives them, and the videos whose captions are all blank."""
    chosen = format_of(name)
    root = Path(root).expanduser()
    source = Path(annotations).expanduser() if annotations else None
    captions: Captions = {}
    for part in split_names(split):
        if source and source.is_file():
            if chosen is not FOLDER:
                raise AnnotationError(f"{source} is a file; name the folder with the files of {chosen.name}.")
            part_captions = read_table(source, part)
        else:
            folders = (source,) if source else (root, root / "annotations")
            part_captions = chosen.reader(protocol)(AnnotationFiles(folders), part)
        if repeated := captions.keys() & part_captions.keys():
            raise AnnotationError(f"video {min(repeated)} of {chosen.name} is in more than one split of {split}.")
        captions |= part_captions
    uncaptioned = tuple(video for video, sentences in captions.items() if not sentences)
    captions = {video: sentences for video, sentences in captions.items() if sentences}
    if not captions:
        blank = f": the captions of {first_few(uncaptioned)} are blank" if uncaptioned else ""
        raise AbsentError(f"{chosen.name} has no videos in the split {split}{blank}.")
    return captions, uncaptioned


def format_of(name: str) -> Format:
    """The benchmark of that name."""
    key = FORMAT_ALIASES.get(name.lower(), name.lower())
    chosen = find_format(key)
    if chosen is None:
        known = [*FORMATS, *datasets.names()]
        close = get_close_matches(key, known, n=1)
        hint = f"; did you mean {close[0]}?" if close else "."
        raise AnnotationError(f"unknown benchmark {name!r}; choose from {', '.join(known)}{hint}")
    return chosen


def split_names(split: str) -> list[str]:
    """The single splits of one that may be joined, such as ``train+val``."""
    parts = SPLIT_ALIASES.get(split.lower(), split.lower()).split("+")
    parts = [SPLIT_ALIASES.get(part, part) for part in parts]
    if not set(parts) <= set(SPLITS) or len(set(parts)) < len(parts):
        raise AnnotationError(f"unknown split {split!r}; choose {', '.join(SPLITS)}, or several joined by '+'.")
    return parts


@dataclass(frozen=True)
class VideoFiles:
    """The video files of one folder by id: a name or a relative path, with or without its extension.

    One walk finds the files; ids are looked up among them and never joined to a path.
    """

    root: Path
    paths: dict[str, Path]

    @classmethod
    def under(cls, root: Path) -> "VideoFiles":
        """Walk ``root``. Of several files with the same id the one in the outermost folder counts."""
        if not root.is_dir():
            raise DataError(f"{root} is not a folder. Name the folder with the videos with --root.")
        files = [(path.relative_to(root), path) for path in find_videos(root)]
        files.sort(key=lambda entry: (len(entry[0].parts), entry[0]))
        paths: dict[str, Path] = {}
        for relative, path in files:
            for key in (relative.as_posix(), relative.name):
                paths.setdefault(_normalised(key), path)
                paths.setdefault(_normalised(without_extension(key)), path)
        return cls(root, paths)

    def find(self, video: str) -> Path | None:
        """The file of a video, or None. An id that points outside the folder is an error, whatever is there.

        ``dog.mov`` also finds ``dog.mp4``: small copies have another extension than their originals.
        """
        key = PurePosixPath(_normalised(video.replace("\\", "/")))
        if key.is_absolute() or ".." in key.parts or "\0" in video:
            raise AnnotationError(f"video {video!r} points outside {self.root}; ids are names or relative paths.")
        return self.paths.get(str(key)) or self.paths.get(without_extension(str(key)))


def _normalised(key: str) -> str:
    """One spelling for names that some systems store with separate accents."""
    return unicodedata.normalize("NFC", key)
