"""Compares a copy of a benchmark with the published figures, and opens every video of it."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import AbsentError, DataError
from ..parallel import one_thread, run_each, usable_cores
from ..video import VideoError, probe
from .annotations import Captions
from .benchmark import SPLITS, Benchmark, Clip, VideoFiles, format_of, split_captions, split_names
from .formats import Published

PROBE_TIMEOUT = 120.0  # seconds for one video; reading its packets takes far less


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
