"""Sentence-to-moment retrieval, against loops over one sentence and one run at a time."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from centerclip.bundled import demo_clips
from centerclip.data import Benchmark, Clip, load
from centerclip.data.minivtt import read_events
from centerclip.errors import AnnotationError, EvaluationError
from centerclip.evaluation import EncodedBenchmark
from centerclip.evaluation.moments import IOUS, TOPS, read_moments, score_moments

SEGMENTS, WIDTH = 4, 5


def iou(a, b):
    shared = max(0.0, min(a[1], b[1]) - max(a[0], b[0]))
    return shared / (a[1] - a[0] + b[1] - b[0] - shared)


def obvious(texts, segments, spans, asked):
    """The figures of :class:`MomentScore`, sentence by sentence."""
    counts = {part: dict.fromkeys([f"R{top}@{least}" for top in TOPS for least in IOUS], 0) for part in "vc"}
    for text, (owner, start, end, _) in zip(texts, asked, strict=True):
        best = []
        for video, own in enumerate(spans):
            similarities = [float(text @ segments[video, place]) for place in range(len(own))]
            mean = np.mean(similarities)
            runs = []
            for first in range(len(own)):
                for last in range(first, len(own)):
                    inside = similarities[first : last + 1]
                    above = sum(value - mean for value in inside) / np.sqrt(len(inside))
                    runs.append((above, np.mean(inside), (own[first][0], own[last][1])))
            runs.sort(key=lambda run: -run[0])
            best.append((runs[0][1], video, runs[0][2]))
            if video == owner:
                kept = []
                for run in runs:
                    if all(iou(run[2], other) <= 0.5 for other in kept):
                        kept.append(run[2])
                for top in TOPS:
                    for least in IOUS:
                        counts["v"][f"R{top}@{least}"] += any(iou(run, (start, end)) >= least for run in kept[:top])
        best.sort(reverse=True)
        for top in TOPS:
            for least in IOUS:
                hits = (video == owner and iou(run, (start, end)) >= least for _, video, run in best[:top])
                counts["c"][f"R{top}@{least}"] += any(hits)
    return [{key: 100 * count / len(asked) for key, count in each.items()} for each in counts.values()]


def test_scores_are_those_of_the_definition(monkeypatch):
    rng = np.random.default_rng(0)
    real = [4, 3, 1, 4, 2, 4, 4]
    clips = tuple(Clip(f"v{n}", demo_clips() / f"{n}.mp4", ("a",)) for n in range(len(real)))
    segments = torch.nn.functional.normalize(
        torch.from_numpy(rng.normal(size=(len(real), SEGMENTS, WIDTH))), dim=2
    ).float()
    mask = torch.arange(SEGMENTS) < torch.tensor(real)[:, None]
    spans = tuple([(2.0 * n, 2.0 * n + 2) for n in range(count)] for count in real)
    moments = {
        clip.id: [
            (float(s), float(s + rng.uniform(0.5, 6)), f"{clip.id} {n}") for n, s in enumerate(rng.uniform(0, 4, 3))
        ]
        for clip in clips
    }
    asked = [(video, *moment) for video, clip in enumerate(clips) for moment in moments[clip.id]]
    texts = torch.nn.functional.normalize(torch.from_numpy(rng.normal(size=(len(asked), WIDTH))), dim=1).float()
    place = {text: row for row, (*_, text) in enumerate(asked)}
    model = SimpleNamespace(segments=SEGMENTS, encode_text=lambda some, half: texts[[place[each] for each in some]])
    encoded = EncodedBenchmark(Benchmark("folder", "test", clips), segments, mask, texts, spans)
    in_video, in_collection = obvious(texts.double(), segments.double(), spans, asked)
    for batch in (2**24, 1):  # all sentences at a time, and one by one
        monkeypatch.setattr("centerclip.evaluation.moments.BATCH_VALUES", batch)
        score = score_moments(model, encoded.benchmark, moments, encoded=encoded)
        assert score.in_video == pytest.approx(in_video)
        assert score.in_collection == pytest.approx(in_collection)
        assert (score.sentences, score.videos) == (21, 7)
        assert 0 < score.chance["R1@0.7"] < score.chance["R1@0.3"] < 100


def test_minivtt_events_in_the_format_of_activitynet(tmp_path):
    """A stand-in copy: the same sentences and times, whichever file they come from."""
    clips = load("folder", demo_clips(), "test")
    content = {
        video: {
            "duration": clip.duration,
            "timestamps": [[event.end, event.start] for event in clip.events],  # some of the published are reversed
            "sentences": [f" {event.caption}" for event in clip.events],
        }
        for video, clip in read_events(demo_clips()).items()
    }
    (tmp_path / "val_1.json").write_text(json.dumps(content))
    copy = replace(clips, name="activitynet")
    assert read_moments(copy, demo_clips(), tmp_path) == read_moments(clips, demo_clips())


def test_what_has_no_times_is_refused(tmp_path):
    clips = Benchmark("msvd", "test", (Clip("a", tmp_path / "a.mp4", ("a",)),))
    with pytest.raises(EvaluationError, match="msvd has no times of moments"):
        read_moments(clips, tmp_path)
    (tmp_path / "val_1.json").write_text('{"b": {"timestamps": [[0, 1]], "sentences": ["x"]}}')
    with pytest.raises(EvaluationError, match="no timed sentences of 1 videos, first of a"):
        read_moments(replace(clips, name="activitynet"), tmp_path)
    (tmp_path / "val_1.json").write_text('{"a": {"timestamps": [[0, 1]], "sentences": []}}')
    with pytest.raises(AnnotationError, match="not in the format of ActivityNet Captions"):
        read_moments(replace(clips, name="activitynet"), tmp_path)
