"""The tools of an agent, called with the SDK's own client: in the process, over stdio and over HTTP."""

import asyncio
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from centerclip import VideoIndex
from centerclip.integrations.mcp import make_mcp, mcp_app
from centerclip.server import ServeSettings
from centerclip.server.run import bind, http_server
from tests.search.collection import clip, save_model

READING = ["search_moments", "find_similar", "list_videos", "describe_index"]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("agents")
    for number in (1, 2, 3):
        clip(base / "Videos" / "trips" / f"clip {number}.mp4", number)
    VideoIndex(base / "index", model=save_model(base / "model")).add(base / "Videos")
    return base


def call(client: Client, tool: str, /, **arguments: Any) -> Any:
    return client.call_tool(tool, arguments)


def test_the_tools_search_list_and_save(base: Path) -> None:
    async def run() -> None:
        index, clips = VideoIndex(base / "index"), base / "clips"
        server, _ = make_mcp(index, ServeSettings(cache=base / "cache"), clips=clips)
        async with Client(server) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert list(tools) == [*READING, "save_clip"]
            assert [tools[name].annotations.read_only_hint for name in tools] == [True] * 4 + [False]
            about = (await call(client, "describe_index")).structured_content
            assert (about["videos"], about["folders"], about["can_save_clips"]) == (3, ["Videos", "Videos/trips"], True)
            found = await call(client, "search_moments", query="a dog", top=2, images=1, folder="Videos/trips")
            moments = found.structured_content["moments"]
            assert len(moments) == 2
            assert moments[0]["file"].startswith(str(base / "Videos" / "trips"))
            assert [part.type for part in found.content] == ["text", "text", "image"]
            assert found.content[2].mime_type == "image/jpeg"
            alike = await call(client, "find_similar", video_id=moments[0]["video_id"], images=0)
            assert moments[0]["video_id"] not in {each["video_id"] for each in alike.structured_content["moments"]}
            listed = (await call(client, "list_videos", name="clip 2*")).structured_content
            assert (listed["total"], Path(listed["videos"][0]["file"]).name) == (1, "clip 2.mp4")
            place = {"video_id": moments[0]["video_id"], "start": 0.5}
            saved = await call(client, "save_clip", **place, end=1.5)
            assert Path(saved.structured_content["file"]).parent == clips
            for wrong, arguments in (
                ("search_moments", {"query": " "}),
                ("search_moments", {"query": "a dog", "folder": "/etc"}),
                ("search_moments", {"query": "a dog", "top": 5000}),
                ("find_similar", {"video_id": "0" * 32}),
                ("find_similar", {"video_id": "../../etc/passwd"}),
                ("save_clip", {**place, "end": 0.1}),
                ("save_clip", {**place, "end": 5000.0}),
            ):
                refused = await call(client, wrong, **arguments)
                assert refused.is_error, (wrong, arguments)
                assert str(base) not in refused.content[0].text
        remote, _ = make_mcp(index, ServeSettings(cache=base / "cache"), local=False)
        async with Client(remote) as client:
            assert [tool.name for tool in (await client.list_tools()).tools] == READING  # it may not write
            found = (await call(client, "search_moments", query="a dog", images=0)).structured_content
            assert {each["file"].rpartition("/")[0] for each in found["moments"]} == {"Videos/trips"}

    asyncio.run(run())


def test_over_stdio(base: Path) -> None:
    async def run() -> None:
        clips = base / "clips of stdio"
        folders = {"--index": base / "index", "--cache": base / "cache", "--allow-write": clips}
        arguments = ["-m", "centerclip", "mcp", *(str(part) for pair in folders.items() for part in pair)]
        command = StdioServerParameters(command=sys.executable, args=arguments, env=dict(os.environ))
        async with Client(command) as client:
            found = await call(client, "search_moments", query="a dog", images=1)
            assert len(found.structured_content["moments"]) == 3
            assert found.content[-1].type == "image"
            moment = {name: found.structured_content["moments"][0][name] for name in ("video_id", "start", "end")}
            saved = await call(client, "save_clip", **moment)
            assert [str(path) for path in clips.iterdir()] == [saved.structured_content["file"]]

    asyncio.run(run())


@contextmanager
def serving(base: Path, token: str) -> Iterator[str]:
    settings = ServeSettings(cache=base / "cache", token=token)
    listening = bind("127.0.0.1", 0, try_next=False)
    server = http_server(mcp_app(*make_mcp(VideoIndex(base / "index"), settings)), settings)
    thread = threading.Thread(target=server.run, args=[[listening]], daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
    finally:
        server.should_exit = True
        thread.join(60)


def test_over_http_behind_the_token_and_the_limits(base: Path) -> None:
    async def run(address: str) -> None:
        http = create_mcp_http_client(headers={"Authorization": "Bearer a secret token"})
        async with Client(streamable_http_client(address, http_client=http)) as client:
            found = await call(client, "search_moments", query="a dog", images=0)
            assert len(found.structured_content["moments"]) == 3

    with serving(base, "a secret token") as address:
        asyncio.run(run(address))
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        assert httpx.post(address, json=body).status_code == 401
        headers = {"Authorization": "Bearer a secret token"}
        assert httpx.post(address, json=body, headers={**headers, "Origin": "https://example.org"}).status_code == 403
        assert httpx.post(address, content=b"x" * 100_000, headers=headers).status_code == 413
