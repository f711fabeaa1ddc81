"""Index a folder of videos, find the moment. Imports nothing heavy: a search must start fast."""

from .engine import Moment
from .errors import (
    DamagedIndex,
    DiskFull,
    IndexBusy,
    IndexNotFound,
    OtherSettings,
    SearchError,
    UnknownVideo,
)
from .index import VideoIndex
from .indexer import Progress
from .results import Hit, IndexReport, Results, Status, VideoEntry
from .settings import default_folder

__all__ = [
    "DamagedIndex",
    "DiskFull",
    "Hit",
    "IndexBusy",
    "IndexNotFound",
    "IndexReport",
    "Moment",
    "OtherSettings",
    "Progress",
    "Results",
    "SearchError",
    "Status",
    "UnknownVideo",
    "VideoEntry",
    "VideoIndex",
    "default_folder",
]
