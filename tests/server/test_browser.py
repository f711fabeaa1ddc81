"""The page in a real browser: search, play from the right second, jump, keys, errors, phone."""

import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from centerclip import VideoIndex
from centerclip.server import ServeSettings
from tests.search.collection import clip
from tests.server.browsing import NOW, TIMEOUT, opened, until
from tests.server.site import PADDING, SCENE, SCENES, Site, save_picture, serving, site

PHONE = {"width": 390, "height": 844}
expect.set_options(timeout=TIMEOUT * 1000)


@pytest.fixture
def page(browser: Browser, running: Site) -> Iterator[Page]:
    with opened(browser, running.address) as made:
        yield made


def search_with_image(page: Page, tmp_path: Path, number: int) -> None:
    page.set_input_files("#file", str(save_picture(tmp_path / "holiday.png", number)))
    page.wait_for_url(re.compile("query="))
    expect(page.locator("#hits .card .title").first).to_have_text("three scenes")


def test_typing_searches_and_the_address_can_be_shared(page: Page, running: Site, browser: Browser):
    expect(page.locator("#hits .card")).to_have_count(7)
    expect(page.locator("#note")).to_contain_text("Newest")
    page.locator("#q").press_sequentially("a red boat", delay=20)
    page.wait_for_url(re.compile(r"q=a\+red\+boat"))
    page.wait_for_selector("#hits .card .score")
    with running.client() as client:
        answer = client.get("/api/search", params={"q": "a red boat", "top": 24}).json()
    expect(page.locator("#hits .card .title")).to_have_text([hit["title"] for hit in answer["hits"]])
    expect(page.locator("#hits .card .score").first).to_have_text(f"{answer['hits'][0]['score']:.2f}")
    expect(page.locator("#note")).to_contain_text("videos in" if answer["convincing"] else "No convincing match.")
    with opened(browser, page.url) as other:
        expect(other.locator("#q")).to_have_value("a red boat")
        expect(other.locator("#hits .card .title")).to_have_text([hit["title"] for hit in answer["hits"]])
    page.go_back()
    expect(page.locator("#q")).to_have_value("")


def test_an_image_finds_the_moment_and_it_plays_from_there(page: Page, tmp_path: Path):
    parts: list[str] = []
    page.on("response", lambda answer: parts.append(answer.headers.get("content-range", "")))
    search_with_image(page, tmp_path, SCENES[1])
    start = float(page.locator("#hits .card").first.get_attribute("data-start") or -1)
    assert abs(start - SCENE) < 3.1
    page.locator("#hits .open").first.click()
    until(page, "window.playedFrom !== undefined")
    assert start - 0.5 <= page.evaluate("window.playedFrom") < start + 3
    assert "v=" in page.url
    assert any(int(part.split()[1].split("-")[0]) > PADDING // 2 for part in parts if part), "it jumped in the file"
    assert page.locator(".strip rect").count() >= 9
    near = page.evaluate(
        "[...document.querySelectorAll('.strip rect:not(.far)')].map(r => Number(r.getAttribute('x')))"
    )
    assert near
    assert all(SCENE - 0.1 <= x < 2 * SCENE for x in near), "the strip is high in the middle scene only"
    box = page.locator(".strip").bounding_box()
    assert box
    page.mouse.click(box["x"] + box["width"] * 0.9, box["y"] + box["height"] / 2)  # the last scene
    until(page, f"{NOW} >= {2 * SCENE}")
    page.keyboard.press("Escape")
    expect(page.locator(".stage")).to_have_count(0)


def test_a_link_to_a_moment_opens_it(page: Page, browser: Browser, running: Site, ids: dict[str, str]):
    with opened(browser, f"{running.address}/?q=boat&v={ids['three scenes']}&t=20.0") as other:
        until(other, "window.playedFrom !== undefined")
        assert 19.5 <= other.evaluate("window.playedFrom") < 23
        expect(other.locator(".stage h2")).to_have_text("three scenes")
        other.locator(".more-alike").click()
        other.wait_for_url(re.compile("like="))
        expect(other.locator("#sample")).to_be_visible()
        expect(other.locator("#hits .card", has_text="three scenes")).to_have_count(0)
        expect(other.locator("#hits .card").first).to_be_visible()


def test_keys_are_enough(page: Page):
    expect(page.locator("#hits .card")).to_have_count(7)
    page.locator("#show-keys").focus()
    page.keyboard.press("/")
    expect(page.locator("#q")).to_be_focused()
    page.keyboard.type("boat")
    page.wait_for_selector("#hits .card .score")
    page.keyboard.press("ArrowDown")
    expect(page.locator("#hits .open").nth(0)).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#hits .open").nth(1)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".stage video")).to_be_focused()
    strip = page.locator(".strip")
    expect(strip.locator("rect").first).to_be_attached()
    strip.focus()
    page.keyboard.press("End")
    last = float(strip.get_attribute("aria-valuenow") or -1)
    assert last > 0
    assert "match" in (strip.get_attribute("aria-valuetext") or "")
    page.keyboard.press("Escape")
    expect(page.locator(".stage")).to_have_count(0)
    expect(page.locator("#hits .open").nth(1)).to_be_focused()
    page.keyboard.press("m")
    page.wait_for_url(re.compile("like="))


def test_a_codec_that_browsers_do_not_play_is_converted(page: Page):
    page.locator(".card", has=page.get_by_text("old", exact=True)).locator(".open").click()
    until(page, f"{NOW} > 0.2")
    assert "as=mp4" in page.evaluate("document.querySelector('.stage video').src")
    expect(page.locator(".stage .notes")).to_contain_text("mpeg4")
    page.locator(".strip").focus()
    page.keyboard.press("End")
    until(page, "document.querySelector('.stage video').src.includes('piece=1')")
    until(page, f"{NOW} > 0.2")


def test_hovering_shows_the_moment(page: Page, tmp_path: Path):
    search_with_image(page, tmp_path, SCENES[1])
    page.locator("#hits .open").first.hover()
    until(page, f"(document.querySelector('.card video')?.currentTime ?? 0) > {SCENE - 3.1}")
    page.locator("#q").hover()
    expect(page.locator(".card video")).to_have_count(0)


def test_filters_narrow(page: Page):
    page.locator("#toggle-filters").click()
    expect(page.locator("#folder option")).to_have_count(5)
    page.locator("#folder").select_option(label="Videos/trips/sea (5)")
    expect(page.locator("#hits .card")).to_have_count(5)
    page.fill("#name", "no such name")
    expect(page.locator("#note")).to_contain_text("Nothing found.")
    expect(page.locator("#filter-count")).to_have_text("2")
    page.locator("#clear-filters").click()
    expect(page.locator("#hits .card")).to_have_count(7)


def test_a_file_that_is_not_an_image_is_reported(page: Page, tmp_path: Path):
    wrong = tmp_path / "wrong.png"
    wrong.write_bytes(b"this is not an image")
    page.set_input_files("#file", str(wrong))
    expect(page.locator("#note")).to_contain_text("Not an image or a video")
    large = tmp_path / "large.png"
    large.write_bytes(bytes(3_000_000))
    page.set_input_files("#file", str(large))
    expect(page.locator("#note")).to_contain_text("too large")


def test_everything_has_a_name(page: Page):
    """What a screen reader needs: names, one heading of the first level, a language, and words where things change."""
    page.fill("#q", "boat")
    page.wait_for_selector("#hits .card .score")
    page.locator("#hits .open").first.click()
    unnamed = page.evaluate("""() => [...document.querySelectorAll('button, input, select, a, [role=slider]')]
        .filter(e => e.offsetParent && !(e.ariaLabel || e.textContent.trim() || e.labels?.length || e.title)).length""")
    assert unnamed == 0
    assert page.evaluate("[...document.images].every(image => image.hasAttribute('alt'))")
    assert page.locator("h1").count() == 1
    assert page.locator("html").get_attribute("lang") == "en"
    assert page.locator("[aria-live=polite]").count() == 1


def test_phone(browser: Browser, running: Site):
    with opened(browser, running.address, color_scheme="dark", has_touch=True, is_mobile=True) as page:
        page.set_viewport_size(PHONE)
        page.fill("#q", "boat")
        page.wait_for_selector("#hits .card .score")
        page.locator("#hits .open").first.tap()
        page.wait_for_selector(".strip rect")
        page.locator("#toggle-filters").tap()
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        small = page.evaluate("""() => [...document.querySelectorAll('button, select')].filter(e => e.offsetParent)
            .filter(e => e.getBoundingClientRect().height < 24).map(e => e.outerHTML)""")
        assert not small


def test_missing_files_a_server_that_is_gone_and_no_index(
    browser: Browser, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    clip(tmp_path / "Videos" / "gone.mp4", 1)
    index = VideoIndex(tmp_path / "index", model=base / "model")
    add, bar_seen = index.add, threading.Event()
    monkeypatch.setattr(index, "add", lambda *paths, **options: bar_seen.wait(TIMEOUT) and add(*paths, **options))
    settings = ServeSettings(cache=tmp_path / "cache", folders=tmp_path)
    context = browser.new_context()
    page = context.new_page()
    page.set_default_timeout(TIMEOUT * 1000)
    with serving(index, settings) as address:
        page.goto(address)
        expect(page.locator("#note")).to_contain_text("There are no videos yet.")
        page.locator("#add-folder").click()
        page.fill("#folder-path", "../../etc")
        page.keyboard.press("Enter")
        expect(page.locator("#folder-wrong")).to_contain_text("There is no such folder")
        page.fill("#folder-path", "Videos")
        page.keyboard.press("Enter")
        expect(page.locator("#indexing")).to_be_visible()
        bar_seen.set()
        expect(page.locator("#hits .card")).to_have_count(1)
        (tmp_path / "Videos" / "gone.mp4").unlink()
        page.locator("#hits .open").click()
        expect(page.locator(".stage .message")).to_contain_text("The file is missing.")
        page.keyboard.press("Escape")
    expect(page.locator("#offline")).to_be_visible()
    expect(page.locator("#hits .card")).to_have_count(1)
    context.close()


def test_the_token_is_asked_for(browser: Browser, base: Path, index: VideoIndex):
    with site(base, index, token="correct horse") as made:
        with opened(browser, made.address) as page:
            page.fill("#token", "wrong")
            page.keyboard.press("Enter")
            expect(page.locator("#token-wrong")).to_contain_text("Wrong token")
            page.fill("#token", "correct horse")
            page.keyboard.press("Enter")
            expect(page.locator("#hits .card")).to_have_count(7)
            until(page, "[...document.querySelectorAll('.front')].some(image => image.naturalWidth > 0)")
        with opened(browser, f"{made.address}/#token=correct%20horse") as page:
            expect(page.locator("#hits .card")).to_have_count(7)
            assert "token" not in page.url
