import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from centerclip.cluster.distances import exact_distances, unit_tokens, whole_numbers


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 150), st.integers(1, 40), st.floats(1e-20, 1e20))
def test_distances_are_right_symmetric_and_zero_on_the_diagonal(seed, count, width, scale):
    tokens = torch.randn(2, count, width, generator=torch.Generator().manual_seed(seed)) * scale
    matrix, norms, unit = exact_distances(tokens)
    assert torch.equal(matrix, matrix.mT)
    assert torch.equal(matrix, matrix.round())
    assert not matrix.diagonal(dim1=1, dim2=2).any()
    expected = torch.cdist(tokens.double(), tokens.double(), compute_mode="donot_use_mm_for_euclid_dist")
    assert (matrix * unit - expected).abs().max() <= 1e-6 * tokens.double().norm(dim=2).max()
    assert torch.equal(norms.argmax(dim=1), tokens.double().norm(dim=2).argmax(dim=1))
    squared, _, square_unit = exact_distances(tokens, squared=True)
    assert (squared * square_unit - expected.square()).abs().max() <= 1e-6 * expected.max().square() + 1e-300


def test_one_large_channel_does_not_drown_the_others():
    # Vision towers have a few channels a hundred times larger than the rest.
    tokens = torch.randn(1, 60, 768, generator=torch.Generator().manual_seed(0)) * 0.1
    tokens[:, :, 7] += 100
    matrix, _, unit = exact_distances(tokens)
    expected = torch.cdist(tokens.double(), tokens.double(), compute_mode="donot_use_mm_for_euclid_dist")
    error = (matrix * unit - expected).abs() / expected.clamp(min=1e-9)
    assert error[expected > 0].max() < 1e-5


def test_products_stay_exact():
    tokens = torch.randn(3, 50, 1024, generator=torch.Generator().manual_seed(0))
    whole, _ = whole_numbers(tokens)
    assert torch.equal(whole, whole.round())
    assert whole.norm(dim=2).max() <= 2**25 + 1024**0.5
    shuffled = torch.randperm(1024, generator=torch.Generator().manual_seed(1))
    assert torch.equal(whole @ whole.mT, whole[:, :, shuffled] @ whole[:, :, shuffled].mT)


def test_unit_tokens():
    tokens = torch.tensor([[[3.0, 4.0], [0.0, 0.0], [1e-30, 0.0], [0.0, -1e30]]])
    units = unit_tokens(tokens)
    expected = torch.tensor([[[0.6, 0.8], [0.0, 0.0], [1.0, 0.0], [0.0, -1.0]]], dtype=torch.float64)
    assert torch.allclose(units, expected, atol=1e-7)
