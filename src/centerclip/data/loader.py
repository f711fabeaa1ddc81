"""Batches to train on: videos are decoded in worker processes, ahead of the model, in a reproducible order.

The sampler (:class:`EpochBatches`) says which items a rank reads, :class:`VideoItems` reads one inside a worker, and
:class:`Loader` puts both behind torch's DataLoader. All randomness is a hash of (seed, epoch, video), so resumed and
distributed runs repeat exactly, whatever the number of workers or ranks.
"""

import hashlib
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypedDict

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler, default_collate

from ..errors import DataError, UnreadableVideoError, WorkerDiedError
from ..parallel import cores_per_rank, one_thread
from ..video import Frames, VideoError, read_frames
from .benchmark import Benchmark, Clip

ItemKind = Literal["videos", "pairs"]
Key = tuple[int, int]  # epoch, item: a worker needs both to know what to draw
ToSquare = Callable[[NDArray[np.uint8]], NDArray[np.uint8]]  # uint8 [T, H, W, 3] -> [T, size, size, 3]
Item = dict[str, Any]  # what a batch has of one video, under the same keys
READ_AHEAD = 2  # batches that each worker decodes before they are needed


class Batch(TypedDict):
    """What one step of a model takes."""

    rgb: Tensor  # uint8 [B, T, size, size, 3]
    mask: Tensor  # bool [B, T], False where a frame only pads a short video
    times: Tensor  # float64 [B, T], seconds
    captions: list[str]  # one for each video
    video: list[str]  # ids


class Loader:
    """Batches to train on: shuffled, full, with random frames and captions.

    ``loader.epoch(n)`` iterates over epoch ``n``; ``loader.epoch(n, start=k)`` resumes it at batch ``k``.

    Args:
        benchmark: a loaded split.
        read_size: short side at which frames are read, in pixels; None keeps their size. This and ``to_square`` come
            from the model's ``preprocess``: one rule for training, evaluation and search.
        to_square: ``[T, H, W, 3] -> [T, size, size, 3]``, resized or cropped as the model needs it.
        batch_size: videos of a batch on this rank.
        frames: frames of a video.
        drop_tail: draw frames from the authors' bins (:func:`~centerclip.video.random_in_bins`).
        items: ``videos``: an epoch has each video once, with one of its captions; ``pairs``: once with each caption.
        draws: 0 draws new frames each epoch; N draws N times per video, decodes each draw once, keeps it in the memory
            of this process (without workers) and takes them in turn.
        seed: seed of the run.
        rank: this process, of ``world``.
        world: number of processes that share an epoch.
        workers: decoding processes; 0 decodes in this one. By default this rank's share of the cores.
    """

    def __init__(
        self,
        benchmark: Benchmark,
        *,
        read_size: int | None,
        to_square: ToSquare,
        batch_size: int = 32,
        frames: int = 12,
        drop_tail: bool = False,
        items: ItemKind = "videos",
        draws: int = 0,
        seed: int = 42,
        rank: int = 0,
        world: int = 1,
        workers: int | None = None,
    ) -> None:
        threads = cores_per_rank(world)
        self._items = VideoItems(benchmark, read_size, to_square, frames, drop_tail, items, seed, draws, threads)
        self._batches = EpochBatches(len(self._items), batch_size, seed=seed, rank=rank, world=world)
        if not len(self._batches):
            raise DataError(
                f"{len(self._items):,} {items} do not fill one batch of {batch_size} on {world} processes; "
                "use a smaller batch."
            )
        self.workers = 0 if draws else threads if workers is None else workers
        self._loader: DataLoader[Batch | UnreadableVideoError] | None = None

    def __len__(self) -> int:
        """Batches of an epoch."""
        return len(self._batches)

    def epoch(self, epoch: int = 0, *, start: int = 0) -> Iterator[Batch]:
        """The batches of an epoch from batch ``start`` on.

        Raises:
            UnreadableVideoError: a video cannot be read.
            WorkerDiedError: a worker process was killed or crashed. The next call starts new ones.
        """
        self._batches.seek(epoch, start)
        self._loader = self._loader or self._new_loader()
        try:
            with _keep_sigchld_handler():
                batches = iter(self._loader)
            for batch in batches:
                if isinstance(batch, UnreadableVideoError):
                    raise batch
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

    def _new_loader(self) -> "DataLoader[Batch | UnreadableVideoError]":
        parallel = self.workers > 0
        return DataLoader(
            self._items,  # type: ignore[arg-type]  # collate turns its items into batches
            batch_sampler=self._batches,
            collate_fn=collate,
            num_workers=self.workers,
            worker_init_fn=_start_worker,
            prefetch_factor=READ_AHEAD if parallel else None,
            persistent_workers=parallel,
            pin_memory=torch.cuda.is_available(),
            generator=torch.Generator(),  # else each epoch would draw from the training's generator
        )


class EpochBatches(Sampler[list[Key]]):
    """The batches of one rank, from any batch of any epoch on.

    The items of an epoch are shuffled and cut into global batches of ``world * batch_size``; each rank takes its part
    of every one. So no item is read twice over all ranks, and 2 ranks of 64 have the same global batches as 4 ranks of
    32. A last global batch that is not full is dropped: ranks would have parts of different sizes, or none.
    """

    def __init__(self, count: int, batch_size: int, *, seed: int, rank: int = 0, world: int = 1) -> None:
        if batch_size < 1 or not 0 <= rank < world:
            raise ValueError(f"batch_size must be positive and rank below world, not {batch_size=}, {rank=}, {world=}.")
        self.count, self.batch_size, self.seed = count, batch_size, seed
        self.rank, self.world = rank, world
        self.epoch = self.start = 0

    def seek(self, epoch: int, start: int = 0) -> None:
        """Begin the next iteration with batch ``start`` of an epoch."""
        self.epoch, self.start = epoch, start

    def __len__(self) -> int:
        """Batches of a whole epoch."""
        return self.count // (self.batch_size * self.world)

    def __iter__(self) -> Iterator[list[Key]]:
        order = self.order()
        for step in range(self.start, len(self)):
            first = (step * self.world + self.rank) * self.batch_size
            yield [(self.epoch, item) for item in order[first : first + self.batch_size]]

    def order(self) -> list[int]:
        """All items in the order of the epoch. Sorting by a hash needs no generator, whose numbers may change."""
        return sorted(range(self.count), key=lambda item: draw(self.seed, self.epoch, item))


def draw(*parts: object) -> int:
    """A random number in ``[0, 2^64)`` that depends on the arguments alone, on every machine."""
    text = "\0".join(map(str, parts)).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")


@dataclass(eq=False)
class VideoItems(Dataset[Item | UnreadableVideoError]):
    """The items of a benchmark by (epoch, index); the same key always gives the same frames and caption.

    Its fields are arguments of :class:`Loader`, whose ``items`` is ``kind``. Frames that are kept (``draws``) are
    decoded in ``threads``.
    """

    benchmark: Benchmark
    read_size: int | None
    to_square: ToSquare
    frames: int
    drop_tail: bool
    kind: ItemKind
    seed: int
    draws: int
    threads: int
    _kept: dict[tuple[int, str], Frames] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.benchmark.videos if self.kind == "videos" else self.benchmark.captions)

    def __getitem__(self, key: Key) -> Item | UnreadableVideoError:
        epoch, index = key
        clip = self.benchmark.videos[index if self.kind == "videos" else self.benchmark.video_of_caption[index]]
        if self.kind == "pairs":
            caption = self.benchmark.captions[index]
        else:
            caption = clip.captions[draw(self.seed, epoch, clip.id, "caption") % len(clip.captions)]
        try:
            frames = self._frames(clip, epoch, index)
        except VideoError as error:
            # As a value: what a worker raises arrives as another type.
            return UnreadableVideoError(clip.id, str(clip.path), f"{error.detail}. {error.advice}")
        return {
            "rgb": frames.rgb,
            "mask": frames.mask,
            "times": frames.times,
            "captions": caption,
            "video": clip.id,
        }

    def __getitems__(self, keys: list[Key]) -> list[Item | UnreadableVideoError]:
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
        chosen = (self.seed, draw_number, drawn_by)
        frames = read_frames(
            clip.path, self.frames, random=chosen, drop_tail=self.drop_tail, short_side=self.read_size, end=clip.end
        )
        frames = replace(frames, rgb=self.to_square(frames.rgb))
        if self.draws:
            self._kept[key] = frames
        return frames


def collate(items: list[Item | UnreadableVideoError]) -> Batch | UnreadableVideoError:
    """A batch of items, or the first of them that could not be read."""
    failure = next((item for item in items if isinstance(item, UnreadableVideoError)), None)
    return failure or default_collate(items)


def _start_worker(number: int) -> None:
    one_thread()


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
