"""What can go wrong while tokens are clustered."""

from ..errors import CenterClipError


class ClusterError(CenterClipError, ValueError):
    """The tokens cannot be clustered as asked: wrong shape, K too large, NaN inside."""


class SettingError(CenterClipError, ValueError):
    """A clustering setting such as ``B6-4,49`` is malformed or does not fit the model."""
