"""Statistics over seeds against scipy, and what they say of too few."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from trl_populora.reporting.over_seeds import LEVEL, difference, hedges_g, interval, over_questions


def seeds(values) -> dict[int, float]:
    return dict(enumerate(values))


def drawn(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=count)


def test_an_interval_is_students():
    values = drawn(5)
    found = interval(values)
    oracle = stats.ttest_1samp(values, 0).confidence_interval(LEVEL)
    assert found == pytest.approx((values.mean(), oracle.low, oracle.high))


def test_one_seed_and_equal_seeds_have_no_interval():
    assert interval([0.25]) == (0.25, None, None)
    assert interval([0.1 + 0.2, 0.3, 0.3]) == (pytest.approx(0.3), None, None)


def test_the_same_seeds_are_paired():
    arm, control = drawn(6, 1), drawn(6, 2)
    found, oracle = difference(seeds(arm), seeds(control)), stats.ttest_rel(arm, control)
    ends = oracle.confidence_interval(LEVEL)
    assert (found.paired, found.seeds, found.control_seeds, found.why) == (True, 6, 6, "")
    assert (found.difference, found.low, found.high) == pytest.approx(((arm - control).mean(), ends.low, ends.high))
    assert found.p == pytest.approx(oracle.pvalue)
    differences = arm - control
    correction = special.gamma(2.5) / (math.sqrt(2.5) * special.gamma(2.0))
    assert found.effect == pytest.approx(correction * differences.mean() / differences.std(ddof=1))


def test_seeds_are_paired_by_number_and_not_by_place():
    arm, control = {3: 1.0, 1: 5.0, 2: 2.0}, {1: 4.0, 2: 1.5, 3: 0.0}
    assert difference(arm, control).difference == pytest.approx((1.0 + 1.0 + 0.5) / 3)


def test_a_seed_that_the_other_arm_lacks_is_left_out_of_the_pairs():
    found = difference({0: 1.0, 1: 3.0}, {0: 0.0, 1: 1.0, 2: 50.0})
    assert (found.paired, found.seeds, found.difference) == (True, 2, 1.5)
    assert "only over seeds 0, 1, which both have" in found.why


@pytest.mark.parametrize(("size", "other"), [(4, 4), (3, 7)])
def test_other_seeds_are_compared_as_welch_has_it(size, other):
    arm, control = drawn(size, 3), 2 * drawn(other, 4) + 1
    found = difference(seeds(arm), {100 + seed: value for seed, value in enumerate(control)})
    oracle = stats.ttest_ind(arm, control, equal_var=False)
    ends = oracle.confidence_interval(LEVEL)
    assert (found.paired, found.seeds, found.control_seeds) == (False, size, other)
    assert (found.low, found.high, found.p) == pytest.approx((ends.low, ends.high, oracle.pvalue))
    squares = (size - 1) * arm.var(ddof=1) + (other - 1) * control.var(ddof=1)
    d = (arm.mean() - control.mean()) / math.sqrt(squares / (size + other - 2))
    assert found.effect == pytest.approx(d * (1 - 3 / (4 * (size + other - 2) - 1)), rel=0.01)  # Hedges' approximation


def test_hedges_g_has_no_bias():
    rng, delta, count = np.random.default_rng(0), 0.8, 4
    samples = rng.normal(delta, 1, size=(40_000, count))
    found = [hedges_g(m, s, count - 1) for m, s in zip(samples.mean(axis=1), samples.std(axis=1, ddof=1), strict=True)]
    assert np.mean(found) == pytest.approx(delta, abs=0.02)


def test_what_cannot_be_known_is_not_claimed():
    alone = difference({0: 1.0}, {0: 0.25})
    assert (alone.difference, alone.low, alone.p, alone.effect) == (0.75, None, None, None)
    assert "one seed" in alone.why
    equal = difference({0: 0.5, 1: 0.7, 2: 0.9}, {0: 0.4, 1: 0.6, 2: 0.8})
    assert equal.difference == pytest.approx(0.1) and equal.low is None and "same in every seed" in equal.why
    flat = difference({0: 1.0, 1: 1.0}, {2: 0.0, 3: 0.0})
    assert flat.low is None and "seeds do not differ" in flat.why
    two = difference({0: 1.0, 1: 2.0}, {0: 0.0, 1: 0.5})
    assert two.low is not None and two.effect is None and "two seeds" in two.why


def test_large_numbers_that_differ_by_rounding_are_equal_and_small_ones_that_differ_are_not():
    large = 1e6
    found = difference(seeds([large, np.nextafter(large, np.inf), large]), dict.fromkeys(range(3), 0.0))
    assert found.low is None and "same in every seed" in found.why
    small = difference(seeds([1e-6, 2e-6, 4e-6]), dict.fromkeys(range(3), 0.0))
    assert small.low is not None and small.why == ""


def test_no_deviation_has_no_effect_size():
    assert hedges_g(1.0, 0.0, 5) is None


def crossed(
    rng, seeds: int, questions: int, *, by_seed: float, by_question: float, rest: float, mean: float = 0.1
) -> np.ndarray:
    """Differences with a true mean, drawn with these standard deviations."""
    drawn = rng.normal(size=(seeds, 1)) * by_seed + rng.normal(size=questions) * by_question
    return mean + drawn + rng.normal(size=(seeds, questions)) * rest


@pytest.mark.slow
@pytest.mark.parametrize("by_seed, by_question", [(0.01, 0.0), (0.0, 0.2), (0.02, 0.1)])
def test_intervals_over_seeds_and_questions_cover_the_truth(by_seed, by_question):
    rng = np.random.default_rng(0)
    found = [
        over_questions(crossed(rng, 5, 60, by_seed=by_seed, by_question=by_question, rest=0.1)) for _ in range(400)
    ]
    assert 0.93 <= np.mean([one.low <= 0.1 <= one.high for one in found]) <= 0.995


@pytest.mark.slow
@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(2, 6), st.integers(2, 60), st.tuples(*[st.floats(0, 1)] * 3))
def test_an_interval_over_questions_too_is_never_surer_than_students(seed, runs, asked, deviations):
    by_seed, by_question, rest = deviations
    rng = np.random.default_rng(seed)
    table = crossed(rng, runs, asked, by_seed=by_seed, by_question=by_question, rest=0.01 + rest)
    found = over_questions(table)
    for axis in (0, 1):
        alone = stats.ttest_1samp(table.mean(axis=axis), 0.0)
        low, high = alone.confidence_interval(LEVEL)
        assert found.low <= low + 1e-9 and found.high >= high - 1e-9 and found.p >= alone.pvalue - 1e-9
    turned = over_questions(table.T)
    assert tuple(turned) == pytest.approx(tuple(found))


@pytest.mark.slow
def test_two_seeds_with_many_questions_rarely_show_a_difference_that_is_not_there():
    rng = np.random.default_rng(0)
    tables = (crossed(rng, 2, 60, by_seed=0.06, by_question=0.3, rest=0.3, mean=0.0) for _ in range(2000))
    assert np.mean([over_questions(table).p < 0.01 for table in tables]) < 0.01  # with Satterthwaite's degrees: 0.04


EVEN = np.array([[0.1, -0.1], [-0.1, 0.1]])  # neither the seeds nor the questions differ in their means


@pytest.mark.parametrize("table", [np.ones((1, 5)), np.ones((5, 1)), np.ones((3, 4)), np.ones((0, 0)), EVEN])
def test_no_interval_over_questions_where_nothing_is_known(table):
    assert over_questions(table) is None


def test_one_common_seed_is_compared_with_itself():
    found = difference({0: 1.0}, {0: 0.25, 1: 50.0})
    assert (found.difference, found.low, found.paired) == (0.75, None, True) and "one seed, 0" in found.why


def test_clear_shares_the_chance_of_an_error_among_comparisons():
    control = dict.fromkeys(range(5), 0.0)
    found = difference(seeds([1.0, 1.1, 0.9, 1.6, 0.4]), control)
    assert 0.001 < found.p < 0.05
    assert found.clear(1) and not found.clear(1000)
    assert not difference({0: 9.0}, {0: 0.0}).clear(1)
