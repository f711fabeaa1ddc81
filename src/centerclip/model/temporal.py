"""CLIP4clip's seqTransf: a small transformer over the frame (or segment) vectors, with a residual."""

from typing import cast

import torch
from torch import Tensor, nn


class TemporalTransformer(nn.Module):
    """Lets a video's vectors see one another. At the start it is close to doing nothing."""

    def __init__(self, width: int, *, layers: int = 4, heads: int = 8, positions: int = 77) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"a width of {width} does not divide into {heads} heads")
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
            raise ValueError(f"the temporal transformer knows {self.positions.num_embeddings} positions, got {count}")
        hidden = vectors + self.positions(torch.arange(count, device=vectors.device))
        ignore = None if mask is None else ~mask
        for layer in self.layers:
            hidden = layer(hidden, src_key_padding_mask=ignore)
        return vectors + hidden


def quick_gelu(x: Tensor) -> Tensor:
    """CLIP's activation."""
    return x * torch.sigmoid(1.702 * x)
