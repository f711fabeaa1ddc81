"""One step: the contrastive loss over the global batch with its gradient, the optimizer, and the rate of every step.

The gradient is the same however the batch is divided over processes and micro-batches.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from ..data.loader import Batch, draw
from ..distributed import Processes
from ..errors import RecipeError
from ..model import CenterCLIP
from ..model.vectors import video_vectors
from .recipe import Freezable, TrainSettings

# What each part is called inside parameter names of transformers' CLIP and SigLIP.
PARTS: dict[Freezable, tuple[str, ...]] = {
    "patch-embedding": ("embeddings.patch_embedding.",),
    "class-embedding": ("embeddings.class_embedding",),
    "position-embedding": ("embeddings.position_embedding.",),
    "token-embedding": ("embeddings.token_embedding.",),
    "pre-norm": ("pre_layrnorm.", "pre_layernorm."),
}


def compute_gradients(
    model: CenterCLIP,
    batch: Batch,
    group: Processes,
    *,
    micro_batch: int = 0,
    seed: tuple[int, int] = (0, 0),
    autocast: Callable[[], AbstractContextManager[object]] = torch.enable_grad,
    loss_scale: float = 1.0,
) -> Tensor:
    """Set the gradients of one step over the global batch, and return its loss ``[]``.

    A batch that fits into memory is encoded once. A larger one is encoded twice: first without activations, to get all
    vectors and from them the loss and its gradient for every vector; then micro-batch by micro-batch, each with the
    gradient of its own vectors. Plain accumulation of losses would compare each pair with its micro-batch only.

    Args:
        model: in training mode; its old gradients are replaced.
        batch: this process's part of the global batch.
        group: the processes.
        micro_batch: pairs in memory at a time; 0 for all.
        seed: (seed of the run, step), so that both passes, and a resumed run, draw the same random numbers.
        autocast: makes the context of a forward pass.
        loss_scale: factor on the gradients, for float16.
    """
    pairs = len(batch["captions"])
    size = min(micro_batch or pairs, pairs)
    parts = [slice(first, min(first + size, pairs)) for first in range(0, pairs, size)]

    def encode(part: slice) -> tuple[Tensor, Tensor]:
        torch.manual_seed(draw(*seed, group.rank, part.start) % 2**63)
        with autocast():
            tokens = model.tokenize(batch["captions"][part])
            pixels = model.preprocess.normalise(batch["rgb"][part].to(model.device))  # the loader gives squares
            out = model(pixels, batch["mask"][part], **tokens)
        return video_vectors(out["segments"], out["segment_mask"], rule=model.rule), out["text"]

    for parameter in model.parameters():
        parameter.grad = None
    with torch.set_grad_enabled(len(parts) == 1):
        encoded = [encode(part) for part in parts]
    videos, texts = (torch.cat(each) for each in zip(*encoded, strict=True))
    scale = model.backbone.logit_scale
    loss, for_videos, for_texts, for_scale = loss_and_gradients(
        videos.detach(), texts.detach(), scale, group, loss_scale=loss_scale
    )
    if len(parts) == 1:
        torch.autograd.backward([videos, texts], [for_videos, for_texts])
    else:
        del videos, texts, encoded
        for part in parts:
            torch.autograd.backward(list(encode(part)), [for_videos[part], for_texts[part]])
    _sum_gradients(model, group)
    scale.grad = for_scale.reshape(scale.shape)  # complete on every process already
    return loss


def divide_gradients(model: CenterCLIP, gpus: int) -> None:
    """Make the gradients those of the authors' code on so many GPUs: divided by their number, but for ``logit_scale``.

    There, each GPU has the gradient of the global loss for its own pairs. Their sum over GPUs would be the whole
    gradient, but the mean is taken; of ``logit_scale`` each has the whole gradient. AdamW divides by the size of
    gradients, so this matters only where they meet a fixed number: the largest norm, and eps.
    """
    for parameter in model.parameters():
        if parameter.grad is not None and parameter is not model.backbone.logit_scale and gpus > 1:
            parameter.grad /= gpus


def contrastive_loss(video: Tensor, text: Tensor, logit_scale: Tensor) -> Tensor:
    """Symmetric cross-entropy: equal rows of ``video [N, D]`` and ``text [N, D]`` are pairs, all others negatives."""
    logits = logit_scale.exp() * video @ text.T  # [N, N]
    labels = torch.arange(len(logits), device=logits.device)
    return (cross_entropy(logits, labels) + cross_entropy(logits.T, labels)) / 2


def loss_and_gradients(
    video: Tensor, text: Tensor, logit_scale: Tensor, group: Processes, *, loss_scale: float = 1.0
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The loss of the global batch and its gradient with respect to this process's vectors.

    The vectors of all processes are gathered here, so the negatives of a pair are the whole global batch.

    Args:
        video: ``[B, D]``, this process's, without gradient.
        text: ``[B, D]``, likewise.
        logit_scale: ``[]``, the log of the inverse temperature.
        group: the processes.
        loss_scale: factor on the gradients, for float16.

    Returns:
        loss ``[]``; gradients for ``video [B, D]``, ``text [B, D]`` and ``logit_scale []``. The last is the whole
        gradient on every process.
    """
    leaves = [each.detach().requires_grad_() for each in (group.gather(video), group.gather(text), logit_scale)]
    with torch.enable_grad():
        loss = contrastive_loss(*leaves)
    for_videos, for_texts, for_scale = torch.autograd.grad(loss * loss_scale, leaves)
    counts = group.gather(torch.tensor([len(video)], device=video.device)).tolist()
    first = sum(counts[: group.rank])
    rows = slice(first, first + len(video))  # of this process
    return loss.detach(), for_videos[rows], for_texts[rows], for_scale


def _sum_gradients(model: CenterCLIP, group: Processes) -> None:
    """Sum the gradients of all processes. Each has the part of the global loss that depends on its own pairs."""
    for parameter in model.parameters() if group.world > 1 else ():
        if parameter.requires_grad:
            parameter.grad = group.sum(torch.zeros_like(parameter) if parameter.grad is None else parameter.grad)


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
