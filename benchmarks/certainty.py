"""Students of several runs of an experiment minus the base, in an exam that `populora evaluate RUNS` gave.

    python benchmarks/certainty.py FOLDER --json benchmarks/results/chains_certainty/greedy_by_arm.json

With greedy answers it shows what students have gained besides certainty. An arm is the folder above a run's
(`<arm>/seed_<seed>`). Intervals treat runs and questions as chance (`over_questions`).
"""

import argparse
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet

from trl_populora.reporting.over_seeds import over_questions
from trl_populora.run_files.run import BASE


def main() -> None:
    parser = argparse.ArgumentParser(description="Students minus base, by arm of an experiment.")
    parser.add_argument("folder", type=Path, help="the --output of `populora evaluate`")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    (table,) = options.folder.glob("*.parquet")
    found = by_arm(pyarrow.parquet.read_table(table, columns=["player", "question", "verdict"]).to_pylist())
    for arm, own in found.items():
        print(f"{arm}: {own['runs']} runs, {own['mean']:.4f}, minus base {own['minus_base']:+.4f} ({own['interval']})")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


def by_arm(answers: list[dict]) -> dict[str, dict]:
    """Arm -> number of runs, mean over runs of the mean student, the same minus the base, and its interval."""
    right: dict[str, dict[str, list[float]]] = {}
    for row in answers:
        right.setdefault(row["player"], {}).setdefault(row["question"], []).append(float(row["verdict"] == "solved"))
    base = right.pop(BASE)
    shares = {player: np.array([np.mean(own[question]) for question in base]) for player, own in right.items()}
    asked = np.array([np.mean(own) for own in base.values()])
    runs: dict[str, list[np.ndarray]] = {}
    for player, own in shares.items():
        runs.setdefault(player.rpartition("/")[0], []).append(own)
    arms: dict[str, list[np.ndarray]] = {}
    for run, students in runs.items():
        arms.setdefault(Path(run).parent.name, []).append(np.mean(students, axis=0))
    return {arm: _compared(own, asked) for arm, own in (arms | {"all": sum(arms.values(), [])}).items()}


def _compared(runs: list[np.ndarray], base: np.ndarray) -> dict:
    differences = np.array(runs) - base
    reach = over_questions(differences)
    return {
        "runs": len(runs),
        "mean": round(float(np.mean(runs)), 4),
        "minus_base": round(float(differences.mean()), 4),
        "interval": reach and [round(reach.low, 4), round(reach.high, 4)],
    }


if __name__ == "__main__":
    main()
