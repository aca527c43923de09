"""`benchmarks/interval_coverage.py`: simulated experiments."""

import pytest

from benchmarks import interval_coverage as simulated


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, low, high",
    [("normal", 0.92, 0.98), ("runs of one arm collapse", 0.82, 0.92)],  # three standard errors of 1,000
)
def test_coverage(name, low, high):
    for share in simulated.coverage(simulated.LAWS[name], 5, 1000).values():
        assert low <= share <= high


@pytest.mark.parametrize("name", simulated.LAWS)
def test_the_true_difference_is_0(name):
    drawn = simulated.LAWS[name](simulated.np.random.default_rng(0), 100_000)
    assert abs(drawn.mean()) < 5 * (drawn.std() + 1e-12) / 100_000**0.5
