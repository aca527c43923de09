import numpy as np
import pytest
import torch
from scipy import stats

from trl_populora.generation.noise import gumbel, gumbel_of_bits


def test_is_a_function_of_seed_position_and_token_only():
    seeds = torch.tensor([1, 2, 3], dtype=torch.int32)
    whole = gumbel(seeds, 4, 100)
    assert torch.equal(whole[1:2], gumbel(seeds[1:2], 4, 100))
    assert torch.equal(whole[:, :50], gumbel(seeds, 4, 50))
    assert not torch.equal(whole, gumbel(seeds, 5, 100))


def test_follows_the_gumbel_law():
    noise = gumbel(torch.arange(200, dtype=torch.int32), 0, 500)
    assert torch.isfinite(noise).all()
    assert stats.kstest(noise.flatten().double().numpy(), "gumbel_r").pvalue > 1e-3


def test_is_finite_at_the_ends_of_the_uniform():
    """A uniform that rounds to 1 would be infinite noise: one token in 2^24 would win whatever its probability."""
    bits = torch.tensor([-1, 0, 1, 2**31 - 1, -(2**31)], dtype=torch.int32)
    noise = gumbel_of_bits(bits)
    assert torch.isfinite(noise).all() and noise.max() < 17 and noise.min() > -3.5


def test_rows_and_positions_are_uncorrelated():
    seeds = torch.arange(64, dtype=torch.int32)
    noise = torch.cat([gumbel(seeds, position, 5000) for position in (0, 1)])
    off_diagonal = torch.corrcoef(noise).fill_diagonal_(0).abs()
    assert off_diagonal.max() < 5 / np.sqrt(5000)


@pytest.mark.slow
def test_argmax_draws_from_the_softmax():
    p = torch.tensor([0.5, 0.25, 0.125, 0.0625, 0.0625])
    for draws in (
        (p.log() + gumbel(torch.arange(40_000, dtype=torch.int32), 3, 5)).argmax(1),
        torch.cat([(p.log() + gumbel(torch.tensor([7], dtype=torch.int32), i, 5)).argmax(1) for i in range(8_000)]),
    ):
        counts = torch.bincount(draws, minlength=5).double().numpy()
        assert stats.chisquare(counts, p.double().numpy() * len(draws)).pvalue > 1e-3
