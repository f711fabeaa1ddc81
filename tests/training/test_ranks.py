"""Ranks that are started by hand, without torchrun, do not wait for one that is gone."""

import importlib
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path

import pytest

from centerclip import distributed

from .commands import CONTEXT


def join_and(act: str, rank: int, port: int, output: Path) -> None:
    os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT), 2)
    for name in [name for name in sys.modules if name.startswith("torch.distributed.nn")]:
        del sys.modules[name]  # as in a process that has just started
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "RANK": str(rank)}
    os.environ.pop("TORCHELASTIC_RUN_ID", None)
    distributed.HEARTBEAT_SECONDS, distributed.LOST_SECONDS = 0.1, 2.0
    with distributed.processes() as ranks:
        ranks.barrier()
        importlib.import_module("torch.distributed.nn.functional")  # as the first step of an optimizer does
        if rank == 1:
            os.kill(os.getpid(), {"hang": signal.SIGSTOP, "die": signal.SIGKILL}.get(act, 0))
        elif act == "end":
            time.sleep(3 * distributed.HEARTBEAT_SECONDS)  # the other one waits for it to end
        else:
            ranks.barrier()
    names = {thread.read_text().strip() for thread in Path("/proc/self/task").glob("*/comm")}
    assert not [name for name in names if "gloo" in name]  # one that frees a tensor at the very end aborts the process
    assert threading.enumerate() == [threading.main_thread()]


@pytest.mark.parametrize("act", ["hang", "die", "end"])
def test_ranks_watch_each_other(act: str, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = [CONTEXT.Process(target=join_and, args=(act, rank, port, tmp_path / str(rank))) for rank in (0, 1)]
    for each in ranks:
        each.start()
    ranks[0].join(120)
    if act == "end":
        ranks[1].join(60)
    else:
        ranks[1].kill()
    assert ranks[0].exitcode == (0 if act == "end" else 1)
    if act == "hang":
        assert "rank 0 of 2 stops: another rank has died" in (tmp_path / "0").read_text()
    if act == "end":
        assert ranks[1].exitcode == 0
