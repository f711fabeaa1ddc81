"""The page in a real browser: search, play from the right second, jump, keys, errors, phone."""

import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, Route, expect

from centerclip import VideoIndex
from centerclip.server import ServeSettings, video_routes
from centerclip.video import probe
from tests.search.collection import clip, moving
from tests.server.browsing import NOW, TIMEOUT, opened, until
from tests.server.site import PADDING, SAID, SCENE, SCENES, TITLE, Site, save_picture, serving, site, with_sound

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
    expect(page.locator("#note")).to_contain_text("7 videos.")
    page.locator("#q").press_sequentially("a red boat", delay=20)
    page.wait_for_url(re.compile(r"q=a\+red\+boat"))
    page.wait_for_selector("#hits .card .score")
    with running.client() as client:
        answer = client.get("/api/search", params={"q": "a red boat", "top": 24}).json()
    expect(page.locator("#hits .card .title")).to_have_text([hit["title"] for hit in answer["hits"]])
    expect(page.locator("#hits .card .score").first).to_contain_text(f"{answer['hits'][0]['score']:.2f}")
    expect(page.locator("#note")).to_contain_text(
        "videos in" if answer["convincing"] else "Probably none of these matches."
    )
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


@pytest.mark.usefixtures("index")  # makes the model
def test_a_moment_that_is_looked_at_becomes_sharper(browser: Browser, base: Path, tmp_path: Path):
    moving(tmp_path / "Videos" / "film.mp4", 1, seconds=60)
    index = VideoIndex(tmp_path / "index", model=base / "model")
    index.add(tmp_path / "Videos", detail="fast")
    (entry,) = index.videos()
    coarse = index.segments(entry.video_id)
    assert len(coarse) < 5
    with site(tmp_path, index, sharpen=False) as made, opened(browser, f"{made.address}/?q=boat") as page:
        page.locator("#hits .open").click()
        expect(page.locator(".strip rect")).to_have_count(len(coarse))
        with made.client() as client:
            answer = client.post(f"/api/videos/{entry.video_id}/sharpen", params={"start": 0, "end": 60})
            assert answer.status_code == 403
            assert client.get("/api/status").json()["can_sharpen"] is False
    assert index.segments(entry.video_id) == coarse
    with site(tmp_path, index) as made, opened(browser, f"{made.address}/?q=boat") as page:
        page.locator("#hits .open").click()
        until(page, "document.querySelectorAll('.strip rect').length >= 20")  # of three seconds each
        sharp = index.segments(entry.video_id)
        expect(page.locator(".strip rect")).to_have_count(len(sharp))
        best = index.moments(entry.video_id, index.encode("boat"))[0]
        expect(page.locator(".moments .chip").first).to_contain_text(
            f"{best.start // 60:.0f}:{int(best.start % 60):02}"
        )
        page.keyboard.press("Escape")
        page.locator("#hits .open").click()  # it is fine already
        expect(page.locator(".strip rect")).to_have_count(len(sharp))
    assert index.segments(entry.video_id) == sharp


def test_sharpening_keeps_the_chosen_moment_and_the_focus(browser: Browser, running: Site, ids: dict[str, str]):
    def with_two_moments(route: Route) -> None:
        answer = route.fetch().json()
        for hit in answer["hits"]:
            hit["moments"] = [{**hit["moments"][0], "start": start, "end": start + 6} for start in (12.0, 0.0)]
        route.fulfill(json=answer)

    waiting: list[Route] = []
    with running.client() as client, opened(browser, running.address) as page:
        detail = client.get(f"/api/videos/{ids['three scenes']}?q=boat").json()
        page.route(re.compile(r"/search\?"), with_two_moments)
        page.route(re.compile(r"/sharpen\?"), lambda route: waiting.append(route))
        page.goto(f"{running.address}/?q=boat")
        page.locator("#hits .card", has_text="three scenes").locator(".open").click()
        chips, strip = page.locator(".moments .chip"), page.locator(".strip rect")
        expect(strip).to_have_count(len(detail["spans"]))
        expect(chips).to_have_text([re.compile("^0:12"), re.compile("^0:00")])
        chips.nth(1).focus()
        page.keyboard.press("Enter")
        while not waiting:
            page.wait_for_timeout(50)
        moment = detail["moments"][0]
        sharp = [{**moment, "start": start, "end": end} for start, end in ((0.0, 5.0), (13.0, 18.0))]
        waiting[0].fulfill(json={**detail, "spans": [*detail["spans"], detail["spans"][-1]], "moments": sharp})
        expect(strip).to_have_count(len(detail["spans"]) + 1)
        expect(chips).to_have_text([re.compile("^0:00.*0:05"), re.compile("^0:13")])
        expect(chips.nth(0)).to_be_focused()
        assert "start=0.00&seconds=5.00" in (page.locator(".stage .save").get_attribute("href") or "")


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


@pytest.mark.parametrize("codec", ["mpeg4", "libx265"])
def test_a_picture_that_stays_black_is_converted(browser: Browser, base: Path, tmp_path: Path, codec: str):
    """Chromium plays the sound of such a file and reports no error."""
    with_sound(tmp_path / "Videos" / "loud.mp4", codec)
    index = VideoIndex(tmp_path / "index", model=base / "model")
    index.add(tmp_path / "Videos")
    with site(tmp_path, index) as made, opened(browser, made.address) as page:
        # The decision does not wait for the details.
        page.route(re.compile("/api/v1/videos/[0-9a-f]{32}$"), lambda route: route.fulfill(status=503, json={}))
        page.locator("#hits .open").click()
        until(page, "document.querySelector('.stage video')?.videoWidth > 0")
        assert "as=mp4" in page.evaluate("document.querySelector('.stage video').src")


def test_a_sound_that_browsers_do_not_play_is_converted(browser: Browser, base: Path, tmp_path: Path):
    """Chromium plays such a file without its sound."""
    with_sound(tmp_path / "Videos" / "surround.mkv", "libx264", audio="ac3")
    index = VideoIndex(tmp_path / "index", model=base / "model")
    index.add(tmp_path / "Videos")
    with site(tmp_path, index) as made, opened(browser, made.address) as page:
        page.locator("#hits .open").click()
        until(page, f"{NOW} > 0.2 && document.querySelector('.stage video').webkitAudioDecodedByteCount > 0")


def test_escape_closes_the_player_from_its_controls(page: Page):
    page.locator(".card", has=page.get_by_text("three scenes", exact=True)).locator(".open").click()
    until(page, f"{NOW} > 0")
    page.locator(".stage video").focus()
    page.keyboard.press("Tab")  # into the browser's own controls, which keep their key events to themselves
    until(page, "!document.querySelector('.stage video').matches(':focus')")
    assert page.evaluate("document.activeElement.tagName") == "VIDEO"
    page.keyboard.press("Escape")
    expect(page.locator(".stage")).to_have_count(0)
    expect(page.locator(".card .open:focus")).to_contain_text("three scenes")


def test_what_is_said_is_shown_and_played_from_there(page: Page, browser: Browser):
    looking = page.locator("#looking")
    expect(looking).to_be_hidden()
    page.fill("#q", "lighthouse calais")
    best = page.locator("#hits .card").first
    expect(best.locator(".line")).to_have_text(f"said at 0:20: {SAID}")
    expect(best.locator("mark")).to_have_text(["lighthouses", "Calais"])
    expect(best.locator(".score")).to_have_text("said")
    best.locator(".open").click()
    until(page, "window.playedFrom !== undefined")
    assert 20 <= page.evaluate("window.playedFrom") < 23.5
    expect(page.locator(".stage p.line mark").first).to_have_text("lighthouses")
    expect(looking).to_be_visible()
    page.locator("#in").select_option(label="what is shown")
    page.wait_for_url(re.compile("in=video"))
    expect(page.locator("#hits .line:visible")).to_have_count(0)
    expect(page.locator("#hits .card").first).to_be_visible()
    page.fill("#q", "tulips")
    page.locator("#in").select_option(label="what is said or written")
    page.wait_for_url(re.compile("in=text"))
    expect(page.locator("#hits .line")).to_have_text([f"title: {TITLE}"])  # as it stands, not as HTML
    assert page.title() == "tulips · CenterCLIP"
    with opened(browser, page.url) as other:
        expect(other.locator("#hits .line mark")).to_have_text("tulips")
        expect(other.locator("#in")).to_have_value("text")
    page.fill("#q", "zeppelin")
    expect(page.locator("#note")).to_contain_text("Nothing found.")


def test_a_disk_that_is_not_connected_offers_no_player(browser: Browser, base: Path, tmp_path: Path):
    clip(tmp_path / "Videos" / "far.mp4", 1)
    index = VideoIndex(tmp_path / "index", model=base / "model")
    index.add(tmp_path / "Videos")
    with site(tmp_path, index) as made, opened(browser, made.address, color_scheme="dark") as page:
        until(page, "[...document.querySelectorAll('.front')].some(image => image.naturalWidth > 0)")
        (tmp_path / "Videos").rename(tmp_path / "elsewhere")
        expect(page.locator("#figures")).to_contain_text("1 offline")
        page.reload()
        expect(page.locator("#hits .place")).to_contain_text("disk not connected")
        until(page, "[...document.querySelectorAll('.front')].some(image => image.naturalWidth > 0)")
        page.locator("#hits .open").click()
        expect(page.locator(".stage .message")).to_contain_text("The disk with this file is not connected.")
        expect(page.locator(".strip rect").first).to_be_attached()
        expect(page.locator(".stage video, .stage .save")).to_have_count(2)
        expect(page.locator(".stage video:visible, .stage .save:visible")).to_have_count(0)
        assert not complaints(page)


def test_hits_behind_the_cut_are_less_likely(page: Page):
    def cut(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, json={**answer.json(), "convincing": True, "likely": 2})

    page.route("**/api/v1/search*", cut)
    page.fill("#q", "boat")
    expect(page.locator("#hits .cut")).to_have_text("Less likely")
    kinds = page.evaluate("[...document.querySelectorAll('#hits > li')].map(item => item.className)")
    assert kinds[:3] == ["card", "card", "cut"]
    assert set(kinds[3:]) == {"card unlikely"}
    page.locator("#hits .open").nth(2).click()  # the divider is no hit
    expect(page.locator(".stage h2")).to_have_text(page.locator("#hits .card .title").nth(2).inner_text())
    page.reload()
    expect(page.locator("#hits .card.playing .title")).to_have_text(
        page.locator("#hits .card .title").nth(2).inner_text()
    )
    tops = page.evaluate("[...document.querySelectorAll('.card.unlikely, .cut')].map(item => item.offsetTop)")
    assert min(tops) == page.evaluate("document.querySelector('.cut').offsetTop")


def test_an_error_leaves_nothing_of_the_list(page: Page):
    page.evaluate("document.getElementById('more').hidden = false")  # as after a search with more hits than shown
    page.route("**/api/v1/search*", lambda route: route.fulfill(status=500, json={"title": "Trouble"}))
    page.fill("#q", "boat")
    expect(page.locator("#note")).to_contain_text("Trouble.")
    expect(page.locator("#hits .card")).to_have_count(0)
    expect(page.locator("#more")).to_be_hidden()


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
    page.fill("#recorded_after", "2019-01-01")
    expect(page.locator("#hits .card .title")).to_have_text(["clip 5"])
    page.fill("#near", "52.4, 4.9, 10")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("near="))
    expect(page.locator("#hits .card .title")).to_have_text(["clip 5"])
    page.fill("#camera", "canon")
    expect(page.locator("#note")).to_contain_text("Nothing found.")


def test_a_file_that_is_not_an_image_is_reported(page: Page, tmp_path: Path):
    wrong = tmp_path / "wrong.png"
    wrong.write_bytes(b"this is not an image")
    page.set_input_files("#file", str(wrong))
    expect(page.locator("#note")).to_contain_text("Not an image or a video")
    large = tmp_path / "large.png"
    large.write_bytes(bytes(3_000_000))
    page.set_input_files("#file", str(large))
    expect(page.locator("#note")).to_contain_text("too large")


def complaints(page: Page) -> list[str]:
    """What axe-core finds wrong, with its rules for names that lack the visible label."""
    tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice", "experimental"]
    found = Axe().run(page, options={"runOnly": {"type": "tag", "values": tags}}).response["violations"]
    return [f"{rule['id']}: {node['html']} {node['failureSummary']}" for rule in found for node in rule["nodes"]]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_accessible(browser: Browser, running: Site, scheme: str):
    with opened(browser, running.address, color_scheme=scheme, reduced_motion="reduce") as page:
        expect(page.locator("#hits .card")).to_have_count(7)
        expect(page.locator("#figures")).to_contain_text("7 videos")
        assert not complaints(page)
        page.fill("#q", "lighthouse")
        page.wait_for_selector("#hits .card mark")
        page.locator("#toggle-filters").click()
        page.fill("#name", "*")
        expect(page.locator("#filter-count")).to_have_text("1")
        page.locator("#hits .open").first.click()
        page.wait_for_selector(".strip rect")
        assert not complaints(page)
        for dialog in ("about", "keys"):
            page.locator(f"#show-{dialog}").click()
            expect(page.locator(f"#{dialog}-dialog")).to_be_visible()
            assert not complaints(page)
            page.keyboard.press("Escape")
        assert page.locator("[aria-live=polite]").count() == 1
        page.goto(f"{running.address}/docs")
        page.locator("summary").first.click()
        assert not complaints(page)


def test_all_videos_can_be_browsed_and_sorted(page: Page):
    """Also beyond what one request lists."""
    titles = page.locator("#hits .card .title")
    names = ["clip 2", "clip 3", "clip 4", "clip 5", "copy of 1", "old", "three scenes"]
    expect(titles).to_have_count(7)
    page.locator("#sort").select_option(label="Longest first")
    expect(titles.nth(0)).to_have_text("old")
    page.locator("#sort").select_option(label="By name")
    expect(titles).to_have_text(names)
    assert "sort=title" in page.url
    expect(page.locator("#hits .card .place").nth(1)).to_have_text("Videos/trips/sea")  # not the file's name again
    page.route(
        "**/api/v1/videos?*", lambda route: route.continue_(url=route.request.url.replace("limit=24", "limit=3"))
    )
    page.reload()
    expect(titles).to_have_count(3)
    page.locator("#more button").click()
    expect(titles).to_have_text(names)
    expect(page.locator("#more")).to_be_hidden()
    page.locator("#toggle-filters").click()
    page.locator("#length").select_option(label="Up to 1 minute")
    page.fill("#after", "2001-01-01")
    expect(titles.nth(0)).to_be_visible()
    page.fill("#before", "2001-01-02")
    expect(page.locator("#note")).to_contain_text("No video matches the filters.")
    expect(page.locator("#sorting")).to_be_hidden()


def test_hits_leave_the_page_and_searches_are_remembered(page: Page, tmp_path: Path):
    page.fill("#q", "a red boat")
    page.keyboard.press("Enter")
    page.wait_for_selector("#hits .card .score")
    until(page, "document.querySelector('#figures').textContent.includes('videos')")
    page.locator("#show-timeline").click()
    assert not complaints(page)
    page.locator("#timeline-format").select_option("fcpxml")
    with page.expect_download() as saving:
        page.locator("#timeline-dialog .strong").click()
    assert saving.value.suggested_filename == "a red boat.fcpxml"
    saving.value.save_as(tmp_path / "saved.fcpxml")
    assert "<asset-clip" in (tmp_path / "saved.fcpxml").read_text()
    carried = """(alt) => {
        const data = new DataTransfer();
        const event = new DragEvent("dragstart", { bubbles: true, dataTransfer: data, altKey: alt });
        document.querySelector("#hits .card").dispatchEvent(event);
        document.querySelector("#hits .card").dispatchEvent(new DragEvent("dragend", { bubbles: true }));
        return data.getData("DownloadURL");
    }"""
    assert re.fullmatch(r"video/mp4:.+ \d+\.\d\d\.mp4:http://.+/clip\.mp4\?start=.+", page.evaluate(carried, False))
    assert re.fullmatch(r"video/mp4:.+:http://.+/stream", page.evaluate(carried, True))
    page.keyboard.press("Escape")
    page.fill("#q", "")
    chip = page.locator("#recent .chip")
    expect(chip).to_have_text(["a red boat"])
    assert not complaints(page)
    chip.click()
    page.wait_for_url(re.compile("q=a\\+red\\+boat"))
    expect(page.locator("#recent")).to_be_hidden()


def test_a_moment_can_be_saved_and_its_file_shown(
    page: Page, tmp_path: Path, index: VideoIndex, ids: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    shown: list[Path] = []
    monkeypatch.setattr(video_routes, "reveal", shown.append)
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    page.reload()
    search_with_image(page, tmp_path, SCENES[1])
    until(page, "document.querySelector('#figures').textContent.includes('videos')")
    page.locator("#hits .open").first.click()
    with page.expect_download() as saving:
        page.locator(".stage .save").click()
    assert re.fullmatch(r"three scenes 0\.1\d\.\d-0\.\d\d\.\d\.mp4", saving.value.suggested_filename)
    saving.value.save_as(tmp_path / "saved.mp4")
    assert probe(tmp_path / "saved.mp4").duration >= 5
    with page.expect_response(re.compile("/reveal$")):
        page.locator(".stage .reveal").click()
    assert shown == [Path(index.files(ids["three scenes"])[0].path)]
    expect(page.locator(".stage .remove")).to_be_hidden()


@pytest.mark.parametrize(
    ("start", "end", "text"),
    [
        (0.2, 0.9, "0:00.2 \N{EN DASH} 0:00.9"),
        (59.96, 60.3, "0:59.9 \N{EN DASH} 1:00.3"),
        (3, 6, "0:03 \N{EN DASH} 0:06"),
        (3.5, 3599.9, "0:03 \N{EN DASH} 59:59"),
    ],
)
def test_times_of_moments(page: Page, start: float, end: float, text: str):
    assert page.evaluate(f"import('./static/api.js').then(({{ between }}) => between({start}, {end}))") == text


def test_below_a_path_of_a_proxy(browser: Browser, base: Path, index: VideoIndex):
    with site(base, index, root_path="/clips") as made, opened(browser, f"{made.address}/clips/") as page:
        expect(page.locator("#hits .card")).to_have_count(7)
        page.fill("#q", "boat")
        page.wait_for_selector("#hits .card .score")
        until(page, "[...document.querySelectorAll('.front')].some(image => image.naturalWidth > 0)")
        assert page.url == f"{made.address}/clips/?q=boat"
        page.locator("#hits .card", has_text="three scenes").locator(".open").click()
        until(page, f"{NOW} > 0.1")
        page.locator("footer a").click()
        expect(page.locator(".route").first).to_be_visible()
        page.locator("main a").first.click()
        expect(page.locator("#hits .card")).to_have_count(7)


def test_phone(browser: Browser, running: Site):
    with opened(browser, running.address, color_scheme="dark", has_touch=True, is_mobile=True) as page:
        page.set_viewport_size(PHONE)
        page.fill("#q", "lighthouse")
        page.wait_for_selector("#hits .card mark")
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
    clip(tmp_path / "Videos" / "2024" / "gone.mp4", 1)
    clip(tmp_path / "Videos" / "unwanted.mp4", 2)
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
        expect(page.locator("#note code")).to_have_text(f"centerclip index --index {index.folder} ~/Videos")
        page.locator("#add-folder").click()
        page.fill("#folder-path", "../../etc")
        page.keyboard.press("Enter")
        expect(page.locator("#folder-wrong")).to_contain_text("There is no such folder")
        page.locator("#folder-list button", has_text="Videos").click()
        expect(page.locator("#folder-path")).to_have_value("Videos")
        expect(page.locator("#folder-list button")).to_have_text(["↑ up", "2024"])
        assert not complaints(page)
        page.locator("#folder-dialog .strong").click()
        expect(page.locator("#indexing")).to_be_visible()
        bar_seen.set()
        expect(page.locator("#hits .card")).to_have_count(2)
        page.on("dialog", lambda dialog: dialog.accept())
        page.locator("#hits .card", has_text="unwanted").locator(".open").click()
        page.locator(".stage .remove").click()
        expect(page.locator("#hits .card .title")).to_have_text(["gone"])
        assert (tmp_path / "Videos" / "unwanted.mp4").exists()
        (tmp_path / "Videos" / "2024" / "gone.mp4").unlink()
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
