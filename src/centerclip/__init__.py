"""CenterCLIP: find videos, and the moment inside them, with words."""

import os
import sys
from typing import TYPE_CHECKING, Any

# NumPy's threads would wait for their next product with the processor running, while ONNX Runtime wants to use it after
# clustering. It is read when NumPy is imported; where that was before, parallel.one_blas_thread helps.
if "numpy" not in sys.modules:
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")

if TYPE_CHECKING:
    from .model import CenterCLIP, EncodedVideo, attach, detach
    from .search import VideoIndex

__version__ = "0.1.0"
__all__ = ["CenterCLIP", "EncodedVideo", "VideoIndex", "__version__", "attach", "detach"]


def __getattr__(name: str) -> Any:
    """Import what is asked for on first use: only a model of torch needs torch."""
    if name == "VideoIndex":
        from .search import VideoIndex

        return VideoIndex
    if name in __all__:
        from . import model

        return getattr(model, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
