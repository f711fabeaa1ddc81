"""Finding by what is said and written: any query is a valid expression; words, lines, names and pictures are found."""

import shutil
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from centerclip import VideoIndex
from centerclip.bundled import DEMO, demo_clips
from centerclip.errors import SearchError, UnknownVideo
from centerclip.search.query import Encoder
from centerclip.search.ranking import Moment, Ranked
from centerclip.search.recognise import open_picture_text
from centerclip.search.store import File, Segments, Video
from centerclip.search.text import (
    NO_VECTOR,
    fuse,
    index_name,
    index_text,
    match_expression,
    merge,
    search_text,
    words_of,
)
from centerclip.video import UnreadableVideo
from centerclip.video.subtitles import Line, TextSource
from tests.search.collection import clip
from tests.search.memory import MemoryStore
from tests.search.test_recognise import slide
from tests.video.subtitled import srt, subtitled_clip

ODD_QUERIES = (
    "can't stop",
    "c++",
    "-x",
    "NEAR(",
    "NEAR(a b, 3)",
    '"unbalanced',
    'a "b c" "',
    "a AND",
    "OR NOT",
    "text:",
    "{a b}: c",
    "^start",
    "zep*",
    "*",
    '""',
    "a^2 + b^2",
    "(((",
    "'; DROP TABLE line; --",
    "東京タワー",
    "ภาษาไทย",
    "\x00\ud800 x",
)


@pytest.fixture(scope="module")
def fts() -> sqlite3.Connection:
    database = sqlite3.connect(":memory:", check_same_thread=False)
    database.execute(
        "CREATE VIRTUAL TABLE line USING fts5 (words, tokenize = 'unicode61 remove_diacritics 2', prefix = '2 3')"
    )
    return database


def matches(fts: sqlite3.Connection, text: str, query: str) -> bool:
    fts.execute("DELETE FROM line")
    fts.execute("INSERT INTO line VALUES (?)", (index_text(text),))
    expression = match_expression(query)
    if expression is None:
        return False
    return bool(fts.execute("SELECT count(*) FROM line WHERE line MATCH ?", (expression,)).fetchone()[0])


@pytest.mark.parametrize("query", ODD_QUERIES)
def test_odd_queries_are_no_syntax_errors_and_find_themselves(fts: sqlite3.Connection, query: str) -> None:
    assert matches(fts, f"well {query} indeed", query) == (match_expression(query) is not None)


@settings(max_examples=60, deadline=None)
@given(st.text(), st.text())
@example("", "\U0001d400")  # a bold A for mathematics
def test_every_query_is_a_valid_expression(query: str, text: str) -> None:
    database = sqlite3.connect(":memory:")
    database.execute("CREATE VIRTUAL TABLE line USING fts5 (words)")
    for every in (False, True):
        expression = match_expression(query, every=every)
        if expression is not None:
            database.execute("SELECT * FROM line WHERE line MATCH ?", (expression,)).fetchall()
    assert index_text(index_text(text)) == index_text(text)


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("Die Brücke ist hoch", "brucke"),
        ("les élèves", "ELEVES"),
        ("I can't stop", "can't"),
        ("I can\u2019t stop", "can't"),
        ("the bridges of Rome", "bridge"),
        ("one bridge", "bridges"),
        ("a zeppelin lands", "zep*"),
        ("東京タワーの夜景", "東京"),
        ("東京タワーの夜景", "夜景"),
        ("ภาษาไทยง่าย", "ไทย"),
        ("안녕하세요 여러분", "여러분"),
        ("これはペンです", "ペン"),
        ("we say no more", '"no more"'),
        ("to be or not to be", "to be or not"),
    ],
)
def test_what_matches(fts: sqlite3.Connection, text: str, query: str) -> None:
    assert matches(fts, text, query)


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("the cat", "category"),
        ("category", "cat"),
        ("the king of the hill", "the queen of the sea"),
        ("more or no", '"no more"'),
        ("京東タワー", "東京"),
        ("ベンチ", "ペン"),
        ("nothing to see", "!?"),
    ],
)
def test_what_does_not_match(fts: sqlite3.Connection, text: str, query: str) -> None:
    assert not matches(fts, text, query)


def test_names_are_split_where_people_see_words() -> None:
    assert set(index_name("Summer 2019/BirthdayParty_IMG-0042.MP4").split()) >= {
        "summer", "2019", "birthday", "party", "img", "0042", "birthdayparty",
    }  # fmt: skip
    assert words_of("Ünïcode_and-dashes") == ["unicode", "and", "dashes"]


def test_fusing_keeps_the_order_of_the_video() -> None:
    assert fuse([0.3, 0.9, 0.2], [], {}) == [(0.9, 0, None), (0.9, 1, None), (0.2, 2, None)]
    assert fuse([0.8, 0.5], [0.9, 0.4], {1: 1}) == [(0.9, None, 0), (0.8, 0, None), (0.5, 1, 1)]
    assert fuse([0.8, 0.5], [0.6], {0: 1}) == [(0.8, 0, None), (0.6, 1, 0)]
    assert fuse([1.0], [1.0], {}) == [(1.0, None, 0), (1.0, 0, None)]


def test_merging_long_lists_takes_no_time() -> None:
    count = 3_000
    moments = [(Moment(float(n), n + 1.0, 0.5),) for n in range(count)]
    ranked = [Ranked(str(n), moments[0], NO_VECTOR) for n in range(count)]
    texts = [Ranked(str(n), moments[0], NO_VECTOR, (), 0.5, "sure", "text") for n in range(count, 2 * count)]
    assert len(merge(ranked, [0.1] * count, texts)) == 2 * count
    film = [Ranked("film", moment, NO_VECTOR) for moment in moments]
    lines = [Ranked("film", moments[n], NO_VECTOR, (), 0.5, "sure", "text") for n in (7, 7, 2999)]
    merged = merge(film, [0.1] * count, lines, by_moment=True)
    assert len(merged) == count + 1  # two lines of one moment are two hits
    assert [entry.moments[0].start for entry in merged[:3]] == [7.0, 7.0, 2999.0]


def store_of(*videos: tuple[str, float, Sequence[Line]]) -> MemoryStore:
    """A store of videos, each with its path, length and lines."""
    store = MemoryStore(2)
    one = Segments(np.zeros(1, np.float32), np.ones(1, np.float32), np.ones((1, 2), np.float32))
    store.add(
        [(Video(str(n), duration, 64, 48, 0.0), one, lines) for n, (_, duration, lines) in enumerate(videos)],
        [File(path, 1, 1, str(n)) for n, (path, _, _) in enumerate(videos)],
    )
    return store


def said(start: float, text: str, source: TextSource = "subtitle") -> Line:
    return Line(start, start + 2, text, source)


def test_a_line_with_all_words_is_sure_and_comes_first() -> None:
    view = store_of(
        ("a.mp4", 60, [said(1, "The nurse signed the lease on Friday")]),
        ("b.mp4", 60, [said(2, "A nurse came"), said(40, "on Friday")]),
        ("c.mp4", 60, [said(3, "It rained")]),
    ).view()
    hits = search_text(view, "the nurses signed a lease", 10)
    assert [(hit.video, hit.grade) for hit in hits] == [("0", "sure"), ("1", "unlikely")]
    assert hits[0].line == Line(1.0, 3.0, "The nurse signed the lease on Friday", "subtitle")
    assert search_text(view, '"signed a lease"', 10) == []
    assert [hit.video for hit in search_text(view, '"signed the lease" friday', 10)] == ["0"]


def test_words_may_be_spread_over_lines_that_follow_each_other() -> None:
    view = store_of(
        ("a.mp4", 60, [said(10, "we measured the"), said(12, "old staircase")]),
        ("b.mp4", 60, [said(10, "we measured the"), said(50, "old staircase")]),
    ).view()
    hits = search_text(view, "measured staircase", 10)
    assert [(hit.video, hit.score) for hit in hits] == [("0", 0.95), ("1", 0.5)]
    assert (hits[0].line.start, hits[0].line.end) == (10.0, 14.0)


def test_what_many_videos_say_is_worth_less() -> None:
    lines = [said(1, "Hello everybody")]
    view = store_of(
        *((f"{n}.mp4", 10.0 + 2 * n, lines) for n in range(9)), ("z.mp4", 60, [said(1, "Hello Rome")])
    ).view()
    assert [hit.confidence for hit in search_text(view, "everybody", 20)] == pytest.approx([0.2] * 9)
    assert search_text(view, "rome", 20)[0].confidence == 1.0


def test_names_count_when_they_have_all_words() -> None:
    view = store_of(("Wedding 2019/BeachParty.mp4", 60, []), ("Wedding 2019/church.mp4", 60, [])).view()
    (hit,) = search_text(view, "wedding at the beach", 10)
    assert (hit.video, hit.line) == ("0", Line(0.0, 60.0, "BeachParty.mp4", "name"))
    assert search_text(view, "beach volleyball", 10) == []


def test_moments_are_lines_and_copies_are_listed_once() -> None:
    lines = [said(5, "a bridge"), said(20, "the bridge fell"), said(40, "no bridge here")]
    view = store_of(("a.mp4", 60, lines), ("a-small.mp4", 60.2, lines), ("b.mp4", 90, lines)).view()
    hits = search_text(view, "bridge", 10)
    assert [(hit.video, hit.duplicates) for hit in hits] == [("0", ("1",)), ("2", ())]
    assert [moment.start for moment in hits[0].moments] == [5.0, 20.0, 40.0]
    assert len(search_text(view, "bridge", 10, collapse=False)) == 3
    assert sorted((hit.video, hit.line.start) for hit in search_text(view, "bridge", 20, by_moment=True)) == [
        (video, start) for video in "02" for start in (5.0, 20.0, 40.0)
    ]


# ---- a collection ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def talks(tmp_path_factory: pytest.TempPathFactory) -> VideoIndex:
    """Bundled clips, one with subtitles beside it; a talk with chapters, subtitles and slides; a film with a name."""
    folder = tmp_path_factory.mktemp("talks")
    videos = folder / "videos"
    videos.mkdir()
    for number in range(6):
        shutil.copy(demo_clips() / f"minivtt-00{number}.mp4", videos / f"clip{number}.mp4")
    (videos / "clip3.en.srt").write_text(srt((1.5, 2.5, "The auditor misplaced our ledger")))
    subtitled_clip(
        videos / "talk.mkv",
        [slide("Agenda", "Tunnels"), slide("Quarterly forecast")],
        seconds=5.0,
        subtitles=[(2.0, 4.0, "Welcome, dear colleagues"), (6.5, 8.0, "Vielen Dank für die Brücke")],
        chapters=[(0, 5, "Introduction"), (5, 10, "Outlook")],
        tags={"title": "Budget meeting"},
    )
    clip(videos / "grandmas-orchard.mp4", 7)
    index = VideoIndex(folder / "index", model=DEMO)
    assert index.add(videos).added == 8
    report = index.add(videos / "talk.mkv", recognisers=[open_picture_text()])  # of this one alone
    assert (report.texts, report.text_failed) == (1, {})
    return index


@pytest.mark.parametrize(
    ("query", "name", "start", "source", "text"),
    [
        ("auditor misplaced ledger", "clip3.mp4", 1.5, "subtitle", "The auditor misplaced our ledger"),
        ("dank fur die brucken", "talk.mkv", 6.5, "subtitle", "Vielen Dank für die Brücke"),
        ('"dear colleagues"', "talk.mkv", 2.0, "subtitle", "Welcome, dear colleagues"),
        ("outlook", "talk.mkv", 5.0, "chapter", "Outlook"),
        ("quarterly forecast", "talk.mkv", None, "written", "Quarterly forecast"),
        ("budget meeting", "talk.mkv", None, "title", "Budget meeting"),
        ("grandmas orchard", "grandmas-orchard.mp4", None, "name", "grandmas-orchard.mp4"),
    ],
)
def test_words_find_the_moment(
    talks: VideoIndex, query: str, name: str, start: float | None, source: str, text: str
) -> None:
    for where in ("all", "text"):
        results = talks.search(query, where=where)  # type: ignore[arg-type]
        hit = results[0]
        assert (hit.path.name, hit.found_by) == (name, "text")
        assert hit.line is not None
        assert (hit.line.source, hit.line.text) == (source, text)
        assert start is None or hit.start == pytest.approx(start, abs=0.05)
        assert hit.grade in ("sure", "maybe")
        assert results.convincing
    assert talks.search(query, where="video")[0].found_by == "video"


def test_a_slide_is_found_when_it_is_shown(talks: VideoIndex) -> None:
    hit = talks.search("forecast", where="text")[0]
    assert 3.0 <= hit.start <= 6.0
    assert hit.end == pytest.approx(10.0, abs=0.1)


def test_a_sentence_still_finds_what_is_shown(talks: VideoIndex) -> None:
    captions = (demo_clips() / "captions.csv").read_text().splitlines()
    sentence = next(line.partition(",")[2].strip('"') for line in captions if line.startswith("minivtt-001,"))
    hit = talks.search(sentence)[0]
    assert (hit.path.name, hit.found_by, hit.line) == ("clip1.mp4", "video", None)
    assert talks.search(sentence).hits == talks.search(sentence, where="video").hits


def test_text_is_searched_without_a_model(talks: VideoIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Encoder, "model", lambda self: pytest.fail("the model was opened"))
    index = VideoIndex(talks.folder)
    assert index.search("ledger", where="text")[0].path.name == "clip3.mp4"
    assert len(index.search("zeppelin", where="text")) == 0
    with pytest.raises(SearchError, match="words alone"):
        index.search("ledger", image="x.jpg", where="text")


def test_filters_moments_and_lines(talks: VideoIndex) -> None:
    assert len(talks.search("ledger", where="text", name="talk*")) == 0
    moments = talks.search("colleagues brücke", where="text", moments=True)
    assert [round(hit.start, 1) for hit in moments] == [2.0, 6.5]
    video_id = talks.search("colleagues", where="text")[0].video_id
    assert {line.source for line in talks.lines(video_id)} == {"subtitle", "chapter", "title", "written"}
    with pytest.raises(UnknownVideo):
        talks.lines("nothing")


def test_recognisers_run_once_on_each_video(talks: VideoIndex) -> None:
    calls: list[str] = []

    class Failing:
        source = "spoken"

        def __call__(self, path: str, video: Video, segments: Segments) -> list[Line]:
            calls.append(Path(path).name)
            if len(calls) == 2:
                raise KeyboardInterrupt
            if len(calls) == 3:
                raise UnreadableVideo(path, "no sound that can be decoded")
            return [Line(0.0, 1.0, f"spoken words of {Path(path).stem}", "spoken")]

    with pytest.raises(KeyboardInterrupt):
        talks.add(recognisers=[Failing()])
    seen = []
    report = talks.add(recognisers=[Failing()], on_progress=seen.append)
    assert sorted(calls[:1] + calls[2:]) == sorted(entry.path.name for entry in talks.videos())
    assert (report.texts, list(report.text_failed.values())) == (6, ["no sound that can be decoded"])
    assert {(at.task, at.total) for at in seen} == {("transcribing", 7)}
    assert talks.search('"words of talk"')[0].line is not None


def test_new_and_changed_sidecars_are_taken_along(model: Path, tmp_path: Path) -> None:
    video = clip(tmp_path / "videos" / "film.mp4", 1)
    index = VideoIndex(tmp_path / "index", model=model)
    index.add(tmp_path / "videos")
    assert index.add().texts == 0
    sidecar = video.with_suffix(".srt")
    for words in ("first draft", "second version"):
        sidecar.write_text(srt((0.5, 1.0, words)))
        report = index.add()
        assert (report.unchanged, report.texts) == (1, 1)
        assert [line.text for line in index.lines(index.videos()[0].video_id)] == [words]
    assert index.add().texts == 0
    sidecar.unlink()
    assert index.add().texts == 1
    assert index.search("version", where="text").hits == []


def test_without_text_results_are_those_of_the_video(model: Path, tmp_path: Path) -> None:
    for number in range(5):
        clip(tmp_path / "videos" / f"{number}.mp4", number)
    index = VideoIndex(tmp_path / "index", model=model)
    index.add(tmp_path / "videos")
    for query in ("a dog", "two men play chess at night", '"quoted words"'):
        both, video = index.search(query), index.search(query, where="video")
        assert both.hits == video.hits
        assert (both.convincing, both.confidence) == (video.convincing, video.confidence)
        assert len(video) == 5


def test_a_broken_sidecar_is_a_note_of_the_video(model: Path, tmp_path: Path) -> None:
    clip(tmp_path / "videos" / "film.mp4", 1).with_suffix(".srt").write_bytes(b"\x00\xff\x00")
    index = VideoIndex(tmp_path / "index", model=model)
    assert index.add(tmp_path / "videos").failed == {}
    assert "film.srt" in index.videos()[0].note
