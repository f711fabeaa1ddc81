"""The contrastive loss of CLIP over the global batch, and its gradient: the same however the batch is divided over
processes and micro-batches."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn.functional import cross_entropy

from ..data.loader import Batch, draw
from ..distributed import Processes
from ..model import CenterCLIP
from ..model.vectors import video_vectors

BUCKET_SIZE = 2**25  # gradients summed over processes at a time: 128 MB of float32


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
    if group.world == 1:
        return
    for bucket in _buckets([each for each in model.parameters() if each.requires_grad]):
        gradients = [torch.zeros_like(each) if each.grad is None else each.grad for each in bucket]
        flat = group.sum(torch.cat([gradient.flatten() for gradient in gradients]))
        for parameter, gradient in zip(bucket, flat.split([each.numel() for each in bucket]), strict=True):
            parameter.grad = gradient.view_as(parameter)


def _buckets(parameters: list[Parameter]) -> Iterator[list[Parameter]]:
    bucket: list[Parameter] = []
    for parameter in parameters:
        if bucket and sum(each.numel() for each in bucket) + parameter.numel() > BUCKET_SIZE:
            yield bucket
            bucket = []
        bucket.append(parameter)
    if bucket:
        yield bucket
