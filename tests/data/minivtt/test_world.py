"""The world, its division among the splits, and what is planned to happen in it."""

from collections import Counter
from itertools import islice

import pytest

from centerclip.data.minivtt.plan import ClipPlan, plan_clips, plan_images
from centerclip.data.minivtt.world import MOTIONS, PLACES, SPLITS, WITH_PARTNER, Kind, world

KINDS: tuple[Kind, ...] = ("emoji", "shapes")


def plans(kind: Kind, split: str, count: int, seed: int = 0) -> list[ClipPlan]:
    return list(plan_clips(world(kind), split, count, seed))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
def test_about_a_hundred_things_with_names_and_looks_of_their_own(kind: Kind) -> None:
    things = world(kind).things
    assert 95 <= len(things) <= 130
    names = [name for thing in things for name in thing.names]
    assert len(set(names)) == len(names)
    assert len({thing.look for thing in things}) == len(things)


@pytest.mark.parametrize("kind", KINDS)
def test_every_split_has_pairs_of_its_own_and_training_has_every_part(kind: Kind) -> None:
    those = world(kind)
    for thing in those.things:
        for parts in (MOTIONS, [place.name for place in PLACES]):
            counts = Counter(those.split_of(thing, part) for part in parts)
            assert (counts["val"], counts["test"]) == (1, 3)
    for part in (*MOTIONS, *(place.name for place in PLACES)):
        trained = sum(those.split_of(thing, part) == "train" for thing in those.things)
        assert trained > len(those.things) / 2
    assert all(those.things_at(place, split) for place in PLACES for split in SPLITS)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("split", "count"), [("train", 1400), ("val", 100), ("test", 500)])
def test_clips_show_pairs_of_their_split_alone_and_each_thing_once(kind: Kind, split: str, count: int) -> None:
    those, seen = world(kind), set()
    for plan in plans(kind, split, count):
        assert len(set(plan.things)) == len(plan.things)
        for event in plan.events:
            assert (event.partner is not None) == (event.motion in WITH_PARTNER)
            assert {those.split_of(thing, event.motion) for thing in event.things} == {split}
            assert {those.split_of(thing, event.place.name) for thing in event.things} == {split}
            seen |= {event.motion, event.place.name, *(thing.name for thing in event.things)}
    if split == "train":  # every single part is learnt
        assert seen == {*MOTIONS, *(place.name for place in PLACES), *(thing.name for thing in those.things)}


@pytest.mark.parametrize("seed", [0, 7])
def test_a_sentence_has_one_right_answer(seed: int) -> None:
    for split, count in (("val", 100), ("test", 500)):
        several = [plan for plan in plans("emoji", split, count, seed) if len(plan.events) > 1]
        single = [plan.events[0].what for plan in plans("emoji", split, count, seed) if len(plan.events) == 1]
        assert len({plan.things for plan in several}) == len(several)
        assert len(set(single)) == len(single)
        assert not set(single) & {event.what for plan in several for event in plan.events}
    trained = [tuple(event.what for event in plan.events) for plan in plans("emoji", "train", 3000, seed)]
    assert len(set(trained)) == len(trained)


def test_lengths_and_numbers_of_events_are_as_described() -> None:
    clips = plans("emoji", "train", 1000)
    share = {count: number / len(clips) for count, number in Counter(len(plan.events) for plan in clips).items()}
    assert share == pytest.approx({1: 0.25, 2: 0.5, 3: 0.25}, abs=0.05)
    assert all(3 <= plan.duration <= 30 for plan in clips)
    assert all(2.5 <= event.frames / plan.fps <= 10.1 for plan in clips for event in plan.events)
    assert all(112 <= min(plan.width, plan.height) <= 160 for plan in clips)
    several = [plan for plan in clips if len(plan.events) > 1]
    stay = sum(len({event.place for event in plan.events}) == 1 for plan in several)
    assert stay / len(several) == pytest.approx(0.5, abs=0.06)


def test_more_clips_only_add_and_another_seed_gives_others() -> None:
    few, many = plans("emoji", "test", 30), list(islice(plans("emoji", "test", 90), 30))
    assert few == many
    assert [plan.events for plan in plans("emoji", "test", 30, seed=1)] != [plan.events for plan in few]


def test_images_show_training_pairs_alone() -> None:
    those = world("emoji")
    for split in ("train", "val"):
        for plan in plan_images(those, split, 300, 0):  # type: ignore[arg-type]
            assert {those.split_of(thing, plan.place.name) for thing in plan.things} == {"train"}
