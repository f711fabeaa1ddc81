"""``load("msrvtt", root)``: any benchmark by name, with the file of every video."""

from difflib import get_close_matches
from pathlib import Path

from . import folder
from .activitynet import ACTIVITYNET
from .annotations import AnnotationFiles, Captions
from .benchmark import Benchmark, Clip
from .didemo import DIDEMO
from .errors import AbsentError, AnnotationError, MissingVideosError
from .files import VideoFiles
from .formats import Format
from .lsmdc import LSMDC
from .msrvtt import MSRVTT_7K, MSRVTT_9K
from .msvd import MSVD

FORMATS = {each.name: each for each in (MSRVTT_9K, MSRVTT_7K, MSVD, LSMDC, ACTIVITYNET, DIDEMO, folder.FOLDER)}
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
            if form is not folder.FOLDER:
                raise AnnotationError(f"{source} is a file; name the folder that holds the files of {form.name}.")
            read = folder.read_table(source, part)
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
