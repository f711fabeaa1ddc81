"""Search over HTTP finds what the index finds, and says what is wrong with a request."""

import io
import struct
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import av
import httpx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from prometheus_client.parser import text_string_to_metric_families

from centerclip import VideoIndex
from centerclip.server.library import Library
from centerclip.server.problems import Problem
from tests.search.collection import clip, picture
from tests.server.site import SAID, SCENE, SCENES, TITLE, Site, save_picture
from tests.video.clips import make_clip


def problem(answer: httpx.Response) -> str:
    """The kind of a well-formed problem."""
    assert answer.headers["content-type"] == "application/problem+json"
    content = answer.json()
    assert content["status"] == answer.status_code
    assert content["title"]
    assert content["detail"]
    return content["type"].removeprefix("urn:centerclip:problem:")


def upload(client: httpx.Client, content: bytes, name: str = "x.png", **form: str) -> httpx.Response:
    return client.post("/api/search", files={"file": (name, content)}, data=form)


def test_a_sentence_finds_what_the_index_finds(client: httpx.Client, index: VideoIndex):
    answer = client.get("/api/search", params={"q": "a dog", "top": 5}).json()
    hits = index.search("a dog", top=5)
    assert [hit["video_id"] for hit in answer["hits"]] == [hit.video_id for hit in hits]
    assert [hit["score"] for hit in answer["hits"]] == pytest.approx([hit.score for hit in hits], abs=2e-3)
    assert answer["confidence"] == pytest.approx(hits.confidence, abs=1e-2)
    assert answer["convincing"] == hits.convincing
    assert [hit["grade"] for hit in answer["hits"]] == [hit.grade for hit in hits]
    assert answer["likely"] == hits.likely


def test_a_kept_query_is_found_by_every_process_that_serves_this_model(index: VideoIndex, base: Path, tmp_path: Path):
    query = index.encode("a dog")
    name = Library(index, queries=tmp_path / "queries").save_query(query)
    again = Library(VideoIndex(index.folder), queries=tmp_path / "queries").saved_query(name)
    assert (again.vector.tolist(), again.has_text, again.text) == (query.vector.tolist(), True, "a dog")
    other = VideoIndex(tmp_path / "other", model=base / "model", frames=4)
    other.add(clip(tmp_path / "clip.mp4", 1))
    with pytest.raises(Problem, match="Upload it again"):
        Library(other, queries=tmp_path / "queries").saved_query(name)
    content = (tmp_path / "queries" / name).read_bytes()
    for damaged in (b"", content[:100], content[:-30], b"not a query"):
        (tmp_path / "queries" / name).write_bytes(damaged)
        with pytest.raises(Problem, match="Upload it again"):
            Library(index, queries=tmp_path / "queries").saved_query(name)


def test_a_kept_query_ends_with_its_model(index: VideoIndex, monkeypatch: pytest.MonkeyPatch):
    library = Library(index)
    name = library.save_query(index.encode("a dog"))
    assert library.saved_query(name).text == "a dog"
    monkeypatch.setattr(index, "model_version", lambda: "of --reindex with another model")
    with pytest.raises(Problem, match="Upload it again"):
        library.saved_query(name)


def test_both_names_of_the_api_answer_alike(client: httpx.Client):
    newest, first = (client.get(f"/api{version}/search", params={"q": "sea"}).json() for version in ("", "/v1"))
    assert newest["hits"] == first["hits"]


def test_no_answer_shows_a_path_of_this_machine(client: httpx.Client, running: Site, ids: dict[str, str]):
    some = ids["three scenes"]
    for place in ("search?q=a", "videos", f"videos/{some}", f"videos/{some}/similar", "status", "folders", "metrics"):
        answer = client.get(f"/api/{place}")
        assert answer.status_code == 200
        assert str(running.folder.parent) not in answer.text


def test_filters(client: httpx.Client, ids: dict[str, str]):
    def titles(**params: object) -> set[str]:
        hits = client.get("/api/search", params={"q": "a", "all": True, **params}).json()["hits"]
        return {hit["title"] for hit in hits}

    folders = {folder["name"]: folder for folder in client.get("/api/folders").json()["folders"]}
    assert {name: folder["videos"] for name, folder in folders.items()} == {
        "Videos": 8, "Videos/old": 2, "Videos/trips": 6, "Videos/trips/sea": 5,
    }  # fmt: skip
    assert titles(folder=folders["Videos/trips/sea"]["id"]) == {f"clip {n}" for n in range(1, 6)}
    assert titles(name="three*") == {"three scenes"}
    assert titles(min_duration=35) == {"three scenes", "old"}
    assert titles(max_duration=3, name="clip 2") == {"clip 2"}
    assert titles(before="2001") == set()
    assert titles(recorded_after="2019", recorded_before="2020") == {"clip 5"}
    assert titles(near="52.4,4.9,10") == {"clip 5"}
    assert titles(near="52.4,4.9,1") == titles(camera="canon") == set()
    listed = client.get("/api/videos?recorded_after=2019").json()["videos"]
    assert [(video["title"], video["latitude"]) for video in listed] == [("clip 5", 52.37)]
    assert problem(client.get("/api/search?q=a&folder=0000000000000000")) == "unknown-folder"


def test_what_is_said_and_written_is_found_and_marked(client: httpx.Client):
    assert client.get("/api/status").json()["has_text"] is True
    hits = client.get("/api/search", params={"q": "lighthouse calais"}).json()["hits"]
    best = hits[0]
    assert (best["title"], best["found_by"], best["start"], best["end"]) == ("three scenes", "text", 20.5, 23.0)
    line = best["line"]
    assert (line["text"], line["source"], line["start"]) == (SAID, "subtitle", 20.5)
    assert [SAID[first:last] for first, last in line["marks"]] == ["lighthouses", "Calais"]
    assert all(hit["found_by"] == "video" and hit["line"] is None for hit in hits[1:])
    shown = client.get("/api/search", params={"q": "lighthouse calais", "in": "video"}).json()["hits"]
    assert {hit["found_by"] for hit in shown} == {"video"}
    by_name = client.get("/api/search", params={"q": "three scenes", "in": "text"}).json()["hits"]
    assert [(hit["title"], hit["line"]["source"]) for hit in by_name] == [("three scenes", "name")]


def test_words_alone_need_no_model(client: httpx.Client, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object) -> None:
        raise AssertionError("encoded")

    monkeypatch.setattr(VideoIndex, "encode_texts", fail)
    hits = client.get("/api/search", params={"q": "tulips nobody encoded", "in": "text"}).json()["hits"]
    assert [hit["line"]["text"] for hit in hits] == [TITLE]


def test_images_have_no_text(client: httpx.Client):
    answer = client.post("/api/search", files={"file": ("x.jpg", jpeg())}, params={"in": "text"})
    assert problem(answer) == "bad-query"
    assert upload(client, jpeg()).json()["hits"][0]["line"] is None


def test_moments_rank_parts_of_a_video(client: httpx.Client, tmp_path: Path):
    """The first scene is shown again at the end."""
    file = {"file": save_picture(tmp_path / "x.png", SCENES[0]).read_bytes()}
    hits = client.post("/api/search", files=file, params={"moments": True, "top": 2}).json()["hits"]
    assert {hit["title"] for hit in hits} == {"three scenes"}
    assert sorted(round(hit["start"] / SCENE) for hit in hits) == [0, 2]


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        ("", "bad-query"),
        ("q=%20", "bad-query"),
        ("q=a&top=0", "bad-query"),
        ("q=a&top=many", "bad-query"),
        ("q=a&after=yesterday", "bad-query"),
        ("q=a&recorded_before=soon", "bad-query"),
        ("q=a&near=Amsterdam", "bad-query"),
        ("q=a&near=91,0,5", "bad-query"),
        ("q=a&in=sound", "bad-query"),
        ("q=a&after=0001", "bad-query"),
        ("q=a&min_duration=nan", "bad-query"),
        ("q=" + "a" * 1001, "bad-query"),
        ("query=../../etc/passwd", "bad-query"),
        ("query=" + "0" * 24, "unknown-query"),
    ],
)
def test_bad_queries_are_reported(client: httpx.Client, query: str, kind: str):
    assert problem(client.get(f"/api/search?{query}")) == kind


def test_an_image_finds_its_scene(client: httpx.Client, tmp_path: Path):
    content = save_picture(tmp_path / "second scene.png", SCENES[1]).read_bytes()
    answer = upload(client, content).json()
    best = answer["hits"][0]
    assert best["title"] == "three scenes"
    assert SCENE - 3.1 < best["start"] < SCENE + 3.1
    again = client.get("/api/search", params={"query": answer["query"], "name": "clip*"}).json()
    assert again["hits"]
    assert "three scenes" not in {hit["title"] for hit in again["hits"]}
    spans = client.get(f"/api/videos/{best['video_id']}", params={"query": answer["query"]}).json()["spans"]
    top = max(spans, key=lambda span: span["score"])
    assert SCENE - 0.1 <= top["start"] <= 2 * SCENE


def test_a_clip_finds_its_like_and_words_count_too(client: httpx.Client, tmp_path: Path):
    content = clip(tmp_path / "x.mp4", 4, seconds=3).read_bytes()
    plain, mixed = upload(client, content).json(), upload(client, content, q="a dog at night").json()
    assert plain["hits"][0]["title"] == "clip 4"
    assert plain["query"] != mixed["query"]


def test_images_and_clips_are_judged_as_such(client: httpx.Client, index: VideoIndex, tmp_path: Path):
    """Not against sentences, which any image beats; only an upload with words has a sentence to judge."""
    image, video = save_picture(tmp_path / "x.png", 99), clip(tmp_path / "x.mp4", 98)
    for path, named in ((image, {"image": image}), (video, {"video": video})):
        plain, mixed = upload(client, path.read_bytes()).json(), upload(client, path.read_bytes(), q="a dog").json()
        repeated = client.get("/api/search", params={"query": plain["query"]}).json()
        query = index.encode(**named)
        expected = index.search(query=query)
        assert expected.confidence != index.search(query=replace(query, has_text=True)).confidence, "no test otherwise"
        assert plain["confidence"] == repeated["confidence"] == pytest.approx(expected.confidence, abs=1e-4)
        assert plain["convincing"] == repeated["convincing"] == expected.convincing
        assert mixed["confidence"] == pytest.approx(index.search("a dog", **named).confidence, abs=1e-4)


def test_sentences_do_not_wait_for_a_clip_that_is_decoded(
    index: VideoIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path, open_container = clip(tmp_path / "x.mp4", 4), av.open
    decoding, gate = threading.Event(), threading.Event()

    def wait(*args: Any, **options: Any) -> object:
        decoding.set()
        assert gate.wait(120)
        return open_container(*args, **options)

    own = VideoIndex(index.folder)
    expected = own.encode(video=path).vector  # opens the model
    monkeypatch.setattr(av, "open", wait)
    with ThreadPoolExecutor(2) as pool:
        try:
            clip_query = pool.submit(own.encode, video=path)
            assert decoding.wait(60)
            # Several at once are encoded by the model itself, not by the text encoder beside it.
            assert pool.submit(own.encode_texts, ["a dog", "a cat"]).result(60).shape[0] == 2
        finally:
            gate.set()
        np.testing.assert_array_equal(clip_query.result(60).vector, expected)


def test_more_like_this_leaves_out_the_video_itself(client: httpx.Client, ids: dict[str, str]):
    for start in ("", "?start=13"):
        hits = client.get(f"/api/videos/{ids['three scenes']}/similar{start}").json()["hits"]
        assert hits
        assert ids["three scenes"] not in {hit["video_id"] for hit in hits}


def png(width: int, height: int) -> bytes:
    """The header of an image of this size, with too few pixels."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(100)))


def jpeg() -> bytes:
    target = io.BytesIO()
    Image.fromarray(picture(3)).save(target, "JPEG")
    return target.getvalue()


EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n(x) run\n"
PLAYLIST = b"#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n"


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"", "wrong-type"),
        (b"hello", "wrong-type"),
        (EPS, "wrong-type"),
        (PLAYLIST, "wrong-type"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "wrong-type"),
        (jpeg()[:200], "wrong-type"),
        (png(60_000, 60_000), "too-large"),
        (png(1500, 1000), "too-large"),
        (png(500, 1000), "wrong-type"),
        (b"\x00" * 3_000_000, "too-large"),
    ],
)
def test_uploads_that_are_refused(client: httpx.Client, content: bytes, kind: str):
    assert problem(upload(client, content, "holiday.jpg")) == kind


def test_a_clip_that_is_too_long_is_refused(client: httpx.Client, tmp_path: Path):
    content = clip(tmp_path / "x.mp4", 4, seconds=90, rate=1).read_bytes()
    answer = upload(client, content)
    assert problem(answer) == "too-large"
    assert "60 seconds" in answer.json()["detail"]


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    suffix=st.sampled_from([".mp4", ".mkv", ".avi", ".ts", ".y4m"]),
    cuts=st.lists(st.tuples(st.floats(0, 1), st.binary(min_size=1, max_size=8)), min_size=1, max_size=12),
    length=st.floats(0.2, 1),
)
def test_damaged_clips_are_the_senders_fault(
    client: httpx.Client, base: Path, suffix: str, cuts: list[tuple[float, bytes]], length: float
):
    path = base / f"to damage{suffix}"
    if not path.exists():
        codec = {".avi": "mpeg4", ".y4m": "wrapped_avframe"}.get(suffix, "libx264")
        make_clip(path, codec=codec, frames=8, rate=4, picture=picture(7))
    content = bytearray(path.read_bytes())
    for place, change in cuts:
        at = round(place * (len(content) - len(change)))
        content[at : at + len(change)] = change
    answer = upload(client, bytes(content[: round(length * len(content))]), "clip")
    assert answer.status_code in (200, 413, 415, 422), answer.text


def test_an_error_of_ffmpeg_is_the_senders_fault_too(
    client: httpx.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Some damaged files make FFmpeg ask for more memory than there is."""

    def fail(*_: object, **__: object) -> None:
        raise av.error.MemoryError(12, "Cannot allocate memory", "upload")

    monkeypatch.setattr("centerclip.video.probe", fail)
    answer = upload(client, clip(tmp_path / "x.mp4", 4).read_bytes())
    assert problem(answer) == "unreadable-video"
    assert "upload" not in answer.json()["detail"]


def test_forms_that_are_not_an_upload(client: httpx.Client):
    assert problem(client.post("/api/search", data={"q": "words"})) == "bad-query"
    assert (
        problem(client.post("/api/search", content=b"{}", headers={"content-type": "application/json"})) == "bad-query"
    )
    broken = {"content-type": "multipart/form-data; boundary=x"}
    assert problem(client.post("/api/search", content=b"--x\r\nno", headers=broken)) in ("bad-request", "bad-query")
    named = {"file": ("../../evil.png", jpeg(), "image/png")}
    assert client.post("/api/search", files=named).status_code == 200


def test_sentences_of_many_clients_are_encoded_together(running: Site):
    import asyncio

    from centerclip.server.workers import SentenceEncoder

    sizes: list[int] = []
    batches: list[int] = []

    def encode(sentences: list[str]) -> np.ndarray:
        sizes.append(len(sentences))
        if "bad" in sentences:
            raise ValueError("bad")
        return np.array([[len(sentence), 1] for sentence in sentences], np.float32)

    async def ask() -> list[object]:
        encoder = SentenceEncoder(encode, lambda: 0, batches.append)
        asked = ["x" * n for n in range(1, 20)] + ["bad", "x"]
        answers = await asyncio.gather(*map(encoder.vector, asked), return_exceptions=True)
        before = len(sizes)
        await encoder.vector("xx")
        assert len(sizes) == before, "a sentence is remembered"
        encoder.close()
        return list(answers)

    answers = asyncio.run(ask())
    assert [int(vector[0]) for vector in answers[:19]] == list(range(1, 20))
    assert isinstance(answers[19], ValueError), "one that fails does not fail the others"
    assert max(sizes) == 20
    assert sum(batches) == 19, "batches that were encoded are counted"
    with running.client() as client, ThreadPoolExecutor(8) as pool:
        statuses = list(pool.map(lambda n: client.get(f"/api/search?q=number+{n}").status_code, range(24)))
    assert statuses == [200] * 24


def test_metrics_for_prometheus(client: httpx.Client):
    client.get("/api/search?q=a")
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    samples = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }
    route, labels = ("route", "search"), (("method", "GET"), ("route", "search"), ("status", "200"))
    answered = samples["centerclip_requests_total", *labels]
    assert answered >= 1
    assert samples["centerclip_request_seconds_count", route] >= answered
    assert samples["centerclip_request_seconds_bucket", ("le", "+Inf"), route] >= answered
    assert samples["centerclip_index_videos",] == 7
    assert samples["centerclip_requests_in_flight",] >= 1
    for name in ("sentences_total", "sentence_batches_total", "index_segments", "uptime_seconds", "peak_memory_bytes"):
        assert samples[f"centerclip_{name}",] > 0
    for name in ("model_ready", "thumbnail_hits", "thumbnail_misses", "piece_hits", "piece_misses"):
        assert (f"centerclip_{name}",) in samples
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/readyz").json() == {"status": "ready"}


def test_status_counts_what_is_there(client: httpx.Client):
    status = client.get("/api/status").json()
    assert (status["videos"], status["unreadable"]) == (7, 1)
    assert status["failures"][0]["place"] == "Videos/old/broken.mp4"
    assert status["can_add_folders"] is False


def test_videos_come_in_pages(client: httpx.Client):
    first = client.get("/api/videos?limit=3").json()
    rest = client.get("/api/videos?limit=10&offset=3").json()
    titles = [video["title"] for video in first["videos"] + rest["videos"]]
    assert (first["total"], len(titles), len(set(titles))) == (7, 7, 7)
    longest = client.get("/api/videos?sort=duration&limit=1").json()["videos"][0]
    assert longest["title"] == "old"
    assert client.get("/api/videos?name=SCENES").json()["total"] == 1
    by_name = [video["title"] for video in client.get("/api/videos?sort=title").json()["videos"]]
    assert by_name == sorted(by_name)
    for filters, count in (("min_duration=30", 2), ("max_duration=30", 5), ("after=2001", 7), ("before=2001", 0)):
        assert client.get(f"/api/videos?{filters}").json()["total"] == count


def test_moments_become_a_timeline(client: httpx.Client, ids: dict[str, str], running: Site) -> None:
    """With full paths on this machine alone."""
    moments = [{"video_id": ids[title], "start": 1.0, "end": 2.0, "score": 0.3} for title in ("clip 2", "old")]
    wanted = {"format": "edl", "name": "a dog", "moments": moments}
    here = client.post("/api/timeline", json=wanted)
    assert (here.status_code, here.headers["x-left-out"]) == (200, "0")
    assert here.text.startswith("TITLE: a dog\nFCM: NON-DROP FRAME\n")
    assert f"* SOURCE FILE: {running.folder / 'trips' / 'sea' / 'clip 2.mp4'}" in here.text
    away = client.post("/api/timeline", json={**wanted, "format": "fcpxml"}, headers={"x-forwarded-for": "192.0.2.1"})
    assert 'src="file:///Videos/trips/sea/clip%202.mp4"' in away.text
    assert str(running.folder) not in away.text
    unknown = {**wanted, "moments": [{**moments[0], "video_id": "0" * 32}]}
    assert client.post("/api/timeline", json=unknown).status_code == 404
    assert client.post("/api/timeline", json={**wanted, "format": "mov"}).status_code == 422
    assert client.get("/api/status").json()["timelines"] == ["edl", "fcpxml", "otio", "xml"]
