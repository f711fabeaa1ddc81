"""What can go wrong between vectors and a table of results."""

from ..errors import CenterClipError


class EvaluationError(CenterClipError):
    """Results cannot be worked out, read or compared; the message says why."""
