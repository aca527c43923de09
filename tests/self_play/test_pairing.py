import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.drawn_examples import examples
from trl_populora.self_play import Completion, Proposal, RewardSettings, RoundSettings
from trl_populora.self_play.late import LateRewards, Row
from trl_populora.self_play.matching import pair_up
from trl_populora.self_play.pairing import PAIRINGS, pair, scheduled_type
from trl_populora.self_play.ratings import Outcome, Ratings
from trl_populora.tasks import Refusal


METHODS = [*PAIRINGS, "fixed"]


def sides(num_teachers: int, num_students: int) -> Ratings:
    return Ratings([f"t{i}" for i in range(num_teachers)], [f"s{i}" for i in range(num_students)])


def rated(mus: dict[str, float]) -> Ratings:
    """Two teachers and two students with the given means and small sigma."""
    ratings = sides(2, 2)
    state = ratings.state_dict()
    state["ratings"] = {name: [mu, 1.0] for name, mu in mus.items()}
    ratings.load_state_dict(state)
    return ratings


def shares(ratings: Ratings, *, draws: int = 4000, **options) -> dict[tuple[str, str], float]:
    rng = np.random.default_rng(0)
    counts = Counter(match for _ in range(draws) for match in pair(ratings, rng=rng, **options))
    return {key: count / draws for key, count in counts.items()}


@examples(40)
@given(num_teachers=st.integers(1, 6), num_students=st.integers(1, 6), method=st.sampled_from(METHODS))
def test_every_member_plays_equally_much(num_teachers, num_students, method):
    ratings = sides(num_teachers, num_students)
    ratings.update([Outcome("t0", "s0", 30, 2)])
    pairs = pair(ratings, method=method, rng=np.random.default_rng(1))
    length = math.lcm(num_teachers, num_students)
    assert len(pairs) == length
    assert Counter(t for t, _ in pairs) == dict.fromkeys(ratings.teachers, length // num_teachers)
    assert Counter(s for _, s in pairs) == dict.fromkeys(ratings.students, length // num_students)


@pytest.mark.parametrize("method", METHODS)
def test_same_seed_same_pairs(method):
    ratings = sides(4, 4)
    first, again = (pair(ratings, method=method, rng=np.random.default_rng(7)) for _ in range(2))
    assert first == again


def test_variance_prefers_balanced_pairs():
    ratings = rated({"t0": 35, "s0": 35, "t1": 15, "s1": 15})
    found = shares(ratings, method="variance")
    assert found[("t0", "s0")] > 0.8 > 0.2 > found[("t0", "s1")] > 0


def test_hard_sends_students_to_teachers_that_beat_them():
    # s0 alone is near t0; to s1 every teacher is hard, to s0 only t0 is.
    ratings = rated({"t0": 30, "t1": 20, "s0": 30, "s1": 22})
    found = shares(ratings, method="hard", floor=0.0)
    wins = ratings.win_probabilities() ** 2
    straight, crossed = wins[0, 0] * wins[1, 1], wins[0, 1] * wins[1, 0]
    assert (found[("t0", "s0")] > 0.5) == (straight > crossed)
    assert found[("t0", "s0")] > 0.6


def test_weight_functions():
    teacher_wins = np.array([[0.2, 0.5, 0.8]])
    np.testing.assert_allclose(PAIRINGS["variance"](teacher_wins), [[0.16, 0.25, 0.16]])
    np.testing.assert_allclose(PAIRINGS["hard"](teacher_wins), [[0.04, 0.25, 0.64]])  # (1 - P(student wins))^2
    np.testing.assert_allclose(PAIRINGS["uniform"](teacher_wins), [[1, 1, 1]])


@pytest.mark.slow
def test_full_floor_is_uniform():
    ratings = rated({"t0": 35, "s0": 35, "t1": 15, "s1": 15})
    for options in ({"method": "variance", "floor": 1.0}, {"method": "uniform"}):
        found = shares(ratings, **options)
        assert found[("t0", "s0")] == pytest.approx(0.5, abs=0.03)


def test_uniform_is_uniform_over_all_pairs():
    found = shares(sides(3, 3), method="uniform", draws=3000)
    assert len(found) == 9
    assert all(share == pytest.approx(1 / 3, abs=0.04) for share in found.values())


def test_choice_is_the_noisy_maximum_weight_assignment():
    # Two teachers and two students have two assignments, each with a sum of two Gumbels: compare with a simulation.
    ratings = rated({"t0": 28, "s0": 27, "t1": 24, "s1": 21})
    p = ratings.win_probabilities()
    weights = np.log(0.9 * p * (1 - p) / (p * (1 - p)).mean() + 0.1)
    noise = np.random.default_rng(3).gumbel(size=(200_000, 2, 2))
    straight = (weights + noise)[:, [0, 1], [0, 1]].sum(1) > (weights + noise)[:, [0, 1], [1, 0]].sum(1)
    assert shares(ratings, method="variance")[("t0", "s0")] == pytest.approx(straight.mean(), abs=0.03)


def test_fixed_is_round_robin_and_draws_nothing():
    rng = np.random.default_rng(0)
    before = rng.bit_generator.state
    assert pair(sides(2, 2), method="fixed", rng=rng) == [("t0", "s0"), ("t1", "s1")]
    assert pair(sides(2, 3), method="fixed", rng=rng) == sorted((f"t{k % 2}", f"s{k % 3}") for k in range(6))
    assert rng.bit_generator.state == before


def test_saturated_ratings_stay_feasible():
    ratings = rated({"t0": 1e6, "t1": 1e6, "s0": -1e6, "s1": -1e6})
    for floor in (0.0, 0.1):
        assert len(pair(ratings, method="variance", rng=np.random.default_rng(0), floor=floor)) == 2
    ratings = rated({"t0": 1e6, "t1": 1e6, "s0": 1e6, "s1": -1e6})  # one column of weight 0
    assert len(pair(ratings, method="variance", rng=np.random.default_rng(0), floor=0.0)) == 2


def test_bad_input_is_named():
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="'varience'.*'variance'"):
        pair(sides(2, 2), method="varience", rng=rng)
    with pytest.raises(ValueError, match="floor.*1.5"):
        pair(sides(2, 2), rng=rng, floor=1.5)
    with pytest.raises(ValueError, match="0 teachers"):
        pair(sides(0, 2), rng=rng)


def test_hard_prefers_teachers_that_win():
    """By the square of P(teacher wins), with Gumbel noise: compare with a simulation."""
    ratings = rated({"t0": 22, "s0": 20, "t1": 16, "s1": 36})
    hard = ratings.win_probabilities() ** 2
    noise = np.random.default_rng(3).gumbel(size=(200_000, 2, 2))
    score = np.log(0.9 * hard / hard.mean() + 0.1) + noise
    straight = score[:, [0, 1], [0, 1]].sum(1) > score[:, [0, 1], [1, 0]].sum(1)
    assert shares(ratings, method="hard")[("t0", "s0")] == pytest.approx(straight.mean(), abs=0.025)


@pytest.mark.parametrize("prompts, types", [(1, 3), (2, 3), (2, 4), (2, 5), (3, 2)])
def test_every_type_has_its_turn_in_each_rotation(prompts, types):
    names = [f"type_{i}" for i in range(types)]
    rotation = -(-types // prompts)
    turns = [
        [scheduled_type(names, round=round, prompt=p, prompts_per_teacher=prompts) for p in range(prompts)]
        for round in range(prompts * types)
    ]
    for start in range(len(turns) - rotation + 1):
        assert {name for turn in turns[start : start + rotation] for name in turn} == set(names)
    counts = Counter(name for turn in turns for name in turn)
    assert set(counts.values()) == {prompts * prompts}


def test_rows_of_other_groups_are_not_taken_for_these():
    """One prompt of four rows, and then two of two: as many rows, but other groups."""
    late = LateRewards(1, RewardSettings(teacher="solvable"))

    def round(number, group_size):
        written = [
            Proposal("teacher_0", "countdown", "", group=i // group_size, refusal=Refusal("no_task", ""))
            for i in range(4)
        ]
        rows = [Row("teacher_0", "teacher", "countdown", [], Completion("", [1], [2]), -1.0) for _ in written]
        return late.exchange(number, rows, written, {"teacher_0": 0})

    round(0, 4)
    rows, settled = round(1, 2)
    assert {row.reward for row in rows} == {None} and settled == ()
    rows, settled = round(2, 2)
    assert len(rows) == len(settled) == 4


def test_a_round_pairs_by_its_settings_and_its_number():
    ratings = rated({"t0": 22, "s0": 20, "t1": 16, "s1": 36})

    def drawn(**changes):
        rules = RoundSettings(prompts_per_teacher=4, num_generations=1, **changes)
        return [pair_up(ratings, rules, round=round, crossing=0.0) for round in range(60)]

    def straight(rounds):
        return sum((one.teacher, one.student) == ("t0", "s0") for pairings in rounds for one in pairings)

    plain = drawn(pairing="hard", pairing_floor=0.0)
    assert straight(plain) < 15 and plain == drawn(pairing="hard", pairing_floor=0.0)
    assert 20 < straight(drawn(pairing="hard", pairing_floor=1.0)) < 40, "half of them"
    assert straight(drawn(pairing="fixed")) == 60
    assert plain != drawn(pairing="hard", pairing_floor=0.0, seed=1)


def test_other_prompts_go_to_a_student_in_every_round():
    rules = RoundSettings(prompts_per_teacher=2, num_generations=1, pairing="fixed")
    dealt = {tuple(pair_up(sides(1, 2), rules, round=round, crossing=0.0)) for round in range(20)}
    assert len(dealt) == 2
