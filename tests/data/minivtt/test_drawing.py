"""What is drawn: looks of their own, inside the middle square, moving as the words say."""

import os
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random

import numpy as np
import pytest
from PIL import Image

from centerclip.data.minivtt.backgrounds import background
from centerclip.data.minivtt.plan import draw_course, plan_clips, poses
from centerclip.data.minivtt.render import check_font, clip_frames, find_font, sprite
from centerclip.data.minivtt.world import MOTIONS, PLACES, WITH_PARTNER, Kind, world
from centerclip.errors import DataError

FONT = find_font()
MAY_LACK = FONT is None and "CI" not in os.environ  # `make test` installs the font where it may: CI has it, or fails
KINDS = [pytest.param("emoji", marks=pytest.mark.skipif(MAY_LACK, reason="no emoji font here")), "shapes"]


@pytest.mark.parametrize("kind", KINDS)
def test_things_look_different_at_40_pixels(kind: Kind) -> None:
    font = FONT if kind == "emoji" else None
    small = []
    for thing in world(kind).things:
        image = Image.new("RGB", (128, 128), (128, 128, 128))
        image.paste(sprite(thing, font), mask=sprite(thing, font))
        small.append(np.asarray(image.resize((40, 40)), dtype=np.float32).ravel())
    pixels = np.stack(small)
    squares = (pixels**2).mean(axis=1)
    distances = squares[:, None] + squares[None] - 2 * pixels @ pixels.T / pixels.shape[1]
    np.fill_diagonal(distances, np.inf)
    assert distances.min() > 9**2


def test_places_look_different_and_vary_with_the_seed() -> None:
    def colours(place: str, seed: int) -> np.ndarray:
        image = background(place, 160, 120, np.random.default_rng(seed)).resize((8, 6), Image.Resampling.BOX)
        return np.asarray(image, dtype=np.float32)

    mean = {place.name: np.mean([colours(place.name, seed) for seed in range(6)], axis=0) for place in PLACES}
    right = 0
    for place in mean:
        for seed in range(100, 105):
            seen = colours(place, seed)
            right += min(mean, key=lambda other: float(((mean[other] - seen) ** 2).mean())) == place
        assert np.abs(colours(place, 1) - colours(place, 2)).mean() > 1
        assert np.array_equal(colours(place, 3), colours(place, 3))
    assert right >= 0.9 * 5 * len(mean)


@pytest.mark.parametrize("motion", MOTIONS)
def test_the_action_stays_in_the_middle_square_and_is_seen(motion: str) -> None:
    for seed in range(20):
        course = draw_course(Random(seed), motion, seconds=4, rolls=False)
        for step in range(11):
            shown = poses(course, step / 10)
            assert len(shown) == (2 if motion in WITH_PARTNER else 1)
            assert all(max(abs(pose.x), abs(pose.y)) <= 0.52 for pose in shown)
        sizes = [pose.size for pose in poses(course, 0.5)]
        assert 0.24 <= min(sizes) <= max(sizes) <= 0.5


def test_motions_do_what_their_names_say() -> None:
    def ends(motion: str):  # type: ignore[no-untyped-def]
        course = draw_course(Random(1), motion, seconds=4, rolls=False)
        return poses(course, 0.0)[-1], poses(course, 1.0)[-1]

    for motion, change in {
        "up": lambda a, b: a.y - b.y,
        "down": lambda a, b: b.y - a.y,
        "left": lambda a, b: a.x - b.x,
        "right": lambda a, b: b.x - a.x,
        "grow": lambda a, b: b.size - a.size,
        "shrink": lambda a, b: a.size - b.size,
        "appear": lambda a, b: b.clear - a.clear,
        "disappear": lambda a, b: a.clear - b.clear,
    }.items():
        assert change(*ends(motion)) > 0.4, motion
    course = draw_course(Random(1), "hide behind", seconds=4, rolls=False)
    assert [pose.partner for pose in poses(course, 0.5)] == [False, True]  # the hider is drawn first: behind
    assert poses(course, 1.0)[0].clear == 0
    course = draw_course(Random(1), "jump over", seconds=4, rolls=False)
    there, jumper = poses(course, 0.5)
    assert there.partner
    assert jumper.y < there.y - 0.4


def test_a_clip_changes_where_its_events_do() -> None:
    plan = next(p for p in plan_clips(world("shapes"), "train", 50, 0) if len({e.place for e in p.events}) == 2)
    plan = replace(plan, events=plan.events[:2])
    frames = [np.asarray(f, dtype=np.float32) for f in clip_frames(plan, 0, world("shapes"), None)]
    assert len(frames) == sum(event.frames for event in plan.events)
    assert frames[0].shape == (plan.height, plan.width, 3)
    jumps = [float(np.abs(after - before).mean()) for before, after in pairwise(frames)]
    assert int(np.argmax(jumps)) == plan.events[0].frames - 1


def test_fonts_that_cannot_draw_are_named(tmp_path: Path) -> None:
    wrong = tmp_path / "letters.ttf"
    wrong.write_bytes(b"no font")
    with pytest.raises(DataError, match=r"letters\.ttf cannot be opened as a colour emoji font; install it"):
        check_font(wrong)
