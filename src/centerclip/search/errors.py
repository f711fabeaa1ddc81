"""What can go wrong with an index."""

from ..errors import CenterClipError


class SearchError(CenterClipError):
    """An index cannot be made, opened, searched or changed."""


class IndexNotFound(SearchError):
    """There is no index in the folder, or nothing in the index."""


class IndexBusy(SearchError):
    """Another process is writing to the index."""


class OtherSettings(SearchError):
    """The index was made with another model or setting; vectors of two kinds cannot be compared."""


class DamagedIndex(SearchError):
    """A file of the index cannot be read."""


class DiskFull(SearchError):
    """There is no room left to write. What was written before is safe."""


class UnknownVideo(SearchError):
    """The index has no such video."""
