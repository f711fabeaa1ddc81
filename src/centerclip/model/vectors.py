"""Segment vectors of a video, its one vector and its similarity to a sentence; and CLIP4clip's seqTransf head."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

Rule = Literal["mean", "renormalise"]


@dataclass(frozen=True)
class EncodedVideo:
    """A video as vectors. Segments that hold nothing but padding are left out."""

    segments: Tensor  # [S, D], each of norm 1
    spans: list[tuple[float, float]]  # start and end of every segment, in seconds
    vector: Tensor  # [D]: the mean of the segments, of norm 1 if the model's rule is "renormalise"


def video_vectors(segments: Tensor, mask: Tensor | None = None, *, rule: Rule = "mean") -> Tensor:
    """One vector a video, such that its dot product with a sentence is their similarity.

    Args:
        segments: ``[V, S, D]``, each of norm 1.
        mask: ``[V, S]``, True where a segment is real.
        rule: ``"mean"`` is the paper's formula, the mean of the segments' similarities; ``"renormalise"`` gives the
            mean vector norm 1 again, as the paper's reported numbers do.

    Returns:
        ``[V, D]``.
    """
    if rule not in ("mean", "renormalise"):
        raise ValueError(f'the similarity rule must be "mean" or "renormalise", got {rule!r}')
    if mask is None:
        vectors = segments.mean(dim=1)
    else:
        weight = mask.to(segments.dtype)
        weight = weight / weight.sum(dim=1, keepdim=True).clamp(min=1)
        vectors = (segments * weight[:, :, None]).sum(dim=1)
    return normalize(vectors, dim=1) if rule == "renormalise" else vectors


def similarity(text: Tensor, videos: Sequence[EncodedVideo], *, rule: Rule = "mean") -> Tensor:
    """text ``[B, D]`` (norm 1) against videos -> ``[B, V]``."""
    if not videos:
        return text.new_zeros(len(text), 0)
    vectors = torch.stack([video_vectors(video.segments[None], rule=rule)[0] for video in videos])
    return text @ vectors.to(text.device, text.dtype).T


class TemporalTransformer(nn.Module):
    """CLIP4clip's seqTransf: a small transformer over the frame (or segment) vectors of a video, with a residual.

    Untrained it changes next to nothing.
    """

    def __init__(self, width: int, *, layers: int = 4, heads: int = 8, positions: int = 77) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"width {width} is not a multiple of {heads} heads")
        self.positions = nn.Embedding(positions, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, heads, 4 * width, dropout=0.0, activation=quick_gelu, batch_first=True, norm_first=True
            )
            for _ in range(layers)
        )
        nn.init.normal_(self.positions.weight, std=0.01)
        for layer in cast(list[nn.TransformerEncoderLayer], self.layers):
            for projection in (layer.self_attn.out_proj, layer.linear2):
                nn.init.normal_(projection.weight, std=(2 * layers * width) ** -0.5)

    def sizes(self) -> dict[str, int]:
        """What the constructor needs to make one like this."""
        attention = cast(nn.TransformerEncoderLayer, self.layers[0]).self_attn
        positions, width = self.positions.weight.shape
        return {"width": width, "layers": len(self.layers), "heads": attention.num_heads, "positions": positions}

    def forward(self, vectors: Tensor, mask: Tensor | None = None) -> Tensor:
        """vectors ``[V, S, D]``, mask ``[V, S]`` (True where real) -> ``[V, S, D]``."""
        count = vectors.shape[1]
        if count > self.positions.num_embeddings:
            raise ValueError(f"the temporal transformer has {self.positions.num_embeddings} positions, got {count}")
        hidden = vectors + self.positions(torch.arange(count, device=vectors.device))
        ignore = None if mask is None else ~mask
        for layer in self.layers:
            hidden = layer(hidden, src_key_padding_mask=ignore)
        return vectors + hidden


def quick_gelu(x: Tensor) -> Tensor:
    """CLIP's activation."""
    return x * torch.sigmoid(1.702 * x)
