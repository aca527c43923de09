import math
import warnings
from itertools import combinations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats

from tests.drawn_examples import examples
from trl_populora.evaluation.results import per_question
from trl_populora.evaluation.statistics import chosen_elsewhere, difference, mean_rates, pass_at_k, share


def rates_strategy(values=(0.0, 0.25, 1.0, math.nan), **sizes):
    return st.lists(st.sampled_from(values), **({"min_size": 1, "max_size": 30} | sizes)).map(np.array)


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@given(
    st.lists(st.sampled_from([0.0, 1.0, math.nan]), min_size=1, max_size=8),
    st.integers(min_value=1, max_value=8),
)
@example([1.0, 1.0, 0.0], 2)  # whichever two are drawn, one is right
def test_pass_at_k_is_the_share_of_subsets_with_a_right_answer(scores, k):
    known = [one for one in scores if not math.isnan(one)]
    (value,) = pass_at_k(np.array([scores]), k)
    if len(known) < k:
        assert math.isnan(value)
    else:
        subsets = list(combinations(known, k))
        assert value == pytest.approx(sum(any(one) for one in subsets) / len(subsets), abs=1e-12)


def test_pass_at_k_stays_exact_where_binomials_overflow():
    scores = np.zeros((1, 10_000))
    scores[0, :1] = 1
    assert pass_at_k(scores, 100)[0] == pytest.approx(0.01, abs=1e-12)
    assert pass_at_k(scores, 1)[0] == pytest.approx(per_question(scores)[0], abs=1e-12)


@pytest.mark.parametrize("solved, count", [(0, 50), (1, 3), (17, 40), (40, 40)])
def test_an_interval_of_zeros_and_ones_is_that_of_wilson(solved, count):
    expected = stats.binomtest(solved, count).proportion_ci(0.95, "wilson")
    value, low, high = share(np.array([1.0] * solved + [0.0] * (count - solved) + [math.nan] * 7))
    assert (value, low, high) == (
        pytest.approx(solved / count),
        pytest.approx(expected.low),
        pytest.approx(expected.high),
    )


@given(rates_strategy())
def test_a_share_lies_in_its_interval(rates):
    estimate = share(rates)
    if np.isnan(rates).all():
        assert all(map(math.isnan, estimate))
    else:
        assert 0 <= estimate.low <= estimate.value <= estimate.high <= 1


@pytest.mark.parametrize("samples, questions", [(2, 1), (4, 2), (32, 3), (4, 5)])
def test_intervals_of_few_questions_with_many_samples_cover_the_truth(samples, questions):
    """Rates such as 1/2, 1/2 are no certainty; alike questions vary least."""
    rng, truth = np.random.default_rng(6), 0.3
    found = [share(rng.binomial(samples, truth, size=questions) / samples) for _ in range(1000)]
    assert np.mean([low <= truth <= high for _, low, high in found]) > 0.95
    assert all(low < high for _, low, high in found)


@pytest.mark.parametrize("samples", [1, 4])
def test_intervals_of_shares_cover_the_truth(samples):
    rng, covered, runs, truth = np.random.default_rng(0), 0, 2000, 0.3
    for _ in range(runs):
        difficulty = rng.beta(0.6, 1.4, size=60)  # mean 0.3
        rates = rng.binomial(samples, difficulty) / samples
        _, low, high = share(rates)
        covered += low <= truth <= high
    assert 0.93 < covered / runs < 0.97


@pytest.mark.slow
def test_intervals_of_differences_cover_the_truth():
    rng, covered, runs = np.random.default_rng(1), 0, 150
    for _ in range(runs):
        difficulty = rng.beta(1, 1, size=80)
        ours = (rng.random(80) < np.minimum(1, difficulty + 0.1 * (difficulty < 0.9))).astype(float)
        theirs = (rng.random(80) < difficulty).astype(float)
        found = difference(ours, theirs)
        covered += found.low <= 0.09 <= found.high
    assert 0.9 < covered / runs < 0.99


@examples(30)
@given(rates_strategy(min_size=12, max_size=12), rates_strategy(min_size=12, max_size=12), st.integers(1, 60))
def test_a_difference_is_paired_ordered_and_never_silent(ours, theirs, comparisons):
    found, back = difference(ours, theirs, comparisons=comparisons), difference(theirs, ours, comparisons=comparisons)
    both = ours - theirs
    if np.isnan(both).all():
        assert all(map(math.isnan, found[:3])) and not found.significant
        return
    assert found.difference == pytest.approx(np.nanmean(both))
    assert back.difference == -found.difference
    assert found.low <= found.difference <= found.high and not math.isnan(found.low + found.high)
    if found.significant:
        assert found.low > 0 or found.high < 0  # the stricter interval holds the other one
    single = difference(ours, theirs)
    assert single.significant or not found.significant


@pytest.mark.parametrize("ours, theirs", [(0, 0), (1, 1), (1, 0), (0, 1)])
def test_equal_differences_are_no_certainty(ours, theirs):
    few, many = (difference(np.full(n, float(ours)), np.full(n, float(theirs))) for n in (3, 300))
    assert few.difference == many.difference == ours - theirs
    assert few.low < many.low or few.high > many.high
    assert not few.significant and many.significant == (ours != theirs)
    assert max(few.high, many.high) <= 1 and min(few.low, many.low) >= -1


@pytest.mark.parametrize("value, count", [(0.0, 3), (1.0, 8), (0.25, 20)])
def test_equal_differences_exclude_what_would_have_shown(value, count):
    """A share u of other questions, all of them -1 or all 1, is missed by `count` questions in 2.5 % of cases."""
    found = difference(np.full(count, value), np.zeros(count))
    unseen = 1 - 0.025 ** (1 / count)
    assert (1 - unseen) ** count == pytest.approx(0.025)
    expected = (value, value * (1 - unseen) - unseen, value * (1 - unseen) + unseen)
    assert found[:3] == pytest.approx(expected)


def test_bonferroni_asks_more_of_many_comparisons():
    ours = np.array([1.0] * 9 + [0.0] * 31)
    theirs = np.array([0.0] * 39 + [1.0])
    assert difference(ours, theirs).significant
    assert not difference(ours, theirs, comparisons=200).significant


@pytest.mark.slow
def test_false_stars_are_rare_among_many_equal_members():
    rng, stars, runs, members = np.random.default_rng(3), 0, 60, 4
    for _ in range(runs):
        difficulty = rng.beta(1, 1, size=100)
        answers = (rng.random((members + 1, 100)) < difficulty).astype(float)
        stars += any(difference(one, answers[0], comparisons=members).significant for one in answers[1:])
    assert stars / runs <= 0.1  # 0.05, but for chance


@pytest.mark.slow
def test_false_stars_are_rare_where_few_questions_differ():
    """30 questions, as in AIME, of which about six differ: an interval alone excludes 0 in two of a hundred."""
    rng, stars, runs, comparisons = np.random.default_rng(5), 0, 300, 10
    for _ in range(runs):
        differences = rng.choice([-1.0, 0.0, 1.0], size=30, p=[0.1, 0.8, 0.1])
        stars += difference(differences, np.zeros(30), comparisons=comparisons).significant
    assert stars / runs <= 0.05 / comparisons + 2 * math.sqrt(0.005 / runs)


@pytest.mark.parametrize("better, worse, comparisons", [(5, 0, 1), (6, 0, 1), (8, 1, 1), (10, 2, 1), (8, 0, 10)])
def test_a_star_needs_what_the_sign_test_needs(better, worse, comparisons):
    differences = np.array([1.0] * better + [-1.0] * worse + [0.0] * (60 - better - worse))
    found = difference(differences, np.zeros(60), comparisons=comparisons)
    assert found.low > 0
    assert found.significant == (stats.binomtest(better, better + worse).pvalue <= 0.05 / comparisons)


@pytest.mark.slow
def test_the_best_of_equal_members_is_no_better_elsewhere():
    """Members of pure noise: the naive best is several points too good, the one chosen elsewhere is not."""
    rng, truth, runs, members, questions = np.random.default_rng(2), 0.3, 600, 8, 100
    naive, best, weakest = [], [], []
    for run in range(runs):
        answers = (rng.random((members, questions)) < truth).astype(float)
        naive.append(answers.mean(axis=1).max())
        best.append(chosen_elsewhere(list(answers), seed=run).mean())
        weakest.append(chosen_elsewhere(list(answers), weakest=True, seed=run).mean())
    error = np.std(best) / math.sqrt(runs)
    assert np.mean(naive) > truth + 0.05
    assert abs(np.mean(best) - truth) < 3 * error < 0.01
    assert abs(np.mean(weakest) - truth) < 3 * np.std(weakest) / math.sqrt(runs)


def test_a_member_that_is_really_better_is_found():
    rng = np.random.default_rng(4)
    players = [(rng.random(200) < p).astype(float) for p in (0.2, 0.7, 0.3)]
    assert (chosen_elsewhere(players) == players[1]).all()
    assert (chosen_elsewhere(players, weakest=True) == players[0]).all()


def test_equal_members_are_chosen_together_and_one_question_chooses_nobody():
    ours, theirs = np.array([1.0, 0.0, 1.0, 0.0]), np.array([1.0, 0.0, 1.0, 0.0])
    assert (chosen_elsewhere([ours, theirs]) == ours).all()
    assert (chosen_elsewhere([ours[:1], 1 - theirs[:1]]) == [0.5]).all()


def test_of_two_questions_each_chooses_for_the_other():
    ours, theirs = np.array([1.0, 0.75]), np.array([0.5, 0.25])
    assert (chosen_elsewhere([ours, theirs]) == ours).all()
    assert (chosen_elsewhere([ours, theirs], weakest=True) == theirs).all()


@given(rates_strategy(min_size=9, max_size=9), rates_strategy(min_size=9, max_size=9))
def test_what_is_chosen_lies_among_the_players(ours, theirs):
    low, high = np.fmin(ours, theirs), np.fmax(ours, theirs)
    for rates in (chosen_elsewhere([ours, theirs]), mean_rates([ours, theirs])):
        known = ~np.isnan(rates)
        assert (rates[known] >= low[known]).all() and (rates[known] <= high[known]).all()
        assert not known[np.isnan(ours) & np.isnan(theirs)].any()


def test_the_mean_is_taken_within_questions_first():
    players = [np.array([1.0, 0.0, math.nan]), np.array([0.0, math.nan, math.nan])]
    assert mean_rates(players)[:2].tolist() == [0.5, 0.0] and math.isnan(mean_rates(players)[2])


def test_few_equal_rates_are_no_certainty():
    _, low, high = share(np.array([0.25, 0.25]))
    assert low < 0.1 and high > 0.4


def test_an_interval_of_means_is_that_of_wilson_with_a_design_effect():
    """Of four questions whose rates are means over samples: the variance is unbiased, the quantile Student's."""
    rates = np.array([0.5, 0.25, 0.75, 0.5])
    n, p, z = 4, rates.mean(), stats.norm.ppf(0.975)
    effect = (stats.t.ppf(0.975, n - 1) / z) ** 2 * np.var(rates, ddof=1) / (p * (1 - p))
    assert 1 / n < effect < 1
    ratio = z**2 * effect / n
    center, spread = (p + ratio / 2) / (1 + ratio), math.sqrt(ratio * (p * (1 - p) + ratio / 4)) / (1 + ratio)
    assert share(rates) == pytest.approx((p, center - spread, center + spread))


def test_players_that_are_equal_on_the_other_questions_are_all_chosen():
    first, second = np.array([1.0, 0.0, 1.0]), np.array([0.0, 0.0, 1.0])
    assert chosen_elsewhere([first, second]).tolist() == [0.5, 0.0, 1.0]
