"""Does selection find the better member? Simulated populations with the type mix and task effects of real rounds.

    python benchmarks/selection.py [--simulations N] [--rounds FOLDER ...] [--json]

Skills, types, prompts and tasks have effects in logits; outcomes are drawn, everything else is the real code: schedule of
types, pairing, dealing, ratings, fitness, selection. `--rounds` estimates the constants from the round files of runs.
"""

import argparse
import json
import math
import random
import sys
import time
from pathlib import Path
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit

from trl_populora.evolution.selection import Candidate, select
from trl_populora.self_play import Outcome, Ratings
from trl_populora.self_play.pairing import deal, pair, scheduled_type
from trl_populora.self_play.ratings import BETA


class Kind(NamedTuple):
    """A task type: share of valid proposals, share of attempts that solve, and two intraclass correlations of attempts.

    `within` is of attempts at one task, `across` of attempts at different tasks of one prompt.
    """

    validity: float
    solve_rate: float
    within: float
    across: float


# python benchmarks/selection.py --rounds A B, where A and B are 70 rounds of recipes/tiny/4t4s.yaml: --max_steps 30 and
# --max_steps 40 --seed 1, with --lora_target_modules q_proj v_proj (4,368 attempts at one prompt's tasks and more).
KINDS = {
    "code_o": Kind(0.60, 0.108, 0.232, 0.0),
    "code_i": Kind(0.60, 0.094, 0.237, 0.0),
    "code_f": Kind(0.60, 0.368, 0.201, 0.123),
}
TYPES = list(KINDS)
MEMBERS, PROMPTS, G, ROUNDS = 4, 1, 6, 20  # the shape of recipes/tiny/4t4s.yaml, up to its first replacement
NODES, MASS = np.polynomial.hermite_e.hermegauss(60)
MASS = MASS / MASS.sum()
PROBIT = NormalDist().inv_cdf


class Effects(NamedTuple):
    """A type in logits: level, and standard deviations of tasks and of prompts."""

    level: float
    task: float
    prompt: float


def mean_rate(logit: float, sd: float) -> float:
    return float(MASS @ expit(logit + sd * NODES))


def effects_of(kind: Kind) -> Effects:
    """Effects that give a type's solve rate and correlations; their variances are split as the correlations are."""
    p = kind.solve_rate

    def level(sd):
        return brentq(lambda logit: mean_rate(logit, sd) - p, -40, 40)

    def excess(sd):
        return float(MASS @ expit(level(sd) + sd * NODES) ** 2) - p * p - kind.within * p * (1 - p)

    sd = brentq(excess, 1e-3, 10)
    share = kind.across / kind.within
    return Effects(level(sd), sd * math.sqrt(1 - share), sd * math.sqrt(share))


EFFECTS = {name: effects_of(kind) for name, kind in KINDS.items()}


class Population(NamedTuple):
    """Skills in logits, and what is added to every type's validity."""

    teachers: tuple[float, ...] = (0.0,) * MEMBERS
    students: tuple[float, ...] = (0.0,) * MEMBERS


def play(population: Population, seed: int, *, rounds: int = ROUNDS, rotate: bool = False):
    """Ratings after so many rounds, and the outcomes of each."""
    rng, chance = np.random.default_rng(seed), random.Random(seed)
    T, S = len(population.teachers), len(population.students)
    ratings = Ratings([f"teacher_{i}" for i in range(T)], [f"student_{i}" for i in range(S)])
    history = []
    for round in range(rounds):
        pairs = pair(ratings, rng=rng)
        dealt = deal(pairs, ratings.teachers, prompts=PROMPTS, completions=G, crossing=0.0, rng=chance)
        outcomes = []
        for pairing in dealt:
            t, s = ratings.teachers.index(pairing.teacher), ratings.students.index(pairing.student)
            gap = population.students[s] - population.teachers[t]
            for group in sorted({slot // G for slot in pairing.slots}):
                turn = round + t if rotate else round
                kind = scheduled_type(TYPES, round=turn, prompt=group % PROMPTS, prompts_per_teacher=PROMPTS)
                outcomes += draw(pairing, kind, group, gap, rng)
        ratings.update(outcomes)
        history.append(outcomes)
    return ratings, history


def draw(pairing, kind: str, group: int, gap: float, rng: np.random.Generator) -> list[Outcome]:
    """Outcomes of the proposals to one prompt."""
    effect = EFFECTS[kind]
    valid = rng.random(G) < KINDS[kind].validity
    logits = effect.level + gap + effect.prompt * rng.normal() + effect.task * rng.normal(size=G)
    wins = rng.binomial(G, expit(logits))
    return [
        Outcome(pairing.teacher, pairing.student, G, int(k) if ok else 0, kind, group, forfeit=not ok)
        for ok, k in zip(valid, wins)
    ]


def replaced(fitness: dict[str, float], seed: int) -> str:
    return select([Candidate(*one) for one in fitness.items()], rng=random.Random(seed))[0].slot


def truth(population: Population, weighted: bool = False, forfeits: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Marginal probability that the teacher wins, on the scale of ratings: means over the other side."""
    lost = np.zeros((len(population.teachers), len(population.students)))
    total = 0.0
    for name, kind in KINDS.items():
        effect = EFFECTS[name]
        sd = math.hypot(effect.task, effect.prompt)
        worth = worth_of(kind) if weighted else 1.0
        lose = (1 - kind.validity) * forfeits
        total += kind.validity * worth + lose
        for t, teacher in enumerate(population.teachers):
            for s, student in enumerate(population.students):
                solved = mean_rate(effect.level + student - teacher, sd)
                lost[t, s] += kind.validity * worth * solved + lose
    gap = math.sqrt(2) * BETA * np.vectorize(PROBIT)(1 - lost / total)
    return gap.mean(1), -gap.mean(0)


def worth_of(kind: Kind) -> float:
    valid = 1 + (G - 1) * kind.validity
    return G / (1 + (G - 1) * kind.within + G * (valid - 1) * kind.across)


def fit(history, *, worth=worth_of, forfeits: float = 1.0, types: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Maximum likelihood: logistic, effects of teachers, students and types; the true correlations weigh the tasks."""
    cells: dict[tuple, list[float]] = {}
    for outcomes in history:
        for one in outcomes:
            t, s, k = int(one.teacher[8:]), int(one.student[8:]), TYPES.index(one.type) * types
            cell = cells.setdefault((t, s, k), [0.0, 0.0])
            weight = forfeits if one.forfeit else worth(KINDS[one.type])
            cell[0] += weight * (1 if one.forfeit else one.student_wins / one.games)
            cell[1] += weight
    X = np.zeros((len(cells), 2 * MEMBERS + len(TYPES)))
    for row, (t, s, k) in enumerate(cells):
        X[row, [t, MEMBERS + s, 2 * MEMBERS + k]] = -1, 1, 1
    won, games = np.array(list(cells.values())).T
    beta = np.zeros(X.shape[1])
    ridge = 1e-3 * np.eye(len(beta))
    for _ in range(12):
        p = expit(X @ beta)
        beta += np.linalg.solve((X.T * (games * p * (1 - p))) @ X + ridge, X.T @ (won - games * p) - ridge @ beta)
    return beta[:MEMBERS], beta[MEMBERS : 2 * MEMBERS]
