import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trl_populora.self_play.rewards import (
    TEACHER_REWARDS,
    RewardSettings,
    role_rewards,
    role_task_advantages,
    student_reward,
    teacher_reward,
)
from trl_populora.self_play.settings import RoundSettings


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("adversarial", {0.0: 1.0, 0.25: 0.75, 1.0: 0.0}),
        ("learnability", {0.0: -0.5, 0.25: 0.75, 1.0: -0.5}),
        ("frontier", {0.0: 0.0, 0.25: 0.75, 0.5: 1.0, 1.0: 0.0}),
        ("solvable", {0.0: 0.0, 0.25: 0.75, 1.0: 0.0}),
    ],
)
def test_teacher_rewards(name, expected):
    settings = RewardSettings(teacher=name)
    for rate, reward in expected.items():
        assert TEACHER_REWARDS[name](rate) == reward
        assert teacher_reward(rate, settings=settings) == reward
    assert teacher_reward(None, settings=settings) == -1.0
    assert math.isnan(teacher_reward(float("nan"), settings=settings))


@pytest.mark.parametrize("name", TEACHER_REWARDS)
def test_only_solvable_asks_whether_somebody_else_solved_it(name):
    settings = RewardSettings(teacher=name)
    for rate in (0.0, 0.25, 1.0):
        alone, helped = (teacher_reward(rate, solved_elsewhere=other, settings=settings) for other in (False, True))
        assert (alone, helped) == ((0.0, 1.0) if name == "solvable" and rate == 0 else (alone, alone))


def some_solved(solve_rate, solved_elsewhere):
    return 1 - solve_rate if solve_rate >= 0.25 else 0.0


def half_pay(solve_rate, solved_elsewhere):
    return 0.5 * solved_elsewhere


def too_far(solve_rate, solved_elsewhere):
    return 1 / solve_rate


def pole(solve_rate, solved_elsewhere):
    return 1 / (solve_rate - 0.375)


def by_chance(solve_rate, solved_elsewhere):
    return random.random()


def no_number(solve_rate, solved_elsewhere):
    return None


def test_a_reward_of_ones_own():
    settings = RewardSettings(teacher=f"{__name__}:some_solved")
    rewards = [teacher_reward(rate, settings=settings) for rate in (0.0, 0.25, 1.0, None)]
    assert rewards == [0.0, 0.75, 0.0, -1.0] and not settings.asks_others


@pytest.mark.parametrize(("name", "attempts"), [("half_pay", 4), ("some_solved", 0)])
def test_others_attempt_a_task_if_the_reward_depends_on_them(name, attempts):
    assert RoundSettings(rewards=RewardSettings(teacher=f"{__name__}:{name}")).extra_attempts == attempts


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("kind", "teacher_reward='kind' is unknown. Choose from .*'frontier'.* or 'module:function' of your own"),
        ("no_such_module:reward", "the module 'no_such_module' cannot be imported"),
        ("math:pi", "math:pi' is 3.14.*, not a function"),
        (f"{__name__}:too_far", r"called with \(0, False\), failed: ZeroDivisionError"),
        (f"{__name__}:pole", r"called with \(0.375, False\), failed: ZeroDivisionError"),
        (f"{__name__}:no_number", "gave None; it must give a finite number"),
        (
            f"{__name__}:by_chance",
            r"called with \(0, False\), gave 0.* and then 0.*; it must give the same reward each",
        ),
        ("math:isnan", "failed: TypeError: .*one argument"),
    ],
)
def test_a_reward_that_cannot_be_used_is_refused_at_once(name, match):
    with pytest.raises(ValueError, match=match):
        RewardSettings(teacher=name)


def test_student_rewards():
    assert student_reward(True, well_formed=True) == 1.0
    assert student_reward(False, well_formed=True) == -0.5
    assert student_reward(False, well_formed=False) == -1.0
    assert student_reward(True, well_formed=False) == -1.0
    assert student_reward(False, well_formed=True, settings=RewardSettings(wrong=0.0)) == 0.0


reward_values = st.sampled_from([-1.0, -0.5, 0.0, 0.125, 0.25, 0.75, 1.0, float("nan")])


def test_rows_not_played_are_left_out():
    with_gap = role_task_advantages([1.0, float("nan"), 0.0, -1.0], [0, 0, 0, 0])
    assert with_gap[1] == 0
    np.testing.assert_array_equal(with_gap[[0, 2, 3]], role_task_advantages([1.0, 0.0, -1.0], [0, 0, 0]))
    assert role_task_advantages([float("nan")] * 3, [0, 0, 0]).tolist() == [0, 0, 0]
    assert role_task_advantages([0.7, float("nan")], [0, 0]).tolist() == [0, 0]


def test_equal_rewards_give_exactly_zero():
    assert role_task_advantages([0.1] * 7, [0] * 7).tolist() == [0] * 7


def test_role_task_whitens_within_strata():
    rng = np.random.default_rng(0)
    rewards = np.concatenate([rng.normal(5, 2, 400), rng.normal(-3, 0.5, 300)])
    strata = [("student_0", "student", "code_o")] * 400 + [("student_0", "student", "code_i")] * 300
    result = role_task_advantages(rewards, strata)
    for part in (result[:400], result[400:]):
        assert part.mean() == pytest.approx(0, abs=1e-9)
        assert part.std(ddof=1) == pytest.approx(1, abs=1e-3)


def masked_whiten(tokens: np.ndarray) -> np.ndarray:
    """verl's `masked_whiten` over an array of tokens that all count: the unbiased variance, 1e-8 under the root."""
    return (tokens - tokens.mean()) / np.sqrt(tokens.var(ddof=1) + 1e-8)


@given(st.lists(st.tuples(reward_values, st.integers(0, 9), st.integers(0, 1)), min_size=1, max_size=12))
def test_role_task_whitens_over_tokens(rows):
    rewards, lengths, strata = (np.array(column) for column in zip(*rows, strict=True))
    ours = role_task_advantages(rewards, strata, weights=lengths)
    for stratum in set(strata.tolist()):
        own = np.flatnonzero((strata == stratum) & ~np.isnan(rewards))
        tokens = np.repeat(rewards[own], lengths[own])  # every token of a row returns the row's reward
        if len(tokens) < 2 or np.ptp(tokens) == 0:
            assert (ours[own] == 0).all()
            continue
        np.testing.assert_allclose(np.repeat(ours[own], lengths[own]), masked_whiten(tokens), rtol=1e-6, atol=1e-6)


def test_a_long_row_pulls_the_baseline_towards_itself():
    strata = [0, 0]
    even = role_task_advantages([1.0, 0.0], strata, weights=[10, 10])
    long = role_task_advantages([1.0, 0.0], strata, weights=[90, 10])
    assert even[0] == pytest.approx(-even[1]) and 0 < long[0] < even[0] and long[1] < even[1]


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="'adverserial'.*'adversarial'"):
        RewardSettings(teacher="adverserial")
    with pytest.raises(ValueError, match="wrong=nan must be a finite number"):
        RewardSettings(wrong=float("nan"))
    with pytest.raises(ValueError, match="1.5"):
        teacher_reward(1.5)
    with pytest.raises(ValueError, match="not negative"):
        role_task_advantages([1.0, 0.0], [0, 0], weights=[1, -1])
    with pytest.raises(ValueError, match="1 labels"):
        role_task_advantages([1.0, 2.0], [0])
    with pytest.raises(ValueError, match="finite"):
        role_task_advantages([float("inf"), 2.0], [0, 0])


def test_headline_numbers_keep_the_roles_apart():
    nan = float("nan")
    total = np.array([1.0, 0.0, nan, -1.0, 2.0, 2.0, nan, nan, -0.5, 1.0])
    roles = ["teacher"] * 4 + ["student"] * 6
    values = role_rewards(total, {"self_play_reward": total}, roles=roles, group_size=2)
    assert values == {
        "teachers/reward": 0.0,
        "teachers/reward_std": 1.0,
        "teachers/zero_std_groups": 0.5,  # one row alone has no difference
        "students/reward": pytest.approx(4.5 / 4),
        "students/reward_std": pytest.approx(np.std([2, 2, -0.5, 1], ddof=1)),
        "students/zero_std_groups": 0.5,  # the group without a reward does not count
    }
    own = np.where(np.array(roles) == "teacher", 4.0, nan)
    both = role_rewards(total, {"self_play_reward": total, "length": own}, roles=roles, group_size=2)
    assert both.items() >= values.items()
    assert both["teachers/rewards/length/mean"] == 4 and both["teachers/rewards/length/std"] == 0
    assert both["students/rewards/self_play_reward/mean"] == values["students/reward"]
    assert "students/rewards/length/mean" not in both
    assert role_rewards(own * nan, {"length": own}, roles=roles, group_size=2) == {}
