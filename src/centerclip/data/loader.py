"""Batches of a benchmark: videos are decoded in worker processes, ahead of the model, in a reproducible order.

The sampler (:class:`EpochBatches`) says which items a rank reads, :class:`VideoItems` reads one inside a worker, and
:class:`Loader` puts both behind torch's DataLoader. All randomness is a hash of (seed, epoch, video), so resumed and
distributed runs repeat exactly, whatever the number of workers or ranks.
"""

import hashlib
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal, TypedDict

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from ..errors import DataError, UnreadableVideoError, WorkerDiedError
from ..parallel import cores_per_rank
from ..video import Frames, VideoError, read_frames
from .benchmark import Benchmark, Clip

ItemKind = Literal["videos", "pairs"]
Key = tuple[int, int]  # epoch, item: a worker needs both to know what to draw
Resize = Callable[[Tensor], Tensor]
READ_AHEAD = 2  # batches that each worker decodes before they are needed
log = logging.getLogger(__name__)


class Batch(TypedDict):
    """What one step of a model takes.

    Keys:
        rgb: uint8 ``[B, T, size, size, 3]``.
        mask: bool ``[B, T]``, False where a frame only pads a short video.
        times: float64 ``[B, T]``, seconds.
        captions: one for each video.
        video: ids of the videos.
        index: int64 ``[B]``, indices into ``benchmark.videos``, or into ``benchmark.captions`` when items are pairs.
    """

    rgb: Tensor
    mask: Tensor
    times: Tensor
    captions: list[str]
    video: list[str]
    index: Tensor


class Loader:
    """Batches of a benchmark.

    ``loader.epoch(n)`` iterates over epoch ``n``; ``loader.epoch(n, start=k)`` resumes it at batch ``k``.

    Args:
        benchmark: a loaded split.
        training: shuffle, random frames and captions, full batches only; else everything once, in order, with the
            frames in the middle of each bin and the first caption (all captions are in ``benchmark.captions``).
        batch_size: videos of a batch on this rank.
        frames: frames of a video.
        size: side of the square frames, in pixels.
        items: ``videos``: an epoch has each video once, with one of its captions; ``pairs``: once with each caption.
        draws: 0 draws new frames each epoch; N draws N times per video, decodes each draw once, keeps it in the memory
            of this process (without workers) and takes them in turn.
        squash: ``[T, H, W, 3] -> [T, size, size, 3]``, for models that resize instead of centre-cropping.
        seed: seed of the run.
        rank: this process, of ``world``.
        world: number of processes that share an epoch.
        workers: decoding processes; 0 decodes in this one. By default this rank's share of the cores.
        on_error: ``raise`` stops at a video that cannot be read; ``skip`` leaves it out of its batch, logs it and
            keeps it in ``failures``.
    """

    def __init__(
        self,
        benchmark: Benchmark,
        *,
        training: bool,
        batch_size: int = 32,
        frames: int = 12,
        size: int = 224,
        items: ItemKind = "videos",
        draws: int = 0,
        squash: Resize | None = None,
        seed: int = 42,
        rank: int = 0,
        world: int = 1,
        workers: int | None = None,
        on_error: Literal["raise", "skip"] = "raise",
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
            threads=cores_per_rank(world),
        )
        self._batches = EpochBatches(
            len(self._items), batch_size, seed=seed, shuffle=training, drop_last=training, rank=rank, world=world
        )
        if not len(self._batches):
            raise DataError(
                f"{len(self._items):,} {items} do not fill one batch of {batch_size} on {world} processes; "
                "use a smaller batch."
            )
        self.workers = 0 if draws else cores_per_rank(world) if workers is None else workers
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
        self._batches.seek(epoch, start)
        self._loader = self._loader or self._new_loader()
        try:
            with _keep_sigchld_handler():
                batches = iter(self._loader)
            for batch, failures in batches:
                for failure in failures:
                    self._report(failure)
                if batch is not None:
                    yield batch
        except (RuntimeError, EOFError, OSError) as error:
            # Torch has no error type for a dead worker, and one that dies while it sends a batch just closes the pipe.
            # What a living worker raises starts with "Caught ...".
            if not self.workers or str(error).startswith("Caught "):
                raise
            self.close()
            raise WorkerDiedError(
                f"a worker process died while decoding videos ({str(error) or 'in the middle of a batch'}). The usual "
                "cause is a lack of memory: use fewer workers or smaller batches, or see the system's log."
            ) from error

    def close(self) -> None:
        """Stop the worker processes. They also stop with the loader."""
        self._loader = None

    def _report(self, failure: "Failure") -> None:
        if self.on_error == "raise":
            raise UnreadableVideoError(failure.video, failure.path, failure.reason)
        if failure.video not in self.failures:
            log.warning("skipped video %s: %s", failure.video, failure.reason)
        self.failures[failure.video] = failure.reason

    def _new_loader(self) -> "DataLoader[tuple[Batch | None, list[Failure]]]":
        parallel = self.workers > 0
        return DataLoader(
            self._items,  # type: ignore[arg-type]  # collate turns its items into batches
            batch_sampler=self._batches,
            collate_fn=self._items.collate,
            num_workers=self.workers,
            prefetch_factor=READ_AHEAD if parallel else None,
            persistent_workers=parallel,
            pin_memory=torch.cuda.is_available(),
            generator=torch.Generator(),  # else each epoch would draw from the training's generator
        )


class EpochBatches(Sampler[list[Key]]):
    """The batches of one rank, from any batch of any epoch on.

    The items of an epoch are put in one order and cut into global batches of ``world * batch_size``; each rank takes
    its part of every global batch. So every item is read exactly once over all ranks, and 2 ranks of 64 have the same
    global batches as 4 ranks of 32.

    Args:
        count: number of items.
        batch_size: items of a batch on one rank.
        seed: seed of the run.
        shuffle: a new order each epoch; else the order of the benchmark.
        drop_last: drop a last global batch that is not full. Training across ranks needs it: else the last batches of
            ranks may differ in size, or be missing.
        rank: this process, from 0.
        world: number of processes.
    """

    def __init__(
        self, count: int, batch_size: int, *, seed: int, shuffle: bool, drop_last: bool, rank: int = 0, world: int = 1
    ) -> None:
        if batch_size < 1 or not 0 <= rank < world:
            raise ValueError(f"batch_size must be positive and rank below world, not {batch_size=}, {rank=}, {world=}.")
        self.count, self.batch_size = count, batch_size
        self.seed, self.shuffle, self.drop_last = seed, shuffle, drop_last
        self.rank, self.world = rank, world
        self.epoch = self.start = 0

    def seek(self, epoch: int, start: int = 0) -> None:
        """Begin the next iteration with batch ``start`` of an epoch."""
        self.epoch, self.start = epoch, start

    def __len__(self) -> int:
        """Batches of a whole epoch."""
        per_step = self.batch_size * self.world
        return self.count // per_step if self.drop_last else -(-self.count // per_step)

    def __iter__(self) -> Iterator[list[Key]]:
        order = self.order()
        per_step = self.batch_size * self.world
        for step in range(self.start, len(self)):
            global_batch = order[step * per_step : (step + 1) * per_step]
            size = len(global_batch)
            batch = global_batch[self.rank * size // self.world : (self.rank + 1) * size // self.world]
            if batch:
                yield [(self.epoch, item) for item in batch]

    def order(self) -> list[int]:
        """All items in the order of the epoch. Sorting by a hash needs no generator, whose numbers may change."""
        items = range(self.count)
        return sorted(items, key=lambda item: draw(self.seed, self.epoch, item)) if self.shuffle else list(items)


def draw(*parts: object) -> int:
    """A random number in ``[0, 2^64)`` that depends on the arguments alone, on every machine."""
    text = "\0".join(map(str, parts)).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")


@dataclass(frozen=True)
class Item:
    """A part of a batch."""

    frames: Frames
    caption: str
    video: str
    index: int


@dataclass(frozen=True)
class Failure:
    """A video that could not be read. Workers return it as a value: an exception would lose its type on the way."""

    video: str
    path: str
    reason: str


class VideoItems(Dataset[Item | Failure]):
    """The items of a benchmark by (epoch, index); the same key always gives the same frames and caption.

    Args are those of :class:`Loader`, whose ``items`` is ``kind``. Without a ``seed`` frames are bin centres and, of
    ``videos``, captions the first. Frames that are kept (``draws``) are decoded in ``threads``.
    """

    def __init__(
        self,
        benchmark: Benchmark,
        *,
        frames: int,
        size: int,
        kind: ItemKind,
        seed: int | None,
        draws: int = 0,
        squash: Resize | None = None,
        threads: int = 1,
    ) -> None:
        self.benchmark, self.frames, self.size, self.kind, self.seed = benchmark, frames, size, kind, seed
        self.draws, self.squash, self.threads = draws, squash, threads
        self._kept: dict[tuple[int, str], Frames] = {}

    def __len__(self) -> int:
        return len(self.benchmark.videos if self.kind == "videos" else self.benchmark.captions)

    def __getitem__(self, key: Key) -> Item | Failure:
        epoch, index = key
        clip = self.benchmark.videos[index if self.kind == "videos" else self.benchmark.video_of_caption[index]]
        if self.kind == "pairs":
            caption = self.benchmark.captions[index]
        elif self.seed is None:
            caption = clip.captions[0]
        else:
            caption = clip.captions[draw(self.seed, epoch, clip.id, "caption") % len(clip.captions)]
        try:
            frames = self._frames(clip, epoch, index)
        except VideoError as error:
            return Failure(clip.id, str(clip.path), f"{error.detail}. {error.advice}")
        return Item(frames, caption, clip.id, index)

    def __getitems__(self, keys: list[Key]) -> list[Item | Failure]:
        """Several at once, as torch asks for them. Frames that are kept are decoded here, so with threads."""
        if not self.draws:
            return [self[key] for key in keys]
        with ThreadPoolExecutor(self.threads) as threads:
            return list(threads.map(self.__getitem__, keys))

    def _frames(self, clip: Clip, epoch: int, index: int) -> Frames:
        """The frames of a clip, as squares."""
        # Pairs of the same video would all get the same frames of it, so they draw by the pair.
        drawn_by = clip.id if self.kind == "videos" or self.draws else f"{clip.id}\0{index}"
        draw_number = epoch % self.draws if self.draws else epoch
        key = (draw_number, clip.id)
        if key in self._kept:
            return self._kept[key]
        random = None if self.seed is None else (self.seed, draw_number, drawn_by)
        frames = read_frames(clip.path, self.frames, random=random, short_side=None if self.squash else self.size)
        frames = replace(frames, rgb=self.squash(frames.rgb) if self.squash else centre_crop(frames.rgb, self.size))
        if self.draws:
            self._kept[key] = replace(frames, rgb=frames.rgb.clone())  # not a view of the whole frames
        return frames

    def collate(self, items: list[Item | Failure]) -> tuple[Batch | None, list[Failure]]:
        """A batch of the items that could be read (None if there is none), and the failures."""
        read = [item for item in items if isinstance(item, Item)]
        failures = [item for item in items if isinstance(item, Failure)]
        if not read:
            return None, failures
        batch = Batch(
            rgb=torch.stack([item.frames.rgb for item in read]),
            mask=torch.stack([item.frames.mask for item in read]),
            times=torch.stack([item.frames.times for item in read]),
            captions=[item.caption for item in read],
            video=[item.video for item in read],
            index=torch.tensor([item.index for item in read]),
        )
        return batch, failures


def centre_crop(rgb: Tensor, size: int) -> Tensor:
    """The middle of frames ``[T, H, W, 3]`` as ``[T, size, size, 3]``."""
    top, left = (rgb.shape[1] - size) // 2, (rgb.shape[2] - size) // 2
    return rgb[:, top : top + size, left : left + size]


@contextmanager
def _keep_sigchld_handler() -> Iterator[None]:
    """Undo the handler with which torch raises, at any line of the main program, when a worker dies.

    The DataLoader also checks its workers while it waits for a batch, so ``epoch`` raises within seconds anyway.
    """
    may_set = hasattr(signal, "SIGCHLD") and threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGCHLD) if may_set else None
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGCHLD, before)
