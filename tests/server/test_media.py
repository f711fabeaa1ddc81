"""Frames and files: the right bytes, only of files that are as they were indexed."""

import errno
import io
import os
import shutil
import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from centerclip import VideoIndex
from centerclip.server.library import Library
from centerclip.server.media import DiskCache
from centerclip.server.problems import Problem
from centerclip.video import probe
from centerclip.video.cut import codec_of
from tests.search.collection import clip, picture
from tests.server.site import SCENE, SCENES, Site, site
from tests.server.test_search_api import problem
from tests.video.clips import decoded


def path_of(index: VideoIndex, video_id: str) -> Path:
    return Path(index.files(video_id)[0].path)


def test_a_frame_is_the_one_at_its_time(client: httpx.Client, ids: dict[str, str]):
    for number, scene in enumerate(SCENES):
        answer = client.get(f"/api/videos/{ids['three scenes']}/frames/{number * SCENE + 6}.jpg?width=160")
        assert answer.headers["content-type"] == "image/jpeg"
        assert "immutable" in answer.headers["cache-control"]
        got = np.asarray(Image.open(io.BytesIO(answer.content)).resize((64, 48)), float)
        distances = {other: np.abs(got - picture(other)).mean() for other in SCENES}
        assert min(distances, key=distances.__getitem__) == scene


def test_frames_that_are_not_there(client: httpx.Client, ids: dict[str, str]):
    some = ids["three scenes"]
    assert problem(client.get(f"/api/videos/{some}/frames/99999.jpg")) == "not-found"
    assert problem(client.get(f"/api/videos/{some}/frames/nan.jpg")) == "bad-query"
    assert problem(client.get(f"/api/videos/{some}/frames/-1.jpg")) == "bad-query"
    assert problem(client.get(f"/api/videos/{some}/frames/1.jpg?width=100000")) == "bad-query"
    assert problem(client.get(f"/api/videos/{'0' * 32}/frames/1.jpg")) == "unknown-video"


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(first=st.integers(0, 2500), last=st.one_of(st.none(), st.integers(0, 3000)), suffix=st.booleans())
def test_a_range_is_that_part_of_the_file(
    client: httpx.Client, index: VideoIndex, ids: dict[str, str], first: int, last: int | None, suffix: bool
):
    content = path_of(index, ids["clip 3"]).read_bytes()
    asked = f"bytes=-{first}" if suffix else f"bytes={first}-{'' if last is None else last}"
    answer = client.get(f"/api/videos/{ids['clip 3']}/stream", headers={"range": asked})
    if suffix:
        expected = content[-first:] if first else None
    elif last is not None and last < first:
        expected = None
    else:
        expected = content[first : None if last is None else last + 1] or None
    if expected is None:
        assert problem(answer) == "bad-range"
        assert answer.headers["content-range"] == f"bytes */{len(content)}"
    else:
        assert answer.content == expected
        assert answer.status_code in (200, 206)


def test_what_players_ask_beside(client: httpx.Client, index: VideoIndex, ids: dict[str, str]):
    place, size = f"/api/videos/{ids['clip 2']}/stream", path_of(index, ids["clip 2"]).stat().st_size
    whole = client.get(place)
    assert (whole.status_code, len(whole.content), whole.headers["accept-ranges"]) == (200, size, "bytes")
    assert whole.headers["content-type"] == "video/mp4"
    head = client.head(place)
    assert (head.headers["content-length"], head.content) == (str(size), b"")
    etag = whole.headers["etag"]
    assert client.get(place, headers={"if-none-match": etag}).status_code == 304
    part = {"range": "bytes=0-9"}
    assert client.get(place, headers=part | {"if-range": etag}).status_code == 206
    assert client.get(place, headers=part | {"if-range": '"other"'}).status_code == 200
    several = client.get(place, headers={"range": "bytes=0-1,5-6"})
    assert several.status_code == 206
    assert several.headers["content-type"].startswith("multipart/byteranges")
    assert whole.content[0:2] in several.content
    assert f"bytes 5-6/{size}".encode() in several.content


def test_old_codecs_come_in_pieces_that_browsers_play(client: httpx.Client, ids: dict[str, str], tmp_path: Path):
    detail = client.get(f"/api/videos/{ids['old']}").json()
    assert (detail["codec"], detail["playable"], detail["file"]) == ("mpeg4", False, "there")
    place = f"/api/videos/{ids['old']}/stream"
    for number, seconds in ((0, 30), (1, 10)):
        answer = client.get(place, params={"as": "mp4", "piece": number})
        assert answer.headers["content-type"] == "video/mp4"
        piece = tmp_path / f"{number}.mp4"
        piece.write_bytes(answer.content)
        assert codec_of(piece) == ("h264", True, True)
        assert len(decoded(piece)) == seconds * 5
    assert client.get(place, params={"as": "mp4"}, headers={"range": "bytes=0-9"}).status_code == 206
    assert problem(client.get(place, params={"as": "mp4", "piece": 2})) == "not-found"
    assert client.get(f"/api/videos/{ids['clip 2']}").json()["playable"] is True


def test_a_moment_is_a_file_of_its_own(client: httpx.Client, ids: dict[str, str], tmp_path: Path):
    for title, codec in (("three scenes", "h264"), ("old", "mpeg4")):
        answer = client.get(f"/api/videos/{ids[title]}/clip.mp4", params={"start": 8.0, "seconds": 4.0})
        assert answer.headers["content-type"] == "video/mp4"
        assert "attachment" in answer.headers["content-disposition"]
        assert title in unquote(answer.headers["content-disposition"])
        (tmp_path / "clip.mp4").write_bytes(answer.content)
        info = probe(tmp_path / "clip.mp4")
        assert info.codec == codec
        assert 4 <= info.duration <= 8.5, "from the keyframe before"
    for times, kind in (
        ({"start": 5, "seconds": 0}, "bad-query"),
        ({"start": 0, "seconds": 601}, "bad-query"),
        ({"start": 5}, "bad-query"),
        ({"start": 100, "seconds": 1}, "not-found"),
    ):
        assert problem(client.get(f"/api/videos/{ids['old']}/clip.mp4", params=times)) == kind


def test_files_that_changed_are_not_given_away(base: Path, tmp_path: Path):
    """A path that leads elsewhere by now (another file, a link) is no longer what was indexed."""
    secret = tmp_path / "secret.mp4"
    secret.write_bytes(b"secret" * 1000)
    folder = tmp_path / "Videos"
    files = [clip(folder / f"{name}.mp4", number) for number, name in enumerate(["gone", "link", "other"], 1)]
    index = VideoIndex(tmp_path / "index", model=base / "model")
    index.add(folder)
    ids = {entry.title: entry.video_id for entry in index.videos()}
    gone, link, other = files
    gone.unlink()
    link.unlink()
    link.symlink_to(secret)
    other.write_bytes(secret.read_bytes())
    with site(tmp_path, index) as made, made.client() as client:
        for title, kind, state in (
            ("gone", "file-missing", "missing"),
            ("link", "file-changed", "changed"),
            ("other", "file-changed", "changed"),
        ):
            for rest in ("stream", "stream?as=mp4", "frames/1.0.jpg", "clip.mp4?start=0&seconds=1"):
                answer = client.get(f"/api/videos/{ids[title]}/{rest}")
                assert problem(answer) == kind
                assert "secret" not in answer.text
            assert client.get(f"/api/videos/{ids[title]}").json()["file"] == state
        link.unlink()
        os.mkfifo(link)  # reading it would wait for ever
        assert problem(client.get(f"/api/videos/{ids['link']}/stream")) == "file-changed"


def test_a_disk_that_is_not_connected(base: Path, tmp_path: Path):
    """What is on it is found, marked and not played; frames that were shown before are still shown."""
    disk = tmp_path / "disk"
    clip(disk / "far.mp4", 1)
    clip(tmp_path / "here" / "near.mp4", 2)
    index = VideoIndex(tmp_path / "index", model=base / "model")
    index.add(disk, tmp_path / "here")
    far = next(entry.video_id for entry in index.videos() if entry.title == "far")
    with site(tmp_path, index) as made, made.client() as client:
        seen = client.get(f"/api/videos/{far}/frames/1.0.jpg")
        disk.rename(tmp_path / "elsewhere")
        disk.mkdir()  # a mount point without its disk
        for name in ("search?q=a", "videos"):
            answer = client.get(f"/api/{name}").json()
            offline = {each["title"]: each["offline"] for each in answer.get("hits", answer.get("videos"))}
            assert offline == {"far": True, "near": False}
        assert client.get(f"/api/videos/{far}/frames/1.0.jpg").content == seen.content
        for rest in ("stream", "frames/0.0.jpg", "clip.mp4?start=0&seconds=1"):
            assert problem(client.get(f"/api/videos/{far}/{rest}")) == "file-missing"
        assert client.get(f"/api/videos/{far}").json()["offline"] is True


def test_the_cache_stays_within_its_bound(tmp_path: Path):
    cache = DiskCache(tmp_path / "cache", 10_000)
    made = []

    def make(name: str) -> Path:
        def write(path: Path) -> None:
            made.append(name)
            path.write_bytes(bytes(1000))

        with cache.open_or_make(name, write) as file:
            return Path(file.name)

    for number in range(9):
        old = make(f"{number}.jpg")
        os.utime(old, (time.time() - 1000 + number,) * 2)
    cache.get("0.jpg")  # used now
    for number in range(10, 13):
        make(f"{number}.jpg")
    left = {path.name for path in (tmp_path / "cache").iterdir()}
    assert sum(path.stat().st_size for path in (tmp_path / "cache").iterdir()) <= 10_000
    assert {"0.jpg", "12.jpg"} <= left
    assert "1.jpg" not in left
    before = len(made)
    make("12.jpg")
    assert len(made) == before

    def fail(path: Path) -> None:
        path.write_bytes(b"half")
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        cache.open_or_make("half.jpg", fail)
    assert not [path for path in (tmp_path / "cache").iterdir() if "half" in path.name or "part" in path.name]
    shutil.rmtree(tmp_path / "cache")  # somebody tidies up
    assert make("12.jpg").exists()


def test_a_file_that_is_cleared_before_it_is_opened_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    cache = DiskCache(tmp_path / "cache", 10_000)
    found, cleared = DiskCache.get, []

    def get_then_clear(self: DiskCache, name: str) -> Path | None:
        path = found(self, name)
        if path is not None and len(cleared) < 2:  # as another server may between the two
            path.unlink()
            cleared.append(path)
        return path

    monkeypatch.setattr(DiskCache, "get", get_then_clear)
    for _ in range(2):
        with cache.open_or_make("a.jpg", lambda path: path.write_bytes(b"made")) as file:
            assert file.read() == b"made"
    assert len(cleared) == 1
    monkeypatch.setattr(DiskCache, "_get_or_make", lambda self, name, make: tmp_path / "never there")
    with pytest.raises(Problem) as caught:
        cache.open_or_make("a.jpg", lambda path: path.write_bytes(b"made"))
    assert caught.value.status_code == 503


def test_a_full_disk_is_said(base: Path, index: VideoIndex, ids: dict[str, str], monkeypatch: pytest.MonkeyPatch):
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with site(base / "full", index) as made, made.client() as client:
        monkeypatch.setattr("centerclip.server.media.write_atomic", full)
        for rest in ("frames/1.0.jpg", "stream?as=mp4", "clip.mp4?start=0&seconds=1"):
            answer = client.get(f"/api/videos/{ids['old']}/{rest}")
            assert (problem(answer), answer.status_code) == ("disk-full", 507)


@pytest.mark.parametrize("rest", ["frames/1.0.jpg", "stream?as=mp4", "clip.mp4?start=0&seconds=1"])
def test_what_is_made_of_a_file_that_took_the_place_of_another_is_not_given_away(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rest: str
):
    path = clip(tmp_path / "Videos" / "a.mp4", 1)
    secret = clip(tmp_path / "secret.mp4", 2)
    index = VideoIndex(tmp_path / "index", model=base / "model")
    index.add(path.parent)
    opened = Library.open_file

    def replaced(*args: Any) -> Any:
        verified = opened(*args)
        secret.rename(path)
        return verified

    with site(tmp_path, index) as made, made.client() as client:
        monkeypatch.setattr(Library, "open_file", replaced)
        assert problem(client.get(f"/api/videos/{index.videos()[0].video_id}/{rest}")) == "file-changed"


def test_two_servers_on_one_index(base: Path, running: Site, index: VideoIndex, ids: dict[str, str]):
    with site(base, VideoIndex(index.folder)) as second, second.client() as there, running.client() as here:
        place = f"/api/videos/{ids['three scenes']}/frames/3.0.jpg"
        assert there.get(place).content == here.get(place).content
        hits = [client.get("/api/search?q=a+dog").json()["hits"] for client in (here, there)]
        assert hits[0] == hits[1]
