"""Frames and sentences in, vectors out: CLIP with clustering inside.

Nothing is imported before it is used: the command line and a search start without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..errors import ModelError, ModelNotFound, NotADualEncoder, UntrustedFile, WrongWeights
    from .attachment import Attachment, KeptTokens, attach, detach
    from .backbone import Backbone, open_backbone
    from .centerclip import CenterCLIP
    from .engine import open_encoder
    from .preprocess import Preprocess
    from .temporal import TemporalTransformer
    from .vectors import EncodedVideo, similarity, video_vectors

_EXPORTS = {
    "..errors": ("ModelError", "ModelNotFound", "NotADualEncoder", "UntrustedFile", "WrongWeights"),
    ".attachment": ("Attachment", "KeptTokens", "attach", "detach"),
    ".backbone": ("Backbone", "open_backbone"),
    ".centerclip": ("CenterCLIP",),
    ".engine": ("open_encoder",),
    ".preprocess": ("Preprocess",),
    ".temporal": ("TemporalTransformer",),
    ".vectors": ("EncodedVideo", "similarity", "video_vectors"),
}
__all__ = [
    "Attachment",
    "Backbone",
    "CenterCLIP",
    "EncodedVideo",
    "KeptTokens",
    "ModelError",
    "ModelNotFound",
    "NotADualEncoder",
    "Preprocess",
    "TemporalTransformer",
    "UntrustedFile",
    "WrongWeights",
    "attach",
    "detach",
    "open_backbone",
    "open_encoder",
    "similarity",
    "video_vectors",
]


def __getattr__(name: str) -> Any:
    """Import what is asked for on first use."""
    from ..errors import extras_named

    for module, names in _EXPORTS.items():
        if name in names:
            with extras_named():
                return getattr(import_module(module, __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
