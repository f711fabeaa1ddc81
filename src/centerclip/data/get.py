"""Test sets that are hosted on the Hugging Face hub: their size and licence, and a copy as a folder of videos."""

import csv
import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import DataError, first_line
from ..files import VIDEO_SUFFIXES, write_atomic

HUB_SECONDS = 30.0  # how long the hub may be silent
BATCH_ROWS = 8  # videos in memory at a time
OPEN_LICENCES = re.compile(r"apache|mit|bsd|cc0|cc-by(-sa)?-\d|odc|pddl", re.IGNORECASE)  # anyone may use the data
OnProgress = Callable[[int, int], object]  # (files done, files in all)


@dataclass(frozen=True)
class Hosted:
    """A test set as mteb hosts it."""

    repository: str
    revision: str
    note: str  # what it holds, beside what papers report on
    home: str  # of the data set
    task: str  # what mteb calls its retrieval of videos by text


HOSTED = {
    "msrvtt": Hosted(
        "mteb/MSR-VTT", "4661603cee25c1fd370e5478a2953203cf37155b", "879 clips of the 1,000 of test 1k-A",
        "https://www.microsoft.com/en-us/research/publication/msr-vtt-a-large-video-description-dataset-for-bridging-video-and-language/",
        "MSRVTTT2V",
    ),
    "msvd": Hosted(
        "mteb/MSVD", "177cefe5957363d1617f0427fcfa00ff0b0d7da8",
        "about 660 clips of the 670, with the first caption of each; papers use all 27,763",
        "https://www.cs.utexas.edu/~ml/clamp/videoDescription/", "MSVDT2VRetrieval",
    ),
    "activitynet": Hosted(
        "mteb/ActivityNet_Captions_val2", "e87473c4832ea982bbeca1dde94bbebfa6ea6ada",
        "the val2 list, about 4,884 videos; papers use val1, 4,917", "http://activity-net.org",
        "ActivityNetCaptionsT2VRetrieval",
    ),
    "didemo": Hosted(
        "mteb/DiDeMo", "746689f644b66022540a9a39136e842bee164e6b", "about 999 videos of the 1,004",
        "https://arxiv.org/abs/1708.01641", "DiDeMoT2VRetrieval",
    ),
    "vatex": Hosted(
        "mteb/VATEX_test_1k", "0d2e86e6d36927f4676ee6127c4e38e3867ce0ce",
        "1,000 videos with the first English caption; papers use 1,500 with ten each",
        "https://arxiv.org/abs/1904.03493", "VATEXT2VRetrieval",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Offer:
    """What would be fetched."""

    name: str
    hosted: Hosted
    files: tuple[str, ...]  # Parquet files of the test split
    bytes: int
    licence: str  # as the hub says; empty where it says nothing

    @property
    def is_open(self) -> bool:
        """Whether the licence that the hub states lets anyone use the data."""
        return bool(OPEN_LICENCES.match(self.licence))


def look_up(name: str) -> Offer:
    """Ask the hub for the size and the licence of a test set.

    Raises:
        DataError: there is no such test set, or the hub does not answer.
    """
    from huggingface_hub import HfApi

    if name not in HOSTED:
        raise DataError(f"no test set {name!r} is hosted; choose from {', '.join(HOSTED)}")
    hosted = HOSTED[name]
    with _explained(hosted):
        info = HfApi().dataset_info(
            hosted.repository, revision=hosted.revision, files_metadata=True, timeout=HUB_SECONDS
        )
    files = {
        file.rfilename: file.size or 0
        for file in info.siblings or []
        if file.rfilename.endswith(".parquet") and "test" in file.rfilename
    }
    if not files:
        raise DataError(f"{hosted.repository} on the Hugging Face hub has no test split in Parquet files")
    stated = (info.card_data.get("license") if info.card_data else None) or ""
    licence = ", ".join(stated) if isinstance(stated, list) else str(stated)
    return Offer(name, hosted, tuple(sorted(files)), sum(files.values()), "" if licence == "unknown" else licence)


def get(offer: Offer, folder: Path, *, on_progress: OnProgress = lambda done, total: None) -> int:
    """Fetch a test set and write its videos and ``captions.csv`` into a folder; returns the number of videos.

    What is there already is not fetched again. The folder is a data set then: ``centerclip evaluate MODEL folder``.

    Args:
        offer: from :func:`look_up`.
        folder: new, or of an earlier run.
        on_progress: called with the files of the hub that are done, and all of them.
    """
    from huggingface_hub import hf_hub_download

    hosted = offer.hosted
    (folder / "videos").mkdir(parents=True, exist_ok=True)
    rows: list[tuple[str, str, str]] = []
    for done, file in enumerate(offer.files):
        on_progress(done, len(offer.files))
        with _explained(hosted):
            path = hf_hub_download(hosted.repository, file, repo_type="dataset", revision=hosted.revision)
        for video, caption in _rows(Path(path)):
            name = f"{len(rows):05}{_suffix(video)}"
            target = folder / "videos" / name
            if not target.is_file() or target.stat().st_size != len(video["bytes"]):
                write_atomic(target, video["bytes"])
            rows.append((name, caption, "test"))
    on_progress(len(offer.files), len(offer.files))
    table = io.StringIO(newline="")
    csv.writer(table).writerows([("video", "caption", "split"), *rows])
    write_atomic(folder / "captions.csv", table.getvalue())
    return len(rows)


def _rows(path: Path) -> Iterator[tuple[dict[str, Any], str]]:
    """Videos, as ``{"bytes": ..., "path": ...}``, with their captions."""
    from pyarrow import parquet

    table = parquet.ParquetFile(path)
    missing = {"video", "caption"} - set(table.schema_arrow.names)
    if missing:
        raise DataError(f"{path} has no column {' or '.join(sorted(missing))}: the test set has another format now")
    for batch in table.iter_batches(batch_size=BATCH_ROWS, columns=["video", "caption"]):
        for row in batch.to_pylist():
            caption = row["caption"][0] if isinstance(row["caption"], list) else row["caption"]
            yield row["video"], str(caption)


def _suffix(video: dict[str, Any]) -> str:
    suffix = Path(video.get("path") or "").suffix.lower()
    return suffix if suffix in VIDEO_SUFFIXES else ".mp4"


@contextmanager
def _explained(hosted: Hosted) -> Iterator[None]:
    try:
        yield
    except DataError:
        raise
    except Exception as error:  # of the hub's client: many kinds, one thing to say
        raise DataError(
            f"{hosted.repository} could not be fetched from the Hugging Face hub: {first_line(error)}. Try again "
            "with a connection; where it asks for an account, `hf auth login` comes first"
        ) from error
