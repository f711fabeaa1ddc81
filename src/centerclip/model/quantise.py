"""8-bit weights for the graphs of a model: as quick as the processor allows, as close to float32 as that leaves it.

There are two kinds of 8-bit product. The quick one (``MatMulIntegerToFloat``) has a scale for every token and one for
every column of the weights. In the other (``MatMulNBits``) every few weights have a scale too: it takes twice the time,
and is for layers that the quick one would distort, as measured on samples. In neither does a token depend on others of
a batch. The first layer and the last stay in float32: they cost little.

What a layer norm gives is divided by a factor a channel, and the weights behind it are multiplied by that: the result
is the same, and both are easier to round (SmoothQuant, Xiao et al. 2023). What a GELU gives is never far below zero:
moved up by that much, all 8 bits are for values that occur, and the weights say what to take off again.

Some processors add up two products of 8-bit numbers in 16 bits, where full weights overflow. A model that is made for
others has weights of 7 bits in the quick products; one that is made where it runs has 8 if they are exact there.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto
    from onnxruntime import InferenceSession

Array = NDArray[np.float32]
Feeds = Sequence[dict[str, NDArray[Any]]]  # inputs of a tower, one run after the other
# A layer and its weight -> the nodes and constants in its place.
Product = Callable[["NodeProto", Array], "tuple[list[NodeProto], dict[str, Any]]"]
MICROSOFT = "com.microsoft"
PORTABLE_RANGE, FULL_RANGE = 64, 127  # of weights in the quick products
VISION_BLOCK, TEXT_BLOCK = 128, 32  # weights that share a scale in MatMulNBits: fewer err less and take longer
# Of a token's output, squared, relative, in the mean; a layer with more is not quick. A sentence has few tokens.
VISION_ERROR, TEXT_ERROR = 0.001, 0.0003
GELU_LEAST = 0.17  # below zero; CLIP's, which is nearly one, stays above that too
ROWS = 512  # tokens that the error is estimated on
PICKING = ("Slice", "Gather", "GatherND", "GatherElements", "Squeeze", "Unsqueeze")  # of one token: channels stay


def quantise(model: "ModelProto", float32: "InferenceSession", samples: Feeds, *, portable: bool) -> None:
    """Give the layers of a tower 8-bit weights, in place.

    Args:
        model: the graph with its weights.
        float32: the same that also gives the inputs of the layers, see :func:`layer_inputs`.
        samples: inputs of the graph: what is rounded is chosen on them.
        portable: for other processors too.
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
            seen[name] = seen[name] / factor
    is_text = "input_ids" in samples[0]
    block, worst = (TEXT_BLOCK, TEXT_ERROR) if is_text else (VISION_BLOCK, VISION_ERROR)
    largest = PORTABLE_RANGE if portable or not is_exact() else FULL_RANGE
    products: dict[str, Product] = {node.name: _row_lookup for node in tower.tables()}
    for node in layers:
        rows, weight = seen[node.input[0]], tower.weight(node.input[1])
        even: Array | None = None
        shift = GELU_LEAST if tower.is_gelu(node.input[0]) else 0.0
        error = _quick_error(rows, weight, shift, largest)
        if error > worst and not shift:  # where no norm can take the factor, as in BERT
            even = _smoothing(rows, [weight])
            error = _quick_error(rows / even, weight * even[:, None], shift, largest)
        is_quick = error <= worst or error <= _block_error(rows, weight, block)
        quick = partial(_quick_product, shift, even, largest)
        products[node.name] = quick if is_quick else partial(_block_product, block)
    tower.replace(products)


def layer_inputs(model: "ModelProto") -> list[str]:
    """The values that :func:`quantise` has to see: give the float32 graph these outputs."""
    return sorted({node.input[0] for node in _Tower(model).layers() if not _is_edge(node)})


def _is_edge(node: "NodeProto") -> bool:
    """Whether a layer is the patch embedding or a projection into the joint space."""
    return "embeddings." in node.name or node.name.endswith("_projection")


@cache
def is_exact() -> bool:
    """Whether this processor adds up products of full 8-bit numbers without overflow."""
    from onnx import TensorProto, helper
    from onnxruntime import InferenceSession, SessionOptions

    node = helper.make_node("MatMulInteger", ["a", "b"], ["c"])
    shapes = ("a", TensorProto.UINT8, ["M", 64]), ("b", TensorProto.INT8, [64, 32]), ("c", TensorProto.INT32, ["M", 32])
    first, second, result = (helper.make_tensor_value_info(*each) for each in shapes)
    graph = helper.make_graph([node], "exact", [first, second], [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)
    session = InferenceSession(model.SerializeToString(), SessionOptions(), providers=["CPUExecutionProvider"])
    weights = np.full((64, 32), FULL_RANGE, np.int8)
    products = [session.run(None, {"a": np.full((rows, 64), 255, np.uint8), "b": weights})[0] for rows in (1, 64)]
    return all((each == 64 * 255 * FULL_RANGE).all() for each in products)


# ---- the graph ----------------------------------------------------------------------------------------------


class _Tower:
    """The nodes of a tower, and its constants by name."""

    def __init__(self, model: "ModelProto") -> None:
        self.model, self.graph = model, model.graph
        self.constants: dict[str, TensorProto] = {tensor.name: tensor for tensor in self.graph.initializer}
        self.readers: dict[str, list[NodeProto]] = {}
        self.makers = {name: node for node in self.graph.node for name in node.output}
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

    def is_gelu(self, name: str) -> bool:
        """Whether a value is what a GELU gives, or CLIP's: ``x * sigmoid(1.702 * x)``."""
        maker = self.makers.get(name)
        if maker is None or maker.op_type == "Gelu":
            return maker is not None
        parts = (self.makers.get(each) for each in maker.input)
        return maker.op_type == "Mul" and any(part is not None and part.op_type == "Sigmoid" for part in parts)

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


def _quick_product(
    shift: float, factor: Array | None, largest: int, node: "NodeProto", weight: Array
) -> "tuple[list[NodeProto], dict[str, Any]]":
    """Input and weight in 8 bits: ``input / factor = scale of the token * (whole number - zero) - shift``."""
    from onnx import helper

    (source, name), result = node.input, node.output[0]
    steps, zero = (255, 0) if shift else (127, 128)
    values, scale = _rounded(weight if factor is None else weight * factor[:, None], largest)
    arrays = {
        f"{name}/q": values.astype(np.int8),
        f"{name}/s": scale,
        "quantise/last": np.array([-1]),
        "quantise/least": np.array(1e-12, np.float32),
        "quantise/one": np.array(1, np.float32),
        f"quantise/{steps}": np.array(1 / steps, np.float32),
        f"quantise/zero {zero}": np.array(zero, np.uint8),
    }
    made = []

    def add(operator: str, *inputs: str, to: str, **attributes: Any) -> str:
        made.append(helper.make_node(operator, inputs, [to], name=to, **attributes))
        return to

    if factor is not None:
        arrays[f"{name}/f"] = 1 / factor
        source = add("Mul", source, f"{name}/f", to=f"{result}/even")
    if shift:
        arrays |= {f"quantise/{shift}": np.array(shift, np.float32), f"{name}/b": -shift * scale * values.sum(axis=0)}
        moved = size = add("Add", source, f"quantise/{shift}", to=f"{source}/moved")
    else:
        moved, size = source, add("Abs", source, to=f"{source}/size")
    top = add("ReduceMax", size, "quantise/last", to=f"{source}/top", keepdims=1)
    top = add("Max", top, "quantise/least", to=f"{source}/bounded")
    step = add("Mul", top, f"quantise/{steps}", to=f"{source}/s")
    divided = add("Div", moved, step, to=f"{source}/divided")
    whole = add("QuantizeLinear", divided, "quantise/one", f"quantise/zero {zero}", to=f"{source}/q")
    inputs = (whole, f"{name}/q", "quantise/one", f"{name}/s", f"quantise/zero {zero}")
    product = add("MatMulIntegerToFloat", *inputs, to=f"{result}/i", domain=MICROSOFT)
    if shift:
        product = add("Mul", product, step, to=f"{result}/f")
        made.append(helper.make_node("Add", [product, f"{name}/b"], [result], name=node.name))
    else:
        made.append(helper.make_node("Mul", [product, step], [result], name=node.name))
    return made, arrays


def _block_product(block: int, node: "NodeProto", weight: Array) -> "tuple[list[NodeProto], dict[str, Any]]":
    """A weight in blocks of 8-bit numbers, each with its scale; the processor rounds the input in the same way."""
    from onnx import helper

    inputs, outputs = weight.shape
    values, scale = _in_blocks(weight.T, block)
    values = (values + 128).astype(np.uint8)
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
    return [product], {f"{name}/q": values, f"{name}/s": scale}


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


def _rounded(weight: Array, largest: int) -> tuple[Array, Array]:
    """Whole numbers ``[K, N]`` and their scales ``[N]``."""
    scale = np.maximum(np.abs(weight).max(axis=0), 1e-12) / largest
    return np.rint(weight / scale), scale.astype(np.float32)


def _in_blocks(rows: Array, block: int) -> tuple[Array, Array]:
    """Rows ``[R, K]`` as whole numbers ``[R, blocks, block]``, zeros at the end, and their scales ``[R, blocks]``."""
    blocks = -(-rows.shape[1] // block)
    padded = np.zeros((len(rows), blocks * block), dtype=np.float32)
    padded[:, : rows.shape[1]] = rows
    parts = padded.reshape(len(rows), blocks, block)
    scale = np.maximum(np.abs(parts).max(axis=2), 1e-12) / 127
    return np.rint(parts / scale[:, :, None]), scale


# ---- what is measured ---------------------------------------------------------------------------------------


def _watch(float32: "InferenceSession", names: Sequence[str], samples: Feeds) -> dict[str, Array]:
    """Some of the tokens that layers take on samples, ``[R, K]``."""
    random = np.random.default_rng(0)
    rows: dict[str, list[Array]] = {name: [] for name in names}
    for sample in samples:
        for name, values in zip(names, float32.run(list(names), sample), strict=True):
            flat = values.reshape(-1, values.shape[-1])
            rows[name].append(flat[random.permutation(len(flat))[: max(1, -(-ROWS // len(samples)))]])
    return {name: np.concatenate(each) for name, each in rows.items()}


def _smoothing(rows: Array, weights: Sequence[Array]) -> Array:
    """What to divide each channel by, ``[K]``: half way between even inputs and even weights."""
    inputs = np.maximum(np.abs(rows).max(axis=0), 1e-5)
    largest = np.maximum(np.max([np.abs(weight).max(axis=1) for weight in weights], axis=0), 1e-5)
    factor = np.sqrt(inputs / largest)
    return np.asarray(factor / np.exp(np.log(factor).mean()), dtype=np.float32)


def _quick_error(rows: Array, weight: Array, shift: float, largest: int) -> float:
    """What a quick product adds to the outputs of a layer, see :func:`_relative_error`."""
    moved = rows + np.float32(shift)
    step = np.maximum(np.abs(moved).max(axis=1, keepdims=True), 1e-12) / (255 if shift else 127)
    values, scale = _rounded(weight, largest)
    return _relative_error((np.rint(moved / step) * step - np.float32(shift)) @ (values * scale), rows @ weight)


def _block_error(rows: Array, weight: Array, block: int) -> float:
    """The same of a product in blocks."""
    products = []
    for part in (rows, weight.T):
        values, scale = _in_blocks(part, block)
        products.append((values * scale[:, :, None]).reshape(len(part), -1))
    return _relative_error(products[0] @ products[1].T, rows @ weight)


def _relative_error(outputs: Array, exact: Array) -> float:
    """The squared error of a token's output, relative to the output, in the mean over ``[R, N]``."""
    squares = np.square(outputs - exact).sum(axis=1)
    return float((squares / np.maximum(np.square(exact).sum(axis=1), 1e-12)).mean())
