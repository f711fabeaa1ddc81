"""A test that hangs where no signal and no thread reaches it is killed, and so is what it started."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

HANGS = """
import ctypes, signal, subprocess, sys
from pathlib import Path

def test_it_hangs():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    Path({pid!r}).write_text(str(child.pid))
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    ctypes.PyDLL(None).sleep(600)  # keeps Python's lock
"""


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_a_test_that_hangs_is_killed_with_its_processes(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    (tmp_path / "test_hangs.py").write_text(HANGS.format(pid=str(pid)))
    (tmp_path / "conftest.py").write_text("from tests.conftest import *\n")
    root = Path(__file__).parents[1]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:timeout", str(tmp_path)],
        env=os.environ | {"CENTERCLIP_TEST_SECONDS": "8", "PYTHONPATH": str(root)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode != 0
    assert "test_it_hangs has not ended after 8 seconds" in run.stderr
    assert not psutil.pid_exists(int(pid.read_text())) or psutil.Process(int(pid.read_text())).status() == "zombie"
