"""Segment vectors of a video, its one vector, and its similarity to a sentence."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

    from .preprocess import Preprocess

Array = TypeVar("Array", bound=Any)  # NumPy's or torch's
Rule = Literal["mean", "renormalise"]
Protocol = Literal["published", "clean"]  # the authors' procedure, or our more careful one
FINGERPRINT_VALUES = 64  # sampled of each parameter: all of a ViT-B/32 take half a second to hash, these 10 ms


@dataclass(frozen=True)
class EncodedVideo:
    """A video as vectors. Segments that do not count (see :func:`segment_mask`) are left out."""

    segments: "Tensor"  # [S, D], each of norm 1
    spans: list[tuple[float, float]]  # start and end of every segment, in seconds
    vector: "Tensor"  # [D]: the mean of the segments, of norm 1 if the model's rule is "renormalise"


def video_vectors(segments: "Tensor", mask: "Tensor | None" = None, *, rule: Rule = "mean") -> "Tensor":
    """One vector a video, such that its dot product with a sentence is their similarity.

    Args:
        segments: ``[V, S, D]``, each of norm 1.
        mask: ``[V, S]``, True where a segment is real.
        rule: ``"mean"`` is the paper's formula, the mean of the segments' similarities; ``"renormalise"`` gives the
            mean vector norm 1 again, as the paper's reported numbers do.

    Returns:
        ``[V, D]``.
    """
    from torch.nn.functional import normalize

    if rule not in ("mean", "renormalise"):
        raise ValueError(f'the similarity rule must be "mean" or "renormalise", got {rule!r}')
    if mask is None:
        vectors = segments.mean(dim=1)
    else:
        weight = mask.to(segments.dtype)
        weight = weight / weight.sum(dim=1, keepdim=True).clamp(min=1)
        vectors = (segments * weight[:, :, None]).sum(dim=1)
    return normalize(vectors, dim=1) if rule == "renormalise" else vectors


def segment_mask(mask: Array, segments: int, protocol: Protocol) -> Array:
    """Which segments of a video count.

    Args:
        mask: ``[V, T]``, True where a frame is real; padding is at the end.
        segments: S, divides T.
        protocol: ``"published"`` counts a segment when its last frame is real, and the first one always: a video with
            no whole segment has a vector too. ``"clean"`` counts it when any of its frames is real.

    Returns:
        ``[V, S]``.
    """
    frames = mask.shape[1] // segments
    if protocol == "clean":
        return mask[:, ::frames]  # the first frame is real if any is
    counts = mask[:, frames - 1 :: frames] | False  # a copy
    counts[:, 0] = True
    return counts


def similarity(text: "Tensor", videos: Sequence[EncodedVideo], *, rule: Rule = "mean") -> "Tensor":
    """text ``[B, D]`` (norm 1) against videos -> ``[B, V]``."""
    import torch

    if not videos:
        return text.new_zeros(len(text), 0)
    vectors = torch.stack([video_vectors(video.segments[None], rule=rule)[0] for video in videos])
    return text @ vectors.to(text.device, text.dtype).T


def fingerprint_of(preprocess: "Preprocess", weights: Iterable[Any]) -> str:
    """A hash of what vectors depend on, 24 hexadecimal digits: preprocessing and weights, NumPy's or torch's.

    Names and order of the weights do not matter: transformers renames them. Training changes nearly every value, so
    some of each weight tell two models apart.
    """
    colours = [float(value) for value in (*preprocess.mean, *preprocess.std)]
    pixels = json.dumps([preprocess.size, colours, preprocess.filter, preprocess.crop, preprocess.read_size])
    digests = []
    for weight in weights:
        values = weight.reshape(-1)
        values = values[:: max(1, len(values) // FINGERPRINT_VALUES)][:FINGERPRINT_VALUES]
        values = values if isinstance(values, np.ndarray) else values.detach().cpu().double().numpy()
        digests.append(f"{list(weight.shape)}".encode() + values.astype(np.float64).tobytes())
    return hashlib.blake2b(b"".join([pixels.encode(), *sorted(digests)]), digest_size=12).hexdigest()
