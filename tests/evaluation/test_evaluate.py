"""A model on a benchmark: the same in one process or two, and honest about what it lacks."""

import json
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import distributed as dist

from centerclip import CenterCLIP
from centerclip.data import Benchmark, Clip
from centerclip.distributed import Processes
from centerclip.evaluation import Evaluation, EvaluationError, encode_benchmark, evaluate, retrieval_metrics
from centerclip.evaluation.evaluate import decode_clip
from centerclip.model.pipeline import Window
from centerclip.model.vectors import Rule, video_vectors
from tests.data.made_up import clip as make_clip
from tests.evaluation.made_up import COUNT, coloured, spoilt
from tests.model import tiny


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory: pytest.TempPathFactory) -> Benchmark:
    return coloured(tmp_path_factory.mktemp("clips"))


def model():  # type: ignore[no-untyped-def]
    return tiny.center_clip("B2-2,5", frames=4, similarity_rule="renormalise")


def test_vectors_are_those_of_videos_and_sentences_encoded_one_by_one(benchmark: Benchmark) -> None:
    center_clip = model()
    encoded = encode_benchmark(center_clip, benchmark, batch_size=4, workers=0)
    for place, clip in enumerate(benchmark.videos):
        alone = center_clip.encode_video(clip.path)
        assert torch.allclose(encoded.segments[place][encoded.mask[place]], alone.segments, atol=1e-5)
    alone_texts = torch.cat([center_clip.encode_text(caption) for caption in benchmark.captions])
    assert torch.allclose(encoded.texts, alone_texts, atol=1e-5)


def test_frames_after_the_end_of_a_clip_are_not_used(tmp_path: Path) -> None:
    path = make_clip(tmp_path / "brighter.mp4", seconds=2)  # from 20 to 220
    brightest = {}
    for end in (None, 0.5):
        windows: list[Window] = []
        decode_clip(model(), Clip("a", path, ("x",), end), lambda _, window, kept=windows: kept.append(window))
        brightest[end] = windows[0].rgb.mean(axis=(1, 2, 3)).max()
    assert brightest[None] > 180
    assert brightest[0.5] < 70


@pytest.mark.parametrize("rule", [None, "mean"])
def test_metrics_are_those_of_the_similarity_matrix_by_either_rule(benchmark: Benchmark, rule: Rule | None) -> None:
    center_clip = model()
    encoded = encode_benchmark(center_clip, benchmark, batch_size=4, workers=0)
    center_clip.train()
    result = evaluate(center_clip, benchmark, rule=rule, batch_size=4, workers=0)
    assert center_clip.training  # back in the mode that it was in
    assert result.rule == (rule or "renormalise")
    vectors = video_vectors(encoded.segments, encoded.mask, rule=result.rule)
    similarity = encoded.texts.double() @ vectors.double().T
    assert result.metrics == retrieval_metrics(similarity, benchmark.video_of_caption)
    assert result.ranks.top_t2v is not None
    assert np.allclose(result.ranks.top_t2v.scores[:, 0], similarity.max(dim=1).values, atol=1e-7)


def test_a_result_says_what_it_is_of(benchmark: Benchmark) -> None:
    calls = []
    result = evaluate(model(), benchmark, batch_size=4, workers=0, on_progress=lambda *call: calls.append(call))
    captions = len(benchmark.captions)
    assert result.label() == (
        f"folder test, {COUNT} videos, {captions} captions, rule renormalise, protocol clean, data "
        f"{benchmark.fingerprint}"
    )
    assert result.setting() == "B2-2,5, 4 frames"
    distinct = len(set(benchmark.captions))
    videos = [("videos", done, COUNT) for done in range(1, COUNT + 1)]
    assert calls == [*videos, ("sentences", distinct, distinct)]
    center_clip = tiny.center_clip("B2-2,5", frames=4, protocol="published")
    assert ", rule mean, protocol published, data " in evaluate(center_clip, benchmark, workers=0).label()
    sharper = evaluate(model(), benchmark, dual_softmax=True, batch_size=9, workers=0)
    assert "DUAL SOFTMAX over all queries" in sharper.label()


def test_evaluation_is_in_float32_on_a_gpu_too(benchmark: Benchmark, monkeypatch: pytest.MonkeyPatch) -> None:
    center_clip, halves = model(), []
    inference = type(center_clip).inference

    def recorded(self: CenterCLIP, *, half: bool = True) -> AbstractContextManager[None]:
        halves.append(half)
        return inference(self, half=half)

    monkeypatch.setattr(CenterCLIP, "inference", recorded)
    evaluate(center_clip, benchmark, batch_size=4, workers=1)
    assert halves == [False] * 4  # three batches of videos, one of sentences
    center_clip.encode_text("a plain picture")
    assert halves[4:] == [True]  # search keeps the faster one


def test_equal_sentences_tie_for_every_video(benchmark: Benchmark) -> None:
    encoded = encode_benchmark(model(), benchmark, batch_size=4, workers=0)
    places = [place for place, caption in enumerate(benchmark.captions) if caption == "a plain picture"]
    assert len(places) == 2
    assert torch.equal(encoded.texts[places[0]], encoded.texts[places[1]])


def test_videos_that_cannot_be_read_are_all_named_or_left_out_and_said(benchmark: Benchmark, tmp_path: Path) -> None:
    bad = spoilt(benchmark, tmp_path)
    with pytest.raises(EvaluationError, match=r"2 of 11 videos .* cannot be read: bad0, bad1\. bad0: this is not a"):
        evaluate(model(), bad, batch_size=4, workers=0)
    result = evaluate(model(), bad, batch_size=4, workers=0, allow_unreadable=True)
    assert "9 of 11 videos (2 unreadable)" in result.label()
    assert result.fingerprint == benchmark.fingerprint
    assert list(result.unreadable) == ["bad0", "bad1"]
    whole = evaluate(model(), benchmark, batch_size=4, workers=0)
    assert np.abs(result.ranks.t2v - whole.ranks.t2v).max() <= 1  # other batches: the last bits may differ
    nothing = Benchmark("folder", "test", bad.videos[3:5])
    with pytest.raises(EvaluationError, match="none of the 2 videos"):
        evaluate(model(), nothing, workers=0, allow_unreadable=True)


def test_a_model_that_gives_nan_is_an_error_that_names_the_first_video(benchmark: Benchmark) -> None:
    broken = model()
    with torch.no_grad():
        broken.backbone.visual_projection.weight[0, 0] = torch.nan
    with pytest.raises(EvaluationError, match=r"NaN or infinity for 9 of 9 vectors, first for video v0 \(.*v0\.mp4\)"):
        evaluate(broken, benchmark, batch_size=9, workers=0)


def one_of_two(rank: int, meeting: str, benchmark: Benchmark, folder: str) -> None:
    """What each of two processes does."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    try:
        for name, data in (("whole", benchmark), ("single", Benchmark("folder", "test", benchmark.videos[:1]))):
            group = Processes(rank, 2, torch.device("cpu"))
            result = evaluate(model(), data, batch_size=2, workers=0, group=group, allow_unreadable=True)
            result.save(Path(folder) / f"{name}{rank}")
    finally:
        dist.destroy_process_group()


def test_two_processes_give_the_very_same_numbers_as_one(benchmark: Benchmark, tmp_path: Path) -> None:
    """Unreadable videos in the middle, an odd last batch, and a split in which the second process has nothing to do."""
    bad = spoilt(benchmark, tmp_path)
    torch.multiprocessing.start_processes(
        one_of_two, (str(tmp_path / "meeting"), bad, str(tmp_path)), nprocs=2, start_method="fork"
    )
    alone = evaluate(model(), bad, batch_size=2, workers=0, allow_unreadable=True)
    single = evaluate(model(), Benchmark("folder", "test", bad.videos[:1]), workers=0)
    for expected, name in ((alone, "whole"), (single, "single")):
        expected.save(tmp_path / name)
        for rank in range(2):
            assert Evaluation.load(tmp_path / f"{name}{rank}").label() == expected.label()
            assert (tmp_path / f"{name}{rank}" / "queries.csv").read_bytes() == (
                tmp_path / name / "queries.csv"
            ).read_bytes()
            content = json.loads((tmp_path / f"{name}{rank}" / "evaluation.json").read_text())
            assert content["metrics"] == expected.metrics
