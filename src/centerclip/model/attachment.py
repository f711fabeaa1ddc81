"""Hooks on the attention of somebody's blocks: what its queries and keys are, and a bias on its keys."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from ..cluster import Setting, Stage, class_attention, pooling, size_bias, temporal_shift, token_shift
from ..cluster.segments import Chooser, follow_places, keep_centers, patch_places
from ..cluster.setting import MERGING
from ..errors import ModelError

ADDING = ("eager", "sdpa")  # the implementations that add a float mask to the scores


def attention_of(block: nn.Module) -> nn.Module:
    """The self-attention of a transformer block: the module with a query, a key and a value layer."""
    for module in block.modules():
        if all(isinstance(getattr(module, f"{letter}_proj", None), nn.Module) for letter in "qkv"):
            return module
    raise ModelError(
        f"blocks of {type(block).__name__} have no attention with q_proj, k_proj and v_proj, which this method needs; "
        "those of CLIP, ViT, DINOv2 and SigLIP do"
    )


def watch_scores(block: nn.Module, prefix: int, found: Callable[[Tensor], None]) -> list[Any]:
    """Call ``found`` with the attention ``[B, L]`` that patches get in a block, each time it runs.

    The weights come from the block's own queries and keys, so it does not matter how the model computes attention.

    Returns:
        Handles to remove the hooks with.
    """
    attention: Any = attention_of(block)
    seen = threading.local()  # a model may be in use by several threads

    def query(_layer: nn.Module, _inputs: Any, output: Tensor) -> None:
        seen.queries = output.detach()

    def key(_layer: nn.Module, _inputs: Any, output: Tensor) -> None:
        seen.keys = output.detach()

    def score(module: Any, _inputs: Any, _output: Any) -> None:
        with torch.no_grad():
            scores = class_attention(seen.queries, seen.keys, head_dim=module.head_dim, prefix=prefix)
        del seen.queries, seen.keys
        found(scores)

    return [
        attention.q_proj.register_forward_hook(query),
        attention.k_proj.register_forward_hook(key),
        attention.register_forward_hook(score),
    ]


def bias_keys(
    vision_model: nn.Module, blocks: list[nn.Module], bias: Callable[[], Tensor], *, pooling: bool
) -> list[Any]:
    """Add ``bias() [B, N]`` to the attention scores of the keys of ``blocks``, and of a ``pooling`` at the end.

    Returns:
        Handles to remove the hooks with.
    """
    implementation = getattr(getattr(vision_model, "config", None), "_attn_implementation", "eager")
    if implementation not in ADDING:
        raise ModelError(
            f"attention {implementation!r} takes no bias, which this method needs: open the model with "
            'attn_implementation="sdpa", or write [proportional=false]'
        )

    def in_block(_attention: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        hidden = inputs[0] if inputs else named["hidden_states"]
        mask = _checked(bias(), hidden)[:, None, None, :]  # [B, 1, 1, N]: for all heads and queries
        given = inputs[1] if len(inputs) > 1 else named.get("attention_mask")
        mask = mask if given is None else given + mask
        if len(inputs) > 1:
            return (inputs[0], mask, *inputs[2:]), named
        return inputs, {**named, "attention_mask": mask}

    def in_pooling(
        _pool: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return inputs, {**named, "key_padding_mask": _checked(bias(), inputs[1])}

    handles = [attention_of(block).register_forward_pre_hook(in_block, with_kwargs=True) for block in blocks]
    if pooling:  # SigLIP's: torch's own class, which no block uses
        pools = [module for module in vision_model.modules() if isinstance(module, nn.MultiheadAttention)]
        handles += [pool.register_forward_pre_hook(in_pooling, with_kwargs=True) for pool in pools]
    return handles


def _checked(bias: Tensor, hidden: Tensor) -> Tensor:
    if bias.shape != hidden.shape[:2]:
        raise ModelError(
            f"cluster sizes {list(bias.shape)} are of another forward pass than the tokens {list(hidden.shape)}: with "
            "gradient checkpointing, run each backward pass before the next forward pass"
        )
    return bias.to(hidden.dtype)


NORMS = (("layer_norm1", "layer_norm2"), ("norm1", "norm2"), ("layernorm_before", "layernorm_after"))


class Step(NamedTuple):
    """What one stage kept, for drawing."""

    stage: Stage
    ids: Tensor  # [V*S, K]
    places: Tensor  # [V*S, K, 3] frame, row, column
    assignment: Tensor | None  # [V*S, N]


class Pass:
    """What the blocks after a stage need to know of the forward pass that is running."""

    def __init__(self) -> None:
        self.scores: Tensor | None = None  # [V*sequences, L]: attention that patches got
        self.sizes: dict[Stage, Tensor] = {}  # [V*S, K]: tokens in each cluster
        self.biases: dict[Stage, Tensor] = {}  # [V*S, prefix + K]: added to the scores of keys, up to the next stage


class Attachment:
    """Clustering attached to a vision model; made by :func:`attach`."""

    def __init__(
        self,
        vision_model: nn.Module,
        setting: Setting,
        *,
        frames: int,
        chooser: Chooser | None,
    ) -> None:
        self.setting = setting
        self.frames = frames
        self.chooser = chooser
        self.blocks = transformer_blocks(vision_model)
        self.patches, self.prefix = token_layout(vision_model)
        setting.check(blocks=len(self.blocks), frames=frames, patches=self.patches)
        self._recorded: list[Step] | None = None
        self._handles: list[Any] = []
        # Gradient checkpointing runs blocks again, maybe on another thread, and finds their pass here, so each backward
        # pass must come before the next forward pass. Without gradients every thread has a pass of its own.
        self._training_pass = Pass()
        self._threads = threading.local()
        if setting.method in ("token-shift", "temporal-shift"):
            self._attach_shift()
        sequences = frames
        for stage in setting.stages:
            block = self.blocks[stage.block - 1]
            if setting.method == "attention":
                self._handles += watch_scores(block, self.prefix, self._keep_scores)
            self._handles.append(block.register_forward_hook(self._reduce(stage, sequences)))
            sequences = stage.segments
        if setting.proportional:
            self._attach_biases(vision_model)

    def remove(self) -> None:
        """Take the hooks off again."""
        for handle in self._handles:
            handle.remove()

    @contextmanager
    def record(self) -> Iterator[list[Step]]:
        """Collect what every stage keeps while the block runs: one :class:`Step` a stage and forward pass."""
        self._recorded = []
        try:
            yield self._recorded
        finally:
            self._recorded = None

    def _running(self) -> Pass:
        """The forward pass that this thread is in."""
        if torch.is_grad_enabled():
            return self._training_pass
        if not hasattr(self._threads, "running"):
            self._threads.running = Pass()
        running: Pass = self._threads.running
        return running

    def _reduce(self, stage: Stage, sequences: int) -> Callable[..., Any]:
        """A forward hook that replaces ``[V*sequences, prefix + L, D]`` by ``[V*S, prefix + K, D]``."""

        def hook(block: nn.Module, _inputs: Any, output: Any) -> Any:
            hidden = output[0] if isinstance(output, tuple) else output
            running = self._running()
            if self.setting.method == "pooling":
                reduced = pooling(hidden, frames=sequences, segments=stage.segments)
            else:
                number = self.setting.stages.index(stage)
                earlier = self.setting.stages[number - 1] if number else None
                reduced, ids, assignment, sizes = keep_centers(
                    hidden,
                    frames=sequences,
                    segments=stage.segments,
                    k=stage.k,
                    method=self.chooser or self.setting.method,
                    options=None if self.chooser else self.setting.options,
                    merge=self.setting.method in MERGING,
                    prefix=self.prefix,
                    scores=running.scores,
                    sizes=running.sizes.get(earlier) if earlier else None,
                    training=block.training,
                )
                running.scores = None
                if self.setting.proportional and sizes is not None:
                    running.sizes[stage] = sizes
                    running.biases[stage] = size_bias(sizes, self.frames / stage.segments, self.prefix)
                if self._recorded is not None:
                    length = hidden.shape[1] - self.prefix
                    before = (
                        patch_places(len(hidden), self.frames, length, None, hidden.device)
                        if earlier is None
                        else self._recorded[-1].places
                    )
                    self._recorded.append(Step(stage, ids, follow_places(before, ids), assignment))
            return (reduced, *output[1:]) if isinstance(output, tuple) else reduced

        return hook

    def _keep_scores(self, scores: Tensor) -> None:
        self._running().scores = scores

    def _bias_of(self, stage: Stage) -> Tensor:
        return self._running().biases[stage]

    def _attach_biases(self, vision_model: nn.Module) -> None:
        """Blocks after a stage, up to the next, weigh its clusters by their sizes."""
        ends = [stage.block for stage in self.setting.stages[1:]] + [len(self.blocks)]
        try:
            for stage, end in zip(self.setting.stages, ends, strict=True):
                bias = partial(self._bias_of, stage)
                last = end == len(self.blocks)
                self._handles += bias_keys(vision_model, list(self.blocks[stage.block : end]), bias, pooling=last)
        except ModelError:
            self.remove()
            raise

    def _attach_shift(self) -> None:
        """Shift what goes into attention (and, for token shift, the MLP); the residual path stays unshifted."""
        shift = token_shift if self.setting.method == "token-shift" else temporal_shift

        def hook(_norm: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            return (shift(inputs[0], frames=self.frames, prefix=self.prefix), *inputs[1:])

        for block in self.blocks:
            before_attention, before_mlp = _norms(block)
            self._handles.append(before_attention.register_forward_pre_hook(hook))
            if self.setting.method == "token-shift":
                self._handles.append(before_mlp.register_forward_pre_hook(hook))


_ATTACHED: WeakKeyDictionary[nn.Module, Attachment] = WeakKeyDictionary()


def attach(
    vision_model: nn.Module, clustering: str | Setting, *, frames: int, chooser: Chooser | None = None
) -> Attachment:
    """Plug clustering into a Hugging Face CLIP, ViT, DINOv2 or SigLIP vision model.

    From then on ``vision_model(pixel_values)`` takes whole videos, ``[videos * frames, 3, H, W]``, and its
    ``pooler_output`` has one row a segment, ``[videos * segments, D]``. The class of the model does not change;
    :func:`detach` undoes it.

    Args:
        vision_model: the vision tower, for example ``CLIPModel(...).vision_model``.
        clustering: the paper's notation, such as ``"B6-4,49"``.
        frames: frames of a video.
        chooser: ``(tokens [B, N, D], k) -> ids [B, K]`` in place of the setting's method.
    """
    if vision_model in _ATTACHED:
        raise ModelError(
            f"{type(vision_model).__name__} already has {_ATTACHED[vision_model].setting} attached; detach it first"
        )
    attachment = Attachment(vision_model, Setting.parse(clustering), frames=frames, chooser=chooser)
    _ATTACHED[vision_model] = attachment
    return attachment


def detach(vision_model: nn.Module) -> None:
    """Undo :func:`attach`; does nothing where nothing is attached."""
    attachment = _ATTACHED.pop(vision_model, None)
    if attachment is not None:
        attachment.remove()


def transformer_blocks(vision_model: nn.Module) -> nn.ModuleList:
    """The list of transformer blocks: the longest one whose length is ``config.num_hidden_layers``."""
    depth = getattr(getattr(vision_model, "config", None), "num_hidden_layers", None)
    lists = [module for module in vision_model.modules() if isinstance(module, nn.ModuleList)]
    blocks = [module for module in lists if len(module) == depth]
    if not blocks:
        raise ModelError(
            f"{type(vision_model).__name__} has no list of transformer blocks to cluster between; "
            "vision towers like those of CLIP, ViT, DINOv2 and SigLIP do"
        )
    return blocks[0]


@torch.no_grad()
def token_layout(vision_model: nn.Module) -> tuple[int, int]:
    """Patches of a frame, and how many other tokens stand before them ([CLASS], registers)."""
    config: Any = vision_model.config
    side = config.image_size if isinstance(config.image_size, int) else config.image_size[0]
    patch = config.patch_size if isinstance(config.patch_size, int) else config.patch_size[0]
    patches = (side // patch) ** 2
    embeddings: Any = vision_model.embeddings
    parameter = next(embeddings.parameters())
    blank = torch.zeros(1, config.num_channels, side, side, device=parameter.device, dtype=parameter.dtype)
    return patches, embeddings(blank).shape[1] - patches


def _norms(block: nn.Module) -> tuple[nn.Module, nn.Module]:
    for first, second in NORMS:
        if hasattr(block, first) and hasattr(block, second):
            return getattr(block, first), getattr(block, second)
    raise ModelError(f"blocks of {type(block).__name__} have no norms before attention and MLP to shift at")
