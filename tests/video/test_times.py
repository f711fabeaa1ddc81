"""Frames are chosen by time, whatever the container makes of it."""

from pathlib import Path

import numpy as np
import pytest

from centerclip.video import OutsideVideo, bin_centres, probe, read_frames, read_times

from .clips import make_clip, numbers_of, remux


def test_variable_frame_rate_is_sampled_by_time(tmp_path: Path) -> None:
    # a second at 30 frames a second, then six at 2: half of the frames, but a seventh of the time
    pts = [*range(0, 300, 10), *range(300, 2100, 150)]
    clip = make_clip(tmp_path / "a.mp4", rate=300, pts=pts, g=8)
    frames = read_frames(clip, 7)
    middle = [0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5]
    for time, second in zip(frames.times.tolist(), middle, strict=True):
        assert second - 0.6 <= time <= second + 0.1
    assert numbers_of(frames.rgb) == [pts.index(round(300 * time)) for time in frames.times.tolist()]
    assert not probe(clip).constant_rate


def test_a_wrong_length_of_the_last_frame_moves_nothing(tmp_path: Path) -> None:
    make_clip(tmp_path / "right.mp4", frames=60, g=10, bf=0)

    def hasty(number: int, packet):  # type: ignore[no-untyped-def]
        packet.duration = 1 if number == 59 else packet.duration
        return packet

    clip = remux(tmp_path / "right.mp4", tmp_path / "wrong.mp4", hasty)
    assert numbers_of(read_frames(clip, 7).rgb) == bin_centres(60, 7)
    assert read_frames(clip, 1).duration == pytest.approx(2.0)


def test_the_last_picture_of_a_slide_show_keeps_its_time(tmp_path: Path) -> None:
    make_clip(tmp_path / "right.mp4", rate=10, pts=[0, 10, 15, 40], bf=0)

    def slow(number: int, packet):  # type: ignore[no-untyped-def]
        packet.duration = round(6 / packet.time_base) if number == 3 else packet.duration
        return packet

    clip = remux(tmp_path / "right.mp4", tmp_path / "slow.mp4", slow)
    frames = read_frames(clip, 2)
    assert frames.duration == pytest.approx(10.0)
    assert numbers_of(frames.rgb) == [2, 3]


@pytest.mark.parametrize("name", ["a.mkv", "a.ts", "a.mp4"])
def test_times_count_from_the_first_frame(tmp_path: Path, name: str) -> None:
    clip = make_clip(tmp_path / name, pts=range(300, 360), g=10)
    frames = read_frames(clip, 6)
    assert numbers_of(frames.rgb) == bin_centres(60, 6)
    assert frames.times[0].item() == pytest.approx(5 / 30, abs=1e-3)
    assert frames.duration == pytest.approx(2.0, abs=1e-2)


def test_timestamps_that_wrap_around(tmp_path: Path) -> None:
    shift = 2**33 - 90_000  # a second before the 33 bits of a transport stream are full
    make_clip(tmp_path / "plain.ts", g=10, frames=60)

    def late(_: int, packet):  # type: ignore[no-untyped-def]
        packet.pts, packet.dts = packet.pts + shift - 129_000, packet.dts + shift - 129_000
        return packet

    clip = remux(tmp_path / "plain.ts", tmp_path / "wrap.ts", late, {"mpegts_copyts": "1"})
    frames = read_frames(clip, 12)
    assert numbers_of(frames.rgb) == bin_centres(60, 12)
    assert frames.duration == pytest.approx(2.0, abs=1e-2)


def test_frames_cut_off_by_an_edit_list_are_not_seen(tmp_path: Path) -> None:
    make_clip(tmp_path / "whole.mp4", g=10, bf=2, frames=60)

    def earlier(_: int, packet):  # type: ignore[no-untyped-def]
        shift = round(0.5 / packet.time_base)  # the first half second gets negative times
        packet.pts, packet.dts = packet.pts - shift, packet.dts - shift
        return packet

    clip = remux(tmp_path / "whole.mp4", tmp_path / "cut.mp4", earlier, {"avoid_negative_ts": "disabled"})
    frames = read_frames(clip, 9)
    assert numbers_of(frames.rgb) == [15 + number for number in bin_centres(45, 9)]
    assert frames.times[0].item() == pytest.approx(2 / 30, abs=1e-3)


def test_a_stream_without_timestamps(tmp_path: Path) -> None:
    clip = make_clip(tmp_path / "a.h264", muxer="h264", g=10, bf=2, frames=50)
    frames = read_frames(clip, 10)
    assert numbers_of(frames.rgb) == bin_centres(50, 10)
    assert (np.diff(frames.times) > 0).all()
    assert "no timestamp" in str(frames.note)


def test_times_of_storing_in_place_of_times_of_showing(tmp_path: Path) -> None:
    make_clip(tmp_path / "right.mp4", g=30, bf=3, frames=60)

    def confused(_: int, packet):  # type: ignore[no-untyped-def]
        packet.pts = packet.dts
        return packet

    clip = remux(tmp_path / "right.mp4", tmp_path / "wrong.mkv", confused)
    assert numbers_of(read_frames(clip, 12).rgb) == bin_centres(60, 12)


def test_a_recording_that_starts_again_from_zero(tmp_path: Path) -> None:
    first = make_clip(tmp_path / "first.ts", frames=40, g=10)
    clip = tmp_path / "both.ts"
    clip.write_bytes(first.read_bytes() * 2)
    frames = read_frames(clip, 8)
    assert numbers_of(frames.rgb) == [number % 40 for number in bin_centres(80, 8)]
    assert (np.diff(frames.times) > 0).all()
    assert frames.duration == pytest.approx(80 / 30, abs=0.1)


def test_a_short_video_repeats_its_last_frame_masked(tmp_path: Path) -> None:
    frames = read_frames(make_clip(tmp_path / "a.mp4", frames=5), 12)
    assert numbers_of(frames.rgb) == [0, 1, 2, 3, 4, 4, 4, 4, 4, 4, 4, 4]
    assert frames.mask.tolist() == [True] * 5 + [False] * 7


def test_one_frame_is_a_video_too(tmp_path: Path) -> None:
    frames = read_frames(make_clip(tmp_path / "a.webm", codec="libvpx-vp9", frames=1), 3)
    assert numbers_of(frames.rgb) == [0, 0, 0]
    assert frames.mask.tolist() == [True, False, False]
    assert frames.duration > 0


def test_frames_at_given_times_come_in_the_order_asked_for(tmp_path: Path) -> None:
    clip = make_clip(tmp_path / "a.mp4", frames=60, g=10)
    frames = read_times(clip, [1.5, 0.0, 0.34, 1.5, -1.0, 99.0])
    assert numbers_of(frames.rgb) == [45, 0, 10, 45, 0, 59]
    assert frames.mask.tolist() == [True, True, True, True, False, False]


def test_a_frame_is_found_again_by_its_time(tmp_path: Path) -> None:
    clip = make_clip(tmp_path / "a.mkv", frames=60, g=10)
    frames = read_frames(clip, 60)
    assert numbers_of(read_times(clip, frames.times.tolist()).rgb) == list(range(60))


@pytest.mark.parametrize(("start", "end"), [(5.0, None), (1.0, 1.0), (1.5, 0.5), (None, 0.0)])
def test_a_part_that_holds_nothing(tmp_path: Path, start: float | None, end: float | None) -> None:
    clip = make_clip(tmp_path / "a.mp4", frames=60)
    with pytest.raises(OutsideVideo, match="Ask for a part"):
        read_frames(clip, 4, start=start, end=end)
