"""A real browser for the tests: the system's Chromium."""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
TIMEOUT = 60  # seconds; a busy machine takes its time
NOW = "(document.querySelector('.stage video')?.currentTime ?? -1)"

# Where the player starts to play: later it is anywhere, since the video goes on while a test waits.
NOTE_PLAYBACK = """document.addEventListener("playing", (event) => {
    if (event.target.closest(".stage")) window.playedFrom ??= event.target.currentTime;
}, true)"""


@contextmanager
def chromium() -> Iterator[Browser]:
    executable = os.environ.get("CENTERCLIP_BROWSER") or next(filter(None, map(shutil.which, BROWSERS)), None)
    if executable is None:
        pytest.fail("the browser tests need Chromium: apt-get install chromium, or name one with CENTERCLIP_BROWSER")
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=executable,
            args=["--autoplay-policy=no-user-gesture-required", *(["--no-sandbox"] if root else [])],
        )
        yield browser
        browser.close()


@contextmanager
def opened(browser: Browser, address: str, **options: object) -> Iterator[Page]:
    """A page that fails the test when a script fails on it."""
    context = browser.new_context(viewport={"width": 1200, "height": 860}, **options)  # type: ignore[arg-type]
    page = context.new_page()
    page.set_default_timeout(TIMEOUT * 1000)
    page.add_init_script(NOTE_PLAYBACK)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda line: errors.append(line.text) if "Content Security Policy" in line.text else None)
    page.goto(address)
    yield page
    context.close()
    assert not errors


def until(page: Page, condition: str) -> None:
    """Wait for an expression; Playwright's own way needs eval, which the page forbids."""
    deadline = time.monotonic() + TIMEOUT
    while not page.evaluate(condition):
        assert time.monotonic() < deadline, f"never: {condition}"
        page.wait_for_timeout(50)
