"""The loss of CLIP over the global batch, and the gradient that each process needs of it."""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from ..distributed import Processes


def contrastive_loss(video: Tensor, text: Tensor, logit_scale: Tensor) -> Tensor:
    """Symmetric cross-entropy: each video ``[N, D]`` should find its sentence ``[N, D]`` of the same row, and back."""
    logits = logit_scale.exp() * video @ text.T  # [N, N]
    own = torch.arange(len(logits), device=logits.device)
    return (cross_entropy(logits, own) + cross_entropy(logits.T, own)) / 2


def loss_and_gradients(
    video: Tensor, text: Tensor, logit_scale: Tensor, group: Processes, *, loss_scale: float = 1.0
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The loss of the global batch and its gradient with respect to this process's vectors.

    The vectors of all processes meet here, so the negatives of a pair are the whole global batch however it is
    divided over processes and micro-batches.

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
    own = slice(first, first + len(video))
    return loss.detach(), for_videos[own], for_texts[own], for_scale
