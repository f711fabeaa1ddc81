"""Frames that were sought are those that decoding everything gives, whatever the codec and its structure."""

from pathlib import Path

import numpy as np
import pytest

from centerclip.video import bin_centres, random_in_bins, read_frames, reader

from .clips import decoded, make_clip, numbers_of

CODECS = {
    "h264, keyframe every 10": ("a.mp4", {"codec": "libx264", "g": 10, "bf": 3, "sc_threshold": 0}),
    "h264, one keyframe": ("a.mp4", {"codec": "libx264", "g": 250, "bf": 3}),
    "h264, no reordering": ("a.mkv", {"codec": "libx264", "g": 12, "bf": 0}),
    "h264, open GOP": ("a.mkv", {"codec": "libx264", "g": 12, "bf": 3, "x264_params": "open-gop=1:b-pyramid=normal"}),
    "h264, fragmented": ("a.mp4", {"codec": "libx264", "g": 10, "muxer_options": {"movflags": "frag_keyframe"}}),
    "h264, transport stream": ("a.ts", {"codec": "libx264", "g": 10, "bf": 2}),
    "hevc, open GOP": ("a.mp4", {"codec": "libx265", "x265_params": "log-level=none:keyint=12:open-gop=1:bframes=4"}),
    "hevc, closed GOP": ("a.mkv", {"codec": "libx265", "x265_params": "log-level=none:keyint=10:open-gop=0"}),
    "vp9": ("a.webm", {"codec": "libvpx-vp9", "g": 15, "deadline": "realtime", "cpu_used": 8}),
    "vp8": ("a.webm", {"codec": "libvpx", "g": 15, "deadline": "realtime", "cpu_used": 8}),
    "av1": ("a.mp4", {"codec": "libsvtav1", "g": 16, "preset": 12, "svtav1_params": "fast-decode=0"}),
    "mpeg4": ("a.avi", {"codec": "mpeg4", "g": 12, "bf": 0}),
    "mpeg4 with reordering": ("a.mp4", {"codec": "mpeg4", "g": 12, "bf": 2}),
    "mpeg2": ("a.ts", {"codec": "mpeg2video", "g": 12, "bf": 2}),
    "mjpeg": ("a.avi", {"codec": "mjpeg", "color_range": 2, "strict": -1}),
}
FRAMES = 75


@pytest.fixture(scope="module", params=CODECS)
def clip(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    name, options = CODECS[request.param]
    return make_clip(tmp_path_factory.mktemp("exact") / name, frames=FRAMES, **options)


@pytest.mark.parametrize("count", [1, 5, 12, 60])
def test_bin_centres_are_those_of_a_full_decode(clip: Path, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(reader, "decode_all")  # the sequential way out is not needed for any of these
    frames = read_frames(clip, count)
    chosen = bin_centres(FRAMES, count)
    everything = decoded(clip)
    assert len(everything) == FRAMES
    assert numbers_of(frames.rgb) == chosen
    assert np.array_equal(frames.rgb, np.stack([everything[number][1] for number in chosen]))
    assert frames.times.tolist() == pytest.approx([number / 30 for number in chosen], abs=1e-3)
    assert frames.duration == pytest.approx(FRAMES / 30, abs=2e-3)
    assert frames.mask.all()
    assert frames.note is None


def test_random_frames_are_those_of_their_key(clip: Path) -> None:
    frames = read_frames(clip, 8, random=(42, 1, "clip"))
    assert numbers_of(frames.rgb) == random_in_bins(FRAMES, 8, seed=42, epoch=1, video="clip")


def test_a_part_is_sampled_like_a_video_of_its_own(clip: Path) -> None:
    frames = read_frames(clip, 6, start=1.0, end=2.0)
    assert numbers_of(frames.rgb) == [30 + number for number in bin_centres(30, 6)]


def test_a_container_that_seeks_badly_is_read_from_start_to_end(tmp_path: Path) -> None:
    clip = make_clip(tmp_path / "a.mpg", codec="mpeg2video", frames=FRAMES, g=12, bf=2)
    for count in (1, 5, 12):
        assert numbers_of(read_frames(clip, count).rgb) == bin_centres(FRAMES, count)


def test_most_frames_are_never_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clip = make_clip(tmp_path / "long.mp4", frames=600, g=10, sc_threshold=0)
    decoded_packets = []
    original = reader.seek_frames.__globals__["_SeekingDecoder"]._decode
    monkeypatch.setattr(
        reader.seek_frames.__globals__["_SeekingDecoder"],
        "_decode",
        lambda walk, packet: decoded_packets.append(packet) or original(walk, packet),
    )
    assert numbers_of(read_frames(clip, 6).rgb) == bin_centres(600, 6)
    assert sum(packet is not None for packet in decoded_packets) < 30
