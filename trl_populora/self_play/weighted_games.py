"""TrueSkill games with weights: the package's update, scaled in natural parameters.

This module only updates estimates. `ratings` and `evidence` determine the games and their weights.
"""

import math
from collections.abc import Sequence

import trueskill


MU = 25.0
SIGMA = MU / 3
BETA = SIGMA / 2
TAU = SIGMA / 100
GAME = trueskill.TrueSkill(mu=MU, sigma=SIGMA, beta=BETA, tau=0.0, draw_probability=0.0)


def schedule(weights: dict[tuple[int, int, str], tuple[float, float]]) -> list[tuple]:
    """Steps of a round in order: `(time, teacher row, student column, type, weight of teacher's wins, student's)`."""
    schedule = []
    for place, (teacher_won, student_won) in weights.items():
        steps = math.ceil(max(teacher_won, student_won))
        for k in range(steps):
            schedule.append(((k + 0.5) / steps, *place, teacher_won / steps, student_won / steps))
    return sorted(schedule)


def play_step(
    teacher: trueskill.Rating, student: trueskill.Rating, handicap: float, teacher_won: float, student_won: float
) -> tuple[trueskill.Rating, trueskill.Rating]:
    """Both estimates after one win of each side.

    For narrow estimates the likelihood of each win is raised to the power of its weight. For wide ones this is an
    approximation: a surprising win of small weight moves them less.
    """
    teacher, rated = GAME.create_rating(teacher.mu + handicap, teacher.sigma), []
    if teacher_won:
        rated.append((teacher_won, trueskill.rate_1vs1(teacher, student, env=GAME)))
    if student_won:
        rated.append((student_won, trueskill.rate_1vs1(student, teacher, env=GAME)[::-1]))
    after = [_power(old, [(weight, new[i]) for weight, new in rated]) for i, old in enumerate((teacher, student))]
    return GAME.create_rating(after[0].mu - handicap, after[0].sigma), after[1]


def _power(old: trueskill.Rating, rated: Sequence[tuple[float, trueskill.Rating]]) -> trueskill.Rating:
    """An estimate plus its weighted changes by each game, in natural parameters (precision, precision * mean)."""
    precision = old.pi + sum(weight * (new.pi - old.pi) for weight, new in rated)
    weighted_mean = old.tau + sum(weight * (new.tau - old.tau) for weight, new in rated)
    return GAME.create_rating(weighted_mean / precision, precision**-0.5)
