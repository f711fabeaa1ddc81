"""One item of a batch: the frames of a video, cropped, and a caption. Runs in the loader's worker processes."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Literal, TypedDict

import torch
from torch import Tensor
from torch.utils.data import Dataset

from ..video import Frames, VideoError, read_frames
from .batches import Key, draw
from .benchmark import Benchmark, Clip
from .processes import usable_cores

Kind = Literal["videos", "pairs"]
Squash = Callable[[Tensor], Tensor]


class Batch(TypedDict):
    """What a model is fed with.

    Keys:
        rgb: uint8 ``[B, T, size, size, 3]``.
        mask: bool ``[B, T]``, False where a frame only fills up a short video.
        times: float64 ``[B, T]``, seconds.
        captions: one sentence for each video.
        video: ids of the videos.
        index: int64 ``[B]``, places in ``benchmark.videos``, or in ``benchmark.captions`` when items are pairs.
    """

    rgb: Tensor
    mask: Tensor
    times: Tensor
    captions: list[str]
    video: list[str]
    index: Tensor


@dataclass(frozen=True)
class Item:
    """A part of a batch."""

    frames: Frames
    caption: str
    video: str
    index: int


@dataclass(frozen=True)
class Failure:
    """A video that could not be read. It is handed over as a value: an exception would lose its type on the way."""

    video: str
    path: str
    reason: str


class VideoItems(Dataset[Item | Failure]):
    """The items of a benchmark by (epoch, place); the same key always gives the same frames and caption.

    Args:
        benchmark: a loaded split.
        frames: frames of an item.
        size: side of the square pictures.
        kind: ``videos`` has each video once; ``pairs`` has each (video, caption) once.
        seed: seed of the run; None takes bin centres and, of ``videos``, the first caption.
        draws: 0 draws new frames each epoch; else each video shows this many drawings of its frames in turn, each
            decoded once and then kept in memory.
        squash: makes squares of frames ``[T, H, W, 3]`` in another way than cutting out the middle.
    """

    def __init__(
        self,
        benchmark: Benchmark,
        *,
        frames: int,
        size: int,
        kind: Kind,
        seed: int | None,
        draws: int = 0,
        squash: Squash | None = None,
    ) -> None:
        self.benchmark, self.frames, self.size, self.kind, self.seed = benchmark, frames, size, kind, seed
        self.draws, self.squash = draws, squash
        self._kept: dict[tuple[int, str], Frames] = {}

    def __len__(self) -> int:
        return len(self.benchmark.videos if self.kind == "videos" else self.benchmark.captions)

    def __getitem__(self, key: Key) -> Item | Failure:
        epoch, index = key
        place = index if self.kind == "videos" else self.benchmark.video_of_caption[index]
        clip = self.benchmark.videos[place]
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
        """Several at once, as torch asks for them. Frames to be kept are decoded here, so on all cores."""
        if not self.draws:
            return [self[key] for key in keys]
        with ThreadPoolExecutor(usable_cores()) as threads:
            return list(threads.map(self.__getitem__, keys))

    def _frames(self, clip: Clip, epoch: int, index: int) -> Frames:
        """The frames of a clip, as squares."""
        # Pairs of the same video would all show the same frames of it, so they draw by the pair.
        drawn_by = clip.id if self.kind == "videos" or self.draws else f"{clip.id}\0{index}"
        draw_of = epoch % self.draws if self.draws else epoch
        key = (draw_of, clip.id)
        if key in self._kept:
            return self._kept[key]
        random = None if self.seed is None else (self.seed, draw_of, drawn_by)
        frames = read_frames(clip.path, self.frames, random=random, short_side=None if self.squash else self.size)
        frames = replace(frames, rgb=self.squash(frames.rgb) if self.squash else centre_crop(frames.rgb, self.size))
        if self.draws:
            self._kept[key] = replace(frames, rgb=frames.rgb.clone())  # not a view of the whole picture
        return frames

    def collate(self, items: list[Item | Failure]) -> tuple[Batch | None, list[Failure]]:
        """A batch of the items that could be read, None when there is none, and those that could not."""
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
    """The middle of pictures ``[T, H, W, 3]`` as ``[T, size, size, 3]``."""
    top, left = (rgb.shape[1] - size) // 2, (rgb.shape[2] - size) // 2
    return rgb[:, top : top + size, left : left + size]
