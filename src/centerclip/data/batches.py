"""Which items go into which batch: a function of seed and epoch alone, shared out over ranks without repeats."""

import hashlib
from collections.abc import Iterator

from torch.utils.data import Sampler

Key = tuple[int, int]  # epoch, item: a worker needs both to know what to draw


class EpochBatches(Sampler[list[Key]]):
    """The batches of one rank, from any batch of any epoch on.

    The items of an epoch are put in one order and cut into global batches of ``world * batch_size``; each rank takes
    its part of every global batch. So every item comes exactly once over all ranks, and 2 ranks of 64 see the same
    global batches as 4 ranks of 32.

    Args:
        count: number of items.
        batch_size: items of a batch on one rank.
        seed: seed of the run.
        shuffle: a new order each epoch; else items come as they are.
        drop_last: leave out a last global batch that is not full. Training across ranks needs it: else the last
            batches of ranks may differ in size, or be absent.
        rank: this process, from 0.
        world: number of processes.
    """

    def __init__(
        self, count: int, batch_size: int, *, seed: int, shuffle: bool, drop_last: bool, rank: int = 0, world: int = 1
    ) -> None:
        if batch_size < 1 or not 0 <= rank < world:
            raise ValueError(f"batch size {batch_size} and rank {rank} of {world} do not make batches.")
        self.count, self.batch_size = count, batch_size
        self.seed, self.shuffle, self.drop_last = seed, shuffle, drop_last
        self.rank, self.world = rank, world
        self.epoch = self.start = 0

    def go_to(self, epoch: int, start: int = 0) -> None:
        """Let the next iteration begin with batch ``start`` of an epoch."""
        self.epoch, self.start = epoch, start

    def __len__(self) -> int:
        """Batches of a whole epoch."""
        per_step = self.batch_size * self.world
        return self.count // per_step if self.drop_last else -(-self.count // per_step)

    def __iter__(self) -> Iterator[list[Key]]:
        order = self.order()
        per_step = self.batch_size * self.world
        for step in range(self.start, len(self)):
            everyones = order[step * per_step : (step + 1) * per_step]
            size = len(everyones)
            own = everyones[self.rank * size // self.world : (self.rank + 1) * size // self.world]
            if own:
                yield [(self.epoch, item) for item in own]

    def order(self) -> list[int]:
        """All items in the order of the epoch. Sorting by a hash needs no generator, whose numbers may change."""
        items = range(self.count)
        return sorted(items, key=lambda item: draw(self.seed, self.epoch, item)) if self.shuffle else list(items)


def draw(*what: object) -> int:
    """A random number in ``[0, 2^64)`` that depends on the arguments alone, on every machine."""
    text = "\0".join(map(str, what)).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")
