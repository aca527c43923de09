"""Matchmaking: which teacher's tasks go to which student in a round.

This module only chooses the pairs. `round.py` plays them.
"""

import math
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from .ratings import Ratings


PAIRINGS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    # The variance of one game: prefers balanced matches (prioritised fictitious self-play).
    "variance": lambda teacher_wins: teacher_wins * (1 - teacher_wins),
    # (1 - x)^2 with x = P(student beats teacher): students get teachers that beat them.
    "hard": np.square,
    # All pairs have equal weight, independent of ratings (ablation).
    "uniform": np.ones_like,
}
"""Weight functions `P(teacher beats student) of shape (T, S) -> non-negative weights of shape (T, S)`."""


def pair(
    ratings: Ratings,
    *,
    method: str = "variance",
    rng: np.random.Generator,
    floor: float = 0.1,
) -> list[tuple[str, str]]:
    """Draws a round's matches: one random maximum-weight assignment, in which every member plays equally much.

    Args:
        ratings (`Ratings`): Members and their ratings.
        method (`str`, *optional*, defaults to `"variance"`):
            A key of `PAIRINGS`, or `"fixed"`: match `k` is teacher `k mod T` against student `k mod S`, the same in
            every round, without using `rng`.
        rng (`np.random.Generator`): Source of the Gumbel noise.
        floor (`float`, *optional*, defaults to `0.1`): Share of uniform weights that is mixed in, from 0 to 1.

    Returns:
        `list[tuple[str, str]]`: L = lcm(T, S) pairs `(teacher, student)`, sorted by teacher and then student, with
        every teacher L / T times and every student L / S times. If T and S differ, a pair can occur twice.

    Raises:
        ValueError: If a side is empty, the method is unknown, or `floor` is out of range.

    The weight of a pair is `(1 - floor) f / mean(f) + floor`. Independent Gumbel noise is added to its logarithm,
    which makes the best assignment random. (For a single pair, its probability would be exactly proportional to the
    weight, by the Gumbel-max trick.)
    Source: prioritised fictitious self-play (Vinyals et al., 2019); floor and assignment are our choice.
    """
    teachers, students = ratings.teachers, ratings.students
    if not teachers or not students:
        raise ValueError(f"Pairing needs both sides, got {len(teachers)} teachers and {len(students)} students.")
    if method != "fixed" and method not in PAIRINGS:
        raise ValueError(f"Unknown pairing {method!r}; choose one of {[*PAIRINGS, 'fixed']}.")
    if not 0 <= floor <= 1:
        raise ValueError(f"floor is the share of uniform pairing and lies in [0, 1], got {floor}.")

    length = math.lcm(len(teachers), len(students))
    if method == "fixed":
        chosen = [(k % len(teachers), k % len(students)) for k in range(length)]
    else:
        weights = _mix(PAIRINGS[method](ratings.win_probabilities()), floor)
        rows = np.repeat(np.arange(len(teachers)), length // len(teachers))
        columns = np.repeat(np.arange(len(students)), length // len(students))
        with np.errstate(divide="ignore"):
            score = np.log(weights)[np.ix_(rows, columns)] + rng.gumbel(size=(length, length))
        # A pair of weight 0 (possible with floor 0 only) is a last resort, but the assignment must stay feasible.
        picked = linear_sum_assignment(np.maximum(score, -1e6), maximize=True)
        chosen = [(int(rows[i]), int(columns[j])) for i, j in zip(*picked, strict=True)]
    return [(teachers[t], students[s]) for t, s in sorted(chosen)]


class Pairing(NamedTuple):
    """A teacher and a student in a round.

    Attributes:
        teacher (`str`), student (`str`): The two members.
        slots (`tuple[int, ...]`): Numbers of the proposals that the student gets, counted over all teachers: all
            proposals of some prompts.
        crossed (`bool`): Whether both play against guests instead of each other.
    """

    teacher: str
    student: str
    slots: tuple[int, ...]
    crossed: bool


def assign_prompts(
    pairs: Sequence[tuple[str, str]],
    teachers: Sequence[str],
    *,
    prompts: int,
    completions: int,
    crossing: float,
    rng: random.Random,
) -> list[Pairing]:
    """Divides every teacher's prompts among its students, and crosses some of the pairings.

    The proposals of one prompt are one GRPO group. All of them go to the same student, so that advantages compare
    proposals and not students. Which prompt (and so which task type) goes to which student is drawn at random.

    Args:
        pairs (`Sequence[tuple[str, str]]`): Result of [`pair`]: equally many for each teacher, sorted by teacher.
        teachers (`Sequence[str]`): All teachers, in the order of their proposals.
        prompts (`int`): Prompts of each teacher, P; a multiple of its number of students (see [`check_prompts`]).
        completions (`int`): Proposals to each prompt, G.
        crossing (`float`): Probability that a pairing is crossed, independently of others.
        rng (`random.Random`): Source of both random choices.
    """
    share = len(pairs) // len(teachers)
    order = [prompt for _ in teachers for prompt in rng.sample(range(prompts), prompts)]
    pairings = []
    for k, (teacher, student) in enumerate(pairs):
        first = teachers.index(teacher) * prompts
        own = sorted(order[first + k % share : first + prompts : share])
        slots = tuple((first + prompt) * completions + g for prompt in own for g in range(completions))
        pairings.append(Pairing(teacher, student, slots, rng.random() < crossing))
    return pairings


def check_prompts(num_teachers: int, num_students: int, prompts_per_teacher: int) -> None:
    """Refuses numbers with which the prompts of a teacher cannot be divided evenly among its students.

    Raises:
        ValueError: If the prompts of a teacher are not a multiple of its students per round, S / gcd(T, S).
    """
    share = num_students // math.gcd(num_teachers, num_students)
    if prompts_per_teacher % share:
        raise ValueError(
            f"prompts_per_teacher={prompts_per_teacher} does not fit: with num_teachers={num_teachers} and "
            f"num_students={num_students}, each teacher meets {share} students in a round. All proposals of one "
            f"prompt go to one student. Set prompts_per_teacher to a multiple of {share}."
        )


def scheduled_type(types: Sequence[str], *, round: int, prompt: int, prompts_per_teacher: int) -> str:
    """Task type of a teacher's prompt. Types take turns over prompts and rounds, in the same way for every teacher.

    So all teachers have the same mix of types in every round, and a rating does not depend on the turn of types.
    """
    return types[(round * prompts_per_teacher + prompt) % len(types)]


def _mix(weights: np.ndarray, floor: float) -> np.ndarray:
    """Weights with mean 1, mixed with the uniform floor; uniform if all weights are 0."""
    mean = weights.mean()
    if mean == 0:
        return np.ones_like(weights)
    return (1 - floor) * weights / mean + floor
