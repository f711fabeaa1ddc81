"""The pictures of the page in docs/: PYTHONPATH=. python scripts/pictures.py [-o docs] (make pictures)

A real search: the bundled clips are indexed with the small model and served, the system's Chromium types and clicks.
Screenshots go into ``web*.webp``, the recording into ``search.webp``. Typing and playing are stepped, not filmed, so
that the recording does not depend on how fast the machine is.
"""

import argparse
import io
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page

from centerclip import VideoIndex
from centerclip.bundled import SMALL, film_clips
from centerclip.server import ServeSettings
from tests.server.browsing import NOW, chromium, opened, until
from tests.server.site import serving

QUERIES = ("a polar bear walks on snow", "a cup of coffee on a table", "a football match")  # the last is in no clip
SCREENSHOT_QUERY = "a cat"
LOADED = "[...document.querySelectorAll('.front')].filter(i => i.getBoundingClientRect().top < innerHeight)"
LOADED += ".every(image => image.complete && image.naturalWidth > 0)"
VIDEO = "document.querySelector('.stage video')"

SIZE = (1000, 640)  # of the recorded page, in pixels
SCALE = 0.8  # of the recording
KEYS = 2  # pressed between two frames
TYPING_MS, PLAYING_MS, LOOKING_MS, READING_MS = 120, 125, 1400, 2200
PLAYED_SECONDS = 2.5
QUALITY = {"quality": 62, "method": 6, "minimize_size": True, "loop": 0}
MAX_BYTES = 2_000_000  # of the recording: a page should not take longer to load


@contextmanager
def film_site() -> Iterator[str]:
    """A server over the bundled clips; its address."""
    with tempfile.TemporaryDirectory() as scratch:
        index = VideoIndex(Path(scratch, "index"), model=SMALL)
        index.add(film_clips())
        with serving(index, ServeSettings(cache=Path(scratch, "cache"))) as address:
            yield address
        index.close()


def screenshots(browser: Browser, address: str, query: str, folder: Path) -> None:
    """The page with a hit playing, on a phone in the dark, and its first view in the dark."""
    with opened(browser, address) as page:
        search(page, query)
        play(page)
        page.set_viewport_size({"width": 1200, "height": 1030})
        page.evaluate("scrollTo(0, 0)")
        screenshot(page, folder / "web.webp")
    phone = {"color_scheme": "dark", "has_touch": True, "is_mobile": True, "device_scale_factor": 2}
    with opened(browser, f"{address}/?q={query}", **phone) as page:
        page.set_viewport_size({"width": 390, "height": 844})
        page.wait_for_selector("#hits .card .score")
        play(page)
        page.evaluate("scrollTo(0, 0)")
        screenshot(page, folder / "web-phone.webp")
    with opened(browser, address, color_scheme="dark") as page:
        page.wait_for_selector("#hits .card")
        screenshot(page, folder / "web-dark.webp")


def search(page: Page, query: str) -> None:
    """Type a sentence, and wait for its hits."""
    page.fill("#q", query)
    page.wait_for_url(re.compile(re.escape(query).replace(r"\ ", r"(\+|%20)")))
    page.wait_for_selector("#hits[aria-busy=false] .card .score")


def play(page: Page) -> None:
    """Play the first hit for a moment."""
    page.locator("#hits .open").first.click()
    page.wait_for_selector(".strip rect")
    start = page.evaluate(NOW)
    until(page, f"{NOW} > {start} + 0.8")
    page.evaluate(f"{VIDEO}.pause()")


def screenshot(page: Page, path: Path) -> None:
    """Save what the page shows."""
    until(page, LOADED)
    page.mouse.move(2, 2)
    page.wait_for_timeout(300)
    with Image.open(io.BytesIO(page.screenshot())) as taken:
        taken.convert("RGB").save(path, quality=85, method=6)


class Recording:
    """Frames of a page with the time that each is shown."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.frames: list[Image.Image] = []
        self.durations: list[int] = []

    def take(self, milliseconds: int) -> None:
        """Add what the page shows."""
        with Image.open(io.BytesIO(self.page.screenshot())) as taken:
            size = (round(taken.width * SCALE), round(taken.height * SCALE))
            self.frames.append(taken.convert("RGB").resize(size, Image.Resampling.LANCZOS))
        self.durations.append(milliseconds)

    def type(self, query: str) -> None:
        """Type a sentence, wait for its hits, and look at them."""
        self.page.focus("#q")
        for end in range(KEYS, len(query) + KEYS, KEYS):  # without events: nothing is searched for before the end
            self.page.evaluate("text => { document.getElementById('q').value = text }", query[:end])
            self.take(TYPING_MS)
        search(self.page, query)
        until(self.page, LOADED)
        self.page.wait_for_timeout(300)
        self.take(LOOKING_MS)

    def play(self) -> None:
        """Open the first hit and step through its moment."""
        self.page.locator("#hits .open").first.click()
        self.page.wait_for_selector(".strip rect")
        until(self.page, f"{VIDEO}.readyState >= 2 && {NOW} >= 0")
        self.page.evaluate(f"{VIDEO}.pause()")
        self.page.evaluate(f"{VIDEO}.controls = false")  # they fade in and out by a clock of their own
        self.page.evaluate("document.querySelector('.stage').scrollIntoView({block: 'end', behavior: 'instant'})")
        self.page.mouse.move(2, 2)
        start = float(self.page.evaluate("document.querySelector('.card.playing').dataset.start"))
        for step in range(round(1000 * PLAYED_SECONDS / PLAYING_MS)):
            self.page.evaluate(f"{VIDEO}.currentTime = {start + step * PLAYING_MS / 1000}")
            until(self.page, f"!{VIDEO}.seeking")
            self.take(PLAYING_MS)
        self.durations[-1] = LOOKING_MS
        self.page.keyboard.press("Escape")

    def save(self, path: Path) -> None:
        """Write the recording as an animated WebP."""
        self.frames[0].save(path, save_all=True, append_images=self.frames[1:], duration=self.durations, **QUALITY)
        assert path.stat().st_size <= MAX_BYTES, f"{path} has {path.stat().st_size:,} bytes"


def record(browser: Browser, address: str, path: Path, queries: tuple[str, ...] = QUERIES) -> None:
    """The first view, searches with a moment of each, and a last one that is only looked at."""
    with opened(browser, address) as page:
        page.set_viewport_size({"width": SIZE[0], "height": SIZE[1]})
        page.wait_for_selector("#hits .card")
        until(page, LOADED)
        page.wait_for_timeout(300)
        recording = Recording(page)
        recording.take(LOOKING_MS)
        for query in queries:
            recording.type(query)
            if query != queries[-1]:
                recording.play()
        recording.durations[-1] = READING_MS
        recording.save(path)


def main() -> None:
    """Make them all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", "-o", type=Path, default=Path(__file__).resolve().parent.parent / "docs")
    args = parser.parse_args()
    with film_site() as address, chromium() as browser:
        screenshots(browser, address, SCREENSHOT_QUERY, args.output)
        record(browser, address, args.output / "search.webp")
    for path in sorted(args.output.glob("*.webp")):
        print(f"{path.name:16} {path.stat().st_size:>9,} bytes")


if __name__ == "__main__":
    main()
