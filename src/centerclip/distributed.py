"""One process or many: the process group that `torchrun` starts, and the collectives that are used."""

import importlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
from torch import Tensor
from torch import distributed as dist

from .errors import first_line

# How long a rank waits for the others: rank 0 validates and writes checkpoints meanwhile, which can take an hour.
COLLECTIVE_TIMEOUT = timedelta(hours=2)
HEARTBEAT_SECONDS = 5.0
LOST_SECONDS = 60.0  # without a sign of life a rank is taken for dead: a busy machine may starve it for a while


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
        tensor = tensor.detach().contiguous()
        if self.world == 1:
            return tensor
        sizes = [torch.zeros(1, dtype=torch.int64, device=tensor.device) for _ in range(self.world)]
        dist.all_gather(sizes, torch.tensor([len(tensor)], dtype=torch.int64, device=tensor.device))
        counts = [int(size) for size in sizes]
        # Collectives need equal shapes: pad to the longest, cut afterwards.
        padded = tensor.new_zeros(max(counts), *tensor.shape[1:])
        padded[: len(tensor)] = tensor
        parts = [torch.empty_like(padded) for _ in range(self.world)]
        dist.all_gather(parts, padded)
        return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])

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
    """Join the other processes of ``torchrun``, with NCCL on GPUs and gloo elsewhere; without torchrun, one process.

    Ranks that were started in another way (by hand, by a job scheduler) have nobody who ends them when one dies: they
    watch each other.
    """
    world = int(os.environ.get("WORLD_SIZE", "1"))
    local = int(os.environ.get("LOCAL_RANK", "0"))
    device = torch.device("cuda", local) if torch.cuda.is_available() else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if world == 1:
        yield Processes(0, 1, device)
        return
    # No thread of C++ may be at work when the interpreter ends: one that then frees a tensor aborts the process. This
    # module keeps the group, and so its threads, in default arguments if it is first imported after the group was made.
    importlib.import_module("torch.distributed.nn.functional")
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=COLLECTIVE_TIMEOUT)
    done, alone = threading.Event(), "TORCHELASTIC_RUN_ID" not in os.environ
    watcher = threading.Thread(target=_watch_ranks, args=(dist.get_rank(), world, done), daemon=True)
    if alone:
        watcher.start()
    try:
        yield Processes(dist.get_rank(), world, device)
        if alone:  # one that has left shows no sign of life
            dist.barrier()
    finally:
        done.set()
        if alone:
            watcher.join(HEARTBEAT_SECONDS)
        dist.destroy_process_group()


def _watch_ranks(rank: int, world: int, done: threading.Event) -> None:
    """Show that this rank is alive, and end the process when another one has not been for long."""
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    beats, heard = [0] * world, [time.monotonic()] * world
    try:
        # A connection of its own: the process group's waits in collectives.
        timeout = timedelta(seconds=LOST_SECONDS)
        store = dist.TCPStore(address, port, is_master=False, timeout=timeout)  # type: ignore[attr-defined]
        while not done.wait(HEARTBEAT_SECONDS):
            store.add(f"beats of rank {rank}", 1)
            for other in range(world):
                count = store.add(f"beats of rank {other}", 0)
                if count != beats[other]:
                    beats[other], heard[other] = count, time.monotonic()
            lost = [other for other in range(world) if time.monotonic() - heard[other] > LOST_SECONDS]
            if lost:
                raise RuntimeError(f"no sign of life of {lost} for {LOST_SECONDS:g} seconds")
    except RuntimeError as error:  # also when rank 0 is gone, which keeps the store
        if not done.wait(HEARTBEAT_SECONDS):  # at the end rank 0 may be the first to leave
            reason = f"another rank has died ({first_line(error)}). Start all again: the run resumes"
            print(f"centerclip: rank {rank} of {world} stops: {reason}", file=sys.stderr, flush=True)
            os._exit(1)  # the main thread may wait in a collective, out of the reach of exceptions
