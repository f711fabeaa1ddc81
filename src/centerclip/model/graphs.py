"""ONNX graphs of vision and text towers, written from ``config.json`` and safetensors: no torch, no tracing.

CLIP and SigLIP, and dual encoders of a ViT, DINOv2 or CLIP vision tower with BERT. A vision tower is written whole and
cut after given blocks (:func:`cut`), so that tokens are clustered between its parts. Only standard operators are used.
Every linear layer is a ``MatMul`` with a constant weight, and its node has the weight's name: quantisation finds them.

Some things are worked out when a graph is written instead of each time it runs, exact but for rounding: queries, keys
and values come from one product, LayerScale is part of the layer before it, and in its last block a tower computes only
the one token that it is read at.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from ..errors import TORCH_LINE, ModelError, WrongWeights, first_line
from .hub import CONFIG_FILE, PLAIN_NAME, SAFE_WEIGHTS, read_json

Floats = NDArray[np.float32]
Config = dict[str, Any]
Values = dict[str, tuple[int, tuple[str | int, ...]]]  # inputs or outputs of a graph: name -> type, shape
FLOAT, INT32, INT64, UINT8 = (int(getattr(onnx.TensorProto, kind)) for kind in ("FLOAT", "INT32", "INT64", "UINT8"))

OPSET, IR_VERSION = 23, 11  # the first with Attention
INDEX_FILE = f"{SAFE_WEIGHTS}.index.json"  # which shard each weight is in
MASKED = -1e30  # added to a score it leaves no weight; where all are masked, the result is still finite
INLINE_BYTES = 1024  # smaller constants stay in the graph file: the optimiser of ONNX Runtime reads shapes there
PAGE = 4096  # constants start at a page, so that the file can be mapped into memory

# What config.json may leave out: the defaults of transformers' configuration classes, by model_type.
BASE: Config = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "hidden_act": "gelu"}
CLIP: Config = {**BASE, "hidden_act": "quick_gelu", "layer_norm_eps": 1e-5}
SIGLIP: Config = {**BASE, "hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6}
DEFAULTS: dict[str, Config] = {
    "clip_vision_model": {**CLIP, "image_size": 224, "patch_size": 32},
    "clip_text_model": {**CLIP, "hidden_size": 512, "num_attention_heads": 8, "eos_token_id": 49407},
    "siglip_vision_model": {**SIGLIP, "image_size": 224, "patch_size": 16},
    "siglip_text_model": SIGLIP,
    "vit": {**BASE, "layer_norm_eps": 1e-12, "image_size": 224, "patch_size": 16},
    "dinov2": {**BASE, "layer_norm_eps": 1e-6, "image_size": 224, "patch_size": 14},
    "bert": {**BASE, "layer_norm_eps": 1e-12},
}
TOWERS: dict[
    str, dict[str, tuple[str, ...]]
] = {  # model_type of a model -> those its vision and its text tower may have; the first is the default
    "clip": {"vision": ("clip_vision_model",), "text": ("clip_text_model",)},
    "siglip": {"vision": ("siglip_vision_model",), "text": ("siglip_text_model",)},
    "vision-text-dual-encoder": {"vision": ("vit", "dinov2", "clip_vision_model"), "text": ("bert",)},
}
ACTIVATIONS = ("quick_gelu", "gelu", "gelu_pytorch_tanh", "gelu_new")
ONLY_VALUES = {  # of settings that change the arithmetic
    "use_swiglu_ffn": False,
    "is_decoder": False,
    "position_embedding_type": "absolute",
    "pooler_act": "tanh",
    "vision_use_head": True,
    "num_channels": 3,
}


class Layout(NamedTuple):
    """The tokens of a vision tower and the blocks that they pass."""

    patches: int  # of a frame
    prefix: int  # tokens before the patches: [CLASS]
    blocks: int
    width: int
    image_size: int
    patch_size: int


class Names(NamedTuple):
    """What a kind of tower calls the parts of its transformer blocks."""

    block: str
    norm1: str
    query: str
    key: str
    value: str
    out: str
    norm2: str
    fc1: str
    fc2: str
    scale1: str = ""  # LayerScale after attention and after the MLP; an empty name where there is none
    scale2: str = ""


CLIP_NAMES = Names(
    "encoder.layers", "layer_norm1", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.out_proj",
    "layer_norm2", "mlp.fc1", "mlp.fc2",
)  # fmt: skip
NAMES = {  # of the others; SigLIP has CLIP's
    "dinov2": Names(
        "encoder.layer", "norm1", "attention.attention.query", "attention.attention.key", "attention.attention.value",
        "attention.output.dense", "norm2", "mlp.fc1", "mlp.fc2", "layer_scale1.lambda1", "layer_scale2.lambda1",
    ),
    "vit": Names(
        "encoder.layer", "layernorm_before", "attention.attention.query", "attention.attention.key",
        "attention.attention.value", "attention.output.dense", "layernorm_after", "intermediate.dense", "output.dense",
    ),
    "bert": Names(
        "encoder.layer", "attention.output.LayerNorm", "attention.self.query", "attention.self.key",
        "attention.self.value", "attention.output.dense", "output.LayerNorm", "intermediate.dense", "output.dense",
    ),
}  # fmt: skip


# ---- config.json and safetensors ----------------------------------------------------------------------------


def supports(config: Config) -> str | None:
    """None if the graphs of the model of this ``config.json`` can be written; else a sentence that says why not."""
    kind = str(config.get("model_type"))
    if kind not in TOWERS:
        return f"a model of type {kind!r} needs torch"
    for part, kinds in TOWERS[kind].items():
        tower = tower_config(config, part)
        if tower["model_type"] not in kinds:
            return f"a {part} tower of type {tower['model_type']!r} needs torch"
        unusual = {name: tower[name] for name, only in ONLY_VALUES.items() if tower.get(name, only) != only}
        if tower["hidden_act"] not in ACTIVATIONS:
            unusual["hidden_act"] = tower["hidden_act"]
        for name, value in unusual.items():
            return f"a {part} tower with {name}={value!r} needs torch"
    return None


def layout(config: Config) -> Layout:
    """The sizes of the vision tower that a model's ``config.json`` describes."""
    vision = tower_config(config, "vision")
    size, patch = _side(vision["image_size"]), _side(vision["patch_size"])
    prefix = 0 if vision["model_type"] == "siglip_vision_model" else 1
    return Layout((size // patch) ** 2, prefix, vision["num_hidden_layers"], vision["hidden_size"], size, patch)


def tower_config(config: Config, part: str) -> Config:
    """The settings of the ``"vision"`` or ``"text"`` tower, with transformers' defaults where there are none."""
    kinds = TOWERS[config["model_type"]][part]
    given, older = config.get(f"{part}_config") or {}, config.get(f"{part}_config_dict")
    if not isinstance(given, dict) or not isinstance(older or {}, dict):
        raise ModelError(f"{CONFIG_FILE} is damaged: {part}_config must hold settings")
    kind = kinds[0] if config["model_type"] in ("clip", "siglip") else str(given.get("model_type") or kinds[0])
    defaults = DEFAULTS.get(kind, BASE)
    if older is not None:  # of early CLIPs; where there is one, it counts
        given = {**given, **defaults, **older}
    return {**defaults, **{name: value for name, value in given.items() if value is not None}, "model_type": kind}


def _side(size: Any) -> int:
    return int(size if isinstance(size, int | float) else size[0])


class Weights(Mapping[str, Floats]):
    """The weights of a model folder by name, as float32 arrays: ``model.safetensors`` or its shards.

    An array is read when it is asked for, and not kept.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._open_files: dict[str, Any] = {}
        self._files = self._find()

    def _find(self) -> dict[str, str]:
        """The file that each weight is in."""
        if (self.folder / SAFE_WEIGHTS).is_file():
            return dict.fromkeys(self._open(SAFE_WEIGHTS).keys(), SAFE_WEIGHTS)
        index = self.folder / INDEX_FILE
        if not index.is_file():
            raise WrongWeights(f"{self.folder} has no {SAFE_WEIGHTS}; weights in other files need torch: {TORCH_LINE}")
        files = read_json(index).get("weight_map")
        if not isinstance(files, dict) or not all(PLAIN_NAME.fullmatch(str(file)) for file in files.values()):
            raise WrongWeights(f"{index} does not name the files of the weights")
        return files

    def _open(self, file: str) -> Any:
        from safetensors import safe_open

        if file not in self._open_files:
            try:
                self._open_files[file] = safe_open(self.folder / file, framework="numpy")
            except Exception as error:  # safetensors has an error of its own
                raise WrongWeights(f"{self.folder / file} is damaged or absent: {first_line(error)}") from error
        return self._open_files[file]

    def __getitem__(self, name: str) -> Floats:
        # bfloat16 becomes known to NumPy with ml_dtypes, which onnx imports.
        tensor = self._open(self._files[name]).get_tensor(name)
        return np.asarray(tensor, dtype=np.float32)

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    def read(self, name: str, *shape: int) -> Floats:
        """A weight of a known shape; -1 stands for any size. Raises WrongWeights where it is absent or another."""
        if name not in self:
            raise WrongWeights(f"{self.folder} lacks weights that config.json asks for: {name}")
        array = self[name]
        if len(array.shape) != len(shape) or any(a != b for a, b in zip(array.shape, shape, strict=True) if b >= 0):
            raise WrongWeights(f"{self.folder}: {name} is {list(array.shape)}, but config.json says {list(shape)}")
        return array


# ---- a graph in the making ----------------------------------------------------------------------------------


class Graph:
    """The nodes and constants of one tower in the making. Values are known by their names."""

    def __init__(self, folder: Path, part: str) -> None:
        config = read_json(folder / CONFIG_FILE)
        if reason := supports(config):
            raise ModelError(f"{folder}: {reason}: {TORCH_LINE}")
        self.weights, self.config = Weights(folder), tower_config(config, part)
        self.kind: str = self.config["model_type"]
        self.width: int = self.config["hidden_size"]
        self.joint = self.width  # of the joint space; a projection may change it
        self.names = NAMES.get(self.kind, CLIP_NAMES)
        self.root = f"{part}_model."
        if any(name.startswith(self.root * 2) for name in self.weights):  # CLIP's tower in an older dual encoder
            self.root *= 2
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}

    def finish(self, inputs: Values, outputs: Values, value: str) -> onnx.ModelProto:
        """The model that gives ``value`` as its one output."""
        self.nodes.append(helper.make_node("Identity", [value], list(outputs)))
        takes, gives = (
            [helper.make_tensor_value_info(name, *type_and_shape) for name, type_and_shape in values.items()]
            for values in (inputs, outputs)
        )
        graph = helper.make_graph(self.nodes, self.kind, takes, gives, list(self.constants.values()))
        opsets = [helper.make_opsetid("", OPSET)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="centerclip")

    def add(self, operator: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        """A node with one output, which has the node's name."""
        name = name or f"{operator}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], name=name, **attributes))
        return name

    def split(self, x: str, parts: int) -> list[str]:
        """Equal parts of the last dimension."""
        name = f"Split_{len(self.nodes)}"
        outputs = [f"{name}_{number}" for number in range(parts)]
        self.nodes.append(helper.make_node("Split", [x], outputs, name=name, axis=-1, num_outputs=parts))
        return outputs

    def constant(self, name: str, array: NDArray[Any]) -> str:
        """A constant; a second one of the same name is the same."""
        if name not in self.constants:
            self.constants[name] = numpy_helper.from_array(np.ascontiguousarray(array), name)
        return name

    def ints(self, *values: int) -> str:
        """A constant list of whole numbers: a shape, axes."""
        return self.constant(f"ints {list(values)}", np.array(values, dtype=np.int64))

    def number(self, value: float) -> str:
        """A constant number."""
        return self.constant(f"number {value}", np.array(value, dtype=np.float32))

    # ---- layers ---------------------------------------------------------------------------------------------

    def affine(self, x: str, name: str, weight: Floats, bias: Floats | None) -> str:
        """``x @ weight + bias``: ``[..., I]`` and ``[I, O]`` to ``[..., O]``."""
        x = self.add("MatMul", x, self.constant(f"{name}.weight", weight), name=name)
        return x if bias is None else self.add("Add", x, self.constant(f"{name}.bias", bias), name=f"{name}.sum")

    def linear(self, x: str, *names: str, inputs: int = 0, bias: bool = True, scale: Floats | None = None) -> str:
        """Linear layers of the same input, their outputs side by side and multiplied with ``scale``."""
        weight = np.concatenate([self.weights.read(f"{name}.weight", -1, inputs or self.width) for name in names])
        shift = np.concatenate([self.weights.read(f"{name}.bias", -1) for name in names]) if bias else None
        if scale is not None:
            weight, shift = weight * scale[:, None], None if shift is None else shift * scale
        return self.affine(x, "+".join([names[0], *(name.rpartition(".")[2] for name in names[1:])]), weight.T, shift)

    def norm(self, x: str, name: str) -> str:
        """Layer normalisation of ``[..., W]``."""
        scale, shift = (
            self.constant(f"{name}.{kind}", self.weights.read(f"{name}.{kind}", self.width))
            for kind in ("weight", "bias")
        )
        return self.add("LayerNormalization", x, scale, shift, epsilon=self.config["layer_norm_eps"])

    def activation(self, x: str) -> str:
        """The nonlinearity of the MLP."""
        kind = self.config["hidden_act"]
        if kind == "quick_gelu":  # ONNX Runtime knows these three nodes as one
            return self.add("Mul", x, self.add("Sigmoid", self.add("Mul", x, self.number(1.702))))
        return self.add("Gelu", x, approximate="none" if kind == "gelu" else "tanh")

    def mlp(self, x: str, fc1: str, fc2: str, scale: Floats | None = None) -> str:
        """``[..., W]`` to ``[..., W]``."""
        inner = self.weights.read(f"{fc1}.bias", -1).size
        return self.linear(self.activation(self.linear(x, fc1)), fc2, inputs=inner, scale=scale)

    def attend(self, query: str, key: str, value: str, mask: str | None) -> str:
        """Queries ``[B, Q, W]``, keys and values ``[B, L, W]``, mask ``[B, 1, Q, L]``, to ``[B, Q, W]``."""
        heads = self.config["num_attention_heads"]
        inputs = [query, key, value] if mask is None else [query, key, value, mask]
        return self.add("Attention", *inputs, q_num_heads=heads, kv_num_heads=heads)

    def project(self, x: str, name: str) -> str:
        """One token a sequence, ``[B, 1, W]``, to ``[B, D]`` in the joint space."""
        self.joint = len(self.weights.read(f"{name}.weight", -1, self.width))
        return self.linear(self.add("Squeeze", x, self.ints(1)), name, bias=name.endswith("head"))  # SigLIP's has one

    def token(self, x: str, at: int | str | None) -> str:
        """One token of each sequence, ``[B, L, W]`` to ``[B, 1, W]``: its place, or places ``[B, 1, 1]``; None: all."""
        if at is None:
            return x
        if isinstance(at, str):
            return self.add("GatherND", x, at, batch_dims=1)
        end = at + 1 if at >= 0 else np.iinfo(np.int64).max
        return self.add("Slice", x, self.ints(at), self.ints(int(end)), self.ints(1))

    def masks(self, bias: str) -> "Masks":
        """What is added to the scores of keys, ``[B, L]``, for all queries and for one."""
        row = self.add("Unsqueeze", bias, self.ints(1, 2))
        length = self.add("Shape", bias, start=1)
        return Masks(self.add("Expand", row, self.add("Concat", self.ints(1, 1), length, self.ints(1), axis=0)), row)

    def self_attention(self, x: str, root: str, masks: "Masks | None", read_at: int | str | None) -> str:
        """``[B, L, W]`` to the same; with ``read_at``, to the result of this token's query alone, ``[B, 1, W]``."""
        query, key, value = (root + name for name in (self.names.query, self.names.key, self.names.value))
        bias = bool(self.config.get("qkv_bias", True))
        if read_at is None:
            q, k, v = self.split(self.linear(x, query, key, value, bias=bias), 3)
        else:
            q = self.linear(self.token(x, read_at), query, bias=bias)
            k, v = self.split(self.linear(x, key, value, bias=bias), 2)
        mask = masks and (masks.full if read_at is None else masks.row)
        return self.linear(
            self.attend(q, k, v, mask), root + self.names.out, scale=self._scale(root, self.names.scale1)
        )

    def block(self, x: str, number: int, masks: "Masks | None" = None, read_at: int | str | None = None) -> str:
        """A transformer block, ``[B, L, W]`` to the same; with ``read_at``, to this token alone, ``[B, 1, W]``."""
        write = self._block_norm_last if self.kind == "bert" else self._block_norm_first
        return write(x, f"{self.root}{self.names.block}.{number}.", masks, read_at)

    def _block_norm_first(self, x: str, root: str, masks: "Masks | None", read_at: int | str | None) -> str:
        mixed = self.self_attention(self.norm(x, root + self.names.norm1), root, masks, read_at)
        x = self.add("Add", self.token(x, read_at), mixed)
        y = self.norm(x, root + self.names.norm2)
        y = self.mlp(y, root + self.names.fc1, root + self.names.fc2, self._scale(root, self.names.scale2))
        return self.add("Add", x, y)

    def _block_norm_last(self, x: str, root: str, masks: "Masks | None", read_at: int | str | None) -> str:
        mixed = self.self_attention(x, root, masks, read_at)
        x = self.norm(self.add("Add", self.token(x, read_at), mixed), root + self.names.norm1)
        y = self.mlp(x, root + self.names.fc1, root + self.names.fc2)
        return self.norm(self.add("Add", x, y), root + self.names.norm2)

    def _scale(self, root: str, name: str) -> Floats | None:
        return self.weights.read(root + name, self.width) if name else None


class Masks(NamedTuple):
    """What is added to attention scores: for all queries ``[B, 1, L, L]``, and for the one read at ``[B, 1, 1, L]``."""

    full: str
    row: str


# ---- vision towers ------------------------------------------------------------------------------------------


def vision_graph(folder: Path, scale_and_shift: tuple[Floats, Floats]) -> onnx.ModelProto:
    """The vision tower of a model folder: ``rgb`` uint8 ``[N, H, W, 3]`` to ``vectors`` ``[N, D]``, not of norm 1.

    ``hidden_1`` and so on is what a block gives, ``[N, L, W]``: :func:`cut` makes parts of it. ``bias`` ``[N, L]`` is
    added to the attention scores of the keys of all blocks but the first, and of a pooling.

    Args:
        folder: a Hugging Face model folder: config.json, safetensors.
        scale_and_shift: a colour's value becomes ``value / scale - shift``, ``[3]`` each. The weights of the patches
            take it in, so it costs nothing.
    """
    graph = Graph(folder, "vision")
    shape = layout(read_json(folder / CONFIG_FILE))
    side, last = shape.image_size, shape.blocks - 1
    x, masks = _embed(graph, _patches(graph, "rgb", shape), shape, scale_and_shift), graph.masks("bias")
    for number in range(last):
        x = graph.block(x, number, masks if number else None)
        x = graph.add("Identity", x, name=f"hidden_{number + 1}")
    read_at = None if graph.kind == "siglip_vision_model" else 0  # SigLIP pools over all tokens
    x = _pool(graph, graph.block(x, last, masks if last else None, read_at), masks)
    inputs: Values = {"rgb": (UINT8, ("N", side, side, 3)), "bias": (FLOAT, ("M", "L"))}
    return graph.finish(inputs, {"vectors": (FLOAT, ("N", graph.joint))}, x)


def cut(whole: onnx.ModelProto, cuts: Sequence[int], blocks: int, *, biased: bool) -> list[onnx.ModelProto]:
    """The parts of a vision tower: the first takes ``rgb``, the next ``hidden_6`` after a cut at 6, and so on.

    Args:
        whole: of :func:`vision_graph`, in any precision.
        cuts: after which blocks, from 1 on, ascending.
        blocks: of the tower.
        biased: give the parts after the first one the input ``bias``; the others have none.
    """
    return [
        _part(whole, first, last % blocks, bias=biased and first > 0) for first, last in pairwise([0, *cuts, blocks])
    ]


def _part(whole: onnx.ModelProto, first: int, last: int, *, bias: bool) -> onnx.ModelProto:
    """The blocks after ``first`` up to ``last``, 0 for the end: what the result depends on, back to the input."""
    source, result = (f"hidden_{first}" if first else "rgb"), (f"hidden_{last}" if last else "vectors")
    graph = whole.graph
    nodes = list(graph.node) if bias else _without_bias(graph)
    makers = {name: place for place, node in enumerate(nodes) for name in node.output}
    needed, open_names = set(), [result]
    while open_names:
        name = open_names.pop()
        if name != source and name in makers and makers[name] not in needed:
            needed.add(makers[name])
            open_names += nodes[makers[name]].input
    kept = [nodes[place] for place in sorted(needed)]
    names = {name for node in kept for name in node.input}
    inputs = [each for each in graph.input if each.name in names]
    if first:
        inputs.append(helper.make_tensor_value_info(source, FLOAT, ["M", "L", None]))
    output = helper.make_tensor_value_info(result, FLOAT, None)
    part = helper.make_graph(
        kept, "vision", inputs, [output], [each for each in graph.initializer if each.name in names]
    )
    return helper.make_model(part, opset_imports=whole.opset_import, ir_version=whole.ir_version)


def _without_bias(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """The nodes of a graph in which no cluster sizes are added to attention: what only follows from them is gone."""
    absent, nodes = {"bias"}, []
    for node in graph.node:
        if absent.isdisjoint(node.input):
            nodes.append(node)
        elif node.op_type != "Attention":
            absent.update(node.output)
        else:  # the mask is an input that can be left out
            plain = onnx.NodeProto()
            plain.CopyFrom(node)
            plain.input[:] = ["" if name in absent else name for name in node.input]
            nodes.append(plain)
    return nodes


def _patches(graph: Graph, rgb: str, shape: Layout) -> str:
    """Images ``[N, H, W, 3]`` to patches ``[N, P, p * p * 3]``, in the order of the weights."""
    patch = shape.patch_size
    rows = shape.image_size // patch
    if rows * patch != shape.image_size:  # what is left over at the right and at the bottom is not seen
        ends = graph.ints(rows * patch, rows * patch)
        rgb = graph.add("Slice", rgb, graph.ints(0, 0), ends, graph.ints(1, 2))
    rgb = graph.add("Reshape", rgb, graph.ints(0, rows, patch, rows, patch, 3))
    rgb = graph.add("Transpose", rgb, perm=(0, 1, 3, 2, 4, 5))
    return graph.add("Cast", graph.add("Reshape", rgb, graph.ints(0, shape.patches, 3 * patch * patch)), to=FLOAT)


def _embed(graph: Graph, patches: str, shape: Layout, scale_and_shift: tuple[Floats, Floats]) -> str:
    """Patches ``[N, P, p * p * 3]`` to tokens ``[N, prefix + P, W]``, the input of the first block."""
    like_clip = graph.names is CLIP_NAMES
    root = f"{graph.root}embeddings."
    name = root + ("patch_embedding" if like_clip else "patch_embeddings.projection")
    kernel = graph.weights.read(f"{name}.weight", shape.width, 3, shape.patch_size, shape.patch_size)
    has_bias = graph.kind != "clip_vision_model"
    bias = graph.weights.read(f"{name}.bias", shape.width) if has_bias else np.zeros(shape.width)
    scale, shift = (values.astype(np.float64)[:, None, None] for values in scale_and_shift)
    bias = (bias - (kernel * shift).sum((1, 2, 3))).astype(np.float32)
    kernel = (kernel / scale).transpose(0, 2, 3, 1).astype(np.float32)
    tokens = shape.prefix + shape.patches
    if like_clip:
        positions = graph.weights.read(f"{root}position_embedding.weight", tokens, shape.width)
    else:
        positions = graph.weights.read(f"{root}position_embeddings", 1, tokens, shape.width)[0]
    # The bias of the patches and their positions are one constant.
    shifts = positions[shape.prefix :] + bias
    x = graph.affine(patches, name, kernel.reshape(shape.width, -1).T, shifts)
    if shape.prefix:
        given = graph.weights[f"{root}class_embedding" if like_clip else f"{root}cls_token"]
        first = graph.constant(f"{root}class", (given.reshape(-1) + positions[0])[None, None])
        count = graph.add("Concat", graph.add("Shape", patches, end=1), graph.ints(1, 1), axis=0)
        x = graph.add("Concat", graph.add("Expand", first, count), x, axis=1)
    return graph.norm(x, f"{graph.root}pre_layrnorm") if graph.kind == "clip_vision_model" else x


def _pool(graph: Graph, x: str, masks: Masks | None) -> str:
    """The output of the last block, ``[M, 1, W]``, or ``[M, L, W]`` for SigLIP, to ``vectors`` ``[M, D]``."""
    if graph.kind == "siglip_vision_model":
        return _attention_pool(graph, graph.norm(x, f"{graph.root}post_layernorm"), masks)
    x = graph.norm(x, graph.root + ("post_layernorm" if graph.kind == "clip_vision_model" else "layernorm"))
    if graph.kind == "vit":
        x = graph.add("Tanh", graph.linear(x, f"{graph.root}pooler.dense"))
    return graph.project(x, "visual_projection")


def _attention_pool(graph: Graph, x: str, masks: Masks | None) -> str:
    """SigLIP's: one learned query attends to all tokens, ``[M, L, W]`` to ``[M, W]``."""
    root, width = f"{graph.root}head.", graph.width
    weight = graph.weights.read(f"{root}attention.in_proj_weight", 3 * width, width)
    bias = graph.weights.read(f"{root}attention.in_proj_bias", 3 * width)
    probe = graph.weights.read(f"{root}probe", 1, 1, width)
    query = graph.constant(f"{root}attention.query", probe @ weight[:width].T + bias[:width])
    count = graph.add("Concat", graph.add("Shape", x, end=1), graph.ints(1, 1), axis=0)
    both = graph.affine(x, f"{root}attention.in_proj", weight[width:].T, bias[width:])
    key, value = graph.split(both, 2)
    x = graph.attend(graph.add("Expand", query, count), key, value, masks and masks.row)
    x = graph.linear(x, f"{root}attention.out_proj")
    x = graph.add("Add", x, graph.mlp(graph.norm(x, f"{root}layernorm"), f"{root}mlp.fc1", f"{root}mlp.fc2"))
    return graph.add("Squeeze", x, graph.ints(1))


# ---- text towers --------------------------------------------------------------------------------------------


def text_graph(folder: Path) -> onnx.ModelProto:
    """The text tower of a model folder: ``input_ids`` and ``attention_mask``, int64 ``[B, L]``, to ``vectors``.

    They are ``[B, D]``, projected, not of norm 1. Sentences are padded at their ends.
    """
    graph = Graph(folder, "text")
    root, kind = graph.root, graph.kind
    table, positions = (
        ("word_embeddings", "position_embeddings") if kind == "bert" else ("token_embedding", "position_embedding")
    )
    length = graph.add("Shape", "input_ids", start=1)
    places = graph.weights.read(f"{root}embeddings.{positions}.weight", -1, graph.width)
    if kind == "bert":  # all tokens are of the first type
        places = places + graph.weights.read(f"{root}embeddings.token_type_embeddings.weight", -1, graph.width)[0]
    name = f"{root}embeddings.{table}.weight"
    x = graph.add("Gather", graph.constant(name, graph.weights.read(name, -1, graph.width)), "input_ids")
    starts = graph.constant(f"{root}embeddings.positions", places)
    x = graph.add("Add", x, graph.add("Slice", starts, graph.ints(0), length, graph.ints(0)))
    if kind == "bert":
        x = graph.norm(x, f"{root}embeddings.LayerNorm")

    real = graph.add("Cast", "attention_mask", to=FLOAT)
    padding = graph.add("Mul", graph.add("Sub", graph.number(1), real), graph.number(MASKED))
    masks = graph.masks(padding)
    read_at: int | str = {"bert": 0, "siglip_text_model": -1}.get(kind, "")
    if kind == "clip_text_model":
        read_at = _end_token(graph)
        masks = _causal(graph, masks, length, read_at)
    blocks = graph.config["num_hidden_layers"]
    for number in range(blocks):
        x = graph.block(x, number, masks, read_at if number == blocks - 1 else None)

    if kind == "bert":
        x = graph.add("Tanh", graph.linear(x, f"{root}pooler.dense"))
    else:
        x = graph.norm(x, f"{root}final_layer_norm")
    vectors = graph.project(x, f"{root}head" if kind == "siglip_text_model" else "text_projection")
    inputs: Values = dict.fromkeys(("input_ids", "attention_mask"), (INT64, ("B", "L")))
    return graph.finish(inputs, {"vectors": (FLOAT, ("B", graph.joint))}, vectors)


def _end_token(graph: Graph) -> str:
    """Where each sentence ends, ``[B, 1, 1]``."""
    end, ids = graph.config["eos_token_id"], "input_ids"
    if end != 2:  # old configurations name the wrong token, 2; the end token has the largest id then
        ids = graph.add("Cast", graph.add("Equal", ids, graph.ints(end)), to=INT32)
    place = graph.add("ArgMax", ids, axis=1, keepdims=1)  # the first of equals
    return graph.add("Unsqueeze", place, graph.ints(2))


def _causal(graph: Graph, masks: Masks, length: str, end: str) -> Masks:
    """Masks in which a token does not see those after it; the one that is read at is at ``end``."""
    scalar = graph.add("Squeeze", length)
    places = graph.add("Range", graph.constant("zero", np.array(0)), scalar, graph.constant("one", np.array(1)))
    later = graph.add("Less", graph.add("Unsqueeze", places, graph.ints(1)), places)  # [L, L]
    hidden = graph.add("Mul", graph.add("Cast", later, to=FLOAT), graph.number(MASKED))
    row = graph.add("Cast", graph.add("Less", end, places), to=FLOAT)  # [B, 1, L]
    row = graph.add("Unsqueeze", graph.add("Mul", row, graph.number(MASKED)), graph.ints(1))
    return Masks(graph.add("Add", masks.full, hidden), graph.add("Add", masks.row, row))


# ---- files --------------------------------------------------------------------------------------------------


def save(model: onnx.ModelProto, path: Path) -> None:
    """Write a graph, and its constants into ``*.onnx.data`` beside it, which ONNX Runtime maps into memory.

    The model loses their content on the way: they are large.
    """
    weights = path.with_name(f"{path.name}.data")
    with weights.open("wb") as file:
        for tensor in model.graph.initializer:
            content = tensor.raw_data or numpy_helper.to_array(tensor).tobytes()
            if len(content) < INLINE_BYTES:
                continue
            place = -(-file.tell() // PAGE) * PAGE
            file.seek(place)
            file.write(content)
            moved = onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
            moved.data_location = onnx.TensorProto.EXTERNAL
            for key, value in (("location", weights.name), ("offset", place), ("length", len(content))):
                moved.external_data.add(key=key, value=str(value))
            tensor.CopyFrom(moved)
    path.write_bytes(model.SerializeToString())
