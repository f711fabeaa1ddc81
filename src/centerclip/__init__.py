"""CenterCLIP: find videos, and the moment inside them, with words."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .model import CenterCLIP, EncodedVideo, attach, detach

__version__ = "0.1.0"
__all__ = ["CenterCLIP", "EncodedVideo", "__version__", "attach", "detach"]


def __getattr__(name: str) -> Any:
    """Import the model on first use: the command line starts without torch."""
    if name in __all__:
        from . import model

        return getattr(model, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
