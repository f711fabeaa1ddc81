"""Intervals, files and comparisons of results."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from centerclip.evaluation import Evaluation, EvaluationError, Seeds, compare, gains, metrics, rank_matrix, summaries
from centerclip.evaluation.metrics import NAMES, summary
from centerclip.evaluation.result import differences


def made(quality: float, *, videos: int = 40, captions: int = 3, seed: int = 0, **changes: object) -> Evaluation:
    """An evaluation of random scores, always of the same queries, in which right pairs are better by ``quality``."""
    random = np.random.default_rng(seed)
    owners = np.repeat(np.arange(videos), captions)
    similarity = random.normal(size=(len(owners), videos)).round(2)
    similarity[np.arange(len(owners)), owners] += quality
    ranks = rank_matrix(similarity, owners, top=5)
    result = Evaluation(
        metrics=summaries(ranks),
        benchmark="made-up",
        split="test",
        gallery=videos,
        captions=len(owners),
        rule="mean",
        dual_softmax=False,
        fingerprint="0123456789ab",
        clustering="B6-4,49",
        frames=12,
        max_tokens=32,
        seconds=1.5,
        video_ids=tuple(f"clip, {n}" for n in range(videos)),
        caption_texts=tuple(f'say "{n}"\nétude' for n in range(len(owners))),
        video_of_caption=owners,
        ranks=ranks,
    )
    return replace(result, **changes)


def test_a_sample_is_the_metrics_of_the_drawn_videos_with_all_their_captions() -> None:
    result = made(1.0, videos=7)
    ranks, owners = result.ranks.t2v, result.video_of_caption
    samples = metrics.resampled([ranks], owners, 7, resamples=20, seed=3)[:, 0]
    draws = np.random.default_rng(3).integers(0, 7, (20, 7))
    for drawn, sample in zip(draws, samples, strict=True):
        expected = summary(np.concatenate([ranks[owners == video] for video in drawn]))
        assert sample == pytest.approx([expected[name] for name in NAMES])


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    result = made(1.0)
    whole = metrics.resampled([result.ranks.t2v], result.video_of_caption, 40)
    monkeypatch.setattr(metrics, "CHUNK", 1000)
    assert (metrics.resampled([result.ranks.t2v], result.video_of_caption, 40) == whole).all()


def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    """Queries of a known chance; captions of a video share their luck, which single captions would hide."""
    chance, videos, captions, rounds = 0.4, 150, 4, 100
    random = np.random.default_rng(0)
    owners = np.repeat(np.arange(videos), captions)
    held = 0
    for _ in range(rounds):
        ranks = np.where(random.random(videos) < chance, 1.0, 20.0)[owners]
        samples = metrics.resampled([ranks], owners, videos, resamples=100)[:, 0, 0]
        low, high = metrics.interval(samples)
        held += low <= 100 * chance <= high
    assert 0.87 <= held / rounds <= 0.99


def test_a_saved_result_comes_back_and_its_queries_can_be_read(tmp_path: Path) -> None:
    result = made(
        1.0, missing=("x",), uncaptioned=("z",), unreadable={"y": "broken"}, model="my-model", protocol="published"
    )
    file = result.save(tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["evaluation.json", "queries.csv"]
    again = Evaluation.load(tmp_path / "out")
    assert again.label() == Evaluation.load(file).label() == result.label()
    assert again.label().startswith(
        "made-up test, 40 of 43 videos (1 missing, 1 without a caption, 1 unreadable), 120 captions, rule mean"
    )
    assert again.to_json() == result.to_json()
    assert again.caption_texts == result.caption_texts
    assert again.caption_ids == result.caption_ids
    for direction in ("t2v", "v2t"):
        assert (getattr(again.ranks, direction) == getattr(result.ranks, direction)).all()
        tops = [getattr(each.ranks, f"top_{direction}") for each in (again, result)]
        assert (tops[0].ids == tops[1].ids).all()
        assert np.allclose(tops[0].scores, tops[1].scores, atol=1e-6)
    with (tmp_path / "out" / "queries.csv").open(newline="", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    assert len(rows) == 120 + 40
    right = [row for row in rows if row["direction"] == "t2v" and row["rank"] == "1"]
    assert right
    assert all(row["top1"] == row["video"] for row in right)


def test_metrics_stay_inside_their_intervals_and_the_same_seed_gives_the_same() -> None:
    result, again = made(1.0), made(1.0)
    assert result.intervals == again.intervals
    for direction, values in result.metrics.items():
        for name, value in values.items():
            low, high = result.interval(direction, name)
            assert low <= value <= high


def test_files_that_do_not_belong_together_or_are_damaged_are_refused(tmp_path: Path) -> None:
    made(1.0).save(tmp_path / "a")
    made(2.0).save(tmp_path / "b")
    (tmp_path / "a" / "queries.csv").replace(tmp_path / "b" / "queries.csv")
    with pytest.raises(EvaluationError, match=r"are from different evaluations"):
        Evaluation.load(tmp_path / "b")
    with pytest.raises(EvaluationError, match=r"queries\.csv is missing"):
        Evaluation.load(tmp_path / "a")
    with pytest.raises(EvaluationError, match=r"c does not exist; `centerclip evaluate --output DIR`"):
        Evaluation.load(tmp_path / "c")
    (tmp_path / "a" / "evaluation.json").write_text(json.dumps({"metrics": {}}))
    with pytest.raises(EvaluationError, match=r"is not a saved evaluation: KeyError"):
        Evaluation.load(tmp_path / "a")
    (tmp_path / "b" / "queries.csv").write_text("direction,id\nt2v,x\n")
    with pytest.raises(EvaluationError, match=r"is not the queries\.csv"):
        Evaluation.load(tmp_path / "b")


def test_a_difference_is_paired_so_it_is_surer_than_two_intervals() -> None:
    worse, better = made(1.0, videos=150), made(1.3, videos=150)
    found = compare(worse, better)
    for direction in ("t2v", "v2t"):
        assert found[direction]["R10"].mean == pytest.approx(
            better.metrics[direction]["R10"] - worse.metrics[direction]["R10"]
        )
    assert found["t2v"]["MnR"].clear
    assert found["t2v"]["MnR"].mean < 0
    low, high = differences(found)["intervals"]["t2v"]["MnR"]
    alone = worse.interval("t2v", "MnR")
    assert high - low < alone[1] - alone[0]
    same = compare(worse, worse)
    assert not same["t2v"]["R1"].clear
    assert differences(same)["intervals"]["v2t"]["MnR"] == (0.0, 0.0)


def test_the_order_of_videos_does_not_matter_when_comparing() -> None:
    result = made(1.0)
    order = np.random.default_rng(1).permutation(40)
    captions = np.concatenate([np.flatnonzero(result.video_of_caption == video) for video in order])
    ranks = replace(result.ranks, t2v=result.ranks.t2v[captions], v2t=result.ranks.v2t[order])
    shuffled = replace(
        result,
        video_ids=tuple(result.video_ids[video] for video in order),
        caption_texts=tuple(result.caption_texts[caption] for caption in captions),
        video_of_caption=np.repeat(np.arange(40), 3),
        ranks=ranks,
    )
    assert differences(compare(result, shuffled))["intervals"]["t2v"]["MnR"] == (0.0, 0.0)


def test_results_of_different_data_are_not_compared() -> None:
    result = made(1.0)
    with pytest.raises(EvaluationError, match=r"split test against val; data 0123456789ab against ffff"):
        compare(result, replace(result, split="val", fingerprint="ffff"))
    with pytest.raises(EvaluationError, match=r"gallery 40 videos against 30 videos"):
        compare(result, made(1.0, videos=30))
    with pytest.raises(EvaluationError, match="their queries differ"):
        compare(result, replace(result, video_ids=tuple(f"other{n}" for n in range(40))))


def test_seeds_are_averaged_and_their_intervals_shrink_with_what_they_share() -> None:
    runs = [made(1.0, seed=seed) for seed in range(4)]
    seeds = Seeds(tuple(runs))
    for direction in ("t2v", "v2t"):
        for name in NAMES:
            assert seeds.metrics[direction][name] == pytest.approx(np.mean([r.metrics[direction][name] for r in runs]))
    assert Seeds((runs[0],)).intervals == runs[0].intervals
    low, high = seeds.intervals["t2v"]["R1"]
    assert high - low < np.mean([run.interval()[1] - run.interval()[0] for run in runs])
    assert low < seeds.metrics["t2v"]["R1"] < high


def test_a_gain_is_paired_by_video_and_by_seed() -> None:
    worse, better = (Seeds(tuple(made(quality, seed=seed) for seed in range(3))) for quality in (0.5, 2.5))
    found = gains(worse, better)["R1"]
    assert found.mean == pytest.approx(better.metrics["t2v"]["R1"] - worse.metrics["t2v"]["R1"])
    assert found.low > 0
    assert found.seeds == pytest.approx(
        [b.metrics["t2v"]["R1"] - a.metrics["t2v"]["R1"] for a, b in zip(worse.results, better.results, strict=True)]
    )
    assert str(found).endswith(f", seeds {min(found.seeds):+.1f} to {max(found.seeds):+.1f}")
    nothing = gains(worse, worse)["R1"]
    assert (nothing.mean, nothing.low, nothing.high) == (0, 0, 0)
    one = compare(worse.results[0], better.results[0])
    assert gains(Seeds(worse.results[:1]), Seeds(better.results[:1]), "v2t") == one["v2t"]


def test_seeds_must_be_of_the_same_data() -> None:
    with pytest.raises(EvaluationError, match="their data differ"):
        Seeds((made(1.0), made(1.0, fingerprint="another")))
    with pytest.raises(EvaluationError, match="2 seeds cannot be compared with 1"):
        gains(Seeds((made(1.0), made(1.0))), Seeds((made(1.0),)))
    with pytest.raises(EvaluationError, match="at least one"):
        Seeds(())
