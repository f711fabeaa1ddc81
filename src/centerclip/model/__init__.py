"""Frames and words in, vectors out: CLIP with clustering inside."""

from .attach import Attachment, Step, attach, detach
from .centerclip import CenterCLIP
from .encoded import EncodedVideo, similarity, video_vectors
from .errors import ModelError, ModelNotFound, NotADualEncoder, UntrustedFile, WrongWeights
from .preprocess import Preprocess
from .temporal import TemporalTransformer

__all__ = [
    "Attachment",
    "CenterCLIP",
    "EncodedVideo",
    "ModelError",
    "ModelNotFound",
    "NotADualEncoder",
    "Preprocess",
    "Step",
    "TemporalTransformer",
    "UntrustedFile",
    "WrongWeights",
    "attach",
    "detach",
    "similarity",
    "video_vectors",
]
