"""The harder test split: twins differ in order, motion or roles alone, and every sentence has one right answer."""

from collections import Counter
from dataclasses import replace

import pytest
import torch

from centerclip.data import load
from centerclip.data.minivtt import make, read_events
from centerclip.data.minivtt.plan import OPPOSITES, clip_captions, plan_pairs
from centerclip.data.minivtt.world import world
from centerclip.errors import EvaluationError
from centerclip.evaluation import EncodedBenchmark
from centerclip.evaluation.pairs import score_pairs


@pytest.mark.parametrize("kind", ["emoji", "shapes"])
def test_twins_show_the_same_but_for_order_motion_or_roles(kind):
    plans = list(plan_pairs(world(kind), 120, 0))
    assert plans == list(plan_pairs(world(kind), 120, 0))
    assert plans[:60] == list(plan_pairs(world(kind), 61, 0))  # more only adds to them; an odd one has no twin
    kinds = Counter()
    for first, second in zip(plans[::2], plans[1::2], strict=True):
        assert sorted(thing.name for thing in first.things) == sorted(thing.name for thing in second.things)
        assert (first.fps, first.duration, first.width) == (second.fps, second.duration, second.width)
        if len(first.events) == 2:
            assert first.events == second.events[::-1]
            kinds["order"] += 1
        elif first.events[0].partner:
            assert first.events[0].things == second.events[0].things[::-1]
            kinds["roles"] += 1
        else:
            assert (first.events[0].motion, second.events[0].motion) in OPPOSITES
            kinds["motion"] += 1
        for plan in (first, second):
            for event in plan.events:
                for thing in event.things:
                    assert world(kind).split_of(thing, event.motion) == "test"
                    assert world(kind).split_of(thing, event.place.name) == "test"
    assert min(kinds[name] for name in ("order", "motion", "roles")) >= 5
    assert len({tuple(event.what for event in plan.events) for plan in plans}) == len(plans)
    captions = [caption for plan in plans for caption in clip_captions(plan, 0)]
    assert len(set(captions)) == len(captions) == 3 * len(plans)


def test_made_read_and_scored(tmp_path):
    assert make(tmp_path, clips=21, pairs=True, workers=1, things="shapes").clips == {"test": 20}
    clips = load("folder", tmp_path, "test")
    assert (len(clips), len(clips.captions)) == (20, 60)
    assert len(read_events(tmp_path)) == 20
    texts = torch.eye(20)[list(clips.video_of_caption)]
    mask = torch.ones(20, 1, dtype=torch.bool)
    known = EncodedBenchmark(clips, torch.eye(20)[:, None], mask, texts)
    assert set(score_pairs(known, tmp_path, rule="mean").accuracy.values()) == {100.0}
    blind = replace(known, segments=torch.ones(20, 1, 20))
    score = score_pairs(blind, tmp_path, rule="mean")
    assert set(score.accuracy.values()) == {50.0}
    assert score.sentences["all"] == 60 == sum(score.sentences.values()) - 60
    with pytest.raises(EvaluationError, match="has no twin"):
        score_pairs(replace(known, benchmark=replace(clips, videos=clips.videos[1:])), tmp_path, rule="mean")
