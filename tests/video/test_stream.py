"""Windows of a long video: the same frames as single reads give, one window in memory at a time."""

from pathlib import Path

import numpy as np
import pytest

from centerclip.video import VideoError, Window, read_times, stream_windows
from centerclip.video.sampling import Windows
from tests.video.clips import make_clip, numbers_of


def times_for(count: int):
    return lambda duration, available=0: [(place + 0.5) * duration / count for place in range(count)]


@pytest.mark.parametrize(("name", "options"), [("a.mp4", {"g": 30}), ("a.mkv", {"g": 500}), ("a.avi", {})])
def test_windows_hold_the_frames_that_single_reads_give(tmp_path: Path, name: str, options: dict[str, int]) -> None:
    clip = make_clip(tmp_path / name, frames=240, codec="mpeg4" if name == "a.avi" else "libx264", **options)
    windows: list[Window] = []
    found = stream_windows(clip, times_for(48), 12, windows.append)
    assert [window.number for window in windows] == [0, 1, 2, 3]
    assert (found.windows, found.width, found.height, found.note) == (4, 64, 48, None)
    assert found.duration == pytest.approx(8)
    whole = read_times(clip, times_for(48)(found.duration))
    assert np.array_equal(np.concatenate([window.rgb for window in windows]), whole.rgb)
    assert numbers_of(windows[1].rgb) == [62 + 5 * n for n in range(12)]


def test_a_video_of_few_frames_shows_each_at_its_times(tmp_path: Path) -> None:
    windows: list[Window] = []
    stream_windows(make_clip(tmp_path / "a.mp4", frames=3), times_for(12), 6, windows.append)
    assert [numbers_of(window.rgb) for window in windows] == [[0, 0, 0, 0, 1, 1], [1, 1, 2, 2, 2, 2]]


def test_a_damaged_file_starts_again_and_its_last_windows_count(tmp_path: Path) -> None:
    clip = make_clip(tmp_path / "a.avi", frames=200, codec="mpeg4", g=20)
    content = bytearray(clip.read_bytes())
    middle = content.find(b"00dc", len(content) * 3 // 4)
    content[middle + 8 : middle + 200] = bytes(192)  # a packet of zeros
    clip.write_bytes(content)
    numbers: list[int] = []
    kept: dict[int, Window] = {}

    def keep(window: Window) -> None:
        numbers.append(window.number)
        kept[window.number] = window

    found = stream_windows(clip, times_for(40), 10, keep)
    whole = read_times(clip, times_for(40)(found.duration))
    assert sorted(kept) == [0, 1, 2, 3]
    assert np.array_equal(np.concatenate([kept[n].rgb for n in range(4)]), whole.rgb)
    if whole.note is not None:
        assert numbers.count(0) > 1
        assert found.note == whole.note


def test_a_file_that_claims_a_day_costs_no_more_than_its_frames(tmp_path: Path) -> None:
    """Two frames of 16 x 16 pixels, each on the screen for twelve hours by the header."""
    clip = tmp_path / "long.y4m"
    clip.write_bytes(b"YUV4MPEG2 W16 H16 F1:43000 Ip A1:1 C420jpeg\n" + (b"FRAME\n" + bytes(384)) * 2)
    windows: list[Window] = []
    found = stream_windows(clip, Windows(12, 4, 1.0).times, 12, windows.append)
    assert found.duration == 86_000
    assert len(windows) == found.windows == 2


def test_reasons_are_those_of_single_reads(tmp_path: Path) -> None:
    (tmp_path / "a.mp4").write_text("no video")
    with pytest.raises(VideoError, match="not a video"):
        stream_windows(tmp_path / "a.mp4", times_for(12), 12, lambda window: None)
