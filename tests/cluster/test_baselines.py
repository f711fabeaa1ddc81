import json
from pathlib import Path

import numpy as np
import pytest
import torch

from centerclip.cluster import ClusterError, pooling, sparse_sampling, temporal_shift, token_shift

GOLDEN = Path(__file__).parent / "golden"
SHIFTS = np.load(GOLDEN / "shifts.npz")
SAMPLES = json.loads((GOLDEN / "token_sampling.json").read_text())


def test_golden_shifts():
    hidden, frames = torch.from_numpy(SHIFTS["x"]), int(SHIFTS["frames"])
    assert torch.equal(token_shift(hidden, frames=frames), torch.from_numpy(SHIFTS["token_shift"]))
    assert torch.equal(temporal_shift(hidden, frames=frames), torch.from_numpy(SHIFTS["temporal_shift"]))


def test_shifts_move_an_eighth_each_way_and_stay_inside_a_video():
    hidden = torch.arange(1.0, 7.0)[:, None, None].expand(6, 3, 16).contiguous()  # two videos of three frames
    shifted = temporal_shift(hidden, frames=3)
    assert torch.equal(shifted[:, 0], hidden[:, 0])
    assert shifted[:, 1, 0].tolist() == [2, 3, 0, 5, 6, 0]
    assert shifted[:, 1, 2].tolist() == [0, 1, 2, 0, 4, 5]
    assert shifted[:, 1, 4].tolist() == [1, 2, 3, 4, 5, 6]
    shifted = token_shift(hidden, frames=3)
    assert torch.equal(shifted[:, 1:], hidden[:, 1:])
    assert shifted[:, 0, 1].tolist() == [2, 3, 0, 5, 6, 0]


def test_shift_without_class_token():
    hidden = torch.randn(4, 3, 16)
    assert torch.equal(token_shift(hidden, frames=2, prefix=0), hidden)
    assert not torch.equal(temporal_shift(hidden, frames=2, prefix=0)[:, 0], hidden[:, 0])


@pytest.mark.parametrize("case", [case for case in SAMPLES if case != "30->49"])  # more than there are: see below
def test_golden_sampling(case):
    count, k = map(int, case.split("->"))
    assert sparse_sampling(torch.zeros(2, count, 3), k).tolist() == [SAMPLES[case]] * 2


def test_sampling_more_than_there_are_is_refused():
    with pytest.raises(ClusterError, match="got 49"):
        sparse_sampling(torch.zeros(1, 30, 3), 49)


@pytest.mark.parametrize(("count", "k"), [(147, 49), (588, 160), (10, 10), (7, 3), (5, 1)])
def test_training_sampling_takes_one_of_each_bin_and_reaches_all(count, k):
    tokens = torch.zeros(400, count, 1)
    ids = sparse_sampling(tokens, k, training=True, generator=torch.Generator().manual_seed(0))
    again = sparse_sampling(tokens, k, training=True, generator=torch.Generator().manual_seed(0))
    assert torch.equal(ids, again)
    assert (ids[:, 1:] > ids[:, :-1]).all()
    start = torch.arange(k) * count // k
    end = (torch.arange(k) + 1) * count // k
    assert ((ids >= start) & (ids < end)).all()
    assert len(ids.unique()) == count


def test_pooling_averages_the_frames_of_a_segment():
    hidden = torch.randn(12, 5, 4)
    pooled = pooling(hidden, frames=6, segments=2)
    assert pooled.shape == (4, 5, 4)
    assert torch.allclose(pooled[3], hidden[9:12].mean(dim=0))


def test_wrong_frames_are_named():
    with pytest.raises(ClusterError, match="12 frames cannot be cut into 5 equal segments; choose 1, 2, 3, 4, 6, 12"):
        pooling(torch.randn(12, 5, 4), frames=12, segments=5)
    with pytest.raises(ClusterError, match="whole number of videos of 5"):
        token_shift(torch.randn(12, 5, 4), frames=5)
    with pytest.raises(ClusterError, match="tokens, width"):
        pooling(torch.randn(12, 5), frames=6, segments=2)
