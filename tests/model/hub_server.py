"""A hub on this machine: what the client of the Hugging Face hub asks for, with ways to fail as the real one does."""

import base64
import hashlib
import json
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

LARGE = (".safetensors", ".bin", ".onnx.data", ".msgpack", ".h5")  # kept apart from git, and served by another host


class HubServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.models: dict[str, dict[str, tuple[str, Path]]] = {}  # name -> revision -> commit, folder
        self.refusals: dict[str, tuple[int, dict[str, str]]] = {}  # what a path ends with -> status, headers
        self.cuts: dict[str, int] = {}  # name of a file -> bytes of its next answer, then the connection is closed
        self.stalls: dict[str, int] = {}  # the same, then nothing more is sent
        self.damaged: set[str] = set()  # sent with other bytes
        self.short: set[str] = set()  # sent without ranges, and only a part
        self.silent = False
        self.stopped = threading.Event()
        self.gets: list[tuple[str, int, int]] = []  # name of a file, first byte, bytes sent
        self.cards: dict[str, dict[str, object]] = {}  # metadata of data sets, "datasets/owner/name" -> card
        self.created: dict[str, dict[str, object]] = {}  # repositories, as they were asked for
        self.uploads = Path(tempfile.mkdtemp(prefix="hub-"))
        self.cdn_headers: list[dict[str, str]] = []

    def add(self, name: str, folder: Path, commit: str = "a" * 40, revision: str = "main") -> None:
        self.models.setdefault(name, {}).update({revision: (commit, folder), commit: (commit, folder)})

    def fetched(self) -> dict[str, int]:
        """Bytes sent of every file."""
        return {name: sum(sent for each, _, sent in self.gets if each == name) for name, _, _ in self.gets}


class Handler(BaseHTTPRequestHandler):
    server: HubServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        """Uploads, as the client does them for small files: each of them is part of the commit."""
        path = unquote(urlsplit(self.path).path)
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        for ending, (status, headers) in self.server.refusals.items():
            if path.endswith(ending):
                return self.answer(status, headers)
        if path == "/api/repos/create":
            asked = json.loads(body)
            name = "/".join(filter(None, (asked.get("organization"), asked["name"])))
            self.server.created[name] = asked
            return self.send_json({"url": f"{self.server.url}/{name}", "name": name, "id": name})
        if path == "/api/validate-yaml":
            return self.send_json({"errors": [], "warnings": []})
        name, _, rest = path.removeprefix("/api/models/").partition("/preupload/")
        if rest:
            files = [
                {"path": each["path"], "uploadMode": "regular", "shouldIgnore": False}
                for each in json.loads(body)["files"]
            ]
            return self.send_json({"files": files})
        name, _, revision = path.removeprefix("/api/models/").partition("/commit/")
        for line in body.splitlines():
            entry = json.loads(line)
            if entry["key"] == "file":
                target = self.server.uploads / name / revision / entry["value"]["path"]
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(base64.b64decode(entry["value"]["content"]))
        self.server.add(name, self.server.uploads / name / revision, commit="c" * 40, revision=revision)
        self.send_json({"commitUrl": f"{self.server.url}/{name}/commit/{'c' * 40}", "commitOid": "c" * 40})

    def send_json(self, content: object) -> None:
        self.answer(200, {"Content-Type": "application/json"}, json.dumps(content).encode())

    def do_GET(self) -> None:
        if self.server.silent:
            self.server.stopped.wait()
            return
        path = unquote(urlsplit(self.path).path)
        for ending, (status, headers) in self.server.refusals.items():
            if path.endswith(ending):
                return self.answer(status, headers)
        if path.startswith("/cdn/"):
            self.server.cdn_headers.append(dict(self.headers))
            return self.send_file(Path(path.removeprefix("/cdn")))
        if path.startswith("/api/datasets/"):
            name, _, revision = path.removeprefix("/api/").partition("/revision/")
        elif path.startswith("/api/models/"):
            name, _, revision = path.removeprefix("/api/models/").partition("/revision/")
        else:
            name, _, revision = path[1:].partition("/resolve/")
        revision, _, file = revision.partition("/") if "/resolve/" in path else (revision, "", "")
        if name not in self.server.models:
            return self.answer(404, {"X-Error-Code": "RepoNotFound"})
        if (revision or "main") not in self.server.models[name]:
            return self.answer(404, {"X-Error-Code": "RevisionNotFound"})
        commit, folder = self.server.models[name][revision or "main"]
        if not file:
            files = [
                {"rfilename": str(each.relative_to(folder)), "size": each.stat().st_size}
                for each in folder.rglob("*")
                if each.is_file()
            ]
            content = {"id": name, "sha": commit, "siblings": files, "cardData": self.server.cards.get(name, {})}
            return self.answer(200, {}, json.dumps(content).encode())
        content = (folder / file).read_bytes()
        if file.endswith(LARGE):
            location = f"http://localhost:{self.server.server_port}/cdn{folder / file}"
            etag = {"X-Linked-Etag": f'"{hashlib.sha256(content).hexdigest()}"', "X-Linked-Size": str(len(content))}
            return self.answer(302, {"Location": location, "X-Repo-Commit": commit, **etag})
        return self.send_file(folder / file, {"X-Repo-Commit": commit, "ETag": f'"{git_hash(content)}"'})

    def send_file(self, path: Path, headers: dict[str, str] | None = None) -> None:
        content, asked = path.read_bytes(), self.headers.get("Range")
        if path.name in self.server.short:
            return self.answer(200, {}, content[:1000], path.name)
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
        ranges = {"Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"} if asked else {}
        if path.name in self.server.damaged:
            content = bytes(len(content))
        self.answer(206 if ranges else 200, {**(headers or {}), **ranges}, content[start:], path.name, start)

    def answer(self, status: int, headers: dict[str, str], body: bytes = b"", name: str = "", start: int = 0) -> None:
        self.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        stall = self.server.stalls.pop(name, None)
        cut = self.server.cuts.pop(name, None) if stall is None else stall
        sent = body[:cut]
        if name:
            self.server.gets.append((name, start, len(sent)))
        self.wfile.write(sent)
        if stall is not None:
            self.server.stopped.wait()
        self.close_connection = self.close_connection or cut is not None


def git_hash(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@contextmanager
def serve() -> Iterator[HubServer]:
    server = HubServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.stopped.set()
        server.shutdown()
        server.server_close()
        thread.join()
        shutil.rmtree(server.uploads, ignore_errors=True)
