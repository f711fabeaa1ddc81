"""Facts about a file."""

from pathlib import Path

import pytest

from centerclip.video import NotAVideo, probe

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


def test_what_is_no_video_has_no_facts(tmp_path: Path) -> None:
    (tmp_path / "a.mp4").write_text("text")
    with pytest.raises(NotAVideo):
        probe(tmp_path / "a.mp4")
