"""Does selection still find the better member? The simulation of `benchmarks/selection.py`, small."""

import runpy
from pathlib import Path

import numpy as np
import pytest
import trueskill


@pytest.fixture
def selection(monkeypatch):
    monkeypatch.setattr(trueskill, "rate_1vs1", trueskill.rate_1vs1)  # the benchmark's quicker games end with the test
    path = Path(__file__).parents[2] / "benchmarks" / "selection.py"
    found = runpy.run_path(str(path))
    found["use_quick_games"]()
    return found


@pytest.mark.slow
def test_intervals_cover_and_the_better_are_found(selection):
    """Bounds are some four standard errors from what thousands of simulations give (docs/evolution.md)."""
    hits = selection["measure"](selection["SCENARIOS"]["harder 1.0"], 30, 0)
    assert np.all((hits.coverage > 0.86) & (hits.coverage < 0.998))
    assert np.all(hits.ours > (0.55, 0.8)) and np.all(hits.ours > hits.best - 0.2)
    wide = selection["measure"](selection["SCENARIOS"]["spread, all valid"], 15, 0)
    assert np.all((wide.coverage > 0.82) & (wide.coverage <= 1))
    _, coverage = selection["rotation"](30, 0)
    assert 0.83 < coverage < 0.998
