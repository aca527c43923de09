"""Does selection find the better member? Simulated populations with the type mix and task effects of real rounds.

    python benchmarks/selection.py [--simulations N] [--json]; or --rounds FOLDER ...

Skills, types, prompts and tasks have effects in logits; outcomes are drawn. Everything else is the real code: schedule
of types, pairing, dealing, ratings, fitness, selection; single TrueSkill games alone are computed by a quicker equal.
`--rounds` estimates the constants from the round files of runs.
"""

import argparse
import json
import math
import random
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import trueskill
from scipy.optimize import brentq
from scipy.special import expit, logit, ndtr, ndtri

from trl_populora.evolution import Candidate, EvolutionSettings, select
from trl_populora.self_play import Outcome, Ratings
from trl_populora.self_play.pairing import assign_prompts, pair, scheduled_type
from trl_populora.self_play.ratings import BETA


PACKAGE_GAME = trueskill.rate_1vs1


def quick_game(winner: trueskill.Rating, loser: trueskill.Rating, *, env: trueskill.TrueSkill):
    """`trueskill.rate_1vs1` by the published equations (Herbrich et al., 2006), ten times as fast; no drift."""
    variances = winner.sigma**2, loser.sigma**2
    c = math.sqrt(2 * env.beta**2 + sum(variances))
    t = (winner.mu - loser.mu) / c
    v = math.exp(-t * t / 2) / math.sqrt(2 * math.pi) / (math.erfc(-t / math.sqrt(2)) / 2)
    w = v * (v + t)
    rated = [
        env.create_rating(old.mu + sign * s2 / c * v, math.sqrt(s2 * (1 - s2 / c**2 * w)))
        for old, s2, sign in zip((winner, loser), variances, (1, -1))
    ]
    return rated[0], rated[1]


def use_quick_games() -> None:
    """Lets the ratings call `quick_game`, after a check that it is what the package does."""
    rng, env = np.random.default_rng(0), trueskill.TrueSkill(25, 25 / 3, 25 / 6, tau=0, draw_probability=0)
    for mu_1, mu_2, sigma_1, sigma_2 in rng.uniform([10, 10, 0.3, 0.3], [40, 40, 9, 9], (200, 4)):
        pair = env.create_rating(mu_1, sigma_1), env.create_rating(mu_2, sigma_2)
        for ours, theirs in zip(quick_game(*pair, env=env), PACKAGE_GAME(*pair, env=env), strict=True):
            np.testing.assert_allclose((ours.mu, ours.sigma), (theirs.mu, theirs.sigma), rtol=1e-5)
    trueskill.rate_1vs1 = quick_game


class Kind(NamedTuple):
    """A task type: share of valid proposals, share of attempts that solve, two intraclass correlations of attempts.

    `within` is of attempts at one task, `across` of attempts at different tasks of one prompt.
    """

    validity: float
    solve_rate: float
    within: float
    across: float


# python benchmarks/selection.py --rounds runs/tiny-4t4s, the 150 rounds of `make tiny`.
KINDS = {
    "code_o": Kind(0.816, 0.092, 0.285, 0.007),
    "code_i": Kind(0.824, 0.079, 0.214, 0.0),
    "code_f": Kind(0.718, 0.515, 0.596, 0.46),
}
TYPES = list(KINDS)
MEMBERS, PROMPTS, G, ROUNDS = 4, 3, 4, 20  # recipes/tiny/4t4s.yaml, up to its first replacement
SUSPECT = f"teacher_{next(t for t in range(MEMBERS) if TYPES[(ROUNDS - 1 + t) % len(TYPES)] == 'code_f')}"
"""Whose turn would be code_f in the last round, if types took turns over teachers."""
NODES, MASS = np.polynomial.hermite_e.hermegauss(60)
MASS = MASS / MASS.sum()


class Effects(NamedTuple):
    """A type in logits: level, and standard deviations of tasks and of prompts."""

    level: float
    task: float
    prompt: float


def mean_rate(level: float, sd: float) -> float:
    """Mean solve rate at a level in logits with normal effects of this standard deviation."""
    return float(MASS @ expit(level + sd * NODES))


def effects_of(kind: Kind) -> Effects:
    """Effects that give a type's solve rate and correlations; their variances are split as the correlations are."""
    p = kind.solve_rate

    def level(sd):
        return brentq(lambda x: mean_rate(x, sd) - p, -40, 40)

    def excess(sd):
        return float(MASS @ expit(level(sd) + sd * NODES) ** 2) - p * p - kind.within * p * (1 - p)

    sd = brentq(excess, 1e-3, 10)
    share = kind.across / kind.within
    return Effects(level(sd), sd * math.sqrt(1 - share), sd * math.sqrt(share))


SETTINGS = EvolutionSettings()
EFFECTS = {name: effects_of(kind) for name, kind in KINDS.items()}


class Population(NamedTuple):
    """Skills in logits; how much better each teacher is at valid proposals; whether all are valid."""

    teachers: tuple[float, ...] = (0.0,) * MEMBERS
    students: tuple[float, ...] = (0.0,) * MEMBERS
    validity: tuple[float, ...] = (0.0,) * MEMBERS
    all_valid: bool = False

    def valid(self, teacher: int, kind: str) -> float:
        return 1.0 if self.all_valid else float(expit(logit(KINDS[kind].validity) + self.validity[teacher]))


def play(population: Population, seed: int, *, prompts: int = PROMPTS, rotate: bool = False):
    """Ratings after the rounds, and the outcomes of each; with `rotate` types take turns over teachers."""
    rng, chance = np.random.default_rng(seed), random.Random(seed)
    ratings = Ratings([f"teacher_{i}" for i in range(MEMBERS)], [f"student_{i}" for i in range(MEMBERS)])
    history = []
    for round in range(ROUNDS):
        pairs = pair(ratings, rng=rng)
        outcomes = []
        for pairing in assign_prompts(
            pairs, ratings.teachers, prompts=prompts, completions=G, crossing=0.0, rng=chance
        ):
            t, s = ratings.teachers.index(pairing.teacher), ratings.students.index(pairing.student)
            gap = population.students[s] - population.teachers[t]
            for group in sorted({slot // G for slot in pairing.slots}):
                turn = round + t if rotate else round
                kind = scheduled_type(TYPES, round=turn, prompt=group % prompts, prompts_per_teacher=prompts)
                outcomes += draw(pairing, kind, group, gap, population.valid(t, kind), rng)
        ratings.update(outcomes)
        history.append(outcomes)
    return ratings, history


def draw(pairing, kind: str, group: int, gap: float, validity: float, rng: np.random.Generator) -> list[Outcome]:
    """Outcomes of the proposals to one prompt."""
    effect = EFFECTS[kind]
    valid = rng.random(G) < validity
    logits = effect.level + gap + effect.prompt * rng.normal() + effect.task * rng.normal(size=G)
    wins = rng.binomial(G, expit(logits))
    return [
        Outcome(pairing.teacher, pairing.student, G, int(k) if ok else 0, kind, group, forfeit=not ok)
        for ok, k in zip(valid, wins)
    ]


def replaced(fitness: dict[str, float], seed: int) -> str:
    return select([Candidate(*one) for one in fitness.items()], SETTINGS, rng=random.Random(seed))[0].slot


def truth(population: Population) -> tuple[np.ndarray, np.ndarray]:
    """What ratings of both roles estimate: probits of win probabilities, mean over types and the other side.

    A teacher's is then set to where it wins as often by playing alone as with its forfeits.
    """
    probits = np.zeros((len(KINDS), MEMBERS, MEMBERS))
    for k, t, s in np.ndindex(probits.shape):
        effect = EFFECTS[TYPES[k]]
        gap = population.students[s] - population.teachers[t]
        probits[k, t, s] = ndtri(mean_rate(effect.level + gap, math.hypot(effect.task, effect.prompt)))
    valid = np.array([np.mean([population.valid(t, kind) for kind in KINDS]) for t in range(MEMBERS)])
    teachers = ndtri(valid * ndtr(-probits.mean((0, 2))))
    scale = math.sqrt(2) * BETA
    return scale * teachers, scale * probits.mean((0, 1))


def fit(history) -> tuple[np.ndarray, np.ndarray]:
    """Maximum likelihood: how often a teacher wins, forfeits included, and the skill of each student.

    A logistic fit of played tasks with effects of teachers, students and types, tasks weighed by their true
    correlations; and every teacher's share of valid proposals. A teacher wins if it is valid and not solved.
    """
    cells: dict[tuple[int, int, int], list[float]] = {}
    dealt, valid = np.zeros(MEMBERS), np.zeros(MEMBERS)
    for outcomes in history:
        played: dict[int, list[Outcome]] = {}  # tasks of each prompt
        for one in outcomes:
            dealt[int(one.teacher[-1])] += 1
            if not one.forfeit:
                played.setdefault(one.prompt, []).append(one)
        for tasks in played.values():
            kind, place = KINDS[tasks[0].type], (tasks[0].teacher, tasks[0].student)
            t, s = (int(name[-1]) for name in place)
            valid[t] += len(tasks)
            weight = 1 / (1 + (G - 1) * kind.within + (len(tasks) - 1) * G * kind.across)
            cell = cells.setdefault((t, s, TYPES.index(tasks[0].type)), [0.0, 0.0])
            cell[0] += weight * sum(one.student_wins for one in tasks)
            cell[1] += weight * G * len(tasks)
    X = np.zeros((len(cells), 2 * MEMBERS + len(TYPES)))
    for row, (t, s, k) in enumerate(cells):
        X[row, [t, MEMBERS + s, 2 * MEMBERS + k]] = -1, 1, 1
    won, games = np.array(list(cells.values())).T
    beta, ridge = np.zeros(X.shape[1]), 1e-3 * np.eye(X.shape[1])
    for _ in range(12):  # Newton
        p = expit(X @ beta)
        beta += np.linalg.solve((X.T * (games * p * (1 - p))) @ X + ridge, X.T @ (won - games * p) - ridge @ beta)
    teachers, students, types = np.split(beta, [MEMBERS, 2 * MEMBERS])
    unsolved = 1 - expit(students[None, :, None] - teachers[:, None, None] + types).mean((1, 2))
    return valid / dealt * unsolved, students


class Hits(NamedTuple):
    """Shares of simulations in which member 0 is ranked first, and of intervals that cover the truth, per role."""

    ours: np.ndarray
    best: np.ndarray
    coverage: np.ndarray
    number: int


def measure(population: Population, number: int, first: int) -> Hits:
    """Plays so many simulations, seeded from `first` on, with member 0 of each role the better one."""
    true = truth(population)
    ours, best, covered = np.zeros(2), np.zeros(2), np.zeros(2)
    for seed in range(first, first + number):
        ratings, history = play(population, seed)
        fitted = fit(history)
        for role, names in enumerate((ratings.teachers, ratings.students)):
            ours[role] += np.argmax([ratings.fitness(name) for name in names]) == 0
            best[role] += np.argmax(fitted[role]) == 0
            covered[role] += covers([ratings[name] for name in names], true[role])
    return Hits(ours / number, best / number, covered / number, number)


def covers(ratings, true: np.ndarray) -> float:
    """Share of contrasts between members of a role whose 95 % interval holds the truth."""
    inside = [
        abs(a.mu - b.mu - (true[i] - true[j])) <= 1.96 * math.hypot(a.sigma, b.sigma)
        for i, a in enumerate(ratings)
        for j, b in enumerate(ratings[:i])
    ]
    return sum(inside) / len(inside)


def old_rule(seed: int) -> str:
    """The teacher replaced by the rule before: types by teacher, attempts as games, drift with each, no forfeits."""
    env = trueskill.TrueSkill(mu=25, sigma=25 / 3, beta=25 / 6, tau=25 / 300, draw_probability=0)
    belief = {f"{role}_{i}": env.create_rating() for role in ("teacher", "student") for i in range(MEMBERS)}
    _, history = play(Population(), seed, prompts=1, rotate=True)
    for outcomes in history:
        played = [one for one in outcomes if not one.forfeit]
        games = [(one.teacher, one.student, k < one.student_wins) for one in played for k in range(one.games)]
        random.Random(seed).shuffle(games)
        for teacher, student, solved in games:
            winner, loser = (student, teacher) if solved else (teacher, student)
            belief[winner], belief[loser] = PACKAGE_GAME(belief[winner], belief[loser], env=env)
    fitness = {name: one.mu - 3 * one.sigma for name, one in belief.items() if name.startswith("teacher")}
    return replaced(fitness, seed)


def estimate(folders: list[str]) -> dict[str, Kind]:
    """Constants of the types from the round files of runs: moments of proposals and of members' games.

    Correlations are given teacher and student: what a prompt's tasks share beyond the solve rate of the pair, which is
    that of its other prompts of the type between two replacements.
    """
    import pandas

    files = [(folder, path) for folder in folders for path in sorted(Path(folder, "rounds").glob("*.parquet"))]
    rows = pandas.concat([pandas.read_parquet(path).assign(run=folder) for folder, path in files])
    rows["interval"] = rows["round"] // ROUNDS
    pair, prompt = ["run", "interval", "opponent", "member"], ["run", "interval", "opponent", "member", "round"]
    found = {}
    for name, part in rows.groupby("type"):
        games = part[(part.role == "student") & part.opponent.notna()]
        tasks = games.groupby([*prompt, "group"]).solved.agg(["sum", "count"])
        k, n = tasks["sum"].astype(float), tasks["count"].astype(float)
        sums = pandas.DataFrame({"r": k / n, "squares": (k / n) ** 2, "both": k * (k - 1) / (n * (n - 1)), "tasks": 1})
        sums = sums.groupby(prompt).sum()
        mean = sums.r / sums.tasks
        others = mean.groupby(pair).transform("size") - 1
        q = ((mean.groupby(pair).transform("sum") - mean) / others)[others > 0]
        sums = sums.loc[q.index]
        several = sums[sums.tasks > 1]
        across = (several.r**2 - several.squares) / (several.tasks - 1) - several.r * q
        found[name] = Kind(
            part[part.role == "teacher"].valid.mean(),
            (k / n).mean(),
            (sums.both - sums.r * q).sum() / (sums.r * (1 - q)).sum(),
            max(across.sum() / (several.r * (1 - q)).sum(), 0.0),
        )
    return {name: Kind(*(round(float(x), 3) for x in kind)) for name, kind in found.items()}


WIDE = (1.0, 1 / 3, -1 / 3, -1.0)
SCENARIOS = (
    {"identical": Population()}
    | {f"harder {d}": Population((d, 0, 0, 0), (d, 0, 0, 0)) for d in (0.25, 0.5, 1.0)}
    | {
        "harder 0.5, all valid": Population((0.5, 0, 0, 0), (0.5, 0, 0, 0), all_valid=True),
        "harder and more valid 0.5": Population((0.5, 0, 0, 0), (0.5, 0, 0, 0), (0.5, 0, 0, 0)),
        "spread": Population(WIDE, WIDE),
        "spread, all valid": Population(WIDE, WIDE, all_valid=True),
    }
)


def rotation(number: int, first: int) -> tuple[float, float]:
    """Share of simulations in which rating blames the teacher whose turn was code_f, less chance; and coverage.

    Identical members with one prompt a teacher: with as many as types every round has all of them.
    """
    blamed, inside, true = 0, 0.0, truth(Population())
    for seed in range(first, first + number):
        ratings, _ = play(Population(), seed, prompts=1)
        blamed += replaced({name: ratings.fitness(name) for name in ratings.teachers}, seed) == SUSPECT
        for role, names in enumerate((ratings.teachers, ratings.students)):
            inside += covers([ratings[name] for name in names], true[role]) / 2
    return blamed / number - 1 / MEMBERS, inside / number


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--simulations", type=int, default=5200, help="of identical members with one prompt each")
    parser.add_argument("--seed", type=int, default=0, help="of the first simulation")
    parser.add_argument("--rounds", nargs="+", metavar="FOLDER", help="only estimate the constants of these runs")
    parser.add_argument("--json", action="store_true", help="one line of JSON, last")
    args = parser.parse_args()
    if args.rounds:
        for name, kind in estimate(args.rounds).items():
            print(name, kind)
        return
    start, number, few = time.perf_counter(), args.simulations, max(args.simulations // 52, 1)
    use_quick_games()
    excess, inside = rotation(number, args.seed)
    control = sum(old_rule(args.seed + i) == SUSPECT for i in range(few)) / few - 1 / MEMBERS
    error = math.sqrt((1 - 1 / MEMBERS) / MEMBERS / number)
    print(f"{SUSPECT} replaced: {excess:+.3f} +- {error:.3f} from chance ({number}; coverage {inside:.3f})")
    print(f"under the old rule: {control:+.3f} +- {error * math.sqrt(number / few):.3f} ({few})")
    print(f"\n{'scenario':28}{'n':>5}  teacher first: ours, best   student first: ours, best   coverage: t, s")
    result = {}
    for name, population in SCENARIOS.items():
        hits = measure(population, max(number // (13 if name == "harder 0.5" else 26), 1), args.seed)
        result[name] = hits
        print(
            f"{name:28}{hits.number:5}{hits.ours[0]:19.3f} {hits.best[0]:.3f}{hits.ours[1]:21.3f} {hits.best[1]:.3f}"
            f"{'':9}{hits.coverage[0]:.3f} {hits.coverage[1]:.3f}",
            flush=True,
        )
    total = sum(hits.number for hits in result.values())
    coverage = sum(hits.number * hits.coverage.mean() for hits in result.values()) / total
    seconds = time.perf_counter() - start
    print(f"\n95 % intervals that cover: {coverage:.3f}; {seconds:.0f} s")
    if args.json:
        half = result["harder 0.5"]
        line = {
            "false_replacement_excess": excess,
            "false_replacement_error": error,
            "false_replacement_excess_old_rule": control,
            "coverage_95": coverage,
            "coverage_95_one_prompt": inside,
            "hit_half_logit": half.ours[0],
            "hit_half_logit_best": half.best[0],
            "hit_half_logit_student": half.ours[1],
            "hit_half_logit_student_best": half.best[1],
            "simulations": number + total,
            "seconds": seconds,
            "scenarios": {
                name: {key: np.round(value, 4).tolist() for key, value in hits._asdict().items()}
                for name, hits in result.items()
            },
        }
        print(json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in line.items()}))


if __name__ == "__main__":
    main()
