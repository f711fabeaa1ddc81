"""One process or many: what `torchrun` started, and the few things that processes say to one another."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
from torch import Tensor
from torch import distributed as dist

PATIENCE = timedelta(hours=2)  # one process evaluates or writes a checkpoint while the others wait


@dataclass(frozen=True)
class Processes:
    """This process among those of a run."""

    rank: int
    world: int
    device: torch.device

    @property
    def main(self) -> bool:
        """Whether this is the one that prints and writes files."""
        return self.rank == 0

    def gather(self, own: Tensor) -> Tensor:
        """The tensors ``[N_r, ...]`` of all processes in the order of their ranks, ``[sum N_r, ...]``, no gradient."""
        return gather(own, self.world)

    def sum(self, own: Tensor) -> Tensor:
        """The sum over all processes, in place."""
        if self.world > 1:
            dist.all_reduce(own)
        return own

    def any(self, flags: list[bool]) -> list[bool]:
        """For each flag, whether it is set in any process; all get the same answer."""
        if self.world == 1:
            return flags
        shared = torch.tensor(flags, dtype=torch.int32, device=self.device)
        dist.all_reduce(shared, dist.ReduceOp.MAX)
        return [bool(flag) for flag in shared.tolist()]

    def barrier(self) -> None:
        """Wait until all processes are here."""
        if self.world > 1:
            dist.barrier()


@contextmanager
def processes() -> Iterator[Processes]:
    """Join the other processes of ``torchrun``, with NCCL on GPUs and gloo elsewhere; alone without it."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    local = int(os.environ.get("LOCAL_RANK", "0"))
    device = torch.device("cuda", local) if torch.cuda.is_available() else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if world == 1:
        yield Processes(0, 1, device)
        return
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=PATIENCE)
    try:
        yield Processes(dist.get_rank(), world, device)
    finally:
        dist.destroy_process_group()


def gather(own: Tensor, world: int) -> Tensor:
    """The tensors ``[N_r, ...]`` of all ranks, ``[sum N_r, ...]``, without gradient; first sizes may differ."""
    own = own.detach().contiguous()
    if world == 1:
        return own
    sizes = [torch.zeros(1, dtype=torch.int64, device=own.device) for _ in range(world)]
    dist.all_gather(sizes, torch.tensor([len(own)], dtype=torch.int64, device=own.device))
    counts = [int(size) for size in sizes]
    # Collectives want equal shapes: pad to the longest, cut after.
    padded = own.new_zeros(max(counts), *own.shape[1:])
    padded[: len(own)] = own
    parts = [torch.empty_like(padded) for _ in range(world)]
    dist.all_gather(parts, padded)
    return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])
