"""AdamW or CLIP4clip's BertAdam with the paper's parameter groups, what is frozen, and the rate of every step."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

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


def make_optimizer(model: CenterCLIP, settings: TrainSettings) -> torch.optim.Optimizer:
    """The optimizer of what is not frozen; biases have no weight decay, the temporal head its own learning rate."""
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
    if settings.optimizer == "bertadam":
        return BertAdam(groups, betas=settings.betas, eps=settings.eps)
    return torch.optim.AdamW(groups, betas=settings.betas, eps=settings.eps, fused=True)


class BertAdam(torch.optim.Optimizer):
    """CLIP4clip's optimizer: Adam without the correction of the moments' bias, with decoupled weight decay.

    So its first steps are larger than AdamW's, by up to ``(1 - beta1) / sqrt(1 - beta2)``. CLIP4clip's also clips the
    norm of each parameter's gradient to 1, which changes nothing after the norm of all was clipped to 1.
    """

    def __init__(
        self, params: Iterable[dict[str, Any]], *, betas: tuple[float, float] = (0.9, 0.98), eps: float = 1e-6
    ) -> None:
        super().__init__(params, {"betas": betas, "eps": eps, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One step: ``p -= lr * (m / (sqrt(v) + eps) + weight_decay * p)``."""
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["mean"], state["square"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
                state["mean"].lerp_(parameter.grad, 1 - beta1)
                state["square"].mul_(beta2).addcmul_(parameter.grad, parameter.grad, value=1 - beta2)
                update = state["mean"] / (state["square"].sqrt() + group["eps"]) + group["weight_decay"] * parameter
                parameter.sub_(group["lr"] * update)


def lr_factor(step: int, steps: int, *, warmup: float, optimizer: Literal["adamw", "bertadam"] = "adamw") -> float:
    """The factor on the learning rate of step ``step`` (from 0): linear warm-up, then a cosine to 0.

    Args:
        step: the step that is about to be taken.
        steps: steps of the whole run.
        warmup: the fraction of the steps with a rising rate.
        optimizer: CLIP4clip's schedule goes with ``bertadam``: it starts at 0, and its cosine begins with the run, so
            the rate drops a little when the warm-up ends.
    """
    if optimizer == "bertadam":
        done = step / steps
        return done / warmup if done < warmup else 0.5 * (1 + math.cos(math.pi * done))
    warmup_steps = round(warmup * steps)
    if step < warmup_steps:
        return (step + 1) / (warmup_steps + 1)
    return 0.5 * (1 + math.cos(math.pi * (step - warmup_steps) / max(1, steps - warmup_steps)))
