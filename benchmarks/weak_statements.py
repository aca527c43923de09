"""What teachers of the world of weak statements propose: the share of tasks that hold one, and how many of them.

    python -m benchmarks.weak_statements runs/experiments/NAME --json benchmarks/results/NAME_tasks.json

from the root of a clone. The folder is that of an experiment (`ARM/seed_N` in it, those that are finished) or of one
run. A task counts if it is a valid proposal of a teacher in this round. `per_round` is the number of different weak
statements among the tasks of a round, of all teachers together. `--join FILE` adds the runs of an earlier JSON, whose
tables are no longer there.
"""

import argparse
import json
from collections import defaultdict
from pathlib import Path
from statistics import fmean

import pandas as pd

from recipes.chains.make.worked import confusion
from trl_populora.run_files.layout import EVALUATION_FILE, EVALUATION_FOLDER, ROUNDS_FOLDER, TABLE_SUFFIX


BLOCK = 20
"""Rounds that are put together."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Share of tasks with weak statements, by arm and round.")
    parser.add_argument("folder", type=Path, help="folder of an experiment or of a run")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--join", type=Path, metavar="FILE", help="JSON of other runs of these arms, to average with")
    options = parser.parse_args()
    arms = defaultdict(list)
    for rounds in sorted(options.folder.glob(f"**/{ROUNDS_FOLDER}")):
        run = rounds.parent
        if run != options.folder and not (run / EVALUATION_FOLDER / EVALUATION_FILE).exists():
            continue  # of an experiment, a run that is not finished
        arms[run.parent.name if run != options.folder else run.name].append(blocks(rounds))
    if not arms:
        raise SystemExit(f"{options.folder} holds no run with a folder {ROUNDS_FOLDER}.")
    found = {arm: {"runs": len(own), "blocks": averages(own)} for arm, own in arms.items()}
    if options.join:
        found = joined(json.loads(options.join.read_text())["arms"], found)
    print(json.dumps(found, indent=1))
    if options.json:
        options.json.write_text(json.dumps({"block": BLOCK, "arms": found}, indent=1) + "\n")


def joined(arms: dict, others: dict) -> dict:
    """Both results as one: an arm in both has the mean over all its runs."""
    found = arms | others
    for arm in arms.keys() & others.keys():
        one, other = arms[arm], others[arm]
        runs = [block for own in (one, other) for block in [own["blocks"]] * own["runs"]]
        found[arm] = {"runs": one["runs"] + other["runs"], "blocks": averages(runs)}
    return found


def blocks(rounds: Path) -> list[dict[str, float]]:
    """The shares of one run in each block of rounds."""
    paths = sorted(rounds.glob(f"*{TABLE_SUFFIX}"))
    found = [of_round(pd.read_parquet(path)) for path in paths]
    parts = [found[first : first + BLOCK] for first in range(0, len(found), BLOCK)]
    return [mean([one for one in part if one]) for part in parts]


def of_round(table: pd.DataFrame) -> dict[str, float]:
    """The shares of one round; empty if it has no valid proposal."""
    tasks = table[(table.role == "teacher") & table.valid.eq(True)]
    weak = [weak_statements(json.loads(payload)["program"]) for payload in tasks.payload]
    if not weak:
        return {}
    return {"share": fmean(bool(one) for one in weak), "per_round": len(set().union(*weak))}


def weak_statements(program: str) -> set[str]:
    """Templates of the weak statements in a program."""
    found = (confusion(line.strip()) for line in program.splitlines())
    return {one[0] for one in found if one}


def averages(runs: list[list[dict[str, float]]]) -> list[dict[str, float]]:
    """Means over runs, block by block."""
    return [mean([run[place] for run in runs if place < len(run)]) for place in range(max(map(len, runs)))]


def mean(records: list[dict[str, float]]) -> dict[str, float]:
    """The mean of each key."""
    return {key: round(fmean(one[key] for one in records), 3) for key in (records[0] if records else ())}


if __name__ == "__main__":
    main()
