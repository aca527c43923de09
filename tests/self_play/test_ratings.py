import itertools
import json
import math

import numpy as np
import pytest
import trueskill
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit
from scipy.stats import norm

from trl_populora.self_play.evidence import MEMORY, PROMPT, TASK, Correlations
from trl_populora.self_play.ratings import BETA, MU, RECENT, SIGMA, TAU, Outcome, Rating, Ratings
from trl_populora.self_play.weighted_games import schedule


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


def test_the_constants_are_those_of_trueskill():
    ours = MU, SIGMA, BETA, TAU
    assert ours == pytest.approx((25, 25 / 3, 25 / 6, 25 / 300))


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


def test_games_of_a_round_take_turns():
    """More games of one pair are spread over the round of the other, and none comes before or after it."""
    steps = schedule({(0, 0, "a"): (2.4, 1.0), (0, 1, "a"): (0.0, 0.5)})
    assert [step[:4] for step in steps] == [
        (pytest.approx(1 / 6), 0, 0, "a"), (0.5, 0, 0, "a"), (0.5, 0, 1, "a"), (pytest.approx(5 / 6), 0, 0, "a")
    ]  # fmt: skip
    assert [sum(step[i] for step in steps) for i in (4, 5)] == pytest.approx([2.4, 1.5])


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
    residual = ratings.residual
    met = ratings.games > 0
    np.testing.assert_allclose(residual[met], 0.5 - (ratings.wins[met] / ratings.games[met]))  # 0.5 was predicted
    second = ratings.win_probability("t0", "s0", ratings._handicaps().get("", 0.0))
    ratings.update([Outcome("t0", "s0", 2, 0)])
    assert ratings.games.tolist() == [[10, 4, 0], [3, 0, 6]]
    assert ratings.wins.tolist() == [[5, 4, 0], [1, 0, 0]]
    faded = 8 * math.exp(-1 / RECENT)
    expected = (faded * residual[0, 0] + 2 * (1 - second)) / (faded + 2)
    assert ratings.residual[0, 0] == pytest.approx(expected)
    assert ratings.residual[0, 1] == residual[0, 1], "pairs that did not meet keep theirs"
    assert ratings._recent[0, 0, 1] == 4, "and their games do not fade"
    assert np.isnan(ratings.residual[0, 2]) and np.isnan(ratings.residual[1, 1])


@pytest.mark.slow
@pytest.mark.parametrize("gain", [0.0, 0.2])
def test_residual_is_small_where_one_number_describes_a_member_also_if_it_learns(gain):
    """In rating points, students gain `gain` a round, so teachers win much less at the end."""
    rng, names = np.random.default_rng(0), [f"{role}{i}" for role in "ts" for i in range(4)]
    ratings, skill = Ratings(names[:4], names[4:]), dict(zip(names, rng.normal(25, 3, 8)))
    for round in range(60):
        for name in names[4:]:
            skill[name] += gain
        rows = [(f"t{i}", f"s{(i + round) % 4}", p) for i in range(4) for p in range(8)]
        solved = {(t, s): norm.cdf((skill[s] - skill[t]) / (math.sqrt(2) * BETA)) for t, s, _ in rows}
        ratings.update([Outcome(t, s, 4, int(rng.binomial(4, solved[t, s])), "", p) for t, s, p in rows])
    assert np.abs(ratings.residual).mean() < 0.07


@pytest.mark.slow
def test_residual_shows_what_one_number_cannot_describe():
    """Each teacher is hard for its own student only."""
    rng, ratings = np.random.default_rng(0), Ratings(["t0", "t1"], ["s0", "s1"])
    for round in range(60):
        ratings.update(
            [
                Outcome(f"t{i}", f"s{(i + round) % 2}", 4, int(rng.binomial(4, 0.8 if round % 2 else 0.2)), "", p)
                for i in range(2)
                for p in range(8)
            ]
        )
    assert (ratings.residual * [[1, -1], [-1, 1]] > 0.2).all()


@pytest.mark.slow
@pytest.mark.parametrize("correlation", [0.0, 0.6])
def test_sigma_knows_that_proposals_to_one_prompt_are_valid_together(correlation):
    """Two equal teachers with 40 % invalid proposals: their difference in standard deviations has one of about 1."""

    def difference(seed):
        rng, ratings = np.random.default_rng(seed), Ratings(["t0", "t1"], ["s0", "s1"])
        for round in range(20):
            outcomes = []
            for t in range(2):
                share = rng.beta(*(np.array([0.4, 0.6]) * (1 / correlation - 1))) if correlation else 0.4
                for forfeit in rng.random(8) < share:
                    wins = 0 if forfeit else int(rng.binomial(8, 0.5))
                    outcomes.append(Outcome(f"t{t}", f"s{(t + round) % 2}", 8, wins, "", t, bool(forfeit)))
            ratings.update(outcomes)
        one, other = ratings["t0"], ratings["t1"]
        return (one.mu - other.mu) / math.hypot(one.sigma, other.sigma)

    assert 0.6 < np.std([difference(seed) for seed in range(30)]) < 1.3


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


def posterior_of_a_teacher(won: float, lost: float) -> tuple[float, float]:
    """Mean and standard deviation by quadrature, against a student of known skill 25, the likelihood to a power."""
    skill = np.linspace(MU - 6 * SIGMA, MU + 6 * SIGMA, 20_001)
    z = (skill - MU) / math.sqrt(2 * BETA**2 + 0.01**2)
    log = norm.logpdf(skill, MU, 2.0) + won * norm.logcdf(z) + lost * norm.logcdf(-z)
    mass = np.exp(log - log.max())
    mean = (mass * skill).sum() / mass.sum()
    return mean, math.sqrt((mass * (skill - mean) ** 2).sum() / mass.sum())


@pytest.mark.parametrize(("games", "wins"), [(6, 0), (6, 3), (6, 6), (40, 30), (100, 20)])
def test_weighted_attempts_give_the_posterior_of_a_weighted_likelihood(games, wins):
    ratings = Ratings(["t"], ["s"])
    state = ratings.state_dict()
    state["ratings"] = {"t": [MU, 2.0], "s": [MU, 0.01]}  # a prior so narrow that TrueSkill itself is close to exact
    ratings.load_state_dict(state)
    tasks = [Outcome("t", "s", games, wins, "code_o", prompt) for prompt in range(4)]
    expected = Correlations()
    expected.learn([[task] for task in tasks], [0.5] * 4)
    ratings.update(tasks)
    weight = 4 * expected.weigh(tasks[:1])
    mean, deviation = posterior_of_a_teacher(weight * (games - wins), weight * wins)
    assert ratings["t"].mu - ratings["s"].mu == pytest.approx(mean - MU, abs=0.06 * deviation)
    assert ratings["t"].sigma == pytest.approx(deviation, rel=0.03)


def test_matches_that_say_the_same_say_less():
    rng = np.random.default_rng(0)
    alike, apart = Ratings(["t"], ["s"]), Ratings(["t"], ["s"])
    for _ in range(20):
        alike.update([Outcome("t", "s", 6, 6 * int(rng.random() < 0.5), "code_o", p) for p in range(4)])
        apart.update([Outcome("t", "s", 6, int(rng.binomial(6, 0.5)), "code_o", p) for p in range(4)])
    assert alike.correlations.of("code_o")[0] > 0.6 and apart.correlations.of("code_o")[0] < 0.15
    assert alike["t"].sigma > 1.3 * apart["t"].sigma


@pytest.mark.parametrize(("task_sd", "prompt_sd"), [(0.0, 0.0), (1.5, 0.0), (1.0, 1.0)])
def test_correlations_are_those_of_the_tasks(task_sd, prompt_sd):
    rng = np.random.default_rng(1)
    draws = expit(rng.normal(size=(200_000, 1)) * prompt_sd + rng.normal(size=(200_000, 2)) * task_sd)
    spread = draws.mean() * (1 - draws.mean())
    within, across = draws.var() / spread, np.cov(draws.T)[0, 1] / spread
    correlations = Correlations()
    for _ in range(60):
        rates = expit(rng.normal(size=(40, 1)) * prompt_sd + rng.normal(size=(40, 6)) * task_sd)
        wins = rng.binomial(8, rates)
        played = [[Outcome("t", "s", 8, int(k), "code_i", p) for k in row] for p, row in enumerate(wins)]
        correlations.learn(played, [0.9] * 40)  # a wrong level is put right
    assert correlations.of("code_i") == pytest.approx((within, across), abs=0.06)


def test_two_attempts_at_a_task_show_their_correlation_and_one_task_of_a_prompt_shows_none_across():
    """Both attempts always end alike."""
    rng, correlations = np.random.default_rng(0), Correlations()
    for _ in range(10):
        played = [[Outcome("t", "s", 2, 2 * int(rng.random() < 0.5), "code_o", p)] for p in range(40)]
        correlations.learn(played, [0.5] * 40)
    within, across = correlations.of("code_o")
    assert within > 0.9 and across == pytest.approx(PROMPT), "the first guess of what was never seen"


@pytest.mark.slow
@pytest.mark.parametrize("task_sd", [0.0, 1.4])
@pytest.mark.parametrize("spread", [0.0, 0.5, 1.0])
def test_skills_that_differ_are_no_correlation(task_sd, spread):
    """Truth: correlations given the pair, mean over pairs; prior and early rounds leave some hundredths."""
    rng = np.random.default_rng(2)
    ratings = Ratings([f"t{i}" for i in range(4)], [f"s{i}" for i in range(4)])
    skills, number = np.linspace(spread, -spread, 4), 4
    for _ in range(60):
        outcomes = []
        for t, s in enumerate(rng.permutation(4)):
            wins = rng.binomial(number, expit(-1 + skills[s] - skills[t] + task_sd * rng.normal(size=number)))
            outcomes += [Outcome(f"t{t}", f"s{s}", number, int(k), "code_o") for k in wins]
        ratings.update(outcomes)
    rates = expit(-1 + (skills - skills[:, None])[..., None] + task_sd * rng.normal(size=(4, 4, 20_000)))
    p = rates.mean(-1)
    within, across = ratings.correlations.of("code_o")
    assert within == pytest.approx(rates.var(-1).sum() / (p * (1 - p)).sum(), abs=0.06)
    assert across < 0.05


@pytest.mark.slow
def test_a_level_that_moves_is_no_correlation():
    rng = np.random.default_rng(3)
    ratings = Ratings(["t0", "t1", "t2"], ["s0", "s1", "s2"])
    for round in range(60):
        wins = rng.binomial(4, (round + 1) / 62, (3, 4))
        ratings.update([Outcome(f"t{i}", f"s{i}", 4, int(k), "code_o") for i in range(3) for k in wins[i]])
    assert max(ratings.correlations.of("code_o")) < 0.06


def test_a_prompt_of_one_attempt_each_or_none_is_fine():
    ratings = small()
    ratings.update([Outcome("t0", "s0", 1, 1, "code_o", 0), Outcome("t0", "s0", 0, 0, "code_o", 0)])
    assert ratings.games.sum() == 1 and math.isfinite(ratings["t0"].mu)


def mixed_round() -> list[Outcome]:
    return [
        Outcome("t0", "s0", 6, 2, "code_o", 0),
        Outcome("t0", "s0", 6, 5, "code_o", 0),
        Outcome("t0", "s1", 6, 0, "code_i", 1),
        Outcome("t1", "s2", 6, 6, "code_o", 2),
        Outcome("t1", "s2", 6, 0, "code_o", 2, forfeit=True),
        Outcome("t1", "s0", 6, 1, "code_f", 3),
    ]


@pytest.mark.slow
@given(order=st.permutations(range(6)))
def test_order_of_outcomes_does_not_matter_to_the_bit(order):
    straight, mixed = small(), small()
    for _ in range(2):
        straight.update(mixed_round())
        mixed.update([mixed_round()[i] for i in order])
    for key in ("ratings", "games", "wins", "forfeits", "correlations", "proposals"):
        assert mixed.state_dict()[key] == straight.state_dict()[key]


@pytest.mark.slow
def test_types_are_handicaps_and_not_skills():
    rng = np.random.default_rng(0)
    ratings = Ratings(["t0", "t1"], ["s0", "s1"])
    rates, skill = {"code_o": 0.9, "code_f": 0.1}, []
    for round in range(30):
        type = ("code_o", "code_f")[round % 2]
        ratings.update(
            [
                Outcome(f"t{i}", f"s{i}", 8, int(rng.binomial(8, rates[type])), type, p)
                for i in range(2)
                for p in range(4)
            ]
        )
        skill.append(ratings["s0"].mu - ratings["t0"].mu)
    assert np.std(skill[10:]) < 1.0, "the rating does not swing with the type of the round"
    assert np.nanmax(np.abs(ratings.residual)) < 0.1


@pytest.mark.slow
def test_equal_teachers_that_write_different_types_stay_equal():
    """One writes mostly what is hard for everybody, the other mostly what is easy."""
    rng = np.random.default_rng(0)
    ratings = Ratings(["t0", "t1"], ["s0", "s1"])
    rates, types = {"code_o": 0.9, "code_f": 0.1}, [["code_f"] * 3 + ["code_o"], ["code_f"] + ["code_o"] * 3]
    for round in range(30):
        ratings.update(
            [
                Outcome(f"t{i}", f"s{(i + round) % 2}", 8, int(rng.binomial(8, rates[type])), type, p)
                for i in range(2)
                for p, type in enumerate(types[i])
            ]
        )
    assert ratings._handicaps()["code_f"] > 0 > ratings._handicaps()["code_o"], "a hard type helps its teacher"
    assert abs(ratings["t0"].mu - ratings["t1"].mu) < 1.5


def test_forfeits_lower_the_teacher_to_where_it_would_win_as_often():
    ratings = small()
    ratings.update([Outcome("t0", "s0", 6, 3, "code_o", p) for p in range(8)])
    students = {name: ratings[name] for name in ratings.students}
    skill = ratings.skill("t0")
    assert ratings["t0"] == skill
    ratings.update([Outcome("t0", "s0", 6, 0, "code_o", p, forfeit=True) for p in range(8)])
    assert ratings.skill("t0").mu == pytest.approx(skill.mu) and ratings.skill("t0").sigma == skill.sigma
    assert all(ratings[name].mu == pytest.approx(old.mu) for name, old in students.items())
    level = np.mean([rating.mu for rating in students.values()])
    scale = math.sqrt(2) * BETA
    wins = norm.cdf((skill.mu - level) / scale) * (1 - 8 / 17)
    assert norm.cdf((ratings["t0"].mu - level) / scale) == pytest.approx(wins)
    assert ratings.forfeits[0, 0] == 48 and ratings.games[0, 0] == 48 and ratings.wins[0, 0] == 24
    assert ratings["t0"].mu < skill.mu and ratings["t0"].sigma != skill.sigma
    rng = np.random.default_rng(0)  # the deviation, by simulation
    share = rng.beta(8.5, 8.5, 200_000)
    drawn = level + scale * norm.ppf((1 - share) * norm.cdf((rng.normal(skill.mu, 0.3, 200_000) - level) / scale))
    state = ratings.state_dict()
    state["ratings"]["t0"] = [skill.mu, 0.3]
    ratings.load_state_dict(state)
    assert ratings["t0"].sigma == pytest.approx(drawn.std(), rel=0.12)


@pytest.mark.slow
def test_a_teacher_that_only_forfeits_stays_finite_and_last():
    ratings = small()
    for _ in range(100):
        ratings.update(
            [Outcome("t0", "s0", 6, 0, forfeit=True)] * 6 + [Outcome("t1", "s1", 6, 6, prompt=p) for p in range(6)]
        )
    assert math.isfinite(ratings.fitness("t0")) and ratings.fitness("t0") < ratings.fitness("t1")


def test_a_birth_begins_a_new_interval_for_all():
    ratings = small()
    for _ in range(20):
        ratings.update([Outcome(t, s, 6, 2, "code_o", 0) for t in ratings.teachers for s in ratings.students])
        ratings.update([Outcome("t0", "s0", 6, 0, "code_o", 0, forfeit=True)] * 3)
    before = {name: ratings.skill(name) for name in (*ratings.teachers, *ratings.students)}
    proposals, invalid = ratings.state_dict()["proposals"]["t0"]
    ratings.inherit("s1", ["s0"])
    for name, old in before.items():
        assert old.sigma < SIGMA / 2 == ratings.skill(name).sigma
        assert ratings.skill(name).mu == (before["s0"].mu if name == "s1" else old.mu)
    assert ratings.state_dict()["proposals"]["t0"] == pytest.approx((10, 10 * invalid / proposals))
    again = ratings.state_dict()
    ratings.inherit("s1", ["s0"])
    assert ratings.state_dict() == again


def test_a_newcomer_without_a_new_interval_leaves_the_others_as_they_are():
    ratings, other = small(), small()
    for _ in range(20):
        ratings.update([Outcome(t, s, 6, 2, "code_o", 0) for t in ratings.teachers for s in ratings.students])
        ratings.update([Outcome("t0", "s0", 6, 0, "code_o", 0, forfeit=True)] * 3)
    before = ratings.state_dict()
    other.load_state_dict(before)
    assert ratings.inherit("t1", ["t0"], begin=False) == other.inherit("t1", ["t0"])
    after = ratings.state_dict()
    for name in ("t0", "s0", "s1", "s2"):
        assert after["ratings"][name] == before["ratings"][name]
    assert after["proposals"]["t0"] == before["proposals"]["t0"]
    proposals, invalid = before["proposals"]["t0"]
    assert after["proposals"]["t1"] == pytest.approx((10, 10 * invalid / proposals))


def test_state_of_a_mixed_round_survives_json_exactly():
    ratings, other = small(), small()
    ratings.update(mixed_round())
    other.load_state_dict(json.loads(json.dumps(ratings.state_dict())))
    for side in (ratings, other):
        side.update(mixed_round())
    assert json.dumps(other.state_dict()) == json.dumps(ratings.state_dict())
    np.testing.assert_array_equal(other.residual, ratings.residual)


def test_a_forfeit_is_not_solved():
    with pytest.raises(ValueError, match="0 wins if forfeit, got student_wins=1, games=6 and forfeit=True"):
        Outcome("t0", "s0", 6, 1, forfeit=True)


def test_the_mean_stays_where_one_side_is_better_known():
    """A newcomer moves more than the members that it meets."""
    ratings = Ratings(["t0", "t1"], ["s0", "s1"])
    state = ratings.state_dict()
    state["ratings"]["t0"][1] = 1.0
    ratings.load_state_dict(state)
    for _ in range(5):
        ratings.update([Outcome("t0", "s0", 20, 18)])
    mus = [ratings.skill(name).mu for name in ("t0", "t1", "s0", "s1")]
    assert math.fsum(mus) / 4 == pytest.approx(MU, abs=1e-9) and mus[2] - MU > MU - mus[0]


def test_a_child_has_no_residual_yet():
    ratings = small()
    for student in ("s0", "s1", "s2"):
        ratings.update([Outcome(teacher, student, 40, 30) for teacher in ("t0", "t1")])
    before = ratings.residual
    ratings.inherit("s1", ["s0"])
    assert np.isnan(ratings.residual[:, 1]).all() and (ratings.residual[:, [0, 2]] == before[:, [0, 2]]).all()
    ratings.inherit("t0", ["t1"])
    assert np.isnan(ratings.residual[0]).all() and (ratings.residual[1, [0, 2]] == before[1, [0, 2]]).all()


def test_a_teacher_inherits_skill_and_validity_apart():
    """From the rating, which has forfeits in it, they would count twice."""
    ratings = Ratings(["t0", "t1"], ["s0", "s1"])
    for i in range(6):
        games = [Outcome("t0", "s0", 8, 2, prompt=i), Outcome("t0", "s0", 8, 0, prompt=i, forfeit=True)]
        ratings.update([*games, Outcome("t1", "s1", 8, 4, prompt=i)])
    skill, rating = ratings.skill("t0"), ratings["t0"]
    assert rating.mu < skill.mu - 1
    ratings.inherit("t1", ["t0"])
    assert ratings.skill("t1").mu == skill.mu
    assert ratings["t1"].mu == pytest.approx(rating.mu, abs=0.5)


def test_a_child_inherits_no_more_proposals_than_its_parents_have():
    """A clone has the rating of its parent; a parent without proposals says nothing about validity."""
    ratings = Ratings(["t0", "t1", "t2"], ["s0", "s1"])
    ratings.update([Outcome("t0", "s0", 8, 0, prompt=i, forfeit=True) for i in range(2)])
    proposals = ratings.state_dict()["proposals"]
    assert 0 < proposals["t0"][0] < 3 and proposals["t2"] == [0, 0]
    ratings.inherit("t1", ["t0", "t2"])
    assert ratings.state_dict()["proposals"]["t1"] == pytest.approx(proposals["t0"])


def test_a_new_interval_adds_no_proposals():
    ratings = Ratings(["t0", "t1"], ["s0", "s1"])
    ratings.update([Outcome("t0", "s0", 8, 2), Outcome("t0", "s0", 8, 0, prompt=1, forfeit=True)])
    before = ratings.state_dict()["proposals"]["t0"]
    ratings.inherit("s1", ["s0"])
    assert ratings.state_dict()["proposals"]["t0"] == before and before[0] <= 2


def test_proposals_to_one_prompt_count_as_fewer_valid_and_invalid():
    """All four are valid at half of the prompts, and none at the others."""
    ratings = Ratings(["t0"], ["s0"])
    for _ in range(5):
        ratings.update([Outcome("t0", "s0", 8, 0, prompt=i // 4, forfeit=i // 4 % 2 == 0) for i in range(32)])
    proposals, invalid = ratings.state_dict()["proposals"]["t0"]
    assert 40 <= proposals < 130 and invalid / proposals == pytest.approx(0.5)


@pytest.mark.slow
def test_the_turn_of_types_is_no_residual_and_no_correlation():
    """Equal members play an easy and a hard type in turn, one prompt a round."""
    rng, ratings = np.random.default_rng(0), Ratings(["t0"], ["s0"])
    for round in range(300):
        type, rate = (("easy", 0.85), ("hard", 0.15))[round % 2]
        tasks = [Outcome("t0", "s0", 8, int(rng.binomial(8, rate)), type=type) for _ in range(8)]
        ratings.update(tasks)
        if round >= 200:
            assert abs(ratings.residual[0, 0]) < 0.05
    for type in ("easy", "hard"):
        assert max(ratings.correlations.of(type)) < 0.1


def test_the_weight_of_several_tasks_of_one_prompt():
    """Kish's design effect: 2 * 12 ordered pairs of attempts at one task, 2 * 16 at two tasks."""
    tasks = [Outcome("t0", "s0", 4, 1), Outcome("t0", "s0", 4, 3)]
    assert Correlations().weigh(tasks) == pytest.approx(1 / (1 + (TASK * 24 + PROMPT * 32) / 8))


def test_what_was_seen_long_ago_fades():
    correlations = Correlations()
    for wins in (0, 4):
        for _ in range(MEMORY // 4):
            correlations.learn([[Outcome("t0", "s0", 4, wins)]] * 8, [0.5] * 8)
    assert correlations.solve_rate("") == pytest.approx(1 - math.exp(-2), abs=0.03)
