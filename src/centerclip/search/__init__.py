"""Index a folder of videos, find the moment. Imports nothing heavy: a search must start fast."""

from ..errors import (
    DamagedIndex,
    DiskFull,
    IndexBusy,
    IndexNotFound,
    OtherSettings,
    QueryError,
    SearchError,
    UnknownVideo,
)
from .folder import default_folder
from .index import VideoIndex
from .indexer import Progress
from .query import Query
from .ranking import Moment
from .results import Hit, IndexReport, Results, Status, VideoEntry

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
    "Query",
    "QueryError",
    "Results",
    "SearchError",
    "Status",
    "UnknownVideo",
    "VideoEntry",
    "VideoIndex",
    "default_folder",
]
