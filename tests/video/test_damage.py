"""Damaged files give the frames that a full decode gives, or an error: never other frames, never a crash."""

from pathlib import Path

import av
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from centerclip.video import Frames, Limits, VideoError, bin_centres, read_frames
from centerclip.video import container as container_module
from centerclip.video import decode as decode_module
from centerclip.video import reader as reader_module

from .clips import decoded, make_clip, numbers_of, remux


def test_a_hole_in_the_middle_costs_only_the_frames_around_it(tmp_path: Path) -> None:
    clip = make_clip(tmp_path / "a.mp4", frames=120, g=10, bf=0)
    with av.open(str(clip)) as container:
        packets = [(packet.pos, packet.size) for packet in container.demux(video=0) if packet.size]
    data = bytearray(clip.read_bytes())
    start, size = packets[65]
    data[start + 4 : start + size] = bytes(size - 4)
    clip.write_bytes(data)
    frames = read_frames(clip, 120)
    numbers = numbers_of(frames.rgb)
    assert numbers[:65] == list(range(65))
    assert set(range(70, 120)) <= set(numbers)
    assert numbers == sorted(numbers)
    assert frames.note is not None


def test_a_keyframe_that_is_none_does_not_fool_the_reader(tmp_path: Path) -> None:
    """With periodic intra refresh a picture is whole only some frames after the place that can be sought."""
    refresh = "intra-refresh=1:keyint=20:bframes=0"
    clip = make_clip(tmp_path / "a.ts", frames=100, x264_params=refresh, picture=None)
    everything = decoded(clip)
    for count in (3, 7, 12):
        frames = read_frames(clip, count)
        chosen = bin_centres(len(everything), count)
        assert np.array_equal(frames.rgb, np.stack([everything[number][1] for number in chosen]))


@pytest.mark.parametrize("codec", ["libx264", "libx265", "mpeg4", "libvpx", "libvpx-vp9"])
def test_marking_every_packet_as_a_keyframe_does_not_fool_the_reader(tmp_path: Path, codec: str) -> None:
    make_clip(tmp_path / "true.mkv", codec=codec, frames=60, g=60, bf=0)

    def lie(_: int, packet):  # type: ignore[no-untyped-def]
        packet.is_keyframe = True
        return packet

    clip = remux(tmp_path / "true.mkv", tmp_path / "lie.mkv", lie)
    frames = read_frames(clip, 6)
    assert numbers_of(frames.rgb) == bin_centres(60, 6)
    everything = decoded(clip)
    assert np.array_equal(frames.rgb, np.stack([everything[number][1] for number in bin_centres(60, 6)]))


def test_a_recording_that_starts_in_the_middle(tmp_path: Path) -> None:
    make_clip(tmp_path / "whole.ts", frames=60, g=20, bf=0)
    clip = remux(tmp_path / "whole.ts", tmp_path / "late.ts", lambda number, packet: packet if number >= 7 else None)
    shown = decoded(clip)
    frames = read_frames(clip, 4)
    expected = [shown[number][1] for number in bin_centres(len(shown), 4)]
    assert np.array_equal(frames.rgb, np.stack(expected))


@pytest.mark.parametrize("fault", ["damaged", "missing", "late"])
def test_any_mismatch_while_seeking_leads_to_a_sequential_read(
    tmp_path: Path, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a decoder makes of a seek, what is returned is what a sequential read gives."""
    clip = make_clip(tmp_path / "a.mp4", frames=60, g=10)
    original = decode_module._SeekingDecoder._decode

    def faulty(walk, packet):  # type: ignore[no-untyped-def]
        frames = original(walk, packet)
        if walk.next_packet < 30:
            return frames
        if fault == "damaged":
            raise decode_module.SeekMismatch("a frame is damaged")
        if fault == "late":
            for frame in frames:
                frame.pts += 7
        return [] if fault == "missing" else frames

    monkeypatch.setattr(decode_module._SeekingDecoder, "_decode", faulty)
    frames = read_frames(clip, 6)
    assert numbers_of(frames.rgb) == bin_centres(60, 6)
    assert str(frames.note).startswith("read from start to end")


def test_a_decoder_that_changes_its_mind_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clip = make_clip(tmp_path / "a.h264", muxer="h264", frames=60)
    original, lengths = reader_module.decode_all, iter([0, 10])

    def fickle(source, table, chosen, keep):  # type: ignore[no-untyped-def]
        timeline, lost = original(source, table, chosen, keep)
        cut = 40 - next(lengths)
        return type(timeline)(timeline.pts[:cut], timeline.pts[cut], timeline.tick), lost

    monkeypatch.setattr(reader_module, "decode_all", fickle)
    with pytest.raises(VideoError, match="other frames each time"):
        read_frames(clip, 6)


@pytest.fixture(scope="module", params=["a.mp4", "a.mkv", "a.ts", "a.avi"])
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    codec = "mpeg4" if request.param == "a.avi" else "libx264"
    return make_clip(tmp_path_factory.mktemp("fuzz") / request.param, codec=codec, frames=24, g=8)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.binary(min_size=1, max_size=8)), max_size=12))
def test_no_bytes_lead_to_anything_but_frames_or_a_video_error(
    whole: Path, tmp_path: Path, changes: list[tuple[float, bytes]]
) -> None:
    data = bytearray(whole.read_bytes())
    for place, values in changes:
        start = int(place * len(data))
        data[start : start + len(values)] = values
    clip = tmp_path / whole.name
    clip.write_bytes(data)
    try:
        frames = read_frames(clip, 4, short_side=16, limits=Limits(seconds=10, pixels=10**6, memory=10**7))
    except VideoError:
        return
    assert isinstance(frames, Frames)
    assert frames.rgb.shape[0] == len(frames.times) == len(frames.mask) == 4
    assert (np.diff(frames.times) >= 0).all()
    assert min(frames.rgb.shape[1:3]) == 16


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_a_file_of_which_few_packets_decode_is_refused_with_any_number_of_threads(
    tmp_path: Path, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not worth calling readable, and what the decoder makes up for the rest is noise."""
    clip = make_clip(tmp_path / "a.webm", codec="libvpx-vp9", frames=40, g=40)

    def damaged(number: int, packet: av.Packet) -> av.Packet:
        if number < 4:
            return packet
        spoiled = av.Packet(bytes(packet)[:6] + np.random.default_rng(number).bytes(packet.size - 6))
        spoiled.pts, spoiled.dts, spoiled.time_base = packet.pts, packet.dts, packet.time_base
        spoiled.duration, spoiled.is_keyframe = packet.duration, packet.is_keyframe
        return spoiled

    monkeypatch.setattr(container_module, "decoder_threads", lambda: threads)
    with pytest.raises(VideoError, match="of 40 frames can be decoded"):
        read_frames(remux(clip, tmp_path / "b.webm", damaged), 8)
