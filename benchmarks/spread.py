"""How much the runs of an arm differ from seed to seed: standard deviations, and their ratio for each pair of arms.

    python benchmarks/spread.py benchmarks/results/experiments/NAME.json [MORE.json ...] --measure averaged_student \
        [--json benchmarks/results/NAME_spread.json]

Arms of the same name in several experiments must have different seeds. Their variances within each experiment are
pooled, because experiments may differ in more than their seeds. The 95 % interval of a ratio is that of the F
distribution. It assumes normal scores, which few seeds cannot show.
"""

import argparse
import json
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from statistics import variance

from scipy import stats

from trl_populora.reporting.over_seeds import LEVEL
from trl_populora.run_files.files import write_json


def main() -> None:
    parser = argparse.ArgumentParser(description="Standard deviations over the seeds of an arm, and their ratios.")
    parser.add_argument("files", nargs="+", type=Path, help="results of experiments")
    parser.add_argument("--measure", required=True, help="a measure that all of them have")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    scores: dict[str, list[dict[str, float]]] = {}
    for file in options.files:
        values = json.loads(file.read_text())["values"]
        if options.measure not in values:
            parser.error(f"{file} has no measure {options.measure!r}: choose one of {', '.join(values)}.")
        for arm, own in values[options.measure].items():
            if twice := sorted(own.keys() & {seed for earlier in scores.get(arm, []) for seed in earlier}):
                parser.error(f"{file}: seeds {', '.join(twice)} of {arm} are in an earlier file as well.")
            scores.setdefault(arm, []).append(own)
    found = spread({arm: [list(own.values()) for own in groups] for arm, groups in scores.items()})
    print(json.dumps(found, indent=1))
    if options.json:
        write_json(options.json, {"measure": options.measure, **found})


def spread(scores: dict[str, Sequence[Sequence[float]]]) -> dict:
    """Standard deviation of each arm; for two arms, that of the first by that of the second, its interval and p.

    `scores` has one group of scores for each experiment of an arm. Groups of one score say nothing and are left out.
    """
    arms = {arm: [own for own in groups if len(own) > 1] for arm, groups in scores.items()}
    degrees = {arm: sum(len(own) - 1 for own in groups) for arm, groups in arms.items() if groups}
    deviations = {
        arm: (sum((len(own) - 1) * variance(own) for own in arms[arm]) / degrees[arm]) ** 0.5 for arm in degrees
    }
    return {
        "standard_deviation": {
            arm: {"runs": sum(map(len, arms[arm])), "value": round(deviations[arm], 4)} for arm in degrees
        },
        "ratio": {
            f"{one} / {other}": ratio(deviations[one], degrees[one], deviations[other], degrees[other])
            for one, other in combinations(degrees, 2)
            if deviations[other] > 0
        },
    }


def ratio(one: float, degrees: int, other: float, other_degrees: int) -> dict:
    """A ratio of standard deviations with the interval and the two-sided p-value of the F test."""
    f, law = (one / other) ** 2, stats.f(degrees, other_degrees)
    low, high = ((f / law.ppf(part)) ** 0.5 for part in ((1 + LEVEL) / 2, (1 - LEVEL) / 2))
    p = 2 * min(law.cdf(f), law.sf(f))
    told = {"value": one / other, "low": low, "high": high, "p": p}
    return {name: round(float(value), 4 if name == "p" else 3) for name, value in told.items()}


if __name__ == "__main__":
    main()
