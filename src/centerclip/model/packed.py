"""Layers of a vision tower in bfloat16 on a CPU, as oneDNN multiplies them fastest."""

from typing import Any

from torch import Tensor, nn, ops
from torch.nn.functional import linear


def pack_layers(tower: nn.Module) -> None:
    """Replace the linear layers of a tower, and the convolution that makes patches into tokens; weights are shared."""
    for parent in list(tower.modules()):
        for name, layer in list(parent.named_children()):
            if type(layer) is nn.Linear:
                setattr(parent, name, _PackedLinear(layer))
            elif type(layer) is nn.Conv2d and layer.kernel_size == layer.stride and layer.padding == (0, 0):
                setattr(parent, name, _PatchLinear(layer))


class _PackedLinear(nn.Linear):
    """Lays its weights out once; torch does so for every batch."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__(layer.in_features, layer.out_features, bias=layer.bias is not None, device="meta")
        self.weight, self.bias = layer.weight, layer.bias
        self._packed: Tensor | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_packed": None}  # such a tensor cannot be copied

    def forward(self, input: Tensor) -> Tensor:
        if self._packed is None:
            self._packed = ops.mkldnn._reorder_linear_weight(self.weight)
        rounded = input.to(self.weight.dtype)
        product: Tensor = ops.mkldnn._linear_pointwise(rounded, self._packed, self.bias, "none", [], "")
        return product


class _PatchLinear(nn.Conv2d):
    """A convolution whose patches do not overlap, ``[B, C, H, W]`` to ``[B, D, rows, columns]``, as one product."""

    def __init__(self, layer: nn.Conv2d) -> None:
        size, has_bias = layer.kernel_size, layer.bias is not None
        super().__init__(layer.in_channels, layer.out_channels, size, stride=size, bias=has_bias, device="meta")  # type: ignore[arg-type]
        self.weight, self.bias = layer.weight, layer.bias

    def forward(self, input: Tensor) -> Tensor:
        batch, channels, height, width = input.shape
        high, wide = self.kernel_size
        rows, columns = height // high, width // wide
        inside = input[:, :, : rows * high, : columns * wide]
        patches = inside.reshape(batch, channels, rows, high, columns, wide).permute(0, 2, 4, 1, 3, 5)
        flat = patches.reshape(-1, channels * high * wide).to(self.weight.dtype)
        return linear(flat, self.weight.flatten(1), self.bias).reshape(batch, rows, columns, -1).permute(0, 3, 1, 2)
