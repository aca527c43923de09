import itertools
import json
import math

import numpy as np
import pytest
import trueskill
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from trl_populora.self_play.ratings import BETA, MU, SIGMA, TAU, Match, Rating, Ratings, _schedule


PACKAGE = trueskill.TrueSkill(mu=25, sigma=25 / 3, beta=25 / 6, tau=25 / 300, draw_probability=0)


def package_game(winner: trueskill.Rating, loser: trueskill.Rating) -> tuple[trueskill.Rating, trueskill.Rating]:
    (winner,), (loser,) = PACKAGE.rate([(winner,), (loser,)])
    return winner, loser


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


def round_of_matches() -> list[Match]:
    return [Match("t0", "s0", 8, 5), Match("t1", "s2", 6, 0), Match("t0", "s1", 4, 4), Match("t1", "s0", 3, 1)]


@given(student_won=st.booleans())
def test_a_first_game_follows_the_published_equations(student_won):
    ratings = Ratings(["t"], ["s"])
    ratings.update([Match("t", "s", 1, int(student_won))])
    winner, loser = ("s", "t") if student_won else ("t", "s")
    mu_w, sigma_w, mu_l, sigma_l = closed_form((MU, SIGMA), (MU, SIGMA))
    assert (ratings[winner].mu, ratings[winner].sigma) == pytest.approx((mu_w, sigma_w), abs=1e-6)
    assert (ratings[loser].mu, ratings[loser].sigma) == pytest.approx((mu_l, sigma_l), abs=1e-6)


@given(wins=st.lists(st.booleans(), min_size=1, max_size=12))
def test_a_sequence_of_games_follows_the_published_equations(wins):
    ratings = Ratings(["t"], ["s"])
    belief = {"t": (MU, SIGMA), "s": (MU, SIGMA)}
    for student_won in wins:
        ratings.update([Match("t", "s", 1, int(student_won))])
        winner, loser = ("s", "t") if student_won else ("t", "s")
        mu_w, sigma_w, mu_l, sigma_l = closed_form(belief[winner], belief[loser])
        belief = {winner: (mu_w, sigma_w), loser: (mu_l, sigma_l)}
    shift = 25 - (belief["t"][0] + belief["s"][0]) / 2
    for name, (mu, sigma) in belief.items():
        assert (ratings[name].mu, ratings[name].sigma) == pytest.approx((mu + shift, sigma), abs=1e-4)


def test_hopeless_games_stay_finite():
    ratings = Ratings(["t"], ["s"])
    for _ in range(3):
        ratings.update([Match("t", "s", 500, 0)])
    ratings.update([Match("t", "s", 1, 1)])
    assert all(math.isfinite(ratings[name].mu) and ratings[name].sigma > 0 for name in ("t", "s"))


def test_update_is_the_package_game_by_game_then_recentred():
    ratings = small()
    matches = round_of_matches()
    ratings.update(matches)
    table = {name: PACKAGE.create_rating() for name in (*ratings.teachers, *ratings.students)}
    rows = {(ratings.teachers.index(m.teacher), ratings.students.index(m.student)): m for m in matches}
    for _, row, column, student_won in _schedule({k: [m.games, m.student_wins] for k, m in rows.items()}):
        t, s = ratings.teachers[row], ratings.students[column]
        if student_won:
            table[s], table[t] = package_game(table[s], table[t])
        else:
            table[t], table[s] = package_game(table[t], table[s])
    shift = 25 - sum(r.mu for r in table.values()) / len(table)
    for name, expected in table.items():
        assert ratings[name].mu == pytest.approx(expected.mu + shift, abs=1e-5)
        assert ratings[name].sigma == pytest.approx(expected.sigma, abs=1e-5)


def test_update_does_not_depend_on_the_order_of_matches():
    states = []
    for order in itertools.permutations(round_of_matches()):
        ratings = small()
        ratings.update(order)
        states.append(ratings.state_dict())
    assert all(state == states[0] for state in states)


def test_matches_of_one_pair_add_up():
    whole, parts = small(), small()
    whole.update([Match("t0", "s0", 8, 5)])
    parts.update([Match("t0", "s0", 3, 3), Match("t0", "s0", 5, 2)])
    assert whole.state_dict() == parts.state_dict()


@given(games=st.integers(1, 60), data=st.data())
def test_schedule_spreads_wins_evenly(games, data):
    wins = data.draw(st.integers(0, games))
    won = [event[-1] for event in _schedule({(0, 0): [games, wins]})]
    assert (len(won), sum(won)) == (games, wins)
    for k in range(games + 1):  # never further than one game from the even pace
        assert abs(sum(won[:k]) - k * wins / games) <= 1


def test_mean_is_anchored_and_the_better_side_rises():
    ratings = small()
    for _ in range(5):
        ratings.update([Match("t0", "s0", 16, 2), Match("t1", "s1", 16, 14)])
        mean = np.mean([ratings[name].mu for name in (*ratings.teachers, *ratings.students)])
        assert mean == pytest.approx(25, abs=1e-12)
    assert ratings["t0"].mu > ratings["s0"].mu
    assert ratings["s1"].mu > ratings["t1"].mu
    assert ratings.fitness("t0") == ratings["t0"].mu - 3 * ratings["t0"].sigma
    assert ratings["s2"].sigma == SIGMA


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
    ratings.update([Match("t0", "s0", 2, 0)])
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
        ratings.update([Match("t0", "s0", 32, int(rng.binomial(32, p)))])
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
        ratings.update([Match("t0", "s0", 32, 16)])
    assert ratings["s0"].sigma < SIGMA / 2
    assert ratings.inherit("s1", ["s0"]).sigma == SIGMA / 2


def test_state_survives_json_exactly():
    ratings = small()
    ratings.update(round_of_matches())
    other = small()
    other.load_state_dict(json.loads(json.dumps(ratings.state_dict())))
    assert other.state_dict() == ratings.state_dict()
    for side in (ratings, other):
        side.update([Match("t1", "s1", 5, 2)])
    assert other.state_dict() == ratings.state_dict()


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="x.*more than once"):
        Ratings(["x", "y"], ["x"])
    with pytest.raises(ValueError, match="student_wins=3 and games=2"):
        Match("t0", "s0", 2, 3)
    ratings = small()
    with pytest.raises(ValueError, match="'s0' against 't0'"):
        ratings.update([Match("s0", "t0", 1, 0)])
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
    ratings.update([Match("t0", "s0", 0, 0)])
    assert ratings.state_dict() == before
