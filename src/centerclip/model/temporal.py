"""CLIP4clip's seqTransf head: a small transformer over the vectors of a video."""

from typing import Any, cast

import torch
from torch import Tensor, nn

SEQTRANSF_LAYERS = 4  # CLIP4clip's
CLIP_NAMES = {  # parts of torch's transformer layer -> those of a block of transformers' CLIP
    "self_attn.out_proj": "self_attn.out_proj",
    "norm1": "layer_norm1",
    "norm2": "layer_norm2",
    "linear1": "mlp.fc1",
    "linear2": "mlp.fc2",
}


class TemporalTransformer(nn.Module):
    """CLIP4clip's seqTransf: a small transformer over the frame (or segment) vectors of a video, with a residual.

    The constructor gives random weights, with which it changes next to nothing.
    """

    def __init__(self, width: int, *, layers: int = SEQTRANSF_LAYERS, heads: int = 8, positions: int = 77) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"width {width} is not a multiple of {heads} heads")
        self.positions = nn.Embedding(positions, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width,
                heads,
                4 * width,
                dropout=0.0,
                activation=quick_gelu,
                batch_first=True,
                norm_first=True,
                layer_norm_eps=1e-12,  # CLIP4Clip's
            )
            for _ in range(layers)
        )
        nn.init.normal_(self.positions.weight, std=0.01)
        for layer in cast(list[nn.TransformerEncoderLayer], self.layers):
            for projection in (layer.self_attn.out_proj, layer.linear2):
                nn.init.normal_(projection.weight, std=(2 * layers * width) ** -0.5)

    @classmethod
    def for_backbone(cls, model: Any, width: int) -> "TemporalTransformer":
        """A new head for the vectors of a model; it starts, as CLIP4clip's does, from CLIP's text tower.

        It copies the first text blocks and the text positions where the text tower is CLIP's, is as wide as the vectors
        (all of OpenAI's are) and has enough blocks; otherwise it starts random, from torch's generator. Positions past
        those of the text tower are random too.

        Args:
            model: ``CLIPModel``, ``SiglipModel`` or ``VisionTextDualEncoderModel``.
            width: of the vectors.
        """
        text = model.config.text_config
        shape = (text.model_type, text.hidden_size, text.intermediate_size, getattr(text, "hidden_act", None))
        if shape != ("clip_text_model", width, 4 * width, "quick_gelu") or text.num_hidden_layers < SEQTRANSF_LAYERS:
            return cls(width)
        head = cls(width, heads=text.num_attention_heads)
        positions = model.text_model.embeddings.position_embedding.weight.detach()[: head.positions.num_embeddings]
        head.positions.weight.data[: len(positions)] = positions
        for layer, block in zip(head.layers, model.text_model.encoder.layers, strict=False):
            weights = {}
            for kind in ("weight", "bias"):
                projections = [block.get_parameter(f"self_attn.{letter}_proj.{kind}") for letter in "qkv"]
                weights[f"self_attn.in_proj_{kind}"] = torch.cat(projections)
                for name, clip_name in CLIP_NAMES.items():
                    weights[f"{name}.{kind}"] = block.get_parameter(f"{clip_name}.{kind}")
            layer.load_state_dict(weights)
        return head

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
