"""Keeps a model fed: videos are decoded in worker processes, ahead of the model, in an order that can be repeated."""

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch.utils.data import DataLoader

from .batches import EpochBatches
from .benchmark import Benchmark
from .errors import DataError, UnreadableVideoError, WorkerDiedError
from .items import Batch, Failure, Kind, Squash, VideoItems
from .processes import usable_cores

log = logging.getLogger(__name__)


class Loader:
    """Batches of a benchmark.

    ``loader.epoch(n)`` iterates over epoch ``n``; ``loader.epoch(n, start=k)`` goes on from its batch ``k``. What a
    batch holds depends on (seed, epoch, video) alone, never on workers, so resumed and distributed runs repeat exactly.

    Args:
        benchmark: a loaded split.
        training: shuffle, random frames and captions, full batches only; else everything once, in order, with the
            frames in the middle of each bin and the first caption (all captions are in ``benchmark.captions``).
        batch_size: videos of a batch on this rank.
        frames: frames of a video.
        size: side of the square pictures.
        items: ``videos``, an epoch shows each video once with one of its captions; ``pairs``, with each of them.
        draws: 0 draws new frames each epoch; else a video shows this many drawings in turn, decoded once and kept in
            memory of this process, without workers.
        squash: ``[T, H, W, 3] -> [T, size, size, 3]`` for models that see the whole picture; the middle is cut out by
            default.
        seed: seed of the run.
        rank: this process, of ``world``.
        world: number of processes that share an epoch.
        workers: decoding processes; 0 decodes in this one. By default one for each core.
        read_ahead: batches that each worker keeps ready.
        on_error: ``raise`` stops at a video that cannot be read; ``skip`` leaves it out of its batch, logs it and
            keeps it in ``failures``.
        start_method: how workers start (``fork``, ``spawn``, ``forkserver``); by default as the system does.
    """

    def __init__(
        self,
        benchmark: Benchmark,
        *,
        training: bool,
        batch_size: int = 32,
        frames: int = 12,
        size: int = 224,
        items: Kind = "videos",
        draws: int = 0,
        squash: Squash | None = None,
        seed: int = 42,
        rank: int = 0,
        world: int = 1,
        workers: int | None = None,
        read_ahead: int = 2,
        on_error: Literal["raise", "skip"] = "raise",
        start_method: str | None = None,
    ) -> None:
        self.benchmark, self.on_error = benchmark, on_error
        self.failures: dict[str, str] = {}
        self._items = VideoItems(
            benchmark,
            frames=frames,
            size=size,
            kind=items,
            seed=seed if training else None,
            draws=draws,
            squash=squash,
        )
        self._batches = EpochBatches(
            len(self._items), batch_size, seed=seed, shuffle=training, drop_last=training, rank=rank, world=world
        )
        if not len(self._batches):
            raise DataError(
                f"{len(self._items):,} {items} do not fill one batch of {batch_size} on {world} processes; "
                "take a smaller batch."
            )
        self._workers = 0 if draws else usable_cores() if workers is None else workers
        self._read_ahead = read_ahead
        self._start_method = start_method
        self._loader: DataLoader[tuple[Batch | None, list[Failure]]] | None = None

    def __len__(self) -> int:
        """Batches of an epoch."""
        return len(self._batches)

    def epoch(self, epoch: int = 0, *, start: int = 0) -> Iterator[Batch]:
        """The batches of an epoch from batch ``start`` on.

        Raises:
            UnreadableVideoError: a video cannot be read, and ``on_error`` is ``raise``.
            WorkerDiedError: a worker process was killed or crashed. The next call starts new ones.
        """
        self._batches.go_to(epoch, start)
        self._loader = self._loader or self._new_loader()
        try:
            with _own_child_signals():
                batches = iter(self._loader)
            for batch, failures in batches:
                for failure in failures:
                    self._report(failure)
                if batch is not None:
                    yield batch
        except (RuntimeError, EOFError, OSError) as error:
            # Torch has no type of its own for a dead worker, and one that dies while it hands over a batch just ends
            # the line. What a living worker raises comes with "Caught ..." in front.
            if not self._workers or str(error).startswith("Caught "):
                raise
            self.close()
            raise WorkerDiedError(
                f"a process that decodes videos died ({str(error) or 'in the middle of a batch'}). Out of memory is "
                "the usual cause: take fewer workers or smaller batches, or look at the system's log."
            ) from error

    def close(self) -> None:
        """End the worker processes. They also end with the loader."""
        self._loader = None

    def _report(self, failure: Failure) -> None:
        if self.on_error == "raise":
            raise UnreadableVideoError(failure.video, failure.path, failure.reason)
        if failure.video not in self.failures:
            log.warning("video %s is left out: %s", failure.video, failure.reason)
        self.failures[failure.video] = failure.reason

    def _new_loader(self) -> DataLoader[tuple[Batch | None, list[Failure]]]:
        parallel = self._workers > 0
        return DataLoader(
            self._items,  # type: ignore[arg-type]  # collate turns its items into batches
            batch_sampler=self._batches,
            collate_fn=self._items.collate,
            num_workers=self._workers,
            prefetch_factor=self._read_ahead if parallel else None,
            persistent_workers=parallel,
            multiprocessing_context=self._start_method if parallel else None,
            pin_memory=torch.cuda.is_available(),
            generator=torch.Generator(),  # else each epoch would draw from the generator of the training itself
        )


@contextmanager
def _own_child_signals() -> Iterator[None]:
    """Undo the handler with which torch raises, at any line of the main program, when a worker dies.

    Workers are looked after while batches are waited for, so a death comes as an error of ``epoch`` within seconds.
    """
    may_set = hasattr(signal, "SIGCHLD") and threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGCHLD) if may_set else None
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGCHLD, before)
