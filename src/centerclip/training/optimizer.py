"""AdamW with the paper's parameter groups, frozen parts, and the learning rate of every step."""

import math
from collections.abc import Sequence

import torch

from ..errors import RecipeError
from ..model import CenterCLIP
from .recipe import Freezable, TrainSettings

# What each part is called inside parameter names of transformers' CLIP and SigLIP.
PARTS: dict[Freezable, tuple[str, ...]] = {
    "patch-embedding": ("embeddings.patch_embedding.",),
    "class-embedding": ("embeddings.class_embedding",),
    "position-embedding": ("embeddings.position_embedding.",),
    "token-embedding": ("embeddings.token_embedding.",),
    "pre-norm": ("pre_layrnorm.", "pre_layernorm."),
}


def freeze(model: CenterCLIP, parts: Sequence[Freezable]) -> None:
    """Freeze parts of the model.

    Raises:
        RecipeError: the model has no such part.
    """
    for part in parts:
        parameters = [each for name, each in model.named_parameters() if any(key in name for key in PARTS[part])]
        if not parameters:
            raise RecipeError(f"train.freeze: {type(model.backbone).__name__} has no {part}")
        for parameter in parameters:
            parameter.requires_grad_(False)


def make_optimizer(model: CenterCLIP, settings: TrainSettings) -> torch.optim.AdamW:
    """AdamW over what is not frozen; biases have no weight decay, the temporal transformer its own learning rate."""
    trained = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    groups = []
    for temporal, lr in ((False, settings.lr), (True, settings.temporal_lr)):
        for is_bias, weight_decay in ((False, settings.weight_decay), (True, 0.0)):
            parameters = [
                parameter
                for name, parameter in trained
                if name.startswith("temporal.") == temporal and name.endswith("bias") == is_bias
            ]
            if parameters:
                groups.append({"params": parameters, "lr": lr, "full_lr": lr, "weight_decay": weight_decay})
    return torch.optim.AdamW(groups, betas=settings.betas, eps=settings.eps, fused=True)


def lr_factor(step: int, steps: int, *, warmup: float) -> float:
    """The factor on the learning rate of step ``step`` (from 0): linear warm-up, then a cosine to 0.

    Args:
        step: the step that is about to be taken.
        steps: steps of the whole run.
        warmup: the fraction of the steps with a rising rate.
    """
    warmup_steps = round(warmup * steps)
    if step < warmup_steps:
        return (step + 1) / (warmup_steps + 1)
    return 0.5 * (1 + math.cos(math.pi * (step - warmup_steps) / max(1, steps - warmup_steps)))
