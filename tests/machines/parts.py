"""Real parts on loopback, each a process of its own that can be killed: a Milvus server, nginx, `centerclip serve`."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

MILVUS_PYTHON = os.environ.get("CENTERCLIP_MILVUS_PYTHON", ".venv-milvus/bin/python")
START = """
import socket, sys
from milvus import MilvusServer, MilvusServerConfig

def try_bind_port(self, port):  # as the server itself binds: also where a killed one has left connections
    probe = socket.socket()
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        probe.bind(("127.0.0.1", port))
        return probe
    except OSError:
        probe.close()

MilvusServerConfig.try_bind_port = try_bind_port
server = MilvusServer(MilvusServerConfig(data_dir=sys.argv[1], proxy_port=int(sys.argv[2])))
server.start()
print("ready", flush=True)
server.server_proc.wait()
"""


def free_port() -> int:
    """A port that no connection takes for itself while the part that listens there is away."""
    for port in Random().sample(range(20_000, 30_000), 1_000):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


def wait_until(true: Callable[[], object], seconds: float = 120.0, what: str = "it") -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"{what} did not happen in {seconds:g} seconds"
        time.sleep(0.1)


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


class Part:
    """A process with those that it has started."""

    def __init__(self, *command: object, **options: object) -> None:
        self.command, self.options = [str(each) for each in command], options
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(self.command, start_new_session=True, **self.options)  # type: ignore[call-overload]

    def kill(self) -> None:
        """kill -9."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Milvus(Part):
    """The server that PyPI packages, with a folder of its own; killed and started again it has the same data."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.address = f"milvus://127.0.0.1:{self.port}"
        super().__init__(MILVUS_PYTHON, "-c", START, folder, self.port, stdout=subprocess.PIPE, text=True)

    def start(self) -> None:
        for _ in range(5):  # what a killed one held is given back after a moment
            super().start()
            if self.process.stdout.readline() == "ready\n":
                return
            self.kill()
            time.sleep(2)
        raise AssertionError("the Milvus server does not start")


class Storage(Part):
    """A server of object storage, as S3 is, with a bucket."""

    def __init__(self) -> None:
        self.port = free_port()
        address = f"http://127.0.0.1:{self.port}"
        self.environment = {"AWS_ENDPOINT_URL": address, "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
        self.environment |= {"AWS_DEFAULT_REGION": "us-east-1", "NO_PROXY": "127.0.0.1"}
        nothing = subprocess.DEVNULL
        super().__init__(sys.executable, "-m", "moto.server", "-p", self.port, stdout=nothing, stderr=nothing)
        wait_until(lambda: answers(f"{address}/moto-api/"), what="the S3 server")


def serve(port: int, index: str, cache: Path, *arguments: object) -> Part:
    command = [sys.executable, "-m", "centerclip", "serve", "--index", index, "--port", port, "--no-open"]
    return Part(*command, "--cache", cache, *arguments)
