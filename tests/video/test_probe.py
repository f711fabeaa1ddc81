"""Facts about a file."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from centerclip.video import NotAVideo, probe
from centerclip.video.info import Recording

from .clips import make_clip


@pytest.mark.parametrize(
    ("name", "codec", "container", "shown_codec"),
    [
        ("a.mp4", "libx264", "mov", "h264"),
        ("a.mkv", "libx265", "matroska", "hevc"),
        ("a.webm", "libvpx-vp9", "matroska", "vp9"),
        ("a.avi", "mpeg4", "avi", "mpeg4"),
        ("a.ts", "mpeg2video", "mpegts", "mpeg2video"),
        ("a.mp4", "libsvtav1", "mov", "av1"),
    ],
)
def test_the_facts_are_counted_not_believed(
    tmp_path: Path, name: str, codec: str, container: str, shown_codec: str
) -> None:
    info = probe(make_clip(tmp_path / name, codec=codec, frames=50, rate=25, g=10))
    assert (info.container, info.codec) == (container, shown_codec)
    assert (info.width, info.height, info.rotation, info.pixel_aspect) == (64, 48, 0, 1)
    assert info.frames == 50
    assert info.duration == pytest.approx(2.0, abs=0.01)
    assert info.fps == pytest.approx(25, abs=0.2)
    assert info.keyframes >= 1
    assert info.constant_rate
    assert info.seek_problem is None
    assert info.bytes == (tmp_path / name).stat().st_size


def test_keyframes_are_counted(tmp_path: Path) -> None:
    assert probe(make_clip(tmp_path / "a.mp4", frames=50, g=10, sc_threshold=0)).keyframes == 5


@pytest.mark.parametrize("name", ["a.mov", "a.mkv"])
def test_when_where_and_with_what_it_was_recorded(tmp_path: Path, name: str) -> None:
    tags = {
        "creation_time": "2019-07-14T11:00:00Z",
        "com.apple.quicktime.creationdate": "2019-07-14T12:30:00+0200",  # knows the time zone: counts
        "com.apple.quicktime.make": "Apple",
        "com.apple.quicktime.model": "iPhone\n XR",
        "com.apple.quicktime.location.ISO6709": "+52.3731+004.8922+012.3/",
    }
    recording = probe(make_clip(tmp_path / name, frames=5, tags=tags)).recording
    when = datetime(2019, 7, 14, 10, 30, tzinfo=UTC).timestamp()
    assert recording == Recording(when, "Apple iPhone XR", 52.3731, 4.8922)


@pytest.mark.parametrize(
    ("tag", "value", "expected"),
    [
        ("creation_time", "2019-07-14T11:00:00.000000Z", Recording(recorded=1563102000.0)),
        ("creation_time", "1904-01-01T00:00:00Z", Recording()),
        ("creation_time", "1970-01-01T00:00:00Z", Recording()),
        ("creation_time", "yesterday", Recording()),
        ("make", "Canon", Recording(camera="Canon")),
        ("model", "x" * 5000, Recording(camera="x" * 100)),
        ("location", "-3355.5+01822.25/", Recording(latitude=-33.925, longitude=18 + 22.25 / 60)),
        ("location", "+401213.1-0750015.1/", Recording(latitude=40.203639, longitude=-75.004194)),
        ("location", "+00.0000+000.0000/", Recording()),
        ("location", "+95.0+004.0/", Recording()),
        ("location", "Amsterdam", Recording()),
    ],
)
def test_tags_that_say_nothing_are_passed_over(tmp_path: Path, tag: str, value: str, expected: Recording) -> None:
    recording = probe(make_clip(tmp_path / "a.mkv", frames=5, tags={tag: value})).recording
    assert recording.latitude == pytest.approx(expected.latitude, abs=1e-6)
    assert recording.longitude == pytest.approx(expected.longitude, abs=1e-6)
    assert (recording.recorded, recording.camera) == (expected.recorded, expected.camera)


def test_what_is_no_video_has_no_facts(tmp_path: Path) -> None:
    (tmp_path / "a.mp4").write_text("text")
    with pytest.raises(NotAVideo):
        probe(tmp_path / "a.mp4")
