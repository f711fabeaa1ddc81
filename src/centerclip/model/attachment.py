"""Clustering attached to a vision tower by hooks on its blocks; the model's class and weights stay as they are.

Hooks are bound methods and partial functions, never closures, so that a deep copy of a model has hooks of its own.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..cluster import Setting, Stage, class_attention, patch_changes, temporal_shift, token_shift
from ..cluster.segments import Chooser, follow_places, patch_places, reduce_stage
from ..errors import ModelError

ATTACHMENT = "_centerclip_attachment"  # the attribute of a vision model: copied and pickled together with its hooks
MASK_ADDING = ("eager", "sdpa")  # attention implementations that add a float mask to the scores
MLP_NORM_NAMES = ("layer_norm2", "norm2", "layernorm_after")  # of CLIP and SigLIP, of DINOv2, of ViT


def attach(
    vision_model: nn.Module, clustering: str | Setting, *, frames: int, chooser: Chooser | None = None
) -> "Attachment":
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
    attached: Attachment | None = getattr(vision_model, ATTACHMENT, None)
    if attached is not None:
        raise ModelError(f"{type(vision_model).__name__} already has {attached.setting} attached; detach it first")
    attachment = Attachment(vision_model, Setting.parse(clustering).with_chooser(chooser), frames=frames)
    setattr(vision_model, ATTACHMENT, attachment)
    return attachment


def detach(vision_model: nn.Module) -> None:
    """Undo :func:`attach`; does nothing where nothing is attached."""
    attachment: Attachment | None = getattr(vision_model, ATTACHMENT, None)
    if attachment is not None:
        attachment.remove()
        delattr(vision_model, ATTACHMENT)


class KeptTokens(NamedTuple):
    """What one stage kept in one forward pass, for drawing."""

    stage: Stage
    ids: Tensor  # [V*S, K]
    places: Tensor  # [V*S, K, 3] frame, row, column
    assignment: Tensor | None  # [V*S, N]


class Attachment:
    """Clustering attached to a vision model; made by :func:`attach`."""

    def __init__(self, vision_model: nn.Module, setting: Setting, *, frames: int) -> None:
        self.frames = frames
        self.blocks = transformer_blocks(vision_model)
        self.patches, self.prefix = token_layout(vision_model)
        self.setting = setting.check(blocks=len(self.blocks), frames=frames, patches=self.patches)
        self.clustering_seconds = 0.0  # spent in stages so far; on a GPU counted where ``synchronise`` is on
        self.synchronise = False
        self._recorded: list[KeptTokens] | None = None
        self._handles: list[Any] = []
        # Gradient checkpointing runs blocks again, maybe on another thread, and finds the state of their pass here, so
        # each backward pass must come before the next forward pass. Without gradients every thread has a state.
        self._training_state = ForwardState()
        self._thread = PerThread()
        try:
            self._attach_hooks(vision_model)
        except ModelError:
            self.remove()
            raise

    def remove(self) -> None:
        """Take the hooks off again."""
        for handle in self._handles:
            handle.remove()

    @contextmanager
    def for_segments(self, setting: Setting, frames: int) -> Iterator[None]:
        """Inside a ``with`` block this thread encodes segments of so many frames, with what ``for_segment`` gives."""
        self._thread.alone = setting, frames
        try:
            yield
        finally:
            del self._thread.alone

    @contextmanager
    def record(self) -> Iterator[list[KeptTokens]]:
        """Collect what every stage keeps while the ``with`` block runs: one entry a stage and forward pass."""
        self._recorded = []
        try:
            yield self._recorded
        finally:
            self._recorded = None

    def _attach_hooks(self, vision_model: nn.Module) -> None:
        if self.setting.method in ("token-shift", "temporal-shift"):
            self._attach_shift()
        stages, parts = self.setting.stages, self.setting.parts
        ends = [stage.block for stage in stages[1:]] + [len(self.blocks)]
        for number, (stage, part, end) in enumerate(zip(stages, parts, ends, strict=False)):
            block = self.blocks[max(stage.block, 1) - 1]
            if part.method == "attention":
                self._handles += watch_scores(block, self.prefix, self._keep_scores)
            if part.method == "rlt":
                embeddings: Any = vision_model.embeddings
                self._handles.append(embeddings.register_forward_pre_hook(self._keep_changes, with_kwargs=True))
            if stage.block:
                self._handles.append(block.register_forward_hook(partial(self._reduce_output, number)))
            else:
                hook = partial(self._reduce_input, number)
                self._handles.append(block.register_forward_pre_hook(hook, with_kwargs=True))
            if part.follows_content:
                self._handles.append(self.blocks[-1].register_forward_hook(partial(self._unpack, number)))
            if part.proportional or part.follows_content:  # up to the next stage, clusters weigh as much as their sizes
                blocks, last = list(self.blocks[stage.block : end]), end == len(self.blocks)
                self._handles += bias_keys(vision_model, blocks, partial(self._bias_of, number), pooling=last)

    def _attach_shift(self) -> None:
        """Shift the residual stream before each block and, for token shift, between attention and MLP too."""
        is_token_shift = self.setting.method == "token-shift"
        shift = partial(token_shift if is_token_shift else temporal_shift, frames=self.frames, prefix=self.prefix)
        for block in self.blocks:
            self._handles.append(block.register_forward_pre_hook(partial(_shift_input, shift), with_kwargs=True))
            if is_token_shift:
                self._handles.append(_mlp_norm(block).register_forward_pre_hook(partial(_shift_in_place, shift)))

    def _reduce_output(self, number: int, block: nn.Module, _inputs: Any, output: Any) -> Any:
        """A forward hook: what a block gives is reduced."""
        if isinstance(output, tuple):
            return (self._reduce(number, block, output[0]), *output[1:])
        return self._reduce(number, block, output)

    def _reduce_input(self, number: int, block: nn.Module, inputs: Any, named: dict[str, Any]) -> tuple[Any, Any]:
        """A forward pre-hook: what the first block takes is reduced."""
        return _changed_input(partial(self._reduce, number, block), inputs, named)

    def _reduce(self, number: int, block: nn.Module, hidden: Tensor) -> Tensor:
        """``[V*sequences, prefix + L, D]`` to ``[V*S, prefix + K, D]``."""
        state, start = self._state(), self._now()
        setting, frames = getattr(self._thread, "alone", (self.setting, self.frames))
        reduced = reduce_stage(
            hidden,
            setting,
            number,
            frames=frames,
            prefix=self.prefix,
            scores=state.scores if self.setting.stages[number].block else state.changes,
            sizes=state.sizes.get(number - 1),
            training=block.training,
        )
        self.clustering_seconds += self._now() - start
        state.scores = None
        state.sizes.pop(number, None)
        if reduced.sizes is not None:
            state.sizes[number] = reduced.sizes
        if reduced.bias is not None:
            state.biases[number] = reduced.bias
        if self._recorded is not None and reduced.ids is not None:
            places = follow_places(self._places_before(number, frames, hidden), reduced.ids)
            self._recorded.append(KeptTokens(self.setting.stages[number], reduced.ids, places, reduced.assignment))
        tokens: Tensor = reduced.tokens
        return tokens

    def _places_before(self, number: int, frames: int, hidden: Tensor) -> Tensor:
        """The places ``[V*sequences, L, 3]`` of the tokens that a stage takes, while recording."""
        length = hidden.shape[1] - self.prefix
        if not number:
            return patch_places(len(hidden), frames, length, None, hidden)
        # Pooling was not recorded: its means have no place in a frame.
        if self.setting.of_stage(number - 1).method == "pooling":
            return patch_places(len(hidden), self.setting.stages[number - 1].segments, length, (1, length), hidden)
        assert self._recorded is not None
        return self._recorded[-1].places

    def _unpack(self, number: int, _block: nn.Module, _inputs: Any, output: Any) -> Any:
        """A forward hook of the last block: the prefixes of packed segments, ``[V*S, prefix, D]``, for the head."""
        hidden = output[0] if isinstance(output, tuple) else output
        count = self.setting.stages[number].segments * self.prefix
        prefixes = hidden[:, :count].reshape(-1, self.prefix, hidden.shape[2])
        return (prefixes, *output[1:]) if isinstance(output, tuple) else prefixes

    def _now(self) -> float:
        if self.synchronise:
            torch.cuda.synchronize()
        return time.perf_counter()

    def _state(self) -> "ForwardState":
        """The state of the forward pass that this thread is in."""
        if torch.is_grad_enabled():
            return self._training_state
        if not hasattr(self._thread, "state"):
            self._thread.state = ForwardState()
        state: ForwardState = self._thread.state
        return state

    def _keep_scores(self, scores: Tensor) -> None:
        self._state().scores = scores

    def _keep_changes(self, _embeddings: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        pixels = inputs[0] if inputs else named["pixel_values"]
        patch = int((pixels.shape[2] ** 2 // self.patches) ** 0.5)
        self._state().changes = patch_changes(pixels.detach(), patch)

    def _bias_of(self, number: int) -> Tensor:
        return self._state().biases[number]


class ForwardState:
    """What later hooks need to know of the forward pass that is running. A copy starts empty."""

    def __init__(self) -> None:
        self.scores: Tensor | None = None  # [V*sequences, L]: attention that patches got
        self.changes: Tensor | None = None  # [V*frames, L]: of their pixels, since the frame before
        self.sizes: dict[int, Tensor] = {}  # of a stage, [V*S, K]: tokens in each cluster
        self.biases: dict[
            int, Tensor
        ] = {}  # [V*S, prefix + K], or [V, N, N] of packed segments: added to the scores of keys, up to the next stage

    def __reduce__(self) -> Any:
        return ForwardState, ()


class PerThread(threading.local):
    """Attributes that every thread has for itself: a model may be in use by several. A copy starts empty."""

    def __reduce__(self) -> Any:
        return PerThread, ()


def transformer_blocks(vision_model: nn.Module) -> nn.ModuleList:
    """The list of transformer blocks: the first one whose length is ``config.num_hidden_layers``."""
    depth = getattr(getattr(vision_model, "config", None), "num_hidden_layers", None)
    for module in vision_model.modules():
        if isinstance(module, nn.ModuleList) and len(module) == depth:
            return module
    raise ModelError(
        f"{type(vision_model).__name__} has no list of transformer blocks to cluster between; "
        "vision towers like those of CLIP, ViT, DINOv2 and SigLIP do"
    )


@torch.no_grad()
def token_layout(vision_model: nn.Module) -> tuple[int, int]:
    """Patches of a frame, and how many other tokens come before them ([CLASS], registers)."""
    config: Any = vision_model.config
    side = config.image_size if isinstance(config.image_size, int) else config.image_size[0]
    patch = config.patch_size if isinstance(config.patch_size, int) else config.patch_size[0]
    patches = (side // patch) ** 2
    embeddings: Any = vision_model.embeddings
    parameter = next(embeddings.parameters())
    blank = torch.zeros(1, config.num_channels, side, side, device=parameter.device, dtype=parameter.dtype)
    return patches, embeddings(blank).shape[1] - patches


# ---- hooks on the attention inside a block ------------------------------------------------------------------


def watch_scores(block: nn.Module, prefix: int, on_scores: Callable[[Tensor], None]) -> list[Any]:
    """Call ``on_scores`` with the attention ``[B, L]`` that patches get in a block, each time it runs.

    The weights come from the block's own queries and keys, so it does not matter how the model computes attention.

    Returns:
        Handles to remove the hooks with.
    """
    attention: Any = _attention_of(block)
    projected = PerThread()
    return [
        attention.q_proj.register_forward_hook(partial(_keep_output, projected, "queries")),
        attention.k_proj.register_forward_hook(partial(_keep_output, projected, "keys")),
        attention.register_forward_hook(partial(_score, projected, prefix, on_scores)),
    ]


def bias_keys(
    vision_model: nn.Module, blocks: list[nn.Module], bias: Callable[[], Tensor], *, pooling: bool
) -> list[Any]:
    """Add ``bias() [B, N]`` to the attention scores of the keys of ``blocks``, and of a ``pooling`` at the end.

    Returns:
        Handles to remove the hooks with.
    """
    implementation = getattr(getattr(vision_model, "config", None), "_attn_implementation", "eager")
    if implementation not in MASK_ADDING:
        raise ModelError(
            f"attention {implementation!r} takes no bias, which this method needs: open the model with "
            'attn_implementation="sdpa", or write [proportional=false]'
        )
    attentions = [_attention_of(block) for block in blocks]
    handles = [each.register_forward_pre_hook(partial(_bias_attention, bias), with_kwargs=True) for each in attentions]
    if pooling:  # SigLIP's: torch's own class, which no block uses
        pools = [module for module in vision_model.modules() if isinstance(module, nn.MultiheadAttention)]
        handles += [pool.register_forward_pre_hook(partial(_bias_pooling, bias), with_kwargs=True) for pool in pools]
    return handles


def _attention_of(block: nn.Module) -> nn.Module:
    """The self-attention of a transformer block: the module with a query, a key and a value layer."""
    for module in block.modules():
        if all(isinstance(getattr(module, f"{letter}_proj", None), nn.Module) for letter in "qkv"):
            return module
    raise ModelError(
        f"blocks of {type(block).__name__} have no attention with q_proj, k_proj and v_proj, which this method needs; "
        "those of CLIP, ViT, DINOv2 and SigLIP do"
    )


def _mlp_norm(block: nn.Module) -> nn.Module:
    for name in MLP_NORM_NAMES:
        norm = getattr(block, name, None)
        if isinstance(norm, nn.Module):
            return norm
    raise ModelError(f"blocks of {type(block).__name__} have no norm between attention and MLP to shift at")


def _shift_input(
    shift: Callable[[Tensor], Tensor], _block: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]
) -> tuple[Any, dict[str, Any]]:
    return _changed_input(shift, inputs, named)


def _changed_input(
    change: Callable[[Tensor], Tensor], inputs: tuple[Any, ...], named: dict[str, Any]
) -> tuple[Any, dict[str, Any]]:
    if inputs:
        return (change(inputs[0]), *inputs[1:]), named
    return inputs, {**named, "hidden_states": change(named["hidden_states"])}


def _shift_in_place(shift: Callable[[Tensor], Tensor], _norm: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    # A block adds the MLP's output to the very tensor that goes into this norm: only a change in place reaches both.
    inputs[0].copy_(shift(inputs[0]))


def _keep_output(store: PerThread, name: str, _layer: nn.Module, _inputs: Any, output: Tensor) -> None:
    setattr(store, name, output.detach())


def _score(
    projected: PerThread, prefix: int, on_scores: Callable[[Tensor], None], attention: Any, _inputs: Any, _output: Any
) -> None:
    with torch.no_grad():
        scores = class_attention(projected.queries, projected.keys, head_dim=attention.head_dim, prefix=prefix)
    del projected.queries, projected.keys
    on_scores(scores)


def _bias_attention(
    bias: Callable[[], Tensor], _attention: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]
) -> tuple[Any, dict[str, Any]]:
    hidden = inputs[0] if inputs else named["hidden_states"]
    mask = _checked(bias(), hidden)
    mask = (
        mask[:, None, None, :] if mask.dim() == 2 else mask[:, None]
    )  # for all heads, and all queries or each its own
    model_mask = inputs[1] if len(inputs) > 1 else named.get("attention_mask")
    mask = mask if model_mask is None else model_mask + mask
    if len(inputs) > 1:
        return (inputs[0], mask, *inputs[2:]), named
    return inputs, {**named, "attention_mask": mask}


def _bias_pooling(
    bias: Callable[[], Tensor], _pool: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]
) -> tuple[Any, dict[str, Any]]:
    return inputs, {**named, "key_padding_mask": _checked(bias(), inputs[1])}


def _checked(bias: Tensor, hidden: Tensor) -> Tensor:
    if bias.shape[0] != hidden.shape[0] or bias.shape[-1] != hidden.shape[1]:
        raise ModelError(
            f"cluster sizes {list(bias.shape)} are of another forward pass than the tokens {list(hidden.shape)}: with "
            "gradient checkpointing, run each backward pass before the next forward pass"
        )
    return bias.to(hidden.dtype)
