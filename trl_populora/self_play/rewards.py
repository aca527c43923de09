"""Rewards of both sides, and advantages computed from them.

Pure functions of plain numbers. Parsing, verification and the loss are in other modules.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from numbers import Real
from typing import cast

import numpy as np

from ..named import named


MAX_SHARING = 10.0
"""With larger exponents, one task would get nearly all of the reward."""

MAX_REWARD = 1e6
"""Larger rewards overflow in float32 when they are squared for their standard deviation, or lose the differences."""

VARIANCE_EPSILON = 1e-8
"""Added to the variance by `role_task_advantages`, as in verl's `masked_whiten`."""


def adversarial(solve_rate: float, solved_elsewhere: bool = False) -> float:
    """1 - s: pays for valid tasks that the matched student fails (the paper's choice)."""
    return 1 - solve_rate


def learnability(solve_rate: float, solved_elsewhere: bool = False) -> float:
    """1 - s for a task solved sometimes, -0.5 for one solved always or never (Absolute Zero Reasoner)."""
    return 1 - solve_rate if 0 < solve_rate < 1 else -0.5


def frontier(solve_rate: float, solved_elsewhere: bool = False) -> float:
    """4 s (1 - s): highest (1) for a task that is solved in half of the attempts (our choice)."""
    return 4 * solve_rate * (1 - solve_rate)


def solvable(solve_rate: float, solved_elsewhere: bool = False) -> float:
    """1 - s if some member of the population solved the task, else 0: no reward for impossible tasks (our choice)."""
    return 1 - solve_rate if solve_rate > 0 or solved_elsewhere else 0.0


TEACHER_REWARDS: dict[str, Callable[[float, bool], float]] = {
    "adversarial": adversarial,
    "learnability": learnability,
    "frontier": frontier,
    "solvable": solvable,
}
"""Rewards of a valid task: functions of its solve rate in [0, 1], and of whether another member solved it."""

SOLVE_RATES = sorted({solved / attempts for attempts in range(1, 33) for solved in range(attempts + 1)})
"""Solve rates of up to 32 attempts, for which a function of the user's own is checked before a run."""


@cache
def reward_of_a_task(name: str) -> Callable[[float, bool], float]:
    """
    The reward of a teacher for a valid task, by its name.

    Args:
        name (`str`): A key of `TEACHER_REWARDS`, or `"module:function"` of your own: a function of the solve rate in
            [0, 1] and of whether another member solved the task. It returns a finite number.

    Raises:
        ValueError: If there is no such function.
    """
    if name in TEACHER_REWARDS:
        return TEACHER_REWARDS[name]
    label, form = f"teacher_reward={name!r}", f"{list(TEACHER_REWARDS)}, or 'module:function' of your own"
    if ":" not in name:
        raise ValueError(f"{label} is unknown. Choose from {form}.")
    found = named(name, label=label, form=f"one of {form}")
    if not callable(found):
        raise ValueError(f"{label} is {found!r}, not a function.")
    return cast(Callable[[float, bool], float], found)


def checked_call(name: str, solve_rate: float, solved_elsewhere: bool) -> float:
    """The reward of a task by the function of a name.

    Raises:
        ValueError: If the function fails, or gives no finite number of a sane size.
    """
    call = f"teacher_reward={name!r}, called with ({solve_rate:g}, {solved_elsewhere}),"
    function = reward_of_a_task(name)
    try:
        reward = function(solve_rate, solved_elsewhere)
    except Exception as error:
        raise ValueError(f"{call} failed: {type(error).__name__}: {error}") from error
    if not (isinstance(reward, Real) and abs(reward) <= MAX_REWARD):  # pyright: ignore[reportOperatorIssue]
        raise ValueError(f"{call} gave {reward!r}; it must give a finite number, at most {MAX_REWARD:g} in size.")
    return float(reward)


@dataclass(frozen=True)
class RewardSettings:
    """Rewards of the possible outcomes. The default numbers are those of Absolute Zero Reasoner; that of `teacher` is
    the paper's.

    Args:
        solved (`float`, *optional*, defaults to `1.0`): Reward of a student for a right answer.
        wrong (`float`, *optional*, defaults to `-0.5`): Reward of a student for a well-formed wrong answer.
        malformed (`float`, *optional*, defaults to `-1.0`): Reward of a student if no answer could be read.
        invalid (`float`, *optional*, defaults to `-1.0`): Reward of a teacher for an invalid proposal.
        sharing (`float`, *optional*, defaults to `0.0`):
            Strength of fitness sharing: a positive reward of a task is divided by its niche count (how many tasks of
            the round resemble it) to this power. Their sum over the round stays. 0 turns it off, 1 is usual.
        teacher (`str`, *optional*, defaults to `"adversarial"`):
            Reward of a teacher for a valid task, by name (`reward_of_a_task`).

    Raises:
        ValueError: If `teacher` is unknown, a reward is not finite or above 1e6, or `sharing` is outside [0, 10].
    """

    solved: float = 1.0
    wrong: float = -0.5
    malformed: float = -1.0
    invalid: float = -1.0
    sharing: float = 0.0
    teacher: str = "adversarial"

    def __post_init__(self) -> None:
        for solve_rate in SOLVE_RATES if self.teacher not in TEACHER_REWARDS else ():
            for elsewhere in (False, True):
                first, again = (checked_call(self.teacher, solve_rate, elsewhere) for _ in range(2))
                if first != again:
                    raise ValueError(
                        f"teacher_reward={self.teacher!r}, called with ({solve_rate:g}, {elsewhere}), gave {first:g} "
                        f"and then {again:g}; it must give the same reward each time."
                    )
        reward_of_a_task(self.teacher)
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name != "teacher" and not abs(value) <= MAX_REWARD:
                raise ValueError(
                    f"{field.name}={value} must be a finite number from -{MAX_REWARD:g} to {MAX_REWARD:g}."
                )
        if not 0 <= self.sharing <= MAX_SHARING:
            raise ValueError(f"sharing={self.sharing} must be between 0 (off) and {MAX_SHARING:g}; 1 is usual.")

    @property
    def asks_others(self) -> bool:
        """Whether a teacher earns something else for a task that its own student did not solve and another did."""
        return checked_call(self.teacher, 0.0, True) != checked_call(self.teacher, 0.0, False)


def student_reward(solved: bool, *, well_formed: bool, settings: RewardSettings = RewardSettings()) -> float:
    """Reward of one attempt.

    Args:
        solved (`bool`): Whether the answer was judged right.
        well_formed (`bool`): Whether an answer could be read. If not, it cannot be right.
        settings (`RewardSettings`, *optional*): Values of the three outcomes.
    """
    if not well_formed:
        return settings.malformed
    return settings.solved if solved else settings.wrong


def teacher_reward(
    solve_rate: float | None, *, solved_elsewhere: bool = False, settings: RewardSettings = RewardSettings()
) -> float:
    """Reward of one proposal.

    Args:
        solve_rate (`float` or `None`):
            Solve rate of the matched student. `None` for an invalid proposal. NaN for a valid task that was not
            played: its reward is NaN, which means no reward and no part in the baseline.
        solved_elsewhere (`bool`, *optional*, defaults to `False`):
            Whether an attempt outside the solve rate solved the task. Of those in the package, only `"solvable"`
            uses it.
        settings (`RewardSettings`, *optional*): Value of an invalid proposal and reward of a valid one.

    Raises:
        ValueError: If the solve rate lies outside [0, 1].
    """
    if solve_rate is None:
        return settings.invalid
    if np.isnan(solve_rate):
        return float("nan")
    if not 0 <= solve_rate <= 1:
        raise ValueError(f"A solve rate lies in [0, 1], got {solve_rate}.")
    return checked_call(settings.teacher, solve_rate, solved_elsewhere)


def role_task_advantages(
    rewards: Sequence[float] | np.ndarray,
    strata: Sequence[Hashable],
    *,
    weights: Sequence[float] | np.ndarray | None = None,
    scale: bool = True,
) -> np.ndarray:
    """Rewards, whitened over tokens within each stratum (Absolute Zero Reasoner's TRR++, verl's `masked_whiten`).

    (r - mean) / sqrt(variance + 1e-8). In the mean and in the unbiased variance, a row counts as often as its weight.
    GRPO's advantages are computed by TRL.

    Args:
        rewards (`np.ndarray` of shape `(N,)`): NaN marks a row that was not played.
        strata (`Sequence` of length N): Label of each row's stratum, e.g. `(member, role, type)`.
        weights (`np.ndarray` of shape `(N,)`, *optional*): Number of completion tokens of each row; 1 each if unset.
        scale (`bool`, *optional*, defaults to `True`): `False` subtracts the mean and does not divide.

    Returns:
        `np.ndarray` of shape `(N,)`, float64. A row with NaN reward gets 0 and is not part of the baseline. A row that
        is alone in its stratum gets 0.

    Raises:
        ValueError: If lengths differ, a reward is infinite, or a weight is negative.
    """
    rewards = np.asarray(rewards, dtype=np.float64)
    if rewards.ndim != 1 or len(strata) != len(rewards):
        raise ValueError(f"Need one label per reward, got {len(strata)} labels for rewards of shape {rewards.shape}.")
    if np.isinf(rewards).any():
        raise ValueError("Rewards must be finite, or NaN for rows that were not played.")
    tokens = np.ones_like(rewards) if weights is None else np.asarray(weights, dtype=np.float64)
    if tokens.shape != rewards.shape or not (tokens >= 0).all():
        raise ValueError(f"weights must hold a number of tokens, not negative, for each of the {len(rewards)} rows.")
    rows_of: dict[Hashable, list[int]] = {}
    for row in np.flatnonzero(~np.isnan(rewards)).tolist():
        rows_of.setdefault(strata[row], []).append(row)
    result = np.zeros_like(rewards)
    for rows in rows_of.values():
        result[rows] = _whiten(rewards[rows], tokens[rows], scale=scale)
    return result


def role_rewards(
    total: np.ndarray, by_function: Mapping[str, np.ndarray], *, roles: Sequence[str], group_size: int
) -> dict[str, float]:
    """Main numbers of a round's rows, separately for each role, because a mean over opponents says nothing.

    Args:
        total (`np.ndarray` of shape `(N,)`): Total reward of each row, groups contiguous. Rows with NaN do not count.
        by_function (`Mapping[str, np.ndarray]`): Name of a reward function -> its rewards of the rows, shape `(N,)`.
        roles (`Sequence[str]` of length N): `"teacher"` or `"student"`.
        group_size (`int`): Rows of a group.

    Returns:
        `dict[str, float]`: for each role `"<role>s/reward"` and `"<role>s/reward_std"` (unbiased), over rows;
        `"<role>s/zero_std_groups"`, the share of the groups with a reward in which all rewards are equal; with several
        functions, `"<role>s/rewards/<function>/mean"` and `"/std"`. Numbers for which no row counts are left out.
    """
    values: dict[str, float | None] = {}
    for role in dict.fromkeys(roles):
        own = np.array([name == role for name in roles])
        values[f"{role}s/reward"], values[f"{role}s/reward_std"] = _mean_and_std(total[own])
        groups = [group[~np.isnan(group)] for group in total[own].reshape(-1, group_size)]
        equal = [len(group) < 2 or np.ptp(group) == 0 for group in groups if len(group)]
        values[f"{role}s/zero_std_groups"] = float(np.mean(equal)) if equal else None
        for name, rewards in by_function.items() if len(by_function) > 1 else ():
            prefix = f"{role}s/rewards/{name}"
            values[f"{prefix}/mean"], values[f"{prefix}/std"] = _mean_and_std(rewards[own])
    return {name: value for name, value in values.items() if value is not None}


def _mean_and_std(rewards: np.ndarray) -> tuple[float | None, float | None]:
    known = rewards[~np.isnan(rewards)].astype(np.float64)
    return (float(known.mean()) if len(known) else None, float(known.std(ddof=1)) if len(known) > 1 else None)


def _whiten(rewards: np.ndarray, weights: np.ndarray, *, scale: bool) -> np.ndarray:
    """Whitens rewards as if each occurred `weights` times in the array; 0 if there are fewer than two."""
    total = weights.sum()
    if total < 2 or np.ptp(rewards[weights > 0]) == 0:
        return np.zeros_like(rewards)
    centred = rewards - (weights * rewards).sum() / total
    variance = (weights * centred**2).sum() / (total - 1)
    return centred / np.sqrt(variance + VARIANCE_EPSILON) if scale else centred
