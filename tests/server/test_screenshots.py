"""Screenshots of the page. CENTERCLIP_SCREENSHOTS=docs makes those of the documentation, with the bundled clips."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page

from centerclip import VideoIndex
from centerclip.bundled import demo_clips, demo_model
from centerclip.server import ServeSettings
from tests.server.browsing import NOW, opened, until
from tests.server.site import Site, serving

LOADED = "[...document.querySelectorAll('.front')].filter(i => i.getBoundingClientRect().top < innerHeight)"
LOADED += ".every(image => image.complete && image.naturalWidth > 0)"


@contextmanager
def shown(running: Site, tmp_path: Path, wanted: str | None) -> Iterator[tuple[str, str, Path]]:
    """The server's address, what to search for, and the folder for the screenshots."""
    if wanted is None:
        yield running.address, "a red boat", tmp_path
        return
    index = VideoIndex(tmp_path / "index", model=demo_model(), every=0.5)
    index.add(demo_clips())
    with serving(index, ServeSettings(cache=tmp_path / "cache")) as address:
        yield address, "a kite in a city", Path(wanted)


def screenshot(page: Page, path: Path) -> None:
    until(page, LOADED)
    page.mouse.move(2, 2)
    page.wait_for_timeout(300)
    page.screenshot(path=path)
    with Image.open(path) as taken:
        small = taken.convert("RGB").quantize(256)  # a quarter of the bytes, without a visible difference
        colours = taken.convert("RGB").resize((160, 120)).getcolors(160 * 120)
    small.save(path, optimize=True)
    assert colours
    assert len(colours) > 100, "the page is not empty"


def play_second(page: Page) -> None:
    page.locator("#hits .open").nth(1).click()
    page.wait_for_selector(".strip rect")
    start = page.evaluate(NOW)
    until(page, f"{NOW} > {start} + 0.8")
    page.evaluate("document.querySelector('.stage video').pause()")


def test_screenshots(browser: Browser, running: Site, tmp_path: Path):
    with shown(running, tmp_path, os.environ.get("CENTERCLIP_SCREENSHOTS")) as (address, query, folder):
        with opened(browser, address) as page:
            page.fill("#q", query)
            page.wait_for_url(re.compile("q="))
            page.wait_for_selector("#hits .card .score")
            screenshot(page, folder / "web-search.png")
            play_second(page)
            page.set_viewport_size({"width": 1200, "height": 1030})
            page.evaluate("scrollTo(0, 0)")
            screenshot(page, folder / "web.png")
        phone = {"color_scheme": "dark", "has_touch": True, "is_mobile": True, "device_scale_factor": 2}
        with opened(browser, f"{address}/?q={query}", **phone) as page:
            page.set_viewport_size({"width": 390, "height": 844})
            page.wait_for_selector("#hits .card .score")
            play_second(page)
            page.evaluate("scrollTo(0, 0)")
            screenshot(page, folder / "web-phone.png")
        with opened(browser, address, color_scheme="dark") as page:
            page.wait_for_selector("#hits .card")
            screenshot(page, folder / "web-dark.png")
