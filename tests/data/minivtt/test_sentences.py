"""Sentences: grammatical, different, and naming what happens in the order in which it does."""

import re

import pytest

from centerclip.data.minivtt.plan import ClipPlan, a, clip_captions, event_captions, plan_clips, plan_images
from centerclip.data.minivtt.world import Thing, world


@pytest.fixture(scope="module")
def clips() -> list[ClipPlan]:
    return list(plan_clips(world("emoji"), "test", 200, 0))


def places_of(things: tuple[Thing, ...], sentence: str) -> list[int]:
    """Where each thing is named, -1 where it is not."""
    found = []
    for thing in things:
        named = [match.start() for name in thing.names if (match := re.search(rf"\b{re.escape(a(name))}\b", sentence))]
        found.append(min(named, default=-1))
    return found


def test_the_article_goes_by_sound() -> None:
    assert [a(noun) for noun in ("cat", "apple", "unicorn", "UFO", "umbrella", "orange star")] == [
        "a cat",
        "an apple",
        "a unicorn",
        "a UFO",
        "an umbrella",
        "an orange star",
    ]


def test_five_different_captions_name_every_thing_in_its_order(clips: list[ClipPlan]) -> None:
    for plan in clips:
        captions = clip_captions(plan, 0)
        assert len(set(captions)) == 5
        for caption in captions:
            order = places_of(plan.things, caption)
            assert order == sorted(order), caption
            assert min(order) >= 0, caption
            assert "  " not in caption
            assert not re.search(r"\b(\w+) \1\b", caption.replace("around and around", "")), caption


def test_the_first_caption_says_where_and_later_ones_may_not(clips: list[ClipPlan]) -> None:
    for plan in clips:
        first, *_, without_place, without_motion = clip_captions(plan, 0)
        for event in plan.events:
            assert any(phrase in first for phrase in event.place.phrases), first
        if len(plan.events) > 1:
            words = {word for event in plan.events for phrase in event.place.phrases for word in [phrase]}
            assert not any(phrase in without_place for phrase in words)
            assert all(any(phrase in without_motion for phrase in e.place.phrases) for e in plan.events)
            assert len(without_motion) < len(first) + 40


def test_event_captions_name_their_own_things_alone(clips: list[ClipPlan]) -> None:
    for plan in clips:
        for event, caption in zip(plan.events, event_captions(plan, 0), strict=True):
            assert min(places_of(event.things, caption)) >= 0
            others = tuple(thing for thing in plan.things if thing not in event.things)
            assert set(places_of(others, caption)) <= {-1}


def test_wording_is_varied_and_the_same_for_the_same_seed(clips: list[ClipPlan]) -> None:
    told = [clip_captions(plan, 0) for plan in clips]
    assert told == [clip_captions(plan, 0) for plan in clips]
    assert told != [clip_captions(plan, 1) for plan in clips]
    connectives = ("then", "after that", "before", "first", "after ", "afterwards", "finally", "in the end")
    every = " | ".join(caption for captions in told for caption in captions)
    assert all(connective in every for connective in connectives)


def test_images_have_three_short_captions() -> None:
    for plan in plan_images(world("shapes"), "train", 200, 0):
        assert len(set(plan.captions)) == 3
        assert all(min(places_of(plan.things, caption)) >= 0 for caption in plan.captions)
        assert any(phrase in caption for phrase in plan.place.phrases for caption in plan.captions)
