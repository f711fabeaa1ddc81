"""Hooks on the attention of somebody's blocks: what its queries and keys are, and a bias on its keys."""

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ..cluster import class_attention
from .errors import ModelError

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
