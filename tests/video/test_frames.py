"""Frames come out as they are meant to be seen."""

import gc
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

from centerclip.video import TooLarge, probe, read_frames
from centerclip.video.container import Limits
from centerclip.video.cut import encode_piece, thumbnail
from centerclip.video.frames import HDR_TRANSFERS, tone_map

from .clips import make_clip, make_hdr_clip, numbered, numbers_of

ONE = 1 << 16
SEEN = np.zeros((48, 64, 3), np.uint8)  # four corners, four colours
SEEN[:24, :32], SEEN[:24, 32:], SEEN[24:, :32] = (220, 20, 20), (20, 220, 20), (20, 20, 220)

# display matrix, and what the camera stored so that the turned picture is the one above
TURNS = {
    "upright": ((1, 0, 0, 1), SEEN, 0),
    "quarter turn clockwise": ((0, 1, -1, 0), np.rot90(SEEN, 1), 90),
    "half turn": ((-1, 0, 0, -1), np.rot90(SEEN, 2), 180),
    "quarter turn counter-clockwise": ((0, -1, 1, 0), np.rot90(SEEN, -1), 270),
    "left and right swapped": ((-1, 0, 0, 1), SEEN[:, ::-1], 0),
    "mirrored and turned": ((0, 1, 1, 0), SEEN.transpose(1, 0, 2), 90),
}


@pytest.mark.parametrize("turn", TURNS)
def test_a_turned_picture_is_shown_upright(tmp_path: Path, turn: str) -> None:
    (a, b, c, d), stored, degrees = TURNS[turn]
    matrix = [a * ONE, b * ONE, 0, c * ONE, d * ONE, 0, 0, 0, 1 << 30]
    clip = make_clip(tmp_path / "a.mp4", frames=4, matrix=matrix, picture=np.ascontiguousarray(stored), crf=5)
    frames = read_frames(clip, 2)
    assert frames.rgb.shape == (2, 48, 64, 3)
    corners = frames.rgb[:, [8, 8, 40, 40], [8, 56, 8, 56]].astype(int)
    wanted = SEEN[[8, 8, 40, 40], [8, 56, 8, 56]].astype(int)
    assert np.abs(corners - wanted).max() < 12
    info = probe(clip)
    assert (info.width, info.height, info.rotation) == (64, 48, degrees)


def test_pixels_that_are_not_square_are_stretched(tmp_path: Path) -> None:
    clip = make_clip(tmp_path / "a.mp4", frames=4, pixel_aspect=Fraction(2, 1))
    assert read_frames(clip, 2).rgb.shape == (2, 48, 128, 3)
    assert read_frames(clip, 2, short_side=24).rgb.shape == (2, 24, 64, 3)
    assert (probe(clip).width, probe(clip).height) == (128, 48)


def test_narrow_pixels_make_the_width_the_short_side(tmp_path: Path) -> None:
    clip = make_clip(tmp_path / "a.mkv", frames=4, pixel_aspect=Fraction(1, 2))
    assert read_frames(clip, 2, short_side=16).rgb.shape == (2, 24, 16, 3)


@pytest.mark.parametrize(("short_side", "shape"), [(None, (48, 64)), (24, (24, 32)), (96, (96, 128)), (1, (1, 1))])
def test_the_short_side_is_as_asked_for(tmp_path: Path, short_side: int | None, shape: tuple[int, int]) -> None:
    clip = make_clip(tmp_path / "a.mp4", frames=4)
    assert tuple(read_frames(clip, 2, short_side=short_side).rgb.shape[1:3]) == shape


def test_a_smaller_picture_still_shows_the_same(tmp_path: Path) -> None:
    clip = make_clip(tmp_path / "a.mp4", frames=40)
    small = read_frames(clip, 5, short_side=24).rgb
    large = small.repeat(2, axis=1).repeat(2, axis=2)
    assert numbers_of(large) == numbers_of(read_frames(clip, 5).rgb)


def test_colours_survive(tmp_path: Path) -> None:
    colours = np.repeat(np.repeat(np.array([[[200, 40, 40], [40, 200, 40], [40, 40, 200]]], np.uint8), 48, 0), 16, 1)
    clip = make_clip(tmp_path / "a.mp4", frames=2, picture=np.ascontiguousarray(colours), crf=1)
    shown = read_frames(clip, 1).rgb[0, 24, [8, 24, 40]].astype(int)
    assert np.abs(shown - [[200, 40, 40], [40, 200, 40], [40, 40, 200]]).max() < 10


def test_decoded_frames_are_let_go_at_once(tmp_path: Path) -> None:
    clip = make_clip(tmp_path / "a.mp4", frames=60, g=10, picture=np.tile(numbered(5), (4, 4, 1)))
    gc.collect()
    gc.disable()
    try:
        read_frames(clip, 12)
        kept = [thing for thing in gc.get_objects() if type(thing) is av.VideoFrame and thing.width > 16]
    finally:
        gc.enable()
    assert not kept


def test_memory_is_limited_and_the_message_names_the_way_out(tmp_path: Path) -> None:
    clip = make_clip(tmp_path / "a.mp4", frames=20)
    with pytest.raises(TooLarge, match=r"Limits\(memory=50000\); short_side"):
        read_frames(clip, 12, limits=Limits(memory=50_000))
    assert read_frames(clip, 12, short_side=24, limits=Limits(memory=50_000)).rgb.shape == (12, 24, 32, 3)


MUTED = np.zeros((64, 96, 3), np.uint8)  # no colour above the knee of the tone curve
for number, colour in enumerate(
    [(20, 20, 20), (90, 90, 90), (150, 40, 40), (40, 140, 40), (40, 40, 150), (160, 120, 90)]
):
    MUTED[32 * (number // 3) :, 32 * (number % 3) :] = colour


@pytest.mark.parametrize("transfer", HDR_TRANSFERS)
def test_hdr_looks_as_it_was_seen(tmp_path: Path, transfer: int) -> None:
    """In frames, thumbnails and pieces for browsers; without its tags, as it was read before, it is far from it."""
    clip = make_hdr_clip(tmp_path / "a.mp4", MUTED, transfer)
    encode_piece(clip, tmp_path / "piece.mp4", 0)
    untagged = make_hdr_clip(tmp_path / "b.mp4", MUTED, transfer, tagged=False)

    def difference(picture: np.ndarray) -> float:
        centres = np.index_exp[8:64:32, 8:96:32]  # a corner of each patch, away from its edges
        return float(np.abs(picture[centres].astype(float) - MUTED[centres]).max())

    assert probe(clip).hdr == HDR_TRANSFERS[transfer][0]
    assert difference(read_frames(clip, 2).rgb[1]) <= 4
    assert difference(np.asarray(thumbnail(clip, 0.1, 96))) <= 6
    assert difference(read_frames(tmp_path / "piece.mp4", 1).rgb[0]) <= 10
    assert difference(read_frames(untagged, 1).rgb[0]) > 25
    assert (probe(untagged).hdr, probe(tmp_path / "piece.mp4").hdr) == ("", "")


@pytest.mark.parametrize("transfer", HDR_TRANSFERS)
def test_the_tone_curve_is_monotonic_from_black_to_white_and_grey_stays_grey(transfer: int) -> None:
    grey = tone_map(np.repeat(np.linspace(0, 1, 1001)[:, None], 3, axis=1), transfer)
    assert np.ptp(grey, axis=1).max() < 1e-4
    assert (np.diff(grey[:, 0]) >= 0).all()
    np.testing.assert_allclose(grey[[0, -1], 0], [0, 1], atol=1e-6)
    paper = {16: 0.5807, 18: 0.75}[transfer]  # 203 cd/m²
    assert 0.8 < tone_map([paper] * 3, transfer)[0] < 0.9


def test_video_without_hdr_is_left_as_ffmpeg_converts_it(tmp_path: Path) -> None:
    """Also with 10 bits and the colours of BT.2020: only the transfer function makes it HDR."""
    clip = make_hdr_clip(tmp_path / "a.mp4", MUTED, 14)
    assert probe(clip).hdr == ""
    with av.open(str(clip)) as container:
        plain = next(container.decode(video=0)).reformat(format="rgb24", interpolation="BICUBIC").to_ndarray()
    assert (read_frames(clip, 1).rgb[0] == plain).all()
