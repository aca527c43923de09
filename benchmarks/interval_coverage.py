"""How often the intervals of an experiment contain the true difference of two arms, in simulated experiments.

    python benchmarks/interval_coverage.py [--json benchmarks/results/interval_coverage.json]

An experiment has seeds and questions. The difference of two arms in one of them is the sum of an effect of the seed,
one of the question, and the rest. Their sizes are typical of the experiments of docs/results.md: the standard
deviation of the mean of five seeds and 400 questions has parts of 0.012, 0.003 and 0.008. A run that collapses falls
by 0.158, with a probability of 0.25: about what 5 of 20 runs of `stops_rewards` did.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from trl_populora.reporting.over_seeds import difference, over_questions
from trl_populora.run_files.files import write_json


QUESTIONS, FALL, SHARE = 400, 0.158, 0.25
SEED, QUESTION, REST = 0.012 * 5**0.5, 0.003 * QUESTIONS**0.5, 0.008 * (5 * QUESTIONS) ** 0.5

Law = Callable[[np.random.Generator, int], np.ndarray]


def collapses(rng: np.random.Generator, seeds: int) -> np.ndarray:
    """Falls of the runs of an arm, minus their expectation."""
    return FALL * (SHARE - (rng.random(seeds) < SHARE))


LAWS: dict[str, Law] = {  # effects of seeds, with a mean of 0
    "normal": lambda rng, seeds: rng.normal(0, SEED, seeds),
    "heavy tails": lambda rng, seeds: rng.standard_t(3, seeds) * SEED / 3**0.5,
    "no effect": lambda rng, seeds: np.zeros(seeds),
    "runs of one arm collapse": lambda rng, seeds: rng.normal(0, SEED, seeds) + collapses(rng, seeds),
    "runs of both collapse": lambda rng, seeds: (
        rng.normal(0, SEED, seeds) + collapses(rng, seeds) - collapses(rng, seeds)
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Coverage of the intervals in simulated experiments.")
    parser.add_argument("--draws", type=int, default=4000, help="simulated experiments of each kind")
    parser.add_argument("--seeds", type=int, nargs="+", default=[5, 4, 3])
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    found = {
        f"{seeds} seeds, {name}": coverage(law, seeds, options.draws)
        for seeds in options.seeds
        for name, law in LAWS.items()
    }
    print(json.dumps(found, indent=1))
    if options.json:
        write_json(options.json, {"draws": options.draws, "questions": QUESTIONS, "coverage": found})


def coverage(law: Law, seeds: int, draws: int) -> dict[str, float]:
    """Share of the 95 % intervals that contain 0, the true difference, for both kinds of intervals."""
    rng, hits = np.random.default_rng(0), np.zeros(2)
    zeros = dict.fromkeys(range(seeds), 0.0)
    for _ in range(draws):
        rows, columns = law(rng, seeds)[:, None], rng.normal(0, QUESTION, QUESTIONS)
        table = rows + columns + rng.normal(0, REST, (seeds, QUESTIONS))
        one, both = difference(dict(enumerate(table.mean(axis=1).tolist())), zeros), over_questions(table)
        hits += [low <= 0 <= high for low, high in ((one.low, one.high), (both.low, both.high))]
    return dict(zip(("over seeds", "over seeds and questions"), (hits / draws).round(3).tolist(), strict=True))


if __name__ == "__main__":
    main()
