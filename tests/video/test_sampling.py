"""Which frames are taken."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from centerclip.video import bin_centres, random_in_bins

KNOWN = json.loads((Path(__file__).parent / "bin_centres.json").read_text())
FRAMES, COUNTS = st.integers(1, 5000), st.integers(1, 100)


@pytest.mark.parametrize("case", KNOWN)
def test_bin_centres_have_the_known_values(case: str) -> None:
    available, count = map(int, case.split("->"))
    assert bin_centres(available, count) == KNOWN[case]


@given(FRAMES, COUNTS)
def test_bin_centres_lie_in_the_middle_of_their_bins(available: int, count: int) -> None:
    for i, frame in enumerate(bin_centres(available, count)):
        if available <= count:
            assert frame == min(i, available - 1)
        else:
            assert abs(frame + 0.5 - (i + 0.5) * available / count) <= 1


@given(FRAMES, COUNTS, st.integers(), st.integers(0), st.text())
def test_a_random_frame_lies_in_its_own_bin(available: int, count: int, seed: int, epoch: int, video: str) -> None:
    frames = random_in_bins(available, count, seed=seed, epoch=epoch, video=video)
    assert len(frames) == count
    for i, frame in enumerate(frames):
        if available <= count:
            assert frame == min(i, available - 1)
        else:
            assert i * available // count <= frame < (i + 1) * available // count


@given(FRAMES, COUNTS, st.integers(), st.integers(0), st.text())
def test_the_authors_bins_are_whole_frames_from_the_start(
    available: int, count: int, seed: int, epoch: int, video: str
) -> None:
    width = available // count
    frames = random_in_bins(available, count, seed=seed, epoch=epoch, video=video, drop_tail=True)
    for i, frame in enumerate(frames):
        if available <= count:
            assert frame == min(i, available - 1)
        else:
            assert i * width <= frame < (i + 1) * width


def test_the_authors_bins_never_draw_the_tail() -> None:
    key = {"seed": 42, "epoch": 3, "video": "video7010"}
    assert random_in_bins(23, 12, **key, drop_tail=True) == list(range(12))
    assert random_in_bins(23, 12, **key)[-1] > 11
    # the same draws where nothing is left over
    assert random_in_bins(300, 12, **key, drop_tail=True) == random_in_bins(300, 12, **key)


def test_a_random_choice_is_a_function_of_its_key() -> None:
    key = {"seed": 42, "epoch": 3, "video": "video7010"}
    frames = random_in_bins(300, 12, **key)
    # pinned: other values would change what a resumed run sees
    assert frames == [3, 44, 62, 90, 124, 127, 172, 194, 209, 232, 251, 298]
    assert random_in_bins(300, 12, **key) == frames
    assert random_in_bins(300, 12, **{**key, "epoch": 4}) != frames
    assert random_in_bins(300, 12, **{**key, "seed": 43}) != frames
    assert random_in_bins(300, 12, **{**key, "video": "video7011"}) != frames


def test_random_frames_spread_over_the_whole_bin() -> None:
    seen = {random_in_bins(80, 8, seed=0, epoch=epoch, video="v")[3] for epoch in range(300)}
    assert seen == set(range(30, 40))


@pytest.mark.parametrize(("available", "count"), [(0, 12), (12, 0), (-1, 1)])
def test_nothing_can_be_taken_of_nothing(available: int, count: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        bin_centres(available, count)
