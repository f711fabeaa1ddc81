"""Hostile requests get an answer or a closed connection, many clients a fair share, and names are never code."""

import logging
import os
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from centerclip import VideoIndex
from tests.search.collection import clip, save_model
from tests.server.browsing import chromium, opened
from tests.server.site import Site, site

from .requests import attack, load

TOKEN = "correct horse battery"
NAMES = (
    "<script>stolen()<script>.mp4", "<img src=x onerror=stolen()>.mp4", "\"onfocus=stolen() autofocus x=\".mp4",
    "javascript:stolen().mp4", "{{constructor.constructor('stolen()')()}}.mp4", "${stolen()}.mp4", "‮4pm.gpj.exe.mp4",
    "'-stolen()-'.mp4", "a\x1b]0;stolen\x07.mp4",
)  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("hostile")
    index = VideoIndex(folder / "index", model=save_model(folder / "model"))
    original = clip(folder / "a.mp4", 1)
    place = folder / "Videos" / "<b onclick=stolen()>folder"
    place.mkdir(parents=True)
    for number, name in enumerate(NAMES):
        clip(place / "temporary.mp4", number, seconds=1).rename(place / name)
    said = "1\n00:00:00,000 --> 00:00:01,000\n<script>stolen()</script> dog\n"
    (place / NAMES[0]).with_suffix(".srt").write_text(said)
    shutil.copy(original, os.fsdecode(os.fsencode(place) + b"/\xff<svg onload=stolen()>.mp4"))
    index.add(folder / "Videos")
    with site(folder, VideoIndex(index.folder), token=TOKEN) as running:
        yield running


def test_hostile_requests_get_an_answer(made: Site, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    video_id = made.index.videos()[0].video_id
    with site(made.folder.parent, VideoIndex(made.index.folder)) as free:
        for number, address in enumerate((made.address, free.address)):
            outcome = attack(address, video_id, seed=number, count=150)
            print(outcome)
            assert outcome.sent == 150
            assert not outcome.faults
    assert TOKEN not in caplog.text
    assert "Traceback" not in caplog.text


def test_clients_get_a_fair_share(made: Site) -> None:
    with site(made.folder.parent, VideoIndex(made.index.folder)) as free:
        outcome, answers = load(free.address, made.index.videos()[0].video_id, clients=16, seconds=2.0)
    print(outcome)
    assert not outcome.faults
    assert min(answers) > 0


def test_the_token_is_in_no_log_and_no_address(made: Site, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with made.client(headers={"authorization": f"Bearer {TOKEN}"}) as client:
        texts = [client.get(path).text for path in ("/api/status", "/api/videos", "/metrics", "/api/search?q=a", "/")]
        client.post("/api/login", json={"token": TOKEN})
    assert not any(TOKEN in text for text in [*texts, caplog.text.replace("Bearer", "")])


def test_names_are_never_code_in_a_browser(made: Site) -> None:
    with chromium() as browser, opened(browser, f"{made.address}/#token={TOKEN}") as page:
        run: list[str] = []
        page.expose_function("stolen", lambda: run.append(page.url))
        expect(page.locator("#hits .card")).to_have_count(len(NAMES) + 1)
        for words in ("dog", "script stolen"):
            page.fill("#q", words)
            page.keyboard.press("Enter")
            page.wait_for_selector("#hits .card .score")
        assert page.locator("#hits script, #hits b[onclick], #hits svg[onload], #hits img[onerror]").count() == 0
        page.locator("#hits .open").first.click()
        page.wait_for_selector(".stage")
        assert not run
        assert TOKEN not in page.url
