"""``centerclip serve`` as people start and stop it."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from typer.testing import CliRunner

from centerclip import VideoIndex
from centerclip.cli import app
from centerclip.errors import PortTaken
from centerclip.server.run import bind

SLOW = """
import sys, time
from centerclip.search import VideoIndex
similar = VideoIndex.similar
def slow(*given, **named):
    print("searching", flush=True)
    time.sleep(1.5)
    return similar(*given, **named)
VideoIndex.similar = slow
from centerclip.cli import main
main()
"""


WITHOUT_TORCH = """
import sys
for name in ("torch", "transformers"):
    sys.modules[name] = None
from centerclip.cli import main
main()
"""


@contextmanager
def started(*options: str, script: str = "from centerclip.cli import main; main()") -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", script, "serve", "--port", "0", "--no-open", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


def address_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    line = process.stdout.readline()
    assert line.startswith("CenterCLIP is at http://")
    address = line.split()[-1]
    transport = httpx.HTTPTransport(retries=1)
    with httpx.Client(transport=transport) as client:
        for _ in range(600):
            try:
                client.get(f"{address.partition('#')[0]}healthz", timeout=30)
                return address
            except httpx.ConnectError:  # bound, but not listening yet
                threading.Event().wait(0.05)
    raise AssertionError("the server did not come up")


def test_stopping_finishes_what_runs(base: Path, index: VideoIndex, ids: dict[str, str]):
    with started("--index", str(index.folder), "--cache", str(base / "cache"), script=SLOW) as process:
        address = address_of(process)
        answers: list[httpx.Response] = []
        ask = threading.Thread(
            target=lambda: answers.append(httpx.get(f"{address}api/videos/{ids['clip 2']}/similar", timeout=60))
        )
        ask.start()
        assert process.stdout
        assert process.stdout.readline() == "searching\n"
        process.send_signal(signal.SIGINT)
        ask.join(60)
        assert process.wait(60) == 0
    assert answers[0].status_code == 200
    assert answers[0].json()["hits"]


def test_answers_are_sent_at_once():
    """Not when the client confirms their first part: asyncio looks for the protocol, and switches that off."""
    with bind("127.0.0.1", 0, try_next=False) as listening:
        assert listening.proto == socket.IPPROTO_TCP


def test_workers_share_a_port_and_end_with_the_process_that_started_them(base: Path, index: VideoIndex):
    options = ["--index", str(index.folder), "--cache", str(base / "cache"), "--workers", "2"]
    with started(*options) as process:
        address = address_of(process)
        assert httpx.get(f"{address}api/status", timeout=60).json()["videos"] == 7
        process.kill()
        process.wait(60)
        port = urlsplit(address).port
        assert port
        for _ in range(600):
            with suppress(PortTaken), bind("127.0.0.1", port, try_next=False):
                return
            threading.Event().wait(0.1)
    raise AssertionError("a worker keeps the port")


def test_other_machines_need_a_token_that_is_printed_and_kept(base: Path, index: VideoIndex, tmp_path: Path):
    file = tmp_path / "config" / "token"
    options = ["--index", str(index.folder), "--cache", str(base / "cache"), "--host", "0.0.0.0"]
    with started(*options, "--token-file", str(file)) as process:
        address, _, token = address_of(process).partition("#token=")
        assert len(token) >= 20
        assert file.read_text().strip() == token
        assert file.stat().st_mode & 0o777 == 0o600
        assert process.stdout
        label, _, elsewhere = process.stdout.readline().strip().partition(": ")
        assert label == "From other machines"
        assert elsewhere.endswith(f"{address.rpartition(':')[2]}#token={token}")
        assert "localhost" not in elsewhere
        assert httpx.get(f"{address}api/status").status_code == 401
        known = {"authorization": f"Bearer {token}"}
        assert httpx.get(f"{address}api/videos", headers=known, timeout=60).json()["total"] == 7
    with started(*options, "--token-file", str(file)) as process:
        assert address_of(process).endswith(f"#token={token}"), "links stay valid"


def test_without_an_index_the_command_for_this_one_is_printed(tmp_path: Path):
    command = [
        sys.executable,
        "-m",
        "centerclip",
        "serve",
        "--port",
        "0",
        "--no-open",
        "--index",
        str(tmp_path / "my x"),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        address_of(process)
        process.send_signal(signal.SIGINT)
        assert f"centerclip index --index '{tmp_path / 'my x'}' ~/Videos" in process.communicate(timeout=60)[1]


def test_a_port_that_is_taken():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(PortTaken, match=f"port {port} .* choose another with --port"):
            bind("127.0.0.1", port, try_next=False)
        with bind("127.0.0.1", port, try_next=True) as next_one:
            assert next_one.getsockname()[1] > port


def test_wrong_usage(tmp_path: Path):
    for options in (
        ["--token", "short"],
        ["--port", "70000"],
        ["--allow-folders", str(tmp_path / "nowhere")],
        ["--allow-origin", "*"],
        ["--allow-origin", "https://example.org/page"],
    ):
        assert CliRunner().invoke(app, ["serve", *options]).exit_code == 2


def test_it_serves_without_torch(index: VideoIndex):
    with started("--index", str(index.folder), script=WITHOUT_TORCH) as process:
        answer = httpx.get(f"{address_of(process)}api/search?q=a+dog", timeout=60).json()
    assert [hit["video_id"] for hit in answer["hits"]] == [hit.video_id for hit in index.search("a dog", top=24)]
