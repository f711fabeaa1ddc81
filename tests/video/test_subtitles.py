"""The text that comes with a video: every format and encoding, and files that are broken or hostile."""

import os
from pathlib import Path

import numpy as np
import pytest

from centerclip.video import subtitles
from centerclip.video.subtitles import Line, Sidecars, read_lines, read_sidecar, sidecar_stamp
from tests.video.subtitled import srt, subtitled_clip

GREY = [np.full((48, 64, 3), 100, np.uint8)]


def texts(path: Path) -> list[str]:
    return [line.text for line in read_sidecar(path)]


def saved(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    ("name", "codec", "marked"),
    [
        ("a.mkv", "subrip", "<i>The</i> bridge"),
        ("a.mkv", "ass", "{\\i1}The{\\i0} bridge"),
        ("a.mkv", "webvtt", "<v Ann>The bridge</v>"),
        ("a.mp4", "mov_text", "The bridge"),
    ],
)
def test_streams_chapters_and_tags_inside_a_file(tmp_path: Path, name: str, codec: str, marked: str) -> None:
    clip = subtitled_clip(
        tmp_path / name,
        GREY,
        seconds=6,
        subtitles=[(1, 2, marked), (2.5, 4, "is hoch & Ähre")],
        codec=codec,
        chapters=[(0, 3, "Opening"), (3, 6, "Finale")],
        tags={"title": "A walk", "comment": "By the river"},
    )
    lines, note = read_lines(clip, duration=6.0)
    assert not note
    assert [line for line in lines if line.source == "subtitle"] == [
        Line(1.0, 2.0, "The bridge", "subtitle"),
        Line(2.5, 4.0, "is hoch & Ähre", "subtitle"),
    ]
    assert [line for line in lines if line.source == "chapter"] == [
        Line(0.0, 3.0, "Opening", "chapter"),
        Line(3.0, 6.0, "Finale", "chapter"),
    ]
    assert Line(0.0, 6.0, "A walk", "title") in lines
    assert Line(0.0, 6.0, "By the river", "description") in lines


def test_times_count_from_the_first_frame(tmp_path: Path) -> None:
    late = subtitled_clip(tmp_path / "late.mkv", GREY, first=5.0, subtitles=[(1, 2, "Hello")])
    (line,) = read_lines(late, duration=2.0)[0]
    assert line.start == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize(
    "content",
    [
        srt((1, 2, "Grüße"), (3, 4, "второй")).encode("utf-8-sig"),
        srt((1, 2, "Grüße"), (3, 4, "второй")).encode("utf-16"),
        srt((1, 2, "Grüße"), (3, 4, "второй")).replace("\n", "\r\n").encode(),
    ],
)
def test_encodings(tmp_path: Path, content: bytes) -> None:
    assert read_sidecar(saved(tmp_path / "a.srt", content)) == [
        Line(1.0, 2.0, "Grüße", "subtitle"),
        Line(3.0, 4.0, "второй", "subtitle"),
    ]


def test_western_bytes_that_are_not_utf8(tmp_path: Path) -> None:
    assert texts(saved(tmp_path / "a.srt", srt((1, 2, "déjà vu")).encode("cp1252"))) == ["déjà vu"]


def test_broken_cues_are_skipped(tmp_path: Path) -> None:
    content = srt((1, 2, "first")) + "\n2\n00:00:xx --> 00:00:04\nlost\n\n3\n00:00:09,000 --> 00:00:08,000\nbackwards\n"
    content += "\n4\n00:00:05,000 --> 00:00:06,000\nwithout an empty line\n5\n00:00:07,000 --> 00:00:08,000\nlast\n"
    assert texts(saved(tmp_path / "a.srt", content)) == ["first", "without an empty line", "last"]


def test_vtt_with_notes_settings_and_scrolling_captions(tmp_path: Path) -> None:
    content = """WEBVTT - made by hand

NOTE nobody says this

STYLE
::cue { color: red }

intro
00:01.000 --> 00:03.000 align:start position:0%
so<00:01.500><c> we</c> built

00:03.000 --> 00:05.000
so we built
a bridge &amp; a road

00:05.000 --> 00:06.000
a bridge &amp; a road
"""
    assert read_sidecar(saved(tmp_path / "a.vtt", content)) == [
        Line(1.0, 3.0, "so we built", "subtitle"),
        Line(3.0, 6.0, "a bridge & a road", "subtitle"),
    ]


def test_ass_in_any_order_without_drawings(tmp_path: Path) -> None:
    content = """[Script Info]
Title: x
[Events]
Format: Marked, Start, End, Style, Text
Dialogue: 0,0:00:05.00,0:00:06.50,Default,later, with {\\b1}commas{\\b0}
Dialogue: 0,0:00:01.00,0:00:02.00,Default,first\\Nline
Dialogue: 0,0:00:01.00,0:00:02.00,Default,{\\p1}m 0 0 l 100 0
Comment: 0,0:00:01.00,0:00:02.00,Default,not said
Dialogue: 0,soon,later,Default,no time
"""
    assert read_sidecar(saved(tmp_path / "a.ass", content)) == [
        Line(1.0, 2.0, "first line", "subtitle"),
        Line(5.0, 6.5, "later, with commas", "subtitle"),
    ]


def test_which_files_belong_to_a_video(tmp_path: Path) -> None:
    for name in ("film.mp4", "film.part.mkv", "film.2.mp4", "film.srt", "film.en.vtt", "film.pt-BR.forced.ass"):
        (tmp_path / name).touch()
    for name in ("film.part.srt", "film.part.de.srt", "film.2.srt", "film.mp4.srt", "filmed.srt", "film.txt", "x.srt"):
        (tmp_path / name).touch()
    sidecars = Sidecars()

    def names(video: str) -> list[str]:
        return [path.name for path in sidecars.of(tmp_path / video)]

    assert names("film.mp4") == ["film.en.vtt", "film.mp4.srt", "film.pt-BR.forced.ass", "film.srt"]
    assert names("film.part.mkv") == ["film.part.de.srt", "film.part.srt"]
    assert names("film.2.mp4") == ["film.2.srt"]
    assert names("missing/film.mp4") == []


def test_the_stamp_changes_with_the_files(tmp_path: Path) -> None:
    path = saved(tmp_path / "film.srt", srt((1, 2, "one")))
    stamp = sidecar_stamp([path])
    assert stamp
    assert stamp == sidecar_stamp([path])
    os.utime(path, ns=(0, 0))
    assert sidecar_stamp([path]) != stamp
    assert sidecar_stamp([]) == sidecar_stamp([tmp_path / "gone.srt"]) == ""


def test_a_bad_sidecar_is_noted_and_the_rest_is_read(tmp_path: Path) -> None:
    clip = subtitled_clip(tmp_path / "film.mp4", GREY, tags={"title": "A walk"})
    good, bad = saved(tmp_path / "film.srt", srt((0.5, 1, "hi"))), saved(tmp_path / "film.de.srt", b"\x00\x01 binary")
    (tmp_path / "film.fr.srt").mkdir()
    lines, note = read_lines(clip, [bad, tmp_path / "film.fr.srt", good], duration=2.0)
    assert [line.text for line in lines] == ["A walk", "hi"]
    assert "film.de.srt" in note
    assert "film.fr.srt" in note


def test_text_beyond_the_end_and_control_codes_are_left_out(tmp_path: Path) -> None:
    clip = subtitled_clip(tmp_path / "film.mp4", GREY)
    path = saved(tmp_path / "film.srt", srt((0.5, 9, "red\x1b[31m\x00 alert"), (20, 21, "another film")))
    assert read_lines(clip, [path], duration=2.0)[0] == [Line(0.5, 2.0, "red [31m alert", "subtitle")]


def test_the_amount_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subtitles, "MAX_LINES", 10)
    monkeypatch.setattr(subtitles, "MAX_SIDECAR_BYTES", 10_000)
    many = saved(tmp_path / "a.srt", srt(*((n, n + 0.5, f"line {n}" + "x" * 20) for n in range(0, 60, 2))))
    assert len(read_sidecar(many)) == 10
    long = saved(tmp_path / "b.srt", srt((1, 2, "y" * 5000)))
    assert len(texts(long)[0]) == subtitles.MAX_LINE_LETTERS
    with pytest.raises(ValueError, match="bytes"):
        read_sidecar(saved(tmp_path / "c.srt", "x" * 20_000))


def test_a_file_that_is_no_video_gives_a_note(tmp_path: Path) -> None:
    lines, note = read_lines(saved(tmp_path / "a.mp4", "text"), duration=1.0)
    assert lines == []
    assert "not a video" in note
