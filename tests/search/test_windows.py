"""When a video is looked at."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from centerclip.video.sampling import Windows


@settings(deadline=None, max_examples=50)
@given(
    duration=st.floats(0.01, 2_000),
    available=st.integers(1, 60_000),
    frames=st.sampled_from([4, 12, 60]),
    per_segment=st.sampled_from([1, 2, 4]),
    every=st.floats(0.2, 30),
)
def test_frames_are_steady_and_segments_cover_the_whole_video(
    duration: float, available: int, frames: int, per_segment: int, every: float
) -> None:
    windows = Windows(frames, frames // per_segment, every)
    count, times = windows.count(duration, available), windows.times(duration, available)
    assert len(times) == count * frames
    assert 1 <= count <= available
    step = duration / len(times)
    assert all(abs(b - a - step) < 1e-6 * duration for a, b in itertools.pairwise(times))
    assert 0 <= times[0] < times[-1] < duration
    starts, ends = windows.spans(duration, count)
    assert starts[0] == 0
    assert ends[-1] == pytest.approx(duration)
    assert (starts[1:] == ends[:-1]).all()
    assert len(starts) == count * windows.segments
    for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
        inside = times[number * per_segment : (number + 1) * per_segment]
        assert start - 1e-3 * step <= inside[0] <= inside[-1] <= end + 1e-3 * step


def test_the_rate_is_the_one_asked_for_in_long_videos() -> None:
    two_hours = Windows(12, 4, 1.0)
    assert len(two_hours.times(7200, 180_000)) == 7200
    starts, ends = two_hours.spans(7200, 600)
    assert (ends - starts).max() == pytest.approx(3)
    assert len(Windows(12, 4, 5.0).times(7200, 180_000)) == 1440


def test_a_short_clip_is_stretched_over_one_window() -> None:
    assert Windows(12, 4, 1.0).times(2.4, 60) == pytest.approx([0.1 + 0.2 * n for n in range(12)])
