"""A real browser for the tests: the system's Chromium."""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
NOW = "(document.querySelector('.stage video')?.currentTime ?? -1)"


@contextmanager
def chromium() -> Iterator[Browser]:
    found = os.environ.get("CENTERCLIP_BROWSER") or next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.fail("the browser tests need Chromium: apt-get install chromium, or name one with CENTERCLIP_BROWSER")
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(
            executable_path=found,
            args=["--autoplay-policy=no-user-gesture-required", *(["--no-sandbox"] if root else [])],
        )
        yield made
        made.close()


@contextmanager
def opened(browser: Browser, address: str, **options: object) -> Iterator[Page]:
    """A page that fails the test when a script fails on it."""
    context = browser.new_context(viewport={"width": 1200, "height": 860}, **options)  # type: ignore[arg-type]
    page = context.new_page()
    page.set_default_timeout(20_000)
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda told: wrong.append(told.text) if "Content Security Policy" in told.text else None)
    page.goto(address)
    yield page
    context.close()
    assert not wrong


def until(page: Page, true: str) -> None:
    """Wait for an expression; Playwright's own way needs eval, which the page forbids."""
    deadline = time.monotonic() + 20
    while not page.evaluate(true):
        assert time.monotonic() < deadline, f"never: {true}"
        page.wait_for_timeout(50)
