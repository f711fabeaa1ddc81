"""Requests that match the OpenAPI document are answered as it says, and the others are refused as it says."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from schemathesis.specs.openapi.checks import positive_data_acceptance

from centerclip import VideoIndex
from centerclip.search.text import marks_in
from centerclip.server import create_app
from tests.server.site import Site, site

TOKEN = "correct horse battery"
KNOWN = {"authorization": f"Bearer {TOKEN}"}
EXCLUDED = "/api/v1/(login|folders|videos)"  # POST and DELETE: they change something


@pytest.fixture(scope="module")
def guarded(base: Path, index: VideoIndex) -> Iterator[Site]:
    with site(base, index, token=TOKEN) as made:
        yield made


schema = schemathesis.openapi.from_dict(create_app(VideoIndex(Path("nowhere"))).openapi())


@schema.exclude(method=["POST", "DELETE"], path_regex=EXCLUDED).parametrize()
@settings(
    max_examples=12,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
    derandomize=True,
)
def test_answers_are_as_the_document_says(case: schemathesis.Case, guarded: Site):
    # A string may not be a date, and random bytes are not an image: there, refusing is right.
    may_refuse = [positive_data_acceptance] if case.path.endswith(("/search", "/videos")) else []
    case.call_and_validate(base_url=guarded.address, headers=KNOWN, timeout=30, excluded_checks=may_refuse)


def test_every_route_is_documented_with_an_example(client: httpx.Client):
    document = client.get("/api/openapi.json").json()
    wanted = {
        "/search": {"get", "post"},
        "/videos": {"get"},
        "/videos/{video_id}": {"get", "delete"},
        "/videos/{video_id}/clip.mp4": {"get"},
        "/videos/{video_id}/reveal": {"post"},
        "/videos/{video_id}/sharpen": {"post"},
        "/videos/{video_id}/similar": {"get"},
        "/videos/{video_id}/frames/{time}.jpg": {"get"},
        "/videos/{video_id}/stream": {"get"},
        "/timeline": {"post"},
        "/status": {"get"},
        "/health": {"get"},
        "/ready": {"get"},
        "/metrics": {"get"},
        "/folders": {"get", "post"},
        "/available-folders": {"get"},
        "/folders/{folder_id}": {"delete"},
        "/login": {"post"},
    }
    assert {path.removeprefix("/api/v1"): set(methods) for path, methods in document["paths"].items()} == wanted
    for methods in document["paths"].values():
        for facts in methods.values():
            assert facts["summary"]
            assert facts["description"]
            for parameter in facts.get("parameters", []):
                assert parameter.get("description"), parameter["name"]
                assert parameter["schema"].get("examples") or parameter.get("example"), parameter["name"]
    for name in ("SearchHit", "Video", "ServerStatus", "ProblemDetails", "SearchResults"):
        parts = document["components"]["schemas"][name]["properties"]
        plain = {part: facts for part, facts in parts.items() if facts.get("type") in ("string", "integer", "number")}
        assert all(facts.get("examples") for facts in plain.values()), name


def test_bodies_that_are_no_text_are_refused_as_the_document_says(client: httpx.Client):
    paths = client.get("/api/openapi.json").json()["paths"]
    with_body = {path: facts["post"] for path, facts in paths.items() if "requestBody" in facts.get("post", {})}
    assert len(with_body) == 4
    for path, facts in with_body.items():
        kind = next(iter(facts["requestBody"]["content"]))
        answer = client.post(path, content=b'"\xff"', headers={"content-type": kind})
        assert answer.status_code in (400, 403), path
        assert answer.headers["content-type"] == "application/problem+json"
        assert {"400", "408", "413"} <= facts["responses"].keys(), path


def test_sequences_of_requests_are_answered_too(guarded: Site):
    """What one answer names is asked for by the next request, as far as the document shows how they belong together."""
    asked: set[str] = set()

    class Sequences(schema.as_state_machine()):  # type: ignore[misc]
        def get_call_kwargs(self, case: schemathesis.Case) -> dict[str, object]:
            asked.add(f"{case.method} {case.path}")
            return {"base_url": guarded.address, "headers": KNOWN}

        def validate_response(self, response: object, case: schemathesis.Case, **_: object) -> None:
            assert response.status_code < 500 or response.status_code == 503, case  # type: ignore[attr-defined]

    options = settings(max_examples=6, stateful_step_count=6, deadline=None, derandomize=True, phases=[Phase.generate])
    run_state_machine_as_test(Sequences, settings=settings(options, suppress_health_check=list(HealthCheck)))
    assert len(asked) > 3


def test_operations_have_readable_names_and_say_what_they_require(client: httpx.Client, guarded: Site):
    documents = client.get("/api/openapi.json").json(), guarded.client(headers=KNOWN).get("/api/openapi.json").json()
    names = set()
    for path, methods in documents[1]["paths"].items():
        for method, facts in methods.items():
            names.add(facts["operationId"])
            required, optional = facts.get("security", []), documents[0]["paths"][path][method].get("security", [])
            if path in ("/api/v1/login", "/api/v1/health", "/api/v1/ready"):
                assert required == optional == []
            else:
                assert required == [{"token": []}, {"cookie": []}]
                assert optional == [*required, {}], "a server without a token requires none"
                assert "application/problem+json" in facts["responses"]["401"]["content"]
    assert {"search", "search_by_example", "list_videos", "get_video", "remove_video", "get_status"} <= names
    schemes = documents[1]["components"]["securitySchemes"]
    assert (schemes["token"]["scheme"], schemes["cookie"]["name"]) == ("bearer", "centerclip")


def test_head_answers_wherever_get_does(client: httpx.Client, ids: dict[str, str]):
    some = ids["three scenes"]
    for path in (
        "search?q=a", "videos", f"videos/{some}", f"videos/{some}/similar", f"videos/{some}/frames/3.0.jpg",
        f"videos/{some}/stream", f"videos/{some}/clip.mp4?start=1&seconds=2", "status", "folders", "health",
        "openapi.json",
    ):  # fmt: skip
        head, get = client.head(f"/api/{path}"), client.get(f"/api/{path}")
        assert (head.status_code, head.content) == (200, b""), path
        assert head.headers["content-type"] == get.headers["content-type"]
    assert client.head("/api/videos/" + "0" * 32).status_code == 404
    assert client.post("/api/status").headers["allow"] == "GET, HEAD"


@pytest.mark.parametrize(
    ("text", "query", "marked"),
    [
        ("Two bridges of Paris", "the bridge in paris", ["bridges", "Paris"]),
        ("Cafe\u0301 noir, we can't stop", 'café "can\'t stop"', ["Cafe\u0301", "can't stop"]),
        ("日本語の字幕です", "字幕", ["字幕"]),
        ("😀 zeppelins over <b>x</b>", "zep*", ["zeppelins"]),
        ("nothing of it", "dog", []),
    ],
)
def test_words_of_a_query_are_marked_where_they_stand(text: str, query: str, marked: list[str]):
    assert [text[first:last] for first, last in marks_in(text, query)] == marked
