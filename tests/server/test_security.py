"""Strangers, other sites' pages, slow clients and malformed paths get nothing, and nobody else waits for them."""

import http.client
import socket
import threading
import time
import types
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest

from centerclip import VideoIndex
from centerclip.errors import DamagedIndex, DiskFull, IndexBusy, ModelError, SearchError
from centerclip.server import ServeSettings, service, video_routes
from centerclip.server.library import Library
from centerclip.server.problems import Problem
from centerclip.server.service import GUESS_SECONDS, MAX_NETWORKS, TokenGuard
from tests.search.collection import clip
from tests.server.site import Site, site
from tests.server.test_search_api import problem
from tests.video.clips import make_clip

TOKEN = "correct horse battery"


@pytest.mark.parametrize(
    "path",
    [
        "/api/videos/..%2f..%2fetc%2fpasswd/stream",
        "/api/videos/../../etc/passwd/stream",
        "/api/videos/%2e%2e/stream",
        "/static/../app.py",
        "/static/..%2fapp.py",
        "/static/%2e%2e/%2e%2e/errors.py",
        "/static//etc/passwd",
        "/static/",
        "/static",
        "/%2e%2e/%2e%2e/etc/passwd",
        "//etc/passwd",
        "/index.html/..",
        "/api/v1/videos/" + "0" * 31 + "g/stream",
        "/api/v2/search",
    ],
)
def test_paths_do_not_escape(running: Site, path: str):
    parts = urlsplit(running.address)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=20)
    connection.request("GET", path)  # as it is: other clients normalise it first
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    assert answer.status in (404, 422)
    assert b"root:" not in body
    assert b"import" not in body


def test_every_answer_carries_the_headers(client: httpx.Client):
    for path in ("/", "/static/page.js", "/api/search?q=a", "/api/nothing", "/nothing", "/docs"):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "access-control-allow-origin" not in headers
        assert "server" not in headers


def test_the_page_asks_for_nothing_from_elsewhere(client: httpx.Client):
    for name in (
        "",
        "docs",
        "static/style.css",
        "static/page.js",
        "static/player.js",
        "static/cards.js",
        "static/api.js",
    ):
        answer = client.get(f"/{name}")
        assert answer.status_code == 200
        text = answer.text.replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in text
        assert "https://" not in text
        assert " style=" not in text
        assert "onclick=" not in text


def test_other_names_and_other_sites_are_refused(client: httpx.Client):
    for host in ("evil.example", "evil.example:8000", "[", "localhost.evil.example", "127.0.0.1.evil.example"):
        assert problem(client.get("/api/status", headers={"host": host})) == "not-allowed"
    assert client.get("/api/status", headers={"host": "localhost:1"}).status_code == 200
    for headers in (
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://["},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ):
        answer = client.post("/api/search", files={"file": b"x"}, headers=headers)
        assert problem(answer) == "not-allowed"
    assert "access-control-allow-origin" not in client.options("/api/search", headers={"origin": "http://a.b"}).headers


def test_nothing_can_be_changed_without_the_right(client: httpx.Client, index: VideoIndex, ids: dict[str, str]):
    assert problem(client.post("/api/folders", json={"path": "/etc"})) == "not-allowed"
    assert problem(client.get("/api/available-folders")) == "not-allowed"
    assert problem(client.delete(f"/api/videos/{ids['clip 2']}")) == "not-allowed"
    folder = client.get("/api/folders").json()["folders"][0]["id"]
    assert problem(client.delete(f"/api/folders/{folder}")) == "not-allowed"
    assert len(index.videos()) == 7


def test_videos_and_folders_are_removed_from_the_index_not_from_the_disk(base: Path, tmp_path: Path):
    names = ["a/one.mp4", "a/two.mp4", "b/three.mp4", "b/c/four.mp4"]
    files = [clip(tmp_path / "Videos" / name, number) for number, name in enumerate(names)]
    index = VideoIndex(tmp_path / "index", model=base / "model")
    index.add(tmp_path / "Videos")
    ids = {entry.title: entry.video_id for entry in index.videos()}
    with site(tmp_path, index, folders=tmp_path) as made, made.client() as client:
        assert client.delete(f"/api/videos/{ids['one']}").status_code == 204
        assert problem(client.delete(f"/api/videos/{ids['one']}")) == "unknown-video"
        folders = {folder["name"]: folder["id"] for folder in client.get("/api/folders").json()["folders"]}
        assert client.delete(f"/api/folders/{folders['Videos/b']}").status_code == 204
        assert [video["title"] for video in client.get("/api/videos").json()["videos"]] == ["two"]
        assert problem(client.delete(f"/api/folders/{folders['Videos/b']}")) == "unknown-folder"
        foreign = {"origin": "http://evil.example"}
        assert problem(client.delete(f"/api/videos/{ids['two']}", headers=foreign)) == "not-allowed"
    assert all(file.exists() for file in files)


def test_folders_to_add_are_listed_below_the_allowed_one_only(base: Path, index: VideoIndex, tmp_path: Path):
    for name in ("2024/Spring", "2024/summer", "2023", ".hidden"):
        (tmp_path / "allowed" / name).mkdir(parents=True)
    (tmp_path / "secret").mkdir()
    (tmp_path / "allowed" / "2023" / "out").symlink_to(tmp_path / "secret")
    (tmp_path / "allowed" / "2024" / "film.mp4").write_bytes(b"")
    with site(base, index, folders=tmp_path / "allowed") as made, made.client() as client:

        def below(path: str) -> httpx.Response:
            return client.get("/api/available-folders", params={"path": path})

        assert below("").json() == {"path": "", "folders": ["2023", "2024"]}
        assert below("2024").json()["folders"] == ["2024/Spring", "2024/summer"]
        assert below("2023").json()["folders"] == []
        for wrong in ("..", "../secret", "/etc", "nowhere", "2023/out", "a\0b"):
            assert problem(below(wrong)) == "not-allowed"


def test_a_site_that_is_allowed_may_use_the_api(base: Path, index: VideoIndex, ids: dict[str, str]):
    friend, other = {"origin": "https://friend.example"}, {"origin": "https://other.example"}
    with site(base, index, token=TOKEN, origins=("https://friend.example",)) as made, made.client() as client:
        asked = {"access-control-request-method": "GET", "access-control-request-headers": "authorization"}
        preflight = client.options("/api/search", headers=friend | asked)
        assert preflight.status_code == 200
        assert preflight.headers["access-control-allow-origin"] == friend["origin"]
        assert "authorization" in preflight.headers["access-control-allow-headers"]
        assert "access-control-allow-origin" not in client.options("/api/search", headers=other | asked).headers
        assert problem(client.get("/api/search?q=a", headers=friend)) == "token-needed"
        known = {"authorization": f"Bearer {TOKEN}"}
        for path in ("/api/search?q=a", f"/api/videos/{ids['clip 2']}/stream"):
            answer = client.get(path, headers=known | friend)
            assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, friend["origin"])
        assert "access-control-allow-origin" not in client.get("/api/search?q=a", headers=known | other).headers
        file = {"file": b"hello"}
        cross = {"sec-fetch-site": "cross-site"}
        assert problem(client.post("/api/search", files=file, headers=known | friend | cross)) == "wrong-type"
        assert problem(client.post("/api/search", files=file, headers=known | other | cross)) == "not-allowed"


def test_behind_a_proxy_that_shows_it_under_a_path(base: Path, index: VideoIndex, ids: dict[str, str]):
    with site(base, index, token=TOKEN, root_path="/clips") as made, made.client() as client:
        assert client.get("/clips", follow_redirects=False).headers["location"] == "/clips/"
        assert problem(client.get("/clips/api/status")) == "token-needed"
        assert "Path=/clips" in client.post("/clips/api/login", json={"token": TOKEN}).headers["set-cookie"]
        client.headers["authorization"] = f"Bearer {TOKEN}"
        for prefix in ("", "/clips"):  # a proxy may strip it or not
            assert client.get(f"{prefix}/").text.startswith("<!doctype html>")
            assert client.get(f"{prefix}/healthz").json() == {"status": "ok"}
            assert client.get(f"{prefix}/static/page.js").status_code == 200
            video = client.get(f"{prefix}/api/videos/{ids['clip 2']}").json()
            assert video["stream"] == f"/clips/api/v1/videos/{ids['clip 2']}/stream"
            assert client.get(video["stream"].removeprefix("/clips" if not prefix else "")).status_code == 200
            assert client.get(video["thumbnail"]).headers["content-type"] == "image/jpeg"
            assert client.get(f"{prefix}/api/openapi.json").json()["servers"] == [{"url": "/clips"}]
        # The proxy's page is this server's own, whatever the proxy calls this server.
        proxied = {"origin": "https://nas.example", "sec-fetch-site": "same-origin"}
        assert problem(client.post("/api/search", files={"file": b"hello"}, headers=proxied)) == "wrong-type"


def test_files_are_revealed_on_this_machine_only(
    client: httpx.Client, index: VideoIndex, ids: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    shown: list[Path] = []
    monkeypatch.setattr(video_routes, "reveal", shown.append)
    place = f"/api/videos/{ids['clip 2']}/reveal"
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    monkeypatch.setenv("DISPLAY", ":0")
    assert client.get("/api/status").json()["can_reveal"] is True
    assert client.post(place).status_code == 204
    assert shown == [Path(index.files(ids["clip 2"])[0].path)]
    proxied = {"x-forwarded-for": "192.0.2.7"}
    assert problem(client.post(place, headers=proxied)) == "not-allowed"
    assert client.get("/api/status", headers=proxied).json()["can_reveal"] is False
    monkeypatch.setenv("SSH_CONNECTION", "192.0.2.7 22")
    assert problem(client.post(place)) == "not-allowed"
    assert len(shown) == 1


def test_a_token_opens_everything_and_nothing_opens_without(base: Path, index: VideoIndex, ids: dict[str, str]):
    with site(base, index, token=TOKEN) as made:
        private = [
            "/api/search?q=a",
            "/api/status",
            "/metrics",
            "/api/openapi.json",
            f"/api/videos/{ids['clip 2']}/stream",
        ]
        with made.client() as stranger:
            for path in private:
                answer = stranger.get(path)
                assert problem(answer) == "token-needed"
                assert answer.headers["www-authenticate"].startswith("Bearer")
            for wrong in ("", "Bearer", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer \xff"):
                headers = {"authorization": wrong.encode("latin-1")}
                assert problem(stranger.get("/api/status", headers=headers)) == "token-needed"
            assert problem(stranger.get("/api/status", cookies={"centerclip": TOKEN})) == "token-needed"
            assert problem(stranger.post("/api/login", json={"token": "wrong"})) == "token-needed"
            assert stranger.get("/").status_code == stranger.get("/healthz").status_code == 200
            # A token makes the name unimportant: a page that points its name here does not have it.
            assert stranger.get("/healthz", headers={"host": "nas.local"}).status_code == 200
        with made.client(headers={"authorization": f"Bearer {TOKEN}"}) as known:
            assert [known.get(path).status_code for path in private] == [200] * len(private)
        with made.client() as browser:
            cookie = browser.post("/api/login", json={"token": TOKEN}).headers["set-cookie"]
            assert "HttpOnly" in cookie
            assert "SameSite=strict" in cookie
            assert TOKEN not in cookie
            assert [browser.get(path).status_code for path in private] == [200] * len(private)


def test_what_goes_wrong_inside_stays_inside(base: Path, index: VideoIndex, monkeypatch: pytest.MonkeyPatch):
    with site(base, index) as made, made.client() as client:

        def fail(*_: object, **__: object) -> None:
            raise RuntimeError("a secret")

        monkeypatch.setattr(made.index, "similar", fail)
        answer = client.get(f"/api/videos/{'0' * 32}/similar")
        assert problem(answer) == "failed"
        assert "secret" not in answer.text
        assert "Traceback" not in answer.text
        assert client.get("/api/search?q=a").status_code == 200


def raw(made: Site, text: bytes) -> socket.socket:
    parts = urlsplit(made.address)
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # what is not read stays with the server
    connection.settimeout(60)
    connection.connect((parts.hostname, parts.port))
    connection.sendall(text)
    return connection


def test_slow_clients_hold_up_nobody(running: Site, ids: dict[str, str]):
    host = b"host: localhost\r\n"
    slow = [raw(running, b"GET /api/search?q=a HTTP/1.1\r\nhost: loc") for _ in range(20)]  # never ends
    path = f"/api/videos/{ids['three scenes']}/stream".encode()
    slow += [raw(running, b"GET " + path + b" HTTP/1.1\r\n" + host + b"\r\n") for _ in range(20)]  # never reads
    upload = b"POST /api/search HTTP/1.1\r\n" + host + b"content-type: multipart/form-data; boundary=x\r\n"
    late = raw(running, upload + b"content-length: 5000\r\n\r\n--x\r\n")  # never sends the rest
    with running.client() as client:  # it gives up sooner than the server gives up those who do not read
        assert client.timeout.read < running.settings.stall_seconds
        for _ in range(3):
            assert client.get("/api/search?q=nobody+waits").status_code == 200
    assert b" 408 " in late.recv(4096), "an upload that never ends is cut off"
    for connection in [*slow, late]:
        connection.close()


def test_a_client_that_stops_reading_is_cut_off(base: Path, index: VideoIndex, ids: dict[str, str]):
    path = f"/api/videos/{ids['three scenes']}/stream"
    with site(base, index, stall_seconds=0.2) as made, made.client() as client:
        size = int(client.head(path).headers["content-length"])
        stalled = raw(made, f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        answered = 'centerclip_requests_total{method="GET",route="stream",status="200"} 1.0'
        while answered not in client.get("/metrics").text:  # the server is done with it
            time.sleep(0.05)
        received = 0
        with suppress(ConnectionResetError):
            while chunk := stalled.recv(1 << 16):
                received += len(chunk)
        stalled.close()
        assert 0 < received < size


@pytest.mark.parametrize("close", [b"", b"connection: close\r\n"])
def test_clients_that_never_read_give_back_their_places(
    base: Path, index: VideoIndex, ids: dict[str, str], close: bytes
):
    path = f"/api/videos/{ids['three scenes']}/stream"
    with site(base, index, stall_seconds=0.2, connections=4) as made:
        request = f"GET {path} HTTP/1.1\r\nhost: localhost\r\n".encode() + close + b"\r\n"
        stalled = [raw(made, request) for _ in range(4)]
        deadline = time.monotonic() + 60
        while True:  # refused as long as the four have all places; they are still open at their ends
            try:
                assert made.client().get("/healthz").status_code == 200
                break
            except httpx.TransportError:
                assert time.monotonic() < deadline, "the places are still taken"
        for connection in stalled:
            connection.close()


def test_tokens_cannot_be_guessed(base: Path, index: VideoIndex, monkeypatch: pytest.MonkeyPatch):
    now = [1000.0]
    monkeypatch.setattr(service, "time", types.SimpleNamespace(monotonic=lambda: now[0], time=time.time))
    known = {"authorization": f"Bearer {TOKEN}"}
    with site(base, index, token=TOKEN) as made, made.client() as client:
        for _ in range(ServeSettings.guesses + 2):  # a page with the cookie of an older token
            old = {"cookie": f"centerclip={'0' * 64}"}
            assert problem(client.get("/api/status", headers=old)) == "token-needed"
        for number in range(ServeSettings.guesses - 1):
            wrong = {"authorization": f"Bearer {number}"}
            answer = client.get("/api/status", headers=wrong) if number % 2 else login(client, str(number))
            assert problem(answer) == "token-needed"
        for answer in (client.get("/api/status", headers=known), login(client, TOKEN), login(client, "x")):
            assert (problem(answer), answer.status_code) == ("too-many-guesses", 429)
        assert problem(client.get("/api/status")) == "token-needed", "nothing was guessed"
        now[0] += GUESS_SECONDS
        assert client.get("/api/status", headers=known).status_code == 200
        assert login(client, TOKEN).status_code == 204


def login(client: httpx.Client, token: str) -> httpx.Response:
    return client.post("/api/login", json={"token": token})


def test_guesses_are_counted_by_network_and_few_are_remembered():
    guard = TokenGuard(TOKEN)
    for number in range(ServeSettings.guesses):
        assert not guard.is_right(f"2001:db8::{number:x}", str(number))
    with pytest.raises(Problem):
        guard.is_right("2001:db8::ffff", TOKEN)
    assert guard.is_right("2001:db8:0:1::1", TOKEN)
    assert guard.is_right("192.0.2.1", TOKEN)
    for number in range(MAX_NETWORKS):
        guard.is_right(f"10.0.{number >> 8}.{number & 255}", "wrong")
    assert guard.is_right("2001:db8::ffff", TOKEN), "the oldest are forgotten"


def test_one_client_cannot_fill_the_disk_with_uploads(base: Path, index: VideoIndex):
    head = b"POST /api/search HTTP/1.1\r\nhost: localhost\r\ncontent-type: multipart/form-data; boundary=x\r\n"
    part = b"content-length: 5000\r\n\r\n--x\r\n"
    with site(base, index, uploads_per_client=3, body_seconds=60.0) as made, made.client() as client:
        held = [raw(made, head + part) for _ in range(3)]
        while problem(answer := client.post("/api/search", files={"file": b"x"})) != "busy":
            assert problem(answer) == "wrong-type", "before all three have arrived"
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
        assert client.get("/api/search?q=a").status_code == 200
        for connection in held:
            connection.close()
        while problem(answer := client.post("/api/search", files={"file": b"x"})) == "busy":
            pass
        assert problem(answer) == "wrong-type"


def test_errors_show_no_path_of_the_server(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    index = VideoIndex(tmp_path / "index", model=base / "model")
    clip(tmp_path / "allowed" / "videos" / "a.mp4", 1)
    (tmp_path / "allowed" / "empty").mkdir()
    with site(tmp_path, index, folders=tmp_path / "allowed") as made, made.client() as client:
        answer = client.post("/api/folders", json={"path": "nowhere"})
        assert problem(answer) == "not-allowed"
        assert str(tmp_path) not in answer.text

        def indexing(path: str) -> dict[str, Any]:
            assert client.post("/api/folders", json={"path": path}).status_code == 202
            while (state := client.get("/api/status").json()["indexing"])["running"]:
                time.sleep(0.02)
            return state  # type: ignore[no-any-return]

        errors = [indexing("empty")["error"]]  # it has no videos, says an error that names it
        for error in (DiskFull, DamagedIndex, SearchError, ModelError, IndexBusy):
            monkeypatch.setattr(index, "add", failing(error(f"{tmp_path}/index is bad")))
            errors.append(indexing("videos")["error"])
        monkeypatch.setattr(index, "add", failing(RuntimeError(str(tmp_path))))
        errors.append(indexing("videos")["error"])
        assert all(errors)
        assert not any(str(tmp_path) in each for each in errors)
        monkeypatch.setattr(index, "search", failing(SearchError(f"{tmp_path}/index cannot be read")))
        answer = client.get("/api/search?q=a&in=text")
        assert (problem(answer), str(tmp_path) in answer.text) == ("index-unusable", False)


def failing(error: Exception) -> Callable[..., None]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


def test_a_file_that_is_replaced_after_the_check_is_not_given_away(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = clip(tmp_path / "Videos" / "clip.mp4", 1)
    content = path.read_bytes()
    index = VideoIndex(tmp_path / "index", model=base / "model")
    index.add(path)
    with site(tmp_path, index) as made, made.client() as client:
        opened = Library.open_file

        def replaced(*args: Any) -> Any:
            verified = opened(*args)
            path.unlink()
            path.write_bytes(b"secret" * len(content))
            return verified

        monkeypatch.setattr(Library, "open_file", replaced)
        address = f"/api/videos/{index.videos()[0].video_id}/stream"
        assert client.get(address, headers={"range": "bytes=0-999"}).content == content[:1000]


def test_films_of_object_storage_hold_up_nobody(
    base: Path, index: VideoIndex, ids: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    gate, entered, opened = threading.Event(), threading.Semaphore(0), video_routes._open_whole

    def fetch(*given: Any) -> Any:
        entered.release()
        gate.wait(60)
        return opened(*given)

    monkeypatch.setattr(video_routes, "_open_whole", fetch)
    monkeypatch.setattr(Library, "is_remote", lambda *_: True)
    with site(base, index) as made, made.client() as client:
        answers: list[int] = []
        address = f"/api/videos/{ids['clip 2']}/stream"
        viewers = [
            threading.Thread(target=lambda: answers.append(made.client().get(address).status_code)) for _ in "12"
        ]
        for viewer in viewers:
            viewer.start()
            entered.acquire()
        assert [client.get(path).status_code for path in ("/api/status", "/api/videos")] == [200, 200]
        assert not answers
        gate.set()
        for viewer in viewers:
            viewer.join(60)
        assert answers == [200, 200]


def test_bodies_are_refused_before_they_are_read(running: Site):
    head = b"POST /api/folders HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    announced = raw(running, head + b"content-length: 999999999\r\n\r\n")
    assert b" 413 " in announced.recv(4096)
    announced.close()
    chunked = raw(running, head + b"transfer-encoding: chunked\r\n\r\n")
    piece = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    chunked.sendall(piece + piece)
    assert b" 413 " in chunked.recv(4096)
    chunked.close()


@pytest.mark.parametrize("host", ["localhost", "another.example"])
def test_a_body_that_is_not_http_is_refused_without_a_stack_trace(
    running: Site, host: str, caplog: pytest.LogCaptureFixture
):
    head = f"POST /api/search HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n"
    client = raw(running, head.encode() + b"transfer-encoding: chunked\r\n\r\nno length\r\n")
    assert b" 400 " in client.recv(4096)
    client.close()
    with running.client() as other:
        assert other.get("/healthz").status_code == 200
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_connections_and_requests_have_a_limit(base: Path, index: VideoIndex, monkeypatch: pytest.MonkeyPatch):
    with site(base, index, connections=8, requests_per_client=2) as made:
        held = [raw(made, b"GET /api/status HT") for _ in range(8)]
        ninth = raw(made, b"")
        assert ninth.recv(10) == b"", "closed at once"
        for connection in held:
            connection.close()
        gate, entered = threading.Event(), threading.Semaphore(0)
        similar = made.index.similar

        def wait(*given: object, **named: object) -> object:
            entered.release()
            gate.wait(60)
            return similar(*given, **named)  # type: ignore[arg-type]

        monkeypatch.setattr(made.index, "similar", wait)
        threads = [threading.Thread(target=lambda: made.client().get(f"/api/videos/{'0' * 32}/similar")) for _ in "12"]
        for thread in threads:
            thread.start()
        for _ in threads:
            assert entered.acquire(timeout=60)
        with made.client() as client:
            assert problem(client.get("/healthz")) == "too-many-requests"
            gate.set()
            for thread in threads:
                thread.join()
            assert client.get("/healthz").status_code == 200


def test_conversions_cannot_take_the_machine(
    base: Path, index: VideoIndex, ids: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    """One runs at a time, a few wait, further ones are refused; searches and frames do not wait for them."""
    gate, running, most, lock = threading.Event(), [0], [0], threading.Lock()
    convert = video_routes.encode_piece

    def wait(source: Path, target: Path, number: int) -> None:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        assert gate.wait(120)
        convert(source, target, number)
        with lock:
            running[0] -= 1

    monkeypatch.setattr(video_routes, "encode_piece", wait)
    with site(base / "conversions", index) as made:
        statuses: list[int] = []

        def ask(title: str) -> None:
            with made.client() as client:
                statuses.append(client.get(f"/api/videos/{ids[title]}/stream?as=mp4").status_code)

        threads = [threading.Thread(target=ask, args=[title]) for title in ids]
        for thread in threads:
            thread.start()
        with made.client() as client:
            while statuses.count(503) < len(ids) - 5:
                time.sleep(0.02)
            assert client.get("/api/search?q=nobody+waits").status_code == 200
            assert client.get(f"/api/videos/{ids['old']}/frames/0.5.jpg").status_code == 200
        gate.set()
        for thread in threads:
            thread.join()
    assert sorted(statuses) == [200] * 5 + [503] * (len(ids) - 5)
    assert most == [1]


def test_a_clip_of_immense_frames_is_refused_before_it_is_decoded(running: Site, tmp_path: Path):
    bomb = make_clip(tmp_path / "bomb.mp4", frames=2, picture=np.zeros((1200, 1000, 3), np.uint8))
    assert bomb.stat().st_size < 20_000
    with running.client() as client, bomb.open("rb") as file:
        assert problem(client.post("/api/search", files={"file": file})) == "too-large"


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("10.0.0.1", "203.0.113.7", "203.0.113.7"),
        ("10.0.0.1", "198.51.100.1, 203.0.113.7", "203.0.113.7"),  # the client may have sent the first one itself
        ("10.0.0.1", "203.0.113.7, 10.0.0.2", "203.0.113.7"),  # two proxies
        ("10.0.0.1", "203.0.113.7, rubbish", "10.0.0.1"),
        ("10.0.0.1", "", "10.0.0.1"),
        ("192.0.2.9", "203.0.113.7", "192.0.2.9"),  # no proxy that was named
    ],
)
def test_only_a_named_proxy_says_who_the_client_is(peer: str, forwarded: str, client: str) -> None:
    from centerclip.server.middleware import RequestLimits

    limits = RequestLimits(lambda *_: None, ServeSettings(proxies=("10.0.0.0/8",)), None)  # type: ignore[arg-type]
    headers = [(b"x-forwarded-for", forwarded.encode())] if forwarded else []
    scope = {"type": "http", "client": (peer, 1234), "headers": headers}
    limits._name_client(scope)
    assert scope["client"][0] == client


def test_processes_share_the_limits() -> None:
    each = ServeSettings().shared_by(4)
    assert (each.connections, each.requests_per_client, each.guesses) == (128, 32, 5)
    assert ServeSettings(uploads=2).shared_by(4).uploads == 1
