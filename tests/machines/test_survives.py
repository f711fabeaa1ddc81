"""Losing a part, the driver, the Milvus server or one of two servers behind nginx, loses nothing that was reported."""

import json
import shutil
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import pytest

from centerclip.search import QueryError, VideoIndex, indexer
from centerclip.search.copy import copy_index
from centerclip.search.milvus import database as store
from tests.machines.parts import Milvus, Part, answers, free_port, serve, wait_until
from tests.machines.world import VIDEOS, World
from tests.search.collection import content

DRIVER = """
import sys
from functools import partial
from centerclip.integrations.ray import index_with_ray
from centerclip.search import VideoIndex
from centerclip.integrations import ray

ray.COMMIT_SECONDS = 0.0
runner = partial(index_with_ray, address="auto", workers=1)
tell = lambda progress: print(progress.finished, flush=True)
VideoIndex(sys.argv[1], model=sys.argv[2]).add(sys.argv[3], runner=runner, on_progress=tell)
"""
NGINX = """
daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log; events {{}}
http {{
    access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/f;
    uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
    upstream centerclip {{
        server 127.0.0.1:{one} max_fails=1 fail_timeout=2s; server 127.0.0.1:{two} max_fails=1 fail_timeout=2s;
    }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://centerclip; proxy_connect_timeout 2s; proxy_next_upstream error timeout http_502 http_503;
            proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; proxy_set_header Host localhost;
        }}
    }}
}}
"""


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "READ_SECONDS", 120.0)  # a busy machine takes long to start a server


def test_an_index_moves_to_a_server_and_back(world: World, milvus: Milvus, tmp_path: Path) -> None:
    address = f"{milvus.address}/moved"
    copied = copy_index(world.folder / "alone", address)
    assert copied.videos == VIDEOS
    there = VideoIndex(address, model=world.model)
    assert content(there) == world.expected
    assert copy_index(world.folder / "alone", address).videos == 0  # nothing is there twice
    copy_index(address, tmp_path / "back")
    assert content(VideoIndex(tmp_path / "back", model=world.model)) == world.expected
    alone = VideoIndex(world.folder / "alone", model=world.model)
    for sentence in ("a dog", "something red"):
        for options in ({}, {"name": "1*"}, {"max_duration": 1.5}):
            hits, expected = (each.search(sentence, where="video", **options) for each in (there, alone))
            assert [(hit.path, round(hit.score, 4)) for hit in hits] == [
                (hit.path, round(hit.score, 4)) for hit in expected
            ]
    assert there.status().videos == VIDEOS
    assert not there.status().finds_text
    with pytest.raises(QueryError, match=r"cannot search words: .* older than 2\.5"):
        there.search("a dog", where="text")


def test_a_killed_driver_has_lost_nothing_that_it_reported(world: World, tmp_path: Path) -> None:
    index = tmp_path / "index"
    driver = Part(sys.executable, "-c", DRIVER, index, world.model, world.videos, stdout=subprocess.PIPE, text=True)
    reported = 0
    while not reported:
        reported = int(driver.process.stdout.readline())
    driver.kill()
    kept = content(VideoIndex(index, model=world.model))
    assert reported <= len(kept) < len(world.expected)
    assert kept.items() <= world.expected.items()
    again = VideoIndex(index, model=world.model)
    assert again.add(world.videos).unchanged == len(kept)
    assert content(again) == world.expected


def test_a_killed_milvus_server_loses_nothing(world: World, milvus: Milvus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexer, "COMMIT_SECONDS", 0.0)
    killed = threading.Event()

    def kill_once(progress: indexer.Progress) -> None:
        if progress.finished and not killed.is_set():
            killed.set()
            milvus.kill()
            threading.Thread(target=milvus.start).start()

    index = VideoIndex(f"{milvus.address}/killed", model=world.model)
    report = index.add(world.videos, on_progress=kill_once)  # while it writes
    assert killed.is_set()
    assert report.added == VIDEOS
    assert content(index) == world.expected
    before = [hit.path for hit in index.search("a dog", where="video")]
    milvus.kill()
    starting = threading.Thread(target=milvus.start)
    starting.start()
    assert [hit.path for hit in index.search("a dog", where="video")] == before  # waits until it is back
    starting.join()
    assert content(VideoIndex(f"{milvus.address}/killed", model=world.model)) == world.expected


@pytest.mark.skipif(not shutil.which("nginx"), reason="nginx is not installed (apt-get install nginx-light)")
def test_one_of_two_servers_behind_nginx_is_killed_under_load(world: World, milvus: Milvus, tmp_path: Path) -> None:
    address = f"{milvus.address}/served"
    copy_index(world.folder / "alone", address)
    one, two, port = free_port(), free_port(), free_port()
    servers = [
        serve(each, address, tmp_path / str(each), "--proxy", "127.0.0.1", "--workers", workers)
        for each, workers in ((one, 1), (two, 2))
    ]
    (tmp_path / "nginx.conf").write_text(NGINX.format(folder=tmp_path, one=one, two=two, port=port))
    proxy = Part("nginx", "-p", tmp_path, "-c", tmp_path / "nginx.conf", stderr=subprocess.DEVNULL)
    try:
        for each in (one, two):
            wait_until(lambda each=each: answers(f"http://127.0.0.1:{each}/readyz"), what=f"server {each}")  # type: ignore[misc]
        wait_until(lambda: answers(f"http://127.0.0.1:{port}/readyz"), what="nginx")
        found: list[int] = []
        lost: list[str] = []

        def search() -> None:
            for _ in range(30):
                try:
                    url = f"http://127.0.0.1:{port}/api/v1/search?q=a+dog"
                    with urllib.request.urlopen(url, timeout=120) as answer:
                        found.append(len(json.load(answer)["hits"]))
                except OSError as error:
                    lost.append(str(error))

        clients = [threading.Thread(target=search) for _ in range(4)]
        for client in clients:
            client.start()
        wait_until(lambda: len(found) >= 20, what="the load")
        servers[0].kill()
        for client in clients:
            client.join()
        print(f"\n{len(found)} requests answered, {len(lost)} lost, one of two servers killed")
        assert len(lost) <= len(clients)  # those in flight
        assert len(found) + len(lost) == 30 * len(clients)
        assert set(found) == {VIDEOS}
    finally:
        for part in (*servers, proxy):
            part.kill()
