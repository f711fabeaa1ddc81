"""AdamW with the paper's groups, what stays frozen, and the learning rate of every step."""

import math
from collections.abc import Iterator, Sequence

import torch
from torch import nn

from ..errors import RecipeError
from ..model import CenterCLIP
from .recipe import Freezable, TrainSettings

# Parts of parameter names in transformers' CLIP and SigLIP.
PARTS: dict[Freezable, tuple[str, ...]] = {
    "patch-embedding": ("embeddings.patch_embedding.",),
    "class-embedding": ("embeddings.class_embedding",),
    "position-embedding": ("embeddings.position_embedding.",),
    "token-embedding": ("embeddings.token_embedding.",),
    "pre-norm": ("pre_layrnorm.", "pre_layernorm."),
}


def freeze(model: CenterCLIP, parts: Sequence[Freezable]) -> None:
    """Let parts of the model keep their weights.

    Raises:
        RecipeError: the model has no such part.
    """
    for part in parts:
        found = [weights for name, weights in model.named_parameters() if any(each in name for each in PARTS[part])]
        if not found:
            raise RecipeError(f"train.freeze: {type(model.backbone).__name__} has no {part}")
        for weights in found:
            weights.requires_grad_(False)


def make_optimizer(model: CenterCLIP, settings: TrainSettings) -> torch.optim.AdamW:
    """AdamW over what is not frozen; biases do not decay, and the temporal transformer has its own learning rate."""
    groups = []
    for new in (False, True):
        for decay in (True, False):
            weights = [
                parameter
                for name, parameter in _trained(model)
                if name.startswith("temporal.") == new and (not name.endswith("bias")) == decay
            ]
            if weights:
                lr = settings.temporal_lr if new else settings.lr
                groups.append(
                    {
                        "params": weights,
                        "lr": lr,
                        "full_lr": lr,
                        "weight_decay": settings.weight_decay if decay else 0.0,
                    }
                )
    return torch.optim.AdamW(groups, betas=settings.betas, eps=settings.eps, fused=True)


def _trained(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            yield name, parameter


def rate(step: int, steps: int, *, warmup: float) -> float:
    """What the learning rate of step ``step`` (from 0) is multiplied with: a linear rise, then a cosine to 0.

    Args:
        step: the step that is about to be taken.
        steps: steps of the whole run.
        warmup: part of the steps with a rising rate.
    """
    rising = round(warmup * steps)
    if step < rising:
        return (step + 1) / (rising + 1)
    return 0.5 * (1 + math.cos(math.pi * (step - rising) / max(1, steps - rising)))
