import itertools
import json
import math

import numpy as np
import pytest
import trueskill
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from trl_populora.self_play.evidence import Correlations, Outcome
from trl_populora.self_play.ratings import BETA, MU, SIGMA, TAU, Rating, Ratings


PACKAGE = trueskill.TrueSkill(mu=25, sigma=25 / 3, beta=25 / 6, tau=0, draw_probability=0)


def closed_form(winner: tuple[float, float], loser: tuple[float, float]) -> tuple[float, float, float, float]:
    """mu and sigma of both after one game, by the published two-player equations (Herbrich et al., 2006)."""
    (mu_w, sigma_w), (mu_l, sigma_l) = winner, loser
    variance_w, variance_l = sigma_w**2 + TAU**2, sigma_l**2 + TAU**2
    c2 = 2 * BETA**2 + variance_w + variance_l
    c = math.sqrt(c2)
    t = (mu_w - mu_l) / c
    v = norm.pdf(t) / norm.cdf(t)
    w = v * (v + t)
    return (
        mu_w + variance_w / c * v,
        math.sqrt(variance_w * (1 - variance_w / c2 * w)),
        mu_l - variance_l / c * v,
        math.sqrt(variance_l * (1 - variance_l / c2 * w)),
    )


def small() -> Ratings:
    return Ratings(["t0", "t1"], ["s0", "s1", "s2"])


def round_of_matches() -> list[Outcome]:
    return [Outcome("t0", "s0", 8, 5), Outcome("t1", "s2", 6, 0), Outcome("t0", "s1", 4, 4), Outcome("t1", "s0", 3, 1)]


@given(student_won=st.booleans())
def test_a_first_game_follows_the_published_equations(student_won):
    ratings = Ratings(["t"], ["s"])
    ratings.update([Outcome("t", "s", 1, int(student_won))])
    winner, loser = ("s", "t") if student_won else ("t", "s")
    mu_w, sigma_w, mu_l, sigma_l = closed_form((MU, SIGMA), (MU, SIGMA))
    assert (ratings[winner].mu, ratings[winner].sigma) == pytest.approx((mu_w, sigma_w), abs=1e-6)
    assert (ratings[loser].mu, ratings[loser].sigma) == pytest.approx((mu_l, sigma_l), abs=1e-6)


@given(wins=st.lists(st.booleans(), min_size=1, max_size=12))
def test_a_sequence_of_games_follows_the_published_equations(wins):
    ratings = Ratings(["t"], ["s"])
    belief = {"t": (MU, SIGMA), "s": (MU, SIGMA)}
    for student_won in wins:
        ratings.update([Outcome("t", "s", 1, int(student_won))])
        winner, loser = ("s", "t") if student_won else ("t", "s")
        mu_w, sigma_w, mu_l, sigma_l = closed_form(belief[winner], belief[loser])
        belief = {winner: (mu_w, sigma_w), loser: (mu_l, sigma_l)}
    shift = 25 - (belief["t"][0] + belief["s"][0]) / 2
    for name, (mu, sigma) in belief.items():
        assert (ratings[name].mu, ratings[name].sigma) == pytest.approx((mu + shift, sigma), abs=1e-4)


def test_hopeless_games_stay_finite():
    ratings = Ratings(["t"], ["s"])
    for _ in range(3):
        ratings.update([Outcome("t", "s", 500, 0)])
    ratings.update([Outcome("t", "s", 1, 1)])
    assert all(math.isfinite(ratings[name].mu) and ratings[name].sigma > 0 for name in ("t", "s"))


def test_update_does_not_depend_on_the_order_of_matches():
    states = []
    for order in itertools.permutations(round_of_matches()):
        ratings = small()
        ratings.update(order)
        states.append(ratings.state_dict())
    assert all(state == states[0] for state in states)


def test_mean_is_anchored_and_the_better_side_rises():
    ratings = small()
    for _ in range(5):
        ratings.update([Outcome("t0", "s0", 16, 2), Outcome("t1", "s1", 16, 14)])
        mean = np.mean([ratings[name].mu for name in (*ratings.teachers, *ratings.students)])
        assert mean == pytest.approx(25, abs=1e-12)
    assert ratings["t0"].mu > ratings["s0"].mu
    assert ratings["s1"].mu > ratings["t1"].mu
    assert ratings.fitness("t0") == ratings["t0"].mu - 3 * ratings["t0"].sigma
    assert ratings["s2"].sigma == pytest.approx(math.hypot(SIGMA, TAU * 5**0.5)), "it has not played, but drifts"


def test_win_probability():
    ratings = small()
    assert ratings.win_probability("t0", "s0") == 0.5
    ratings.update(round_of_matches())
    a, b = ratings["t0"], ratings["s1"]
    z = (a.mu - b.mu) / math.sqrt(2 * BETA**2 + a.sigma**2 + b.sigma**2)
    assert ratings.win_probability("t0", "s1") == pytest.approx(0.5 * math.erfc(-z / math.sqrt(2)), abs=1e-14)
    assert ratings.win_probability("t0", "s1") + ratings.win_probability("s1", "t0") == pytest.approx(1)
    assert ratings.win_probabilities()[0, 1] == ratings.win_probability("t0", "s1")


def test_tally_and_residual():
    ratings = small()
    ratings.update(round_of_matches())
    ratings.update([Outcome("t0", "s0", 2, 0)])
    assert ratings.games.tolist() == [[10, 4, 0], [3, 0, 6]]
    assert ratings.wins.tolist() == [[5, 4, 0], [1, 0, 0]]
    residual = ratings.residual
    assert residual[0, 0] == pytest.approx(0.5 - ratings.win_probability("t0", "s0"))
    assert np.isnan(residual[0, 2]) and np.isnan(residual[1, 1])


def test_ratings_recover_a_known_gap():
    rng = np.random.default_rng(0)
    ratings = Ratings(["t0"], ["s0"])
    gap = 8.0
    p = 0.5 * math.erfc(gap / math.sqrt(2 * BETA**2) / math.sqrt(2))  # the teacher is stronger
    for _ in range(60):
        ratings.update([Outcome("t0", "s0", 32, int(rng.binomial(32, p)))])
    assert ratings["t0"].mu - ratings["s0"].mu == pytest.approx(gap, abs=2.0)


def test_inherit():
    ratings = small()
    ratings.update(round_of_matches())
    a, b = ratings["s0"], ratings["s2"]
    child = ratings.inherit("s1", ("s0", "s2"))
    assert child == ratings["s1"] == Rating((a.mu + b.mu) / 2, max(a.sigma, b.sigma, SIGMA / 2))
    assert ratings.games.tolist() == [[8, 0, 0], [3, 0, 6]]
    assert ratings.wins[:, 1].tolist() == [0, 0]
    ratings.inherit("t0", ("t1", "t0"))  # a slot may be among its own parents
    assert ratings.games.tolist() == [[0, 0, 0], [3, 0, 6]]


def test_inherit_floors_sigma_at_half_the_prior():
    ratings = Ratings(["t0"], ["s0", "s1"])
    for _ in range(20):
        ratings.update([Outcome("t0", "s0", 32, 16)])
    assert ratings["s0"].sigma < SIGMA / 2
    assert ratings.inherit("s1", ["s0"]).sigma == SIGMA / 2


def test_state_survives_json_exactly():
    ratings = small()
    ratings.update(round_of_matches())
    other = small()
    other.load_state_dict(json.loads(json.dumps(ratings.state_dict())))
    assert other.state_dict() == ratings.state_dict()
    for side in (ratings, other):
        side.update([Outcome("t1", "s1", 5, 2)])
    assert other.state_dict() == ratings.state_dict()


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="x.*more than once"):
        Ratings(["x", "y"], ["x"])
    with pytest.raises(ValueError, match="student_wins=3, games=2"):
        Outcome("t0", "s0", 2, 3)
    ratings = small()
    with pytest.raises(ValueError, match="'s0' against 't0'"):
        ratings.update([Outcome("s0", "t0", 1, 0)])
    with pytest.raises(ValueError, match="No member is called 'nobody'"):
        ratings.fitness("nobody")
    with pytest.raises(ValueError, match="at least one parent"):
        ratings.inherit("t0", [])
    with pytest.raises(ValueError, match="same members"):
        ratings.load_state_dict(Ratings(["t0"], ["s0"]).state_dict())


def test_empty_update_changes_nothing_but_the_anchor():
    ratings = small()
    before = ratings.state_dict()
    ratings.update([])
    ratings.update([Outcome("t0", "s0", 0, 0)])
    assert ratings.state_dict() == before
