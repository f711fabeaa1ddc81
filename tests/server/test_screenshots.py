"""The pictures of the documentation can be made: `make pictures` does, over the bundled clips."""

from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Browser

from scripts.pictures import record, screenshots
from tests.server.site import Site


def test_screenshots(browser: Browser, running: Site, tmp_path: Path):
    screenshots(browser, running.address, "a red boat", tmp_path)
    paths = sorted(tmp_path.iterdir())
    assert [path.name for path in paths] == ["web-dark.webp", "web-phone.webp", "web.webp"]
    for path in paths:
        with Image.open(path) as taken:
            colours = taken.convert("RGB").resize((160, 120)).getcolors(160 * 120)
        assert colours
        assert len(colours) > 100, "the page is not empty"


def test_a_search_is_recorded(browser: Browser, running: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("scripts.pictures.PLAYED_SECONDS", 0.5)
    record(browser, running.address, tmp_path / "search.webp", ("boat", "sea"))
    with Image.open(tmp_path / "search.webp") as recording:
        assert recording.size == (800, 512)
        assert recording.n_frames > 10
