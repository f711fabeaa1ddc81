"""What can go wrong while a report is made."""

from ..errors import CenterClipError


class ReportError(CenterClipError):
    """A report cannot be made: unknown name, missing data, nothing to rebuild it from."""
