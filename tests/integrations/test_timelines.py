"""Timelines: timecode arithmetic, EDL and FCPXML field by field, OTIO and FCP 7 XML by reading them back."""

import re
import sys
import xml.etree.ElementTree as ET
from fractions import Fraction
from pathlib import Path, PurePosixPath

import opentimelineio as otio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from centerclip.errors import MissingExtra
from centerclip.integrations.timelines import (
    SEQUENCE_RATES,
    Timeline,
    formats,
    frame_number,
    make_timeline,
    read_clip,
    timecode,
    write_timeline,
)
from centerclip.search import Hit, Moment, SearchError
from centerclip.search.store import Line
from centerclip.video.info import Timing, timing_of
from tests.server.site import with_sound
from tests.video.clips import make_clip

FILM, NTSC, FAST = (Fraction(1000 * rate, 1001) for rate in (24, 30, 60))
DAY = 24 * 3600


def slow_timecodes(base: int, drop: bool, count: int) -> list[str]:
    """All timecodes in order, by the rule as it stands: numbers are left out of a list of every number."""
    skipped = base // 15 if drop else 0
    made = []
    second = 0
    while len(made) < count:
        minute = second // 60
        for frame in range(base):
            if second % 60 or not minute % 10 or frame >= skipped:
                clock = f"{minute // 60:02}:{minute % 60:02}:{second % 60:02}"
                made.append(f"{clock}{';' if drop else ':'}{frame:02}")
        second += 1
    return made[:count]


@pytest.mark.parametrize(
    ("rate", "drop"), [(NTSC, True), (FAST, True), (NTSC, False), (FILM, False), (Fraction(25), False)]
)
def test_the_first_22_minutes_are_those_of_the_rule(rate: Fraction, drop: bool) -> None:
    expected = slow_timecodes(-(-rate.numerator // rate.denominator), drop, 22 * 60 * 30)
    assert [timecode(frame, rate, drop) for frame in range(len(expected))] == expected
    assert [frame_number(text, rate) for text in expected] == list(range(len(expected)))


@given(st.sampled_from([(rate, drop) for rate in SEQUENCE_RATES for drop in {False, rate in (NTSC, FAST)}]), st.data())
def test_every_frame_of_a_day_has_a_timecode_of_its_own(kind: tuple[Fraction, bool], data: st.DataObject) -> None:
    rate, drop = kind
    base = -(-rate.numerator // rate.denominator)
    frames = DAY * base - (base // 15 * 9 * 144 if drop else 0)
    frame = data.draw(st.integers(0, frames - 2))
    assert frame_number(timecode(frame, rate, drop), rate) == frame
    assert timecode(frame, rate, drop) < timecode(frame + 1, rate, drop)
    assert timecode(frame + frames, rate, drop) == timecode(frame, rate, drop)
    if drop:  # that is what dropping is for: off by the numbers dropped at once (67 ms), and by 86 ms more after a day
        hours, minutes, seconds, number = map(int, re.split("[:;]", timecode(frame, rate, drop)))
        shown = 3600 * hours + 60 * minutes + seconds + Fraction(number, base)
        assert abs(shown - frame / rate) < Fraction(16, 100)


@pytest.mark.parametrize(
    ("text", "rate", "frame"),
    [
        ("00:00:59;29", NTSC, 1799),
        ("00:01:00;02", NTSC, 1800),  # 00:01:00;00 and ;01 are dropped
        ("00:10:00;00", NTSC, 17982),
        ("01:00:00;00", NTSC, 107892),
        ("01:00:00:00", NTSC, 108000),
        ("23:59:59;29", NTSC, 2589407),
        ("00:01:00;04", FAST, 3600),  # four of sixty
        ("01:00:00;00", FAST, 215784),
        ("01:00:00:00", FILM, 86400),
        ("10:00:00:00", Fraction(25), 900000),
    ],
)
def test_known_timecodes(text: str, rate: Fraction, frame: int) -> None:
    assert frame_number(text, rate) == frame
    assert timecode(frame, rate, ";" in text) == text


def test_text_that_is_no_timecode_is_zero() -> None:
    assert [frame_number(text, NTSC) for text in ("", "later", "1:2:3", "00:00:00:00:00")] == [0, 0, 0, 0]
    assert frame_number("01:00:00;00", Fraction(25)) == 90000  # 25 frames a second drop nothing
    assert frame_number("00:01:00;00", NTSC) == 1800  # a number that does not exist


def hit(path: Path, start: float, end: float, duration: float, score: float = 0.5, line: Line | None = None) -> Hit:
    return Hit("f" * 32, path, start, end, score, (Moment(start, end, score),), duration, grade="sure", line=line)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of every kind: ten seconds, their timecode in a track or a tag, or without one."""
    folder = tmp_path_factory.mktemp("rushes")
    for name, rate, code in (
        ("film.mov", FILM, "10:00:00:00"),
        ("pal.mxf", Fraction(25), "02:00:00:00"),
        ("drop.mov", NTSC, "00:59:58;00"),
        ("straight.mkv", NTSC, "00:59:58:00"),
        ("fast drop.mp4", FAST, "01:00:00;00"),
        ("none & <such>.mp4", NTSC, None),
    ):
        codec = "mpeg2video" if name.endswith("mxf") else "libx264"
        tags = {"timecode": code} if code else None
        make_clip(folder / name, codec=codec, rate=rate, frames=round(10 * rate), tags=tags)  # type: ignore[arg-type]
    with_sound(folder / "slow.mp4", "libx264", 10)
    return folder


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("film.mov", Timing(FILM, "10:00:00:00", 64, 48)),
        ("pal.mxf", Timing(Fraction(25), "02:00:00:00", 64, 48)),
        ("drop.mov", Timing(NTSC, "00:59:58;00", 64, 48)),
        ("straight.mkv", Timing(NTSC, "00:59:58:00", 64, 48)),
        ("fast drop.mp4", Timing(FAST, "01:00:00;00", 64, 48)),
        ("none & <such>.mp4", Timing(NTSC, "", 64, 48)),
        ("slow.mp4", Timing(Fraction(10), "", 64, 48, 1, 48_000)),
    ],
)
def test_rate_and_timecode_come_from_the_file(folder: Path, name: str, expected: Timing) -> None:
    assert timing_of(folder / name) == expected


def events(timeline: Timeline) -> list[list[str]]:
    """Channels and timecodes of each event of the EDL."""
    lines = write_timeline(timeline, ".edl").splitlines()
    return [[line.split()[2], *line.split()[4:]] for line in lines if line[:3].isdigit()]


@pytest.mark.parametrize(
    ("name", "header", "times"),
    [
        # 2 to 4 s: frames 47 (47.95) to 96 (95.9).
        ("film.mov", "NON-DROP FRAME", "10:00:01:23 10:00:04:00 01:00:00:00 01:00:02:01"),
        ("pal.mxf", "NON-DROP FRAME", "02:00:02:00 02:00:04:00 01:00:00:00 01:00:02:00"),
        # Frames 59 (59.94) to 120 (119.88) after 00:59:58;00, which is number 107832: 107891 and 107952.
        ("drop.mov", "DROP FRAME", "00:59:59;29 01:00:02;00 01:00:00;00 01:00:02;01"),
        ("straight.mkv", "NON-DROP FRAME", "00:59:59:29 01:00:02:00 01:00:00:00 01:00:02:01"),
        # Frames 119 (119.88) to 240 (239.76).
        ("fast drop.mp4", "DROP FRAME", "01:00:01;59 01:00:04;00 01:00:00;00 01:00:02;01"),
        ("none & <such>.mp4", "NON-DROP FRAME", "00:00:01:29 00:00:04:00 01:00:00:00 01:00:02:01"),
        # Ten frames a second are counted as thirty.
        ("slow.mp4", "NON-DROP FRAME", "00:00:02:00 00:00:04:00 01:00:00:00 01:00:02:00"),
    ],
)
def test_an_edl_has_the_timecodes_of_the_file(folder: Path, name: str, header: str, times: str) -> None:
    made = make_timeline([hit(folder / name, 2.0, 4.0, 10.0)], "a dog\nruns")
    lines = write_timeline(made, ".edl").splitlines()
    assert lines[:3] == ["TITLE: a dog runs", f"FCM: {header}", ""]
    channels = "AA/V " if name == "slow.mp4" else "V    "
    assert lines[3] == f"001  AX       {channels} C        {times}"
    separator = ";" if made.drop else ":"
    assert lines[4:] == [
        f"* FROM CLIP NAME: {name}",
        f"* SOURCE FILE: {folder / name}",
        f"* LOC: 01:00:00{separator}00 GREEN   a dog runs (0.500)",
    ]


def test_handles_end_where_the_film_does(folder: Path) -> None:
    film = folder / "pal.mxf"
    clips = make_timeline([hit(film, s, e, 10.0) for s, e in ((0.4, 2), (4, 5), (9, 10))], "x", handles=1.0).clips
    assert [(clip.first, clip.last, clip.mark) for clip in clips] == [(0, 75, 10), (75, 150, 100), (200, 250, 225)]
    assert [read_clip(hit(film, s, e, 10.0), clips[0].timing).last for s, e in ((9.99, 10.0), (12, 13))] == [250, 250]


def test_mixed_rates_go_on_the_sequence_of_most(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ["drop.mov", "pal.mxf", "fast drop.mp4", "film.mov", "drop.mov"]
    made = make_timeline([hit(folder / name, 2.0, 4.0, 10.0) for name in names], "x")
    assert (made.rate, made.drop, made.rate_name) == (NTSC, True, "29.97 fps drop-frame")
    record = [event[3:] for event in events(made)]
    # 61 frames; 50 of 25 are 59.94; 121 of 59.94 are 60.5 (to even); 49 of 23.976 are 61.25; 61.
    assert record == [
        ["01:00:00;00", "01:00:02;01"],
        ["01:00:02;01", "01:00:04;01"],
        ["01:00:04;01", "01:00:06;01"],
        ["01:00:06;01", "01:00:08;02"],
        ["01:00:08;02", "01:00:10;03"],
    ]
    speeds = [line.split() for line in write_timeline(made, ".edl").splitlines() if line.startswith("M2")]
    assert speeds == [
        ["M2", "AX", "025.0", "02:00:02:00"],
        ["M2", "AX", "060.0", "01:00:01;59"],
        ["M2", "AX", "024.0", "10:00:01:23"],
    ]


def test_what_has_no_frames_is_left_out(folder: Path) -> None:
    gone, photo = folder / "gone.mp4", folder / "photo.jpg"
    made = make_timeline([hit(gone, 1, 2, 9), hit(photo, 0, 0, 0), hit(folder / "pal.mxf", 1, 2, 10)], "x")
    assert [clip.path.name for clip in made.clips] == ["pal.mxf"]
    assert made.left_out == {str(gone): "there is no such file", str(photo): "a photograph has no frames to cut"}
    with pytest.raises(SearchError, match="empty: there is no such file"):
        make_timeline([hit(gone, 1, 2, 9)], "x")
    with pytest.raises(SearchError, match="empty: nothing was found"):
        make_timeline([], "x")
    with pytest.raises(SearchError, match=r"'\.mov' is no timeline"):
        write_timeline(made, ".mov")


# ---- FCPXML -------------------------------------------------------------------------------------------------------

# The rules of FCPXML 1.10 for the elements that are written here: which children in which order ("?" at most one, "*"
# any number), which attributes there may be, and (with "!") which there must be.
RULES = {
    "fcpxml": ("resources? library?", "version!"),
    "resources": (None, ""),
    "format": ("", "id! name frameDuration fieldOrder width height paspH paspV colorSpace"),
    "asset": (
        "media-rep+ metadata?",
        "id! name uid start duration hasVideo format hasAudio audioSources audioChannels audioRate",
    ),
    "media-rep": ("", "kind sig src! suggestedFilename"),
    "library": ("event*", "location colorProcessing"),
    "event": ("project*", "name uid"),
    "project": ("sequence", "name uid id modDate"),
    "sequence": ("note? spine metadata?", "format! duration tcStart tcFormat audioLayout audioRate renderFormat"),
    "spine": ("asset-clip*", "lane offset name format"),
    "asset-clip": (
        "note? conform-rate? timeMap? marker* metadata?",
        "ref! lane offset name start duration enabled srcEnable format tcStart tcFormat",
    ),
    "conform-rate": ("", "scaleEnabled srcFrameRate frameSampling"),
    "marker": ("", "start! duration value! completed note"),
}
VALUES = {
    "kind": {"original-media", "proxy-media"},
    "tcFormat": {"DF", "NDF"},
    "audioLayout": {"mono", "stereo", "surround"},
    "scaleEnabled": {"0", "1"},
    "srcFrameRate": {"23.98", "24", "25", "29.97", "30", "60", "47.95", "48", "50", "59.94"},
}
TIMES = {"start", "duration", "offset", "tcStart", "frameDuration"}


def check_fcpxml(text: str) -> ET.Element:
    """Fail where a document breaks the rules."""
    assert text.startswith('<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE fcpxml>\n<fcpxml version="1.10">')
    root = ET.fromstring(text)
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    assert len(ids) == len(set(ids))
    for element in root.iter():
        children, attributes = RULES[element.tag]
        if children is not None:
            pattern = re.sub(r"([\w-]+)([?*+]?) ?", r"(\1 )\2", children)
            assert re.fullmatch(pattern, "".join(f"{child.tag} " for child in element)), element.tag
        else:
            assert {child.tag for child in element} <= {"asset", "effect", "format", "media", "locator"}
        names = attributes.split()
        assert set(element.attrib) <= {name.rstrip("!") for name in names}, element.attrib
        assert {name[:-1] for name in names if name.endswith("!")} <= set(element.attrib), element.attrib
        for name, value in element.attrib.items():
            assert value in VALUES.get(name, {value})
            if name in ("ref", "format"):
                assert value in ids
            if name in TIMES:
                assert re.fullmatch(r"\d+(/[1-9]\d*)?s", value)
                assert int(value.rstrip("s").partition("/")[2] or 1) < 2**31
    return root


def time_of(element: ET.Element, name: str) -> Fraction:
    return Fraction(element.attrib[name].rstrip("s"))


def test_fcpxml_keeps_the_rules_and_has_the_times_of_the_file(folder: Path) -> None:
    said = Line(2.5, 3.0, "<i>tulips</i> & \x1b more", "subtitle")
    names = ["drop.mov", "pal.mxf", "film.mov", "drop.mov", "none & <such>.mp4", "slow.mp4"]
    hits = [hit(folder / name, 2.0, 4.0, 10.0, line=said if name == "pal.mxf" else None) for name in names]
    root = check_fcpxml(write_timeline(make_timeline(hits, 'a "dog" & <cat>', handles=1.0), ".fcpxml"))
    formats = {made.get("id"): time_of(made, "frameDuration") for made in root.iter("format")}
    assets = {made.get("name"): made for made in root.iter("asset")}
    assert list(assets) == ["drop.mov", "pal.mxf", "film.mov", "none & <such>.mp4", "slow.mp4"]  # one for each file
    assert assets["none & <such>.mp4"][0].get("src") == (folder / "none & <such>.mp4").as_uri()
    assert (assets["slow.mp4"].get("hasAudio"), assets["slow.mp4"].get("audioRate")) == ("1", "48000")
    assert assets["drop.mov"].get("hasAudio") is None
    # A file's start is its number of frames since 00:00:00:00, of their true length.
    starts = {name: (time_of(made, "start"), formats[made.get("format")]) for name, made in assets.items()}
    assert starts == {
        "drop.mov": (107832 * Fraction(1001, 30000), Fraction(1001, 30000)),
        "pal.mxf": (Fraction(7200), Fraction(1, 25)),
        "film.mov": (864000 * Fraction(1001, 24000), Fraction(1001, 24000)),
        "none & <such>.mp4": (Fraction(0), Fraction(1001, 30000)),
        "slow.mp4": (Fraction(0), Fraction(1001, 30000)),
    }
    sequence = next(root.iter("sequence"))
    assert (sequence.get("tcFormat"), sequence.get("tcStart")) == ("DF", "8999991/2500s")  # 107892 x 1001/30000
    frame, at = formats[sequence.get("format")], time_of(sequence, "tcStart")
    clips = list(root.iter("asset-clip"))
    for clip in clips:
        assert time_of(clip, "offset") == at
        assert (time_of(clip, "offset") / frame).denominator == (time_of(clip, "duration") / frame).denominator == 1
        asset = assets[clip.get("name")]
        inside = time_of(clip, "start") - time_of(asset, "start")
        assert 0.95 < inside <= 1.0  # a second before the moment, on a frame of the file
        assert (inside / formats[asset.get("format")]).denominator == 1
        marker = clip.find("marker")
        assert 1.9 < time_of(marker, "start") - time_of(asset, "start") <= 2.0
        assert marker.get("value") == 'a "dog" & <cat> (0.500)'
        at += time_of(clip, "duration")
    assert at - time_of(sequence, "tcStart") == time_of(sequence, "duration")
    assert clips[1].find("marker").get("note") == "sure, subtitle: <i>tulips</i> & more"
    assert [None if (made := clip.find("conform-rate")) is None else made.get("srcFrameRate") for clip in clips] == [
        None, "25", "23.98", None, None, None
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "frame", "zero", "file", "start", "duration"),
    [
        # Each as frames x the length of one: 86400, 864000, 864000 + 47 and 96 - 47 of 1001/24000.
        ("film.mov", "1001/24000s", "18018/5s", "36036s", "864911047/24000s", "49049/24000s"),
        ("pal.mxf", "1/25s", "3600s", "7200s", "7202s", "2s"),
        # 107892, 107832, 107832 + 59 and 120 - 59 of 1001/30000.
        ("drop.mov", "1001/30000s", "8999991/2500s", "4497493/1250s", "107998891/30000s", "61061/30000s"),
        # 108000, 107940, 107940 + 59 and 61: without dropping, numbers are 60 more after an hour.
        ("straight.mkv", "1001/30000s", "18018/5s", "1800799/500s", "108106999/30000s", "61061/30000s"),
        # 215784, 215784, 215784 + 119 and 240 - 119 of 1001/60000.
        ("fast drop.mp4", "1001/60000s", "8999991/2500s", "8999991/2500s", "216118903/60000s", "121121/60000s"),
        ("none & <such>.mp4", "1001/30000s", "18018/5s", "0s", "59059/30000s", "61061/30000s"),
    ],
)
def test_fcpxml_has_known_values(
    folder: Path, name: str, frame: str, zero: str, file: str, start: str, duration: str
) -> None:
    root = check_fcpxml(write_timeline(make_timeline([hit(folder / name, 2.0, 4.0, 10.0)], "x"), ".fcpxml"))
    format, asset, sequence, clip = (
        next(root.iter(tag)).attrib for tag in ("format", "asset", "sequence", "asset-clip")
    )
    assert format["frameDuration"] == frame
    assert asset["start"] == file
    assert (sequence["tcStart"], sequence["duration"]) == (zero, duration)
    assert (clip["offset"], clip["start"], clip["duration"]) == (zero, start, duration)
    assert sequence["tcFormat"] == clip["tcFormat"] == ("DF" if "drop" in name else "NDF")
    marker = next(root.iter("marker")).attrib
    assert (marker["start"], marker["duration"], marker["value"]) == (start, frame, "x (0.500)")


# ---- OpenTimelineIO -----------------------------------------------------------------------------------------------


def test_otio_and_fcp7_xml_are_read_back(folder: Path, tmp_path: Path) -> None:
    names = ["drop.mov", "fast drop.mp4", "slow.mp4", "drop.mov"]
    hits = [hit(folder / name, 2.0, 4.0, 10.0, score) for name, score in zip(names, (0.5, 0.4, 0.3, 0.2), strict=True)]
    made = make_timeline(hits, "a dog & cat", handles=1.0)
    for suffix in (".otio", ".xml"):
        path = tmp_path / f"found{suffix}"
        path.write_text(write_timeline(made, suffix), encoding="utf-8")
        timeline = otio.adapters.read_from_file(str(path))
        video, audio = timeline.tracks
        assert (video.kind, audio.kind) == ("Video", "Audio")
        assert timeline.name == "a dog & cat"
        assert timeline.global_start_time == otio.opentime.RationalTime(107892, 30000 / 1001)
        clips = list(video.find_clips())
        assert [clip.media_reference.target_url for clip in clips] == [(folder / name).as_uri() for name in names]
        spans = [(clip.source_range.start_time, clip.source_range.duration) for clip in clips]
        drop = [(107832 + 29, 30000 / 1001), (121, 30000 / 1001)]  # 29.97 to 149.85
        # 59.94 to 299.7: 120.5 frames of the sequence, of which XML has whole ones.
        fast = [(215784 + 59, 60000 / 1001), (241 if suffix == ".otio" else 240, 60000 / 1001)]
        slow = [(29, 30000 / 1001), (121, 30000 / 1001)]
        assert [[(round(time.value, 6), time.rate) for time in span] for span in spans] == [drop, fast, slow, drop]
        assert [clip.name for clip in audio.find_clips()] == ["slow.mp4"]
        marks = [clip.markers[0].marked_range.start_time.value for clip in clips]
        zeros = [107832, 215784, 0, 107832] if suffix == ".otio" else [0, 0, 0, 0]
        assert [mark - zero for mark, zero in zip(marks, zeros, strict=True)] == [59, 119, 59, 59]
        assert clips[0].markers[0].name == "a dog & cat (0.500)"
    items = ET.parse(path).getroot().find(".//video/track")
    assert [(item.findtext("start"), item.findtext("end")) for item in items] == [
        ("0", "121"), ("121", "241"), ("241", "362"), ("362", "483")
    ]  # fmt: skip
    assert ET.parse(path).getroot().findtext(".//sequence/timecode/string") == "01:00:00;00"


def test_without_the_extra_it_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make_timeline(
        [hit(folder / "pal.mxf", 2.0, 4.0, 10.0)], "x", shown_path=lambda path: PurePosixPath("/Videos/a")
    )
    assert "* SOURCE FILE: /Videos/a\n" in write_timeline(made, ".edl")
    assert formats() == [".edl", ".fcpxml", ".otio", ".xml"]
    monkeypatch.setitem(sys.modules, "opentimelineio", None)
    with pytest.raises(MissingExtra, match=r"centerclip\[editors\]"):
        write_timeline(made, ".otio")
