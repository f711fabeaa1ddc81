"""Training over two nodes of torchrun, at two addresses of loopback: as one process, also when a process is killed."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from centerclip.training.run import LOG, read_log
from tests.machines.parts import Part, free_port, wait_until
from tests.training.commands import centerclip
from tests.training.world import RECIPE, make_world

EVERY_STEP = "train.checkpoint_minutes=1e-9"


def losses(folder: Path) -> dict[int, float]:
    steps = [(line["step"], line["loss"]) for line in read_log(folder) if line["event"] == "train"]
    assert len(dict(steps)) == len(steps), "a step is in the log twice"
    return dict(steps)


def logged(folder: Path) -> int:
    return sum(line["event"] == "train" for line in read_log(folder)) if (folder / LOG).exists() else 0


def test_two_nodes_train_as_one_process_and_go_on_after_a_kill(tmp_path: Path) -> None:
    root, recipe = make_world(tmp_path / "world", clips=8, frames=4), tmp_path / "tiny.toml"
    recipe.write_text(RECIPE)
    common = ["train", recipe, "--root", root, "--workers", "0", "--set", EVERY_STEP, "--set", "train.epochs=6"]
    alone = centerclip(tmp_path / "output", *common, "-o", tmp_path / "alone")
    assert alone.code == 0, alone.stderr
    folder, port = tmp_path / "two", free_port()
    # As docs/training.md says: else a worker may meet the addresses that the one before it left in the agents' store.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    nodes = [
        Part(
            *(sys.executable, "-m", "torch.distributed.run", "--nnodes", 2, "--nproc-per-node", 1),
            *("--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.2:{port}", "--rdzv-id", "test"),
            *("--local-addr", address, "--max-restarts", 3, "-m", "centerclip", *common, "-o", folder),
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=(tmp_path / address).open("w"),
        )
        for address in ("127.0.0.2", "127.0.0.3")
    ]
    try:
        wait_until(lambda: logged(folder) >= 3, seconds=400, what="the third step")
        (worker,) = psutil.Process(nodes[1].process.pid).children()
        worker.kill()
        for node, address in zip(nodes, ("127.0.0.2", "127.0.0.3"), strict=True):
            assert node.process.wait(400) == 0, (tmp_path / address).read_text()[-3000:]
    finally:
        for node in nodes:
            node.kill()
    expected, found = losses(tmp_path / "alone"), losses(folder)
    assert found.keys() == expected.keys()
    assert list(found.values()) == pytest.approx(list(expected.values()), rel=5e-3)
