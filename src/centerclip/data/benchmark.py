"""Any benchmark by name, ``load("msrvtt", root)``: videos with their files and captions, and a fingerprint of them.

``verify`` compares a copy of one with the published figures, and opens every video of it.
"""

import hashlib
import json
import unicodedata
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path, PurePosixPath

from ..errors import AbsentError, AnnotationError, DataError, MissingVideosError, first_few
from ..extend import datasets
from ..files import find_videos
from ..parallel import one_thread, run_each, usable_cores
from ..video import VideoError, probe
from .annotations import AnnotationFiles, Captions
from .formats import FOLDER, FORMATS, Format, Protocol, Published, find_format, read_table, without_extension

FORMAT_ALIASES = {"msrvtt-9k": "msrvtt"}
SPLITS = ("train", "val", "test")
SPLIT_ALIASES = {"1k-a": "test", "val_1": "test", "val1": "test", "all": "+".join(SPLITS)}
PROBE_TIMEOUT = 120.0  # seconds for one video; reading its packets takes far less


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


@dataclass(frozen=True)
class SplitCheck:
    """The state of one split. ``videos`` and ``captions`` count annotations, ``found`` counts files.

    Videos whose captions are all blank, ``uncaptioned``, count nowhere else.
    """

    split: str
    videos: int
    captions: int
    published: Published | None
    found: int
    missing: tuple[str, ...]
    fingerprint: str
    uncaptioned: tuple[str, ...] = ()

    @property
    def differences(self) -> list[str]:
        """A sentence for each figure that is not the published one."""
        if self.published is None:
            return []
        pairs = [("videos", self.videos, self.published.videos), ("captions", self.captions, self.published.captions)]
        return [
            f"{self.split} has {count:,} {what}, {abs(count - published):,} {'more' if count > published else 'fewer'} "
            f"than the {published:,} published"
            for what, count, published in pairs
            if published is not None and count != published
        ]


@dataclass(frozen=True)
class Verification:
    """The state of a copy of a benchmark."""

    name: str
    note: str  # a line about its splits
    splits: list[SplitCheck]  # each split, and splits that are published together
    absent: dict[str, str]  # splits without an annotation file, and the file names that were tried
    unreadable: dict[str, str] = field(default_factory=dict)  # why, by video; empty when they were not opened
    opened: int = 0  # how many videos were opened

    @property
    def missing(self) -> list[str]:
        """All videos without a file."""
        return list(dict.fromkeys(video for check in self.splits for video in check.missing))

    @property
    def uncaptioned(self) -> list[str]:
        """All videos whose captions are blank."""
        return list(dict.fromkeys(video for check in self.splits for video in check.uncaptioned))

    @property
    def differences(self) -> list[str]:
        """All figures that are not the published ones."""
        return [difference for check in self.splits for difference in check.differences]


def verify(
    name: str,
    root: str | Path,
    *,
    annotations: str | Path | None = None,
    split: str | None = None,
    quick: bool = False,
    workers: int | None = None,
    on_progress: Callable[[int, int], None] = lambda opened, total: None,
) -> Verification:
    """Count the annotations and the files of a benchmark, and open every video unless ``quick``.

    ``name``, ``root``, ``annotations`` and ``split`` are as for :func:`~centerclip.data.load`; by default all splits
    that have an annotation file. ``on_progress`` is called with (opened, total) after each video.

    Raises:
        AnnotationError: a file is malformed, or there is none for the split.
    """
    benchmark = format_of(name)
    files = VideoFiles.under(Path(root).expanduser())
    captions: dict[str, Captions] = {}
    uncaptioned: dict[str, tuple[str, ...]] = {}
    absent: dict[str, str] = {}
    for single in split_names(split) if split else SPLITS:
        try:
            captions[single], uncaptioned[single] = split_captions(name, root, single, annotations=annotations)
        except AbsentError as error:
            if split:
                raise
            absent[single] = str(error)
    if not captions:
        raise AbsentError(f"no annotation files of {benchmark.name} found: {next(iter(absent.values()))}")
    joined = [split for split in benchmark.published if "+" in split and set(split.split("+")) <= captions.keys()]
    checks: list[SplitCheck] = []
    paths: dict[str, Path] = {}
    for each in (*captions, *joined):
        parts = each.split("+")
        texts = {video: sentences for part in parts for video, sentences in captions[part].items()}
        blank = tuple(video for part in parts for video in uncaptioned[part])
        found = {video: path for video in texts if (path := files.find(video))}
        clips = tuple(Clip(video, path, tuple(texts[video])) for video, path in found.items())
        published = benchmark.published.get(each)
        check = SplitCheck(
            split=each,
            videos=len(texts),
            captions=sum(map(len, texts.values())),
            published=published.for_count(len(texts)) if published else None,
            found=len(found),
            missing=tuple(video for video in texts if video not in found),
            uncaptioned=blank,
            fingerprint=Benchmark(benchmark.name, each, clips).fingerprint,
        )
        checks.append(check)
        paths |= found
    result = Verification(benchmark.name, benchmark.note, checks, absent, opened=0 if quick else len(paths))
    if quick:
        return result
    videos, workers = {path: video for video, path in paths.items()}, workers or usable_cores()
    on_progress(0, len(videos))
    with closing(run_each(_try_to_open, videos, workers=workers, timeout=PROBE_TIMEOUT, setup=one_thread)) as outcomes:
        for opened, outcome in enumerate(outcomes, start=1):
            if outcome.error is not None:
                result.unreadable[videos[outcome.job]] = outcome.error
            on_progress(opened, len(videos))
    return result


def _try_to_open(path: Path) -> None:
    """Raise an error that says why, if a video cannot be opened. Runs in a worker process."""
    try:
        probe(path)
    except VideoError as error:
        raise DataError(f"{error.detail}. {error.advice}") from error
