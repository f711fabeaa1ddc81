"""What the first bytes of a file say."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from centerclip.video.container import read_structure

from .clips import make_clip


@pytest.mark.parametrize(
    ("name", "codec", "container"),
    [
        ("a.mp4", "libx264", "mp4"),
        ("a.mkv", "libx264", "matroska"),
        ("a.avi", "mpeg4", "riff"),
        ("a.ts", "libx264", None),
    ],
)
def test_a_whole_file_misses_nothing_and_half_a_file_does(
    tmp_path: Path, name: str, codec: str, container: str | None
) -> None:
    clip = make_clip(tmp_path / name, codec=codec, frames=40)
    assert read_structure(clip).container == container
    assert read_structure(clip).missing == 0
    half = clip.read_bytes()[: clip.stat().st_size // 2]
    clip.write_bytes(half)
    assert (read_structure(clip).missing > 0) == (container is not None)


def test_an_mp4_that_was_cut_between_its_boxes_lacks_its_index(tmp_path: Path) -> None:
    clip = make_clip(tmp_path / "a.mp4", frames=10)
    assert read_structure(clip).indexed
    data = clip.read_bytes()
    clip.write_bytes(data[: data.index(b"moov") - 4])
    assert read_structure(clip).missing == 0
    assert not read_structure(clip).indexed


def test_fragments_are_followed_to_the_end(tmp_path: Path) -> None:
    options = {"movflags": "frag_keyframe+empty_moov"}
    clip = make_clip(tmp_path / "a.mp4", frames=60, g=5, muxer_options=options)
    assert read_structure(clip).missing == 0
    clip.write_bytes(clip.read_bytes()[:-40])
    assert read_structure(clip).missing > 0


def test_a_live_recording_of_unknown_length_misses_nothing(tmp_path: Path) -> None:
    clip = make_clip(tmp_path / "a.mkv", frames=30, muxer_options={"live": "1"})
    clip.write_bytes(clip.read_bytes()[:-100])
    assert read_structure(clip).missing == 0


def test_an_avi_of_unknown_length_misses_nothing(tmp_path: Path) -> None:
    clip = make_clip(tmp_path / "a.avi", codec="mpeg4", frames=30)
    data = bytearray(clip.read_bytes())
    data[4:8] = b"\xff\xff\xff\xff"
    clip.write_bytes(data)
    assert read_structure(clip).missing == 0


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.one_of(st.just(b""), st.just(b"\x00\x00\x00\x08ftyp"), st.just(b"\x1a\x45\xdf\xa3"), st.just(b"RIFF1234AVI ")),
    st.binary(max_size=64),
)
def test_any_bytes_have_a_structure(tmp_path: Path, head: bytes, tail: bytes) -> None:
    path = tmp_path / "any"
    path.write_bytes(head + tail)
    assert 0 <= read_structure(path).missing <= 1
