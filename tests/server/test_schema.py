"""Requests that match the OpenAPI document are answered as it says, and the others are refused as it says."""

from pathlib import Path

import httpx
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

from centerclip import VideoIndex
from centerclip.server import create_app
from tests.server.site import Site

EXCLUDED = "/api/v1/(login|folders)"  # POST: they change something


schema = schemathesis.openapi.from_dict(create_app(VideoIndex(Path("nowhere"))).openapi())


@schema.exclude(method="POST", path_regex=EXCLUDED).parametrize()
@settings(
    max_examples=12,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
    derandomize=True,
)
def test_answers_are_as_the_document_says(case: schemathesis.Case, running: Site):
    # A string may not be a date, and random bytes are not an image: there, refusing is right.
    may_refuse = [positive_data_acceptance] if case.path.endswith("/search") else []
    case.call_and_validate(base_url=running.address, timeout=30, excluded_checks=may_refuse)


def test_every_route_is_documented_with_an_example(client: httpx.Client):
    document = client.get("/api/openapi.json").json()
    wanted = {
        "/search": {"get", "post"},
        "/videos": {"get"},
        "/videos/{video_id}": {"get"},
        "/videos/{video_id}/similar": {"get"},
        "/videos/{video_id}/frames/{time}.jpg": {"get"},
        "/videos/{video_id}/stream": {"get"},
        "/status": {"get"},
        "/health": {"get"},
        "/metrics": {"get"},
        "/folders": {"get", "post"},
        "/login": {"post"},
    }
    assert {path.removeprefix("/api/v1"): set(methods) for path, methods in document["paths"].items()} == wanted
    for methods in document["paths"].values():
        for facts in methods.values():
            assert facts["summary"]
            assert facts["description"]
            for parameter in facts.get("parameters", []):
                assert parameter.get("description") or parameter["schema"].get("enum"), parameter["name"]
    for name in ("SearchHit", "Video", "ServerStatus", "ProblemDetails", "SearchResults"):
        parts = document["components"]["schemas"][name]["properties"]
        plain = {part: facts for part, facts in parts.items() if facts.get("type") in ("string", "integer", "number")}
        assert all(facts.get("examples") for facts in plain.values()), name
