"""One index and one server for all tests of a session; tests that change something make their own."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser

from centerclip import VideoIndex
from tests.server.browsing import chromium
from tests.server.site import Site, make_index, site


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("server")


@pytest.fixture(scope="session")
def index(base: Path) -> VideoIndex:
    return make_index(base)


@pytest.fixture(scope="session")
def running(base: Path, index: VideoIndex) -> Iterator[Site]:
    limits = {"upload_bytes": 2_000_000, "upload_pixels": 1_000_000, "upload_seconds": 60.0, "body_seconds": 3.0}
    with site(base, index, **limits) as made:
        yield made


@pytest.fixture
def client(running: Site) -> Iterator[httpx.Client]:
    with running.client() as made:
        yield made


@pytest.fixture(scope="session")
def ids(index: VideoIndex) -> dict[str, str]:
    """Title -> id."""
    return {entry.title: entry.video_id for entry in index.videos()}


@pytest.fixture(scope="module")  # not longer: Playwright keeps an event loop, which other tests need for themselves
def browser() -> Iterator[Browser]:
    with chromium() as made:
        yield made
