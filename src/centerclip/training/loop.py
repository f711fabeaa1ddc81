"""The training loop, top to bottom.

    centerclip train recipes/msrvtt/b32-B6-4-49.toml --root DATA
    torchrun --nproc-per-node 8 -m centerclip train recipes/msrvtt/b32-B6-4-49.toml --root DATA

A run lives in one folder. The same command again resumes it, and ends with the same weights.
"""

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..data import Benchmark
from ..data.formats import Protocol
from ..data.loader import Loader
from ..distributed import Processes
from ..errors import CheckpointError, ClusterError, DivergedError, Interrupted, RecipeError, first_line
from ..evaluation import Evaluation, evaluate
from ..model import CenterCLIP
from ..model.backbone import new_backbone
from ..model.checkpoints import Sizes
from .recipe import Recipe
from .run import RunLog, explain_write, load_checkpoint, run_lock, save_checkpoint
from .step import compute_gradients, divide_gradients, freeze, lr_factor, make_optimizer

BEST = "best"  # the folder of the model of the best epoch


@dataclass(frozen=True)
class Splits:
    """The data of a run; ``select`` chooses the best epoch."""

    train: Benchmark
    select: Benchmark
    vocabulary: tuple[str, ...] = ()  # further captions for a new tokenizer


@dataclass
class Progress:
    """How far a run is, for progress bars."""

    step: int  # steps done
    steps: int  # of the whole run
    epoch: int
    epochs: int
    loss: float
    pairs_per_second: float
    best: dict[str, Any] | None  # epoch, split and metrics of the best validation so far


def train(
    recipe: Recipe,
    data: Splits,
    folder: Path,
    group: Processes,
    *,
    workers: int | None = None,
    on_step: Callable[[Progress], None] = lambda progress: None,
    on_validation: Callable[[int, Evaluation], None] = lambda epoch, result: None,
) -> dict[str, Any]:
    """Train by a recipe in the folder of a run, which exists, resuming from its checkpoint.

    Each process of ``group`` has ``workers`` decoding processes, by default its share of the cores. Returns the epoch
    and metrics of the best validation; its model is in ``folder/best``.

    Raises:
        DivergedError: the loss, the gradient or the weights are not finite.
        Interrupted: stopped by SIGTERM or Ctrl-C; a checkpoint is written.
        CheckpointError: a checkpoint cannot be written, or the newest is damaged.
        TrainingError: another process is training in the folder.
    """
    settings = recipe.train
    if settings.batch_size % group.world:
        raise RecipeError(f"train.batch_size {settings.batch_size} is not a multiple of {group.world} processes")

    # Model, optimizer, data: the same on every process.
    torch.manual_seed(settings.seed)
    model = build_model(recipe, (*data.train.captions, *data.vocabulary)).to(group.device)
    freeze(model, settings.freeze)
    model.gradient_checkpointing(settings.gradient_checkpointing)
    optimizer = make_optimizer(model, settings)
    precision = choose_precision(settings.precision, group.device, recipe.protocol)
    autocast = partial(torch.autocast, group.device.type, dtype=precision, enabled=precision != torch.float32)
    scaler = torch.amp.GradScaler(group.device.type, enabled=precision == torch.float16)
    loader = Loader(
        data.train, read_size=model.preprocess.read_size, to_square=model.preprocess.to_square,
        batch_size=settings.batch_size // group.world, frames=recipe.model.frames,
        drop_tail=recipe.protocol == "published", items=recipe.data.items, draws=recipe.data.draws, seed=settings.seed,
        rank=group.rank, world=group.world, workers=workers,
    )  # fmt: skip
    steps = settings.epochs * len(loader)

    held = run_lock(folder) if group.main else nullcontext()
    with held, stop_signals() as stopping:
        # Resume, if there is a checkpoint.
        done, first_epoch, best = 0, 0, None  # steps taken; epochs trained and validated; the best validation
        if saved := load_checkpoint(folder):
            done, first_epoch, best = restore(saved, folder, model=model, optimizer=optimizer, scaler=scaler)
        log = RunLog(folder, step=done, epochs=first_epoch) if group.main else None
        if log and not done:
            log.write("start", step=0, steps=steps, protocol=recipe.protocol, data=str(data.train),
                      validation=str(data.select), world=group.world)  # fmt: skip

        def save(epochs: int) -> None:
            norm = nn.utils.get_total_norm(model.parameters()).item()
            if not math.isfinite(norm):  # not worth keeping: nothing can be trained from here
                raise diverged(f"the norm of the weights after step {done} is {norm}", folder)
            if group.main:
                save_checkpoint(folder, {
                    "step": done, "epochs": epochs, "best": best, "model": model.state_dict(),
                    "optimizer": optimizer.state_dict(), "scaler": scaler.state_dict(), "random": torch.get_rng_state(),
                })  # fmt: skip

        last_save = last_step = time.monotonic()
        for epoch in range(first_epoch, settings.epochs):
            model.train()
            for batch in loader.epoch(epoch, start=done - epoch * len(loader)):
                factor = lr_factor(done, steps, warmup=settings.warmup, optimizer=settings.optimizer)
                for parameters in optimizer.param_groups:
                    parameters["lr"] = parameters["full_lr"] * factor

                loss_scale = scaler.scale(torch.ones((), device=group.device)).item()
                with finite_tokens(done + 1, folder):
                    loss = compute_gradients(
                        model, batch, group,
                        micro_batch=settings.micro_batch, seed=(settings.seed, done), autocast=autocast,
                        loss_scale=loss_scale,
                    ).item()  # fmt: skip
                if not math.isfinite(loss):
                    raise diverged(f"the loss of step {done + 1} is {loss}", folder)
                scaler.unscale_(optimizer)
                divide_gradients(model, recipe.gradient_divisor)
                norm = nn.utils.clip_grad_norm_(model.parameters(), settings.clip_gradient).item()
                if not (math.isfinite(norm) or scaler.is_enabled()):
                    raise diverged(f"the gradient norm of step {done + 1} is {norm}", folder)
                scaler.step(optimizer)  # skips the step if float16 overflowed
                scaler.update()
                with torch.no_grad():
                    model.backbone.logit_scale.clamp_(settings.min_logit_scale, settings.max_logit_scale)
                done += 1

                now = time.monotonic()
                speed, last_step = settings.batch_size / max(now - last_step, 1e-9), now
                on_step(Progress(done, steps, epoch + 1, settings.epochs, loss, speed, best))
                if log and (done % settings.log_every == 0 or done == 1):
                    scale = model.backbone.logit_scale.exp().item()
                    log.write("train", step=done, epoch=epoch + 1, loss=loss, lr=settings.lr * factor,
                              gradient_norm=norm, logit_scale=scale, pairs_per_second=speed)  # fmt: skip
                stop, due = group.any([stopping.is_set(), now - last_save > 60 * settings.checkpoint_minutes])
                if stop or due:
                    save(epoch)
                    last_save = time.monotonic()
                if stop:
                    raise Interrupted(f"stopped after step {done} of {steps}; run the same command again to resume")

            if (epoch + 1) % settings.evaluate_every == 0 or epoch + 1 == settings.epochs:
                save(epoch)  # after a crash while validating, only the validation is repeated
                with finite_tokens(done, folder):
                    result = evaluate(model, data.select, workers=workers, group=group)
                if best is None or better(result.metrics, best["metrics"], recipe.protocol):
                    best = {"epoch": epoch + 1, "split": data.select.split, "metrics": result.metrics}
                    if group.main:
                        with explain_write(folder / BEST):
                            model.save_pretrained(folder / BEST)
                            result.save(folder / "evaluation" / data.select.split)
                if log:
                    log.write("validation", step=done, epoch=epoch + 1, split=data.select.split,
                              label=result.label(), **result.metrics)  # fmt: skip
                on_validation(epoch + 1, result)
                save(epoch + 1)
                last_save = last_step = time.monotonic()
        if log:
            log.write("end", step=done, best=best)
            log.close()
    group.barrier()
    assert best is not None  # the last epoch is always validated
    return best


def build_model(recipe: Recipe, captions: Sequence[str]) -> CenterCLIP:
    """The model that a run starts from: pretrained, or new with a tokenizer made from ``captions``."""
    settings = recipe.model
    common: dict[str, Any] = {"clustering": settings.clustering, "frames": settings.frames}
    common |= {"similarity_rule": settings.similarity, "protocol": recipe.protocol}
    if settings.start != "new":
        common |= {"max_tokens": settings.max_tokens, "temporal": settings.temporal}
        return CenterCLIP.from_pretrained(settings.start, **common, device="cpu")
    new = settings.new.model_dump(exclude={"vocabulary", "vocabulary_from"})
    sizes = Sizes(**new, max_tokens=settings.max_tokens)
    return CenterCLIP(new_backbone(sizes, captions, vocabulary=settings.new.vocabulary), **common)


def better(metrics: dict[str, dict[str, float]], than: dict[str, dict[str, float]], protocol: Protocol) -> bool:
    """Whether a validation is better than an earlier one.

    By text-to-video R@1; if that is the same, the lower mean rank is better (clean), or the later epoch (published).
    """
    t2v, other = metrics["t2v"], than["t2v"]
    if protocol == "published":
        return t2v["R1"] >= other["R1"]
    return (t2v["R1"], -t2v["MnR"]) > (other["R1"], -other["MnR"])


def diverged(reason: str, folder: Path) -> DivergedError:
    """The error of a run whose loss, gradient or weights are not finite."""
    return DivergedError(
        f"{reason}: training has diverged, and resuming would repeat it. Train with a smaller train.lr, or with "
        f"train.precision=float32, into another --output, or remove {folder} first"
    )


@contextmanager
def finite_tokens(step: int, folder: Path) -> Iterator[None]:
    """Raise :class:`DivergedError` where there is NaN to cluster: exploded weights show there before the loss does."""
    try:
        yield
    except ClusterError as error:
        raise diverged(f"in step {step} {error}", folder) from error


def choose_precision(setting: str, device: torch.device, protocol: Protocol) -> torch.dtype:
    """What ``auto`` means: float32 on a CPU; on a GPU float16 if published, else bfloat16 where it is supported."""
    if setting != "auto":
        return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[setting]
    if device.type != "cuda":
        return torch.float32
    return torch.bfloat16 if protocol == "clean" and torch.cuda.is_bf16_supported() else torch.float16


def restore(
    saved: dict[str, Any], folder: Path, **parts: CenterCLIP | torch.optim.Optimizer | torch.amp.GradScaler
) -> tuple[int, int, dict[str, Any] | None]:
    """Load a checkpoint; returns the steps taken, the epochs trained and validated, and the best validation."""
    try:
        for name, part in parts.items():
            part.load_state_dict(saved[name])
        torch.set_rng_state(saved["random"])
    except (KeyError, ValueError, RuntimeError) as error:
        raise CheckpointError(
            f"the checkpoint in {folder} is of another model ({first_line(error)}); choose another --output"
        ) from error
    return saved["step"], saved["epochs"], saved["best"]


@contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """An event that SIGTERM or a first Ctrl-C sets, so that the step is finished and saved; a second stops at once."""
    stopping = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopping
        return
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def stop(number: int, _frame: Any) -> None:
        stopping.set()
        signal.signal(number, handlers[signal.Signals(number)])

    for number in handlers:
        signal.signal(number, stop)
    try:
        yield stopping
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
