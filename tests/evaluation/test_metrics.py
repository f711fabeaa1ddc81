"""Ranks and metrics: known values, ties, many captions a video, and blocks that change nothing."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from centerclip.evaluation import EvaluationError, rank_matrix, rank_vectors, ranking, retrieval_metrics
from tests.evaluation.reference import ranks as reference

GOLDEN = json.loads((Path(__file__).parent / "golden" / "metrics.json").read_text())


def expected(values: dict[str, float]) -> dict[str, float]:
    names = {"MedianR": "MdR", "MeanR": "MnR"}
    return {names.get(name, name): pytest.approx(value, rel=1e-6) for name, value in values.items()}


def test_the_values_of_an_independent_implementation() -> None:
    single = GOLDEN["single"]
    assert retrieval_metrics(single["similarity"]) == {key: expected(single[key]) for key in ("t2v", "v2t")}
    multi = GOLDEN["multi_caption"]
    found = retrieval_metrics(torch.tensor(multi["similarity_caption_by_video"]), multi["video_of_caption"])
    assert found == {key: expected(multi[key]) for key in ("t2v", "v2t")}


def test_half_the_ties_count_so_a_model_that_sees_no_difference_scores_nothing() -> None:
    found = retrieval_metrics(np.zeros((20, 20)))
    assert found["t2v"] == found["v2t"] == {"R1": 0.0, "R5": 0.0, "R10": 0.0, "MdR": 10.5, "MnR": 10.5}
    ranks = rank_matrix([[0.5, 0.5, 0.1], [0.2, 0.9, 0.9], [0.0, 0.0, 0.0]])
    assert ranks.t2v.tolist() == [1.5, 1.5, 2.0]


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_many_captions_ties_and_videos_without_captions_as_by_the_definition(data: st.DataObject) -> None:
    videos = data.draw(st.integers(1, 7))
    owners = data.draw(st.lists(st.integers(0, videos - 1), min_size=1, max_size=15))
    few_values = st.integers(-2, 2).map(float)  # so that ties abound
    row = st.lists(few_values, min_size=videos, max_size=videos)
    similarity = data.draw(st.lists(row, min_size=len(owners), max_size=len(owners)))
    found = rank_matrix(similarity, owners)
    assert (found.t2v.tolist(), found.v2t.tolist()) == reference(similarity, owners)
    assert found.captioned.tolist() == sorted(set(owners))


def coarse_vectors(captions: int, videos: int, width: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    """Vectors of few different values, many of them equal to one another."""
    generator = torch.Generator().manual_seed(captions)
    texts = torch.randint(-1, 2, (captions, width), generator=generator).float()
    return texts, torch.randint(-1, 2, (videos, width), generator=generator).float()


@pytest.mark.parametrize(("rows", "block"), [(1, 1), (3, 10), (7, 1000), (10_000, 10**8)])
def test_blocks_of_any_shape_give_the_ranks_of_the_matrix(
    monkeypatch: pytest.MonkeyPatch, rows: int, block: int
) -> None:
    texts, videos = coarse_vectors(47, 17)
    owners = torch.randint(0, 15, (47,), generator=torch.Generator().manual_seed(1))  # the last two have no captions
    whole = rank_matrix(texts @ videos.T, owners, top=5)
    monkeypatch.setattr(ranking, "BLOCK_CAPTIONS", rows)
    monkeypatch.setattr(ranking, "BLOCK_SCORES", block)
    found = rank_vectors(texts, videos, owners, top=5)
    assert (found.t2v == whole.t2v).all()
    assert (found.v2t == whole.v2t).all()
    for one, other in ((found.top_t2v, whole.top_t2v), (found.top_v2t, whole.top_v2t)):
        assert one is not None
        assert other is not None
        assert (one.ids == other.ids).all()
        assert (one.scores == other.scores).all()


def test_the_best_candidates_come_in_order_and_the_first_of_equal_ones_wins() -> None:
    similarity = [[0.1, 0.9, 0.9, 0.2], [0.5, 0.5, 0.5, 0.5], [0.3, 0.0, 0.1, 0.2], [0.4, 0.0, 0.9, 0.9]]
    found = rank_matrix(similarity, [1, 0, 0, 2], top=2)
    assert found.top_t2v is not None
    assert found.top_t2v.ids.tolist() == [[1, 2], [0, 1], [0, 3], [2, 3]]
    assert found.top_v2t is not None  # the best caption of video 0 is 1, then 2; of video 1 it is 0; of video 2, 3
    assert found.top_v2t.ids.tolist() == [[1, 3], [0, 1], [0, 3]]
    assert found.top_v2t.scores.tolist() == [[0.5, 0.4], [0.9, 0.5], [0.9, 0.9]]


def test_equal_vectors_tie_wherever_they_stand_and_however_long_the_sums_are() -> None:
    generator = torch.Generator().manual_seed(0)
    one = torch.nn.functional.normalize(torch.randn(1, 771, generator=generator), dim=1)
    text = torch.nn.functional.normalize(torch.randn(37, 771, generator=generator), dim=1)
    found = rank_vectors(text, one.expand(37, -1))
    assert (found.t2v == 19).all()  # 1 + half of 36


def test_vectors_rank_as_float64_does_where_float64_sees_a_difference() -> None:
    generator = torch.Generator().manual_seed(0)
    texts = torch.nn.functional.normalize(torch.randn(300, 64, generator=generator), dim=1)
    videos = torch.nn.functional.normalize(texts + 0.2 * torch.randn(300, 64, generator=generator), dim=1)
    expected_ranks = rank_matrix(texts.double() @ videos.double().T)
    for factor in (1e-6, 1.0, 37.0):  # the grid follows the length of the vectors
        found = rank_vectors(texts * factor, videos)
        assert (found.t2v == expected_ranks.t2v).all()
        assert (found.v2t == expected_ranks.v2t).all()


def test_dual_softmax_is_the_product_of_both_softmaxes() -> None:
    generator = torch.Generator().manual_seed(0)
    texts, videos = torch.randn(40, 8, generator=generator), torch.randn(25, 8, generator=generator)
    owners = torch.arange(40) % 25
    logits = 3.0 * texts.double() @ videos.double().T
    expected_ranks = rank_matrix(logits.softmax(0) * logits.softmax(1), owners)
    found = rank_vectors(texts, videos, owners, dual_softmax_scale=3.0)
    assert (found.t2v == expected_ranks.t2v).all()
    assert (found.v2t == expected_ranks.v2t).all()
    assert (found.t2v != rank_vectors(texts, videos, owners).t2v).any()


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf")])
def test_what_is_no_number_is_named_and_never_dropped(wrong: float) -> None:
    similarity = torch.zeros(4, 4)
    similarity[2, 3] = wrong
    with pytest.raises(EvaluationError, match="row 2, column 3"):
        retrieval_metrics(similarity)
    with pytest.raises(EvaluationError, match="the vector of video 2 holds NaN or infinity"):
        rank_vectors(torch.zeros(4, 4), similarity)


@pytest.mark.parametrize(
    ("shape", "owners", "message"),
    [
        ((3, 2), None, "3 captions and 2 videos are not one to one"),
        ((2, 2), [0, 2], "caption 1 belongs to video 2, but there are 2 videos"),
        ((2, 2), [0], "must be 2 integers"),
        ((2, 2), [0.0, 1.0], "must be 2 integers"),
        ((0, 2), [], "nothing to rank"),
        ((2, 2, 2), None, r"must be \[captions, videos\]"),
    ],
)
def test_what_does_not_fit_is_said(shape: tuple[int, ...], owners: list[float] | None, message: str) -> None:
    with pytest.raises(EvaluationError, match=message):
        retrieval_metrics(np.zeros(shape), owners)


def test_the_first_example_of_the_guide_runs() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "evaluation.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    exec(re.findall(r"```python\n(.*?)```", guide, flags=re.DOTALL)[0], names)
    assert retrieval_metrics(names["similarity"])["t2v"]["R1"] == pytest.approx(200 / 3)
