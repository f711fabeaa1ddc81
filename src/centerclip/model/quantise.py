"""8-bit weights for the graphs of a model: as quick as the processor allows, as close to float32 as that leaves it.

There are two kinds of 8-bit product. The quickest (``MatMulInteger``) has one scale for all tokens of a video, and
weights of 7 bits: without VNNI instructions, sums of full products overflow. In the other (``MatMulNBits``) every token
and every few weights have a scale, and nothing overflows: it takes nearly twice the time, and errs a fifth as much.

The text tower, whose few tokens leave time, has the second kind throughout, and a scale for each row of its table of
word vectors; so a sentence does not depend on the others of a batch. The vision tower has it where the quick one would
distort a layer, as measured on sample frames: a few tokens are far larger than the others there, as before an MLP's
second layer in the middle of CLIP. What a layer norm gives is divided by a factor a channel, and the weights behind it
are multiplied by that: the result is the same, and both are easier to round (SmoothQuant, Xiao et al. 2023). The first
layer and the last stay in float32: they cost little.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto
    from onnxruntime import InferenceSession

Array = NDArray[np.float32]
# A layer and its weight -> the nodes and constants in its place.
Product = Callable[["NodeProto", Array], "tuple[list[NodeProto], dict[str, Any]]"]
MICROSOFT = "com.microsoft"
WEIGHT_RANGE = 64  # 7 bits and a sign
VISION_BLOCK, TEXT_BLOCK = 128, 32  # weights that share a scale in MatMulNBits: fewer err less and take longer
PLAIN_ERROR = 0.001  # of a token's output, squared, relative, in the mean; a layer with more has many scales
ROWS = 256  # tokens that the error is estimated on
PICKING = ("Slice", "Gather", "GatherND", "GatherElements", "Squeeze", "Unsqueeze")  # of one token: channels stay


def quantise_vision(model: "ModelProto", float32: "InferenceSession", samples: NDArray[np.uint8]) -> None:
    """Give the layers of a vision tower 8-bit weights, in place.

    Args:
        model: the graph with its weights.
        float32: the same that also gives the inputs of the layers, see :func:`layer_inputs`.
        samples: frames ``[V, T, size, size, 3]`` of some videos.
    """
    tower = _Tower(model)
    layers = [node for node in tower.layers() if not _is_edge(node)]
    seen = _watch(float32, sorted({node.input[0] for node in layers}), samples)
    for norm, behind in tower.norms(layers):
        factor = _smoothing(seen[norm.output[0]], [tower.weight(node.input[1]) for node in behind])
        for name in norm.input[1:]:
            tower.change(name, tower.weight(name) / factor)
        for node in behind:
            tower.change(node.input[1], tower.weight(node.input[1]) * factor[:, None])
        for name in {norm.output[0], *(node.input[0] for node in behind)}:
            seen[name] = seen[name].divided(factor)
    products: dict[str, Product] = {}
    for node in layers:
        quick = _error(seen[node.input[0]], tower.weight(node.input[1])) <= PLAIN_ERROR
        products[node.name] = _integer_product if quick else partial(_block_product, VISION_BLOCK)
    tower.replace(products)


def quantise_text(model: "ModelProto") -> None:
    """Give the layers of a text tower 8-bit weights, in place."""
    tower = _Tower(model)
    product: Product = partial(_block_product, TEXT_BLOCK)
    products = {node.name: product for node in tower.layers() if not _is_edge(node)}
    tower.replace(products | {node.name: _row_lookup for node in tower.tables()})


def layer_inputs(model: "ModelProto") -> list[str]:
    """The values that :func:`quantise_vision` has to see: give the float32 graph these outputs."""
    return sorted({node.input[0] for node in _Tower(model).layers() if not _is_edge(node)})


def _is_edge(node: "NodeProto") -> bool:
    """Whether a layer is the patch embedding or a projection into the joint space."""
    return "embeddings." in node.name or node.name.endswith("_projection")


# ---- the graph ----------------------------------------------------------------------------------------------


class _Tower:
    """The nodes of a tower, and its constants by name."""

    def __init__(self, model: "ModelProto") -> None:
        self.model, self.graph = model, model.graph
        self.constants: dict[str, TensorProto] = {tensor.name: tensor for tensor in self.graph.initializer}
        self.readers: dict[str, list[NodeProto]] = {}
        for node in self.graph.node:
            for name in node.input:
                self.readers.setdefault(name, []).append(node)

    def layers(self) -> "list[NodeProto]":
        """The products with constant weights ``[K, N]``."""
        return [node for node in self.graph.node if node.op_type == "MatMul" and node.input[1] in self.constants]

    def tables(self) -> "list[NodeProto]":
        """What looks rows up in a constant table ``[V, W]`` of vectors."""
        looked_up = (node for node in self.graph.node if node.op_type == "Gather" and node.input[0] in self.constants)
        return [node for node in looked_up if self.weight(node.input[0]).ndim == 2]

    def norms(self, layers: "list[NodeProto]") -> "Iterator[tuple[NodeProto, list[NodeProto]]]":
        """The layer norms that feed nothing but layers, with those."""
        names = {node.name for node in layers}
        for node in self.graph.node:
            if node.op_type == "LayerNormalization":
                behind = list(self._behind(node.output[0]))
                if behind and all(each.name in names for each in behind):
                    yield node, behind

    def _behind(self, name: str) -> "Iterator[NodeProto]":
        for node in self.readers.get(name, ()):
            if node.op_type in PICKING:
                yield from self._behind(node.output[0])
            else:
                yield node

    def weight(self, name: str) -> Array:
        from onnx import numpy_helper

        return numpy_helper.to_array(self.constants[name])

    def change(self, name: str, array: Array) -> None:
        from onnx import numpy_helper

        self.constants[name].CopyFrom(numpy_helper.from_array(np.asarray(array, dtype=np.float32), name))

    def replace(self, products: dict[str, Product]) -> None:
        """Put 8-bit products in place of layers, by their names."""
        from onnx import numpy_helper

        nodes: list[NodeProto] = []
        made: set[str] = set()
        for node in self.graph.node:
            if node.name not in products:
                nodes.append(node)
                continue
            (old,) = [name for name in node.input if name in self.constants]
            new, arrays = products[node.name](node, self.weight(old))
            for each in new:  # what quantises an input is shared by the layers that read it
                if each.name not in made:
                    made.add(each.name)
                    nodes.append(each)
            del self.constants[old]
            for name, array in arrays.items():
                self.constants[name] = numpy_helper.from_array(np.ascontiguousarray(array), name)
        tensors = list(self.constants.values())
        for old, values in ((self.graph.node, nodes), (self.graph.initializer, tensors)):
            del old[:]
            old.extend(values)
        if not any(each.domain == MICROSOFT for each in self.model.opset_import):
            self.model.opset_import.add(domain=MICROSOFT, version=1)


def _integer_product(node: "NodeProto", weight: Array) -> "tuple[list[NodeProto], dict[str, Any]]":
    """Input and weight in 8 bits; ONNX Runtime knows these nodes as one."""
    from onnx import TensorProto, helper

    (source, name), result = node.input, node.output[0]
    values, scale = _rounded(weight)
    arrays = {f"{name}/q": values.astype(np.int8), f"{name}/s": scale, f"{name}/z": np.zeros(len(scale), np.int8)}
    quantised = [f"{source}/{part}" for part in ("q", "s", "z")]
    nodes = [
        helper.make_node("DynamicQuantizeLinear", [source], quantised, name=f"{source}/quantise"),
        helper.make_node(
            "MatMulInteger", [quantised[0], f"{name}/q", quantised[2], f"{name}/z"], [f"{result}/i"], name=f"{result}/i"
        ),
        helper.make_node("Cast", [f"{result}/i"], [f"{result}/f"], name=f"{result}/f", to=TensorProto.FLOAT),
        helper.make_node("Mul", [quantised[1], f"{name}/s"], [f"{result}/s"], name=f"{result}/s"),
        helper.make_node("Mul", [f"{result}/f", f"{result}/s"], [result], name=node.name),
    ]
    return nodes, arrays


def _block_product(block: int, node: "NodeProto", weight: Array) -> "tuple[list[NodeProto], dict[str, Any]]":
    """A weight in blocks of 8-bit numbers, each with its scale; the processor rounds the input in the same way."""
    from onnx import helper

    inputs, outputs = weight.shape
    blocks = -(-inputs // block)
    padded = np.zeros((outputs, blocks * block), dtype=np.float32)
    padded[:, :inputs] = weight.T
    parts = padded.reshape(outputs, blocks, block)
    scale = np.maximum(np.abs(parts).max(axis=2), 1e-12) / 127
    values = (np.rint(parts / scale[:, :, None]) + 128).astype(np.uint8)
    name, sizes = node.input[1], {"K": inputs, "N": outputs, "bits": 8, "block_size": block}
    product = helper.make_node(
        "MatMulNBits",
        [node.input[0], f"{name}/q", f"{name}/s"],
        list(node.output),
        name=node.name,
        domain=MICROSOFT,
        accuracy_level=4,  # inputs in 8 bits too
        **sizes,
    )
    return [product], {f"{name}/q": values, f"{name}/s": scale.astype(np.float32)}


def _row_lookup(node: "NodeProto", table: Array) -> "tuple[list[NodeProto], dict[str, Any]]":
    """Rows of a table ``[V, W]`` in 8 bits, each with its scale."""
    from onnx import TensorProto, helper

    (name, ids), result = node.input, node.output[0]
    scale = np.maximum(np.abs(table).max(axis=1, keepdims=True), 1e-12) / 127
    nodes = [
        helper.make_node("Gather", [f"{name}/q", ids], [f"{result}/q"], name=f"{result}/q"),
        helper.make_node("Gather", [f"{name}/s", ids], [f"{result}/s"], name=f"{result}/s"),
        helper.make_node("Cast", [f"{result}/q"], [f"{result}/f"], name=f"{result}/f", to=TensorProto.FLOAT),
        helper.make_node("Mul", [f"{result}/f", f"{result}/s"], [result], name=node.name),
    ]
    return nodes, {f"{name}/q": np.rint(table / scale).astype(np.int8), f"{name}/s": scale.astype(np.float32)}


def _rounded(weight: Array) -> tuple[Array, Array]:
    """Whole numbers ``[K, N]`` and their scales ``[N]``."""
    scale = np.maximum(np.abs(weight).max(axis=0), 1e-12) / WEIGHT_RANGE
    return np.rint(weight / scale), scale.astype(np.float32)


# ---- what is measured ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Seen:
    """The values that a layer took on samples."""

    low: Array  # [K]
    high: Array  # [K]
    rows: Array  # [R, K]: some tokens

    def divided(self, factor: Array) -> "_Seen":
        return _Seen(self.low / factor, self.high / factor, self.rows / factor)


def _watch(float32: "InferenceSession", names: Sequence[str], samples: NDArray[np.uint8]) -> dict[str, _Seen]:
    random = np.random.default_rng(0)
    parts: dict[str, list[_Seen]] = {name: [] for name in names}
    for sample in samples:
        for name, values in zip(names, float32.run(list(names), {"rgb": sample}), strict=True):
            flat = values.reshape(-1, values.shape[-1])
            rows = flat[random.permutation(len(flat))[: max(1, ROWS // len(samples))]]
            parts[name].append(_Seen(flat.min(axis=0), flat.max(axis=0), rows))
    return {
        name: _Seen(
            np.min([part.low for part in each], axis=0),
            np.max([part.high for part in each], axis=0),
            np.concatenate([part.rows for part in each]),
        )
        for name, each in parts.items()
    }


def _smoothing(seen: _Seen, weights: Sequence[Array]) -> Array:
    """What to divide each channel by, ``[K]``: half way between even inputs and even weights."""
    inputs = np.maximum(np.maximum(seen.high, -seen.low), 1e-5)
    largest = np.maximum(np.max([np.abs(weight).max(axis=1) for weight in weights], axis=0), 1e-5)
    factor = np.sqrt(inputs / largest)
    return np.asarray(factor / np.exp(np.log(factor).mean()), dtype=np.float32)


def _error(seen: _Seen, weight: Array) -> float:
    """The squared error of a token's output in 8 bits, relative to the output, in the mean."""
    low, high = min(0.0, float(seen.low.min())), max(0.0, float(seen.high.max()))
    step = max(high - low, 1e-12) / 255
    zero = round(-low / step)
    inputs = (np.clip(np.rint(seen.rows / step) + zero, 0, 255) - zero) * step
    values, scale = _rounded(weight)
    exact = seen.rows @ weight
    squares = np.square(inputs @ (values * scale) - exact).sum(axis=1)
    return float((squares / np.maximum(np.square(exact).sum(axis=1), 1e-12)).mean())
