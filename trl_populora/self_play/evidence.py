"""The weight of the games of a round. Attempts at one task, and tasks of one prompt, are not independent.

This module computes the weights. `ratings` uses them.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


TASK, PROMPT = 0.35, 0.15
"""Correlations of two attempts at one task, and of attempts at two tasks of one prompt, before any are seen.

Means over the types of the tiny run (`benchmarks/selection.py --rounds`), rounded.
"""
VALIDITY = 0.1
"""Correlation of the validity of two proposals to one prompt, before any are seen. Our choice."""
PRIOR_TASKS = 15
"""Tasks that these first guesses are worth."""
MEMORY = 400
"""Tasks of a type after which what was seen has faded to 1 / e: solve rates change as members learn."""


@dataclass(frozen=True)
class Outcome:
    """Result of one proposal between its teacher and the student that it was assigned to.

    Attributes:
        teacher (`str`): Member that proposed.
        student (`str`): Member that it was assigned to.
        games (`int`): Number of games: attempts at the task, or attempts that an invalid proposal forfeits.
        student_wins (`int`): Attempts that solved the task; 0 for a forfeit, because nothing was attempted.
        type (`str`, *optional*, defaults to `""`): Task type.
        prompt (`int`, *optional*, defaults to `0`): Proposals of one teacher to one prompt share this number.
        forfeit (`bool`, *optional*, defaults to `False`): Whether the proposal was invalid: the teacher loses.
    """

    teacher: str
    student: str
    games: int
    student_wins: int
    type: str = ""
    prompt: int = 0
    forfeit: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.student_wins <= (0 if self.forfeit else self.games):
            raise ValueError(
                f"An outcome needs 0 <= student_wins <= games, and 0 wins if forfeit, got student_wins="
                f"{self.student_wins}, games={self.games} and forfeit={self.forfeit} for {self.teacher!r} against "
                f"{self.student!r}."
            )


class Correlations:
    """Intraclass correlations of attempts, per task type, estimated from the run's own tasks.

    The variance of a mean of n attempts is p (1 - p) / n times the design effect `1 + sum of correlations over ordered
    pairs / n` (Kish, 1965). So n attempts count as n / design effect independent ones. Two correlations are needed: of
    attempts at one task, and of attempts at different tasks of one prompt (these share references and the student).
    Both are conditional on the members, so a difference between two teachers does not count as correlation.

    Let r be the solve rate of a task, x the share of pairs of attempts in which both solved it, and q the expected
    rate of its teacher and student. Each correlation is the sum of x - r q divided by the sum of r (1 - q), shrunk
    towards a first guess. q is the prediction of the ratings before the round, plus the mean error of this prediction
    over the other prompts of the type in the round. It does not depend on the task itself. So its noise does not count
    as correlation, and a change of the general level cancels out. Prior, memory and estimator are our choice.

    Args:
        task, prompt (`float`, *optional*): First guesses of the two.
    """

    def __init__(self, task: float = TASK, prompt: float = PROMPT) -> None:
        self._guesses = task, prompt
        # Per type: tasks, sum of r, sum of r (1 - q); and twice tasks with pairs, sum of x - r q.
        self._sums: dict[str, list[float]] = {}

    def of(self, type: str) -> tuple[float, float]:
        """Correlation of two attempts at one task, and at two tasks of one prompt, each in [0, 1]."""
        tasks, _, spread, *pairs = self._sums.get(type, [0.0] * 7)
        p = self.solve_rate(type)
        variance = (PRIOR_TASKS * p * (1 - p) + max(spread, 0.0)) / (PRIOR_TASKS + tasks)
        estimates = []
        for guess, number, excess in zip(self._guesses, pairs[::2], pairs[1::2], strict=True):
            estimate = (PRIOR_TASKS * guess + excess / variance) / (PRIOR_TASKS + number)
            estimates.append(min(max(estimate, 0.0), 1.0))
        return estimates[0], estimates[1]

    def solve_rate(self, type: str) -> float:
        """Share of attempts that solve a task of the type, strictly inside (0, 1): half a task of each outcome is
        added."""
        tasks, rates = self._sums.get(type, [0.0, 0.0])[:2]
        return (rates + 0.5) / (tasks + 1)

    def weigh(self, tasks: Sequence[Outcome]) -> float:
        """Weight of each attempt at the tasks of one prompt: one over the design effect."""
        within, across = self.of(tasks[0].type)
        attempts = sum(task.games for task in tasks)
        same = sum(task.games * (task.games - 1) for task in tasks)
        other = attempts**2 - sum(task.games**2 for task in tasks)
        return 1 / (1 + (within * same + across * other) / attempts)

    def learn(self, prompts: Iterable[Sequence[Outcome]], predicted: Iterable[float]) -> None:
        """Updates the estimates with the tasks of a round, in any order.

        Args:
            prompts (`Iterable[Sequence[Outcome]]`): Played tasks, one sequence per prompt.
            predicted (`Iterable[float]`): For each prompt, the predicted solve rate of its teacher and student before
                the round. Its level is corrected by the other prompts of the type in the round, if there are any.
        """
        by_type: dict[str, list[tuple[Sequence[Outcome], float]]] = {}
        for tasks, prediction in zip(prompts, predicted, strict=True):
            by_type.setdefault(tasks[0].type, []).append((tasks, prediction))
        for type, groups in by_type.items():
            errors = [math.fsum(_rates(tasks)) / len(tasks) - q for tasks, q in groups]
            total, others = math.fsum(errors), max(len(errors) - 1, 1)
            seen = [_count(tasks, q + (total - error) / others) for (tasks, q), error in zip(groups, errors)]
            fade = math.exp(-sum(len(tasks) for tasks, _ in groups) / MEMORY)
            old = self._sums.get(type, [0.0] * 7)
            self._sums[type] = [math.fsum((fade * value, *new)) for value, *new in zip(old, *seen, strict=True)]

    def state_dict(self) -> dict[str, list[float]]:
        """Running sums as plain data that survives JSON without loss."""
        return {type: list(sums) for type, sums in self._sums.items()}

    def load_state_dict(self, state: dict[str, list[float]]) -> None:
        """Restores what [`Correlations.state_dict`] gave."""
        self._sums = {type: list(sums) for type, sums in state.items()}


def _rates(tasks: Sequence[Outcome]) -> list[float]:
    return [task.student_wins / task.games for task in tasks]


def _count(tasks: Sequence[Outcome], q: float) -> list[float]:
    """Contribution of the tasks of a prompt to the sums of their type, with the expected solve rate of their pair."""
    rates = _rates(tasks)
    total, squares = math.fsum(rates), math.fsum(rate * rate for rate in rates)
    several = [(task.games, task.student_wins) for task in tasks if task.games > 1]
    within = math.fsum(k * (k - 1) / (n * (n - 1)) - k / n * q for n, k in several)
    others = len(tasks) - 1  # each task's mean over the others of its prompt, so that a task counts once
    across = (total**2 - squares) / others - total * q if others else 0.0
    return [len(tasks), total, total * (1 - q), len(several), within, len(tasks) if others else 0.0, across]
