import numpy as np
import pytest
import torch

from centerclip.cluster import ClusterError, centers, kmedoids, spectral

from . import reference


def hidden_states(videos=2, frames=6, patches=9, width=8, prefix=1, seed=0):
    return torch.randn(videos * frames, prefix + patches, width, generator=torch.Generator().manual_seed(seed))


def test_equals_the_obvious_form():
    hidden = hidden_states()
    result = centers(hidden, frames=6, segments=2, k=5)
    expected = reference.segment_step(hidden.numpy(), 6, 2, 5, lambda x, k: reference.kmedoids(x, k)[0])
    assert np.allclose(result.tokens.numpy(), expected)
    assert result.ids.shape == (4, 5)
    assert result.assignment.shape == (4, 27)


@pytest.mark.parametrize("method", ["kmedoids", "spectral", "sampling"])
def test_places_point_at_the_kept_tokens(method):
    hidden = hidden_states(videos=3, frames=4, patches=6)
    options = {"sigma": "median"} if method == "spectral" else {}
    result = centers(hidden, frames=4, segments=2, k=4, method=method, options=options, grid=(2, 3))
    grid = hidden[:, 1:].reshape(3, 4, 2, 3, 8)
    for sequence in range(6):
        for kept, (frame, row, column) in zip(result.tokens[sequence, 1:], result.places[sequence], strict=True):
            assert torch.equal(kept, grid[sequence // 2, frame, row, column])
            assert frame // 2 == sequence % 2
    assert (result.ids[:, 1:] > result.ids[:, :-1]).all()


def test_places_survive_a_second_step():
    hidden = hidden_states(videos=2, frames=6, patches=9)
    first = centers(hidden, frames=6, segments=3, k=7)
    second = centers(first.tokens, frames=3, segments=1, k=6, places=first.places)
    grid = hidden[:, 1:].reshape(2, 6, 3, 3, 8)
    for video in range(2):
        for kept, (frame, row, column) in zip(second.tokens[video, 1:], second.places[video], strict=True):
            assert torch.equal(kept, grid[video, frame, row, column])


@pytest.mark.parametrize("prefix", [0, 1, 5])
def test_prefix_tokens_are_averaged_and_never_clustered(prefix):
    hidden = hidden_states(prefix=prefix)
    result = centers(hidden, frames=6, segments=3, k=4, prefix=prefix)
    assert result.tokens.shape == (6, prefix + 4, 8)
    assert torch.allclose(result.tokens[0, :prefix], hidden[:2, :prefix].mean(dim=0))
    assert torch.equal(result.ids, kmedoids(hidden[:, prefix:].reshape(6, 18, 8), 4).ids)


def test_gradients_flow_through_the_gather():
    hidden = hidden_states().requires_grad_()
    result = centers(hidden, frames=6, segments=2, k=5)
    result.tokens.sum().backward()
    assert (hidden.grad[:, 0] == 1 / 3).all()
    per_patch = hidden.grad[:, 1:].sum(dim=2).reshape(4, 27) / 8
    assert torch.equal(per_patch.nonzero()[:, 1].view(4, 5), result.ids)


def test_one_frame_per_segment_and_everything_kept():
    hidden = hidden_states()
    result = centers(hidden, frames=6, segments=6, k=9)
    assert torch.equal(result.tokens, hidden)


def test_half_precision_stays_half():
    hidden = hidden_states().half()
    result = centers(hidden, frames=6, segments=2, k=5)
    assert result.tokens.dtype == torch.float16
    assert torch.equal(result.ids, centers(hidden.float(), frames=6, segments=2, k=5).ids)


def test_neighbours_follow_the_paper():
    for patches, neighbours in ((49, 15), (196, 20)):
        hidden = hidden_states(videos=1, frames=3, patches=patches)
        result = centers(hidden, frames=3, segments=1, k=12, method="spectral", options={"sigma": "median"})
        tokens = hidden[:, 1:].reshape(1, -1, 8)
        assert torch.equal(result.ids, spectral(tokens, 12, neighbours=neighbours, sigma="median").ids)


def test_a_method_of_ones_own():
    hidden = hidden_states()
    result = centers(hidden, frames=6, segments=2, k=3, method=lambda tokens, k: torch.arange(k).expand(len(tokens), k))
    assert torch.equal(result.tokens[0, 1:], hidden[0, 1:4])
    assert result.assignment is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"segments": 4}, "choose 1, 2, 3, 6"),
        ({"frames": 5}, "not a whole number of videos of 5 frames"),
        ({"k": 28}, r"not between 1 and the 27 patch tokens of a segment \(3 frames of 9\)"),
        ({"prefix": 10}, "no patches after 10 prefix tokens"),
        ({"grid": (2, 4)}, "9 patches are not a 2 x 4 grid"),
        ({"method": "kmeans"}, '"kmedoids", "spectral", .* or a function'),
        ({"method": "attention"}, "needs scores"),
        ({"places": torch.zeros(1, 9, 3)}, "places must be"),
    ],
)
def test_wrong_input_is_named(change, message):
    with pytest.raises(ClusterError, match=message):
        centers(hidden_states(), **{"frames": 6, "segments": 2, "k": 5, **change})
