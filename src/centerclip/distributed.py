"""One process or many: the process group that `torchrun` starts, and the collectives that are used."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
from torch import Tensor
from torch import distributed as dist

# How long a rank waits for the others: rank 0 validates and writes checkpoints meanwhile, which can take an hour.
COLLECTIVE_TIMEOUT = timedelta(hours=2)


@dataclass(frozen=True)
class Processes:
    """The processes of a run, as one of them (``rank``) knows them."""

    rank: int
    world: int
    device: torch.device

    @property
    def gpu(self) -> torch.device | None:
        """The CUDA GPU of this process; None where there is none."""
        return self.device if self.device.type == "cuda" else None

    @property
    def main(self) -> bool:
        """Whether this is the process that prints and writes files."""
        return self.rank == 0

    def gather(self, tensor: Tensor) -> Tensor:
        """The tensors ``[N_r, ...]`` of all processes in the order of their ranks, ``[sum N_r, ...]``, no gradient."""
        return gather(tensor, self.world)

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over all processes, in place."""
        if self.world > 1:
            dist.all_reduce(tensor)
        return tensor

    def any(self, flags: list[bool]) -> list[bool]:
        """For each flag, whether it is set in any process; all processes get the same answer."""
        if self.world == 1:
            return flags
        shared = torch.tensor(flags, dtype=torch.int32, device=self.device)
        dist.all_reduce(shared, dist.ReduceOp.MAX)
        return [bool(flag) for flag in shared.tolist()]

    def barrier(self) -> None:
        """Wait for all processes."""
        if self.world > 1:
            dist.barrier()


@contextmanager
def processes() -> Iterator[Processes]:
    """Join the other processes of ``torchrun``, with NCCL on GPUs and gloo elsewhere; without torchrun, one process."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    local = int(os.environ.get("LOCAL_RANK", "0"))
    device = torch.device("cuda", local) if torch.cuda.is_available() else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if world == 1:
        yield Processes(0, 1, device)
        return
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=COLLECTIVE_TIMEOUT)
    try:
        yield Processes(dist.get_rank(), world, device)
    finally:
        dist.destroy_process_group()


def gather(tensor: Tensor, world: int) -> Tensor:
    """The tensors ``[N_r, ...]`` of all ranks, ``[sum N_r, ...]``, without gradient; first sizes may differ."""
    tensor = tensor.detach().contiguous()
    if world == 1:
        return tensor
    sizes = [torch.zeros(1, dtype=torch.int64, device=tensor.device) for _ in range(world)]
    dist.all_gather(sizes, torch.tensor([len(tensor)], dtype=torch.int64, device=tensor.device))
    counts = [int(size) for size in sizes]
    # Collectives need equal shapes: pad to the longest, cut afterwards.
    padded = tensor.new_zeros(max(counts), *tensor.shape[1:])
    padded[: len(tensor)] = tensor
    parts = [torch.empty_like(padded) for _ in range(world)]
    dist.all_gather(parts, padded)
    return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])
