"""What the students of a run solve together: the most frequent of their answers, and any of them.

    python benchmarks/together.py runs/experiments/* --json benchmarks/results/together.json

from the root of a clone, after the experiments, or after their archives were unpacked (`experiment_results.py`). For
each exam, and each arm with several students: the scores of the mean student, of the average of their weights, of
their vote, and the share of questions that at least one of them solves, with intervals over seeds; and the vote minus
the others, with intervals for other seeds and other questions (`over_questions`). Where several answers are the most
frequent, the share of them that is right counts.

For each arm with one adapter: the same of that adapter in `--voters` different seeds, in the mean over all choices of
them. These are independent agents. There are no intervals, because choices share seeds.
"""

import argparse
import json
from collections import Counter, defaultdict
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd

from trl_populora.reporting.over_seeds import interval, over_questions
from trl_populora.run_files.files import write_json
from trl_populora.run_files.layout import EVALUATION_FOLDER, TABLE_SUFFIX


Scores = dict[str, np.ndarray]  # name of a measure -> score of each question


def main() -> None:
    parser = argparse.ArgumentParser(description="What the students of a run solve together.")
    parser.add_argument("folders", type=Path, nargs="+", help="folders of experiments")
    parser.add_argument("--voters", type=int, default=4, help="independent agents that vote (default: 4)")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    found: dict[str, dict] = {}
    for folder in options.folders:
        for exam, arms in read(folder).items():
            own = found[f"{folder.name}/{exam}"] = {"students": {}, "independent": {}}
            for arm, runs in arms.items():
                if all(len(students(run)) > 1 for run in runs):
                    own["students"][arm] = of_students(runs)
                elif len(runs) >= options.voters:
                    own["independent"][arm] = of_agents(runs, options.voters)
    if not found:
        parser.error(f"no answers in {', '.join(map(str, options.folders))}: name folders with ARM/seed_N in them.")
    print(json.dumps(found, indent=1))
    if options.json:
        write_json(options.json, found)


def read(folder: Path) -> dict[str, dict[str, list[pd.DataFrame]]]:
    """Exam -> arm -> answers of its runs."""
    exams: dict[str, dict[str, list[pd.DataFrame]]] = defaultdict(lambda: defaultdict(list))
    for table in sorted(folder.glob(f"*/seed_*/{EVALUATION_FOLDER}/*{TABLE_SUFFIX}")):
        exams[table.stem][table.parents[2].name].append(by_player(pd.read_parquet(table)))
    return exams


def by_player(answers: pd.DataFrame) -> pd.DataFrame:
    """The first answer of each player (columns) to each question: `True` if it is right, else its text; `None` if it
    has none."""
    first = answers[answers["sample"] == 0]
    parsed = first.answer.where(first.verdict != "solved", True)  # right answers in different forms are one answer
    wide = first.assign(parsed=parsed.astype(object)).pivot(index="question", columns="player", values="parsed")
    return wide.astype(object).where(wide.notna(), None)


def students(run: pd.DataFrame) -> list[str]:
    return [name for name in run.columns if name not in ("base", "average") and not name.startswith("teacher")]


def scores(voters: pd.DataFrame) -> Scores:
    """The mean player, the vote and any of them, for each question."""
    right = voters.map(lambda answer: answer is True)
    votes = np.array([vote(row) for row in voters.to_numpy()])
    return {"mean": right.mean(axis=1).to_numpy(), "vote": votes, "any": right.any(axis=1).to_numpy(float)}


def vote(answers: np.ndarray) -> float:
    """1 if the most frequent answer is right, 0 if not, and a share if several are as frequent."""
    counts = Counter(answer for answer in answers if answer is not None)
    most = max(counts.values(), default=0)
    return (counts[True] == most) / list(counts.values()).count(most) if most else 0.0


def of_students(runs: list[pd.DataFrame]) -> dict:
    measured: dict[str, list[np.ndarray]] = defaultdict(list)
    for run in runs:
        own = scores(run[students(run)])
        if "average" in run.columns:
            own["average"] = scores(run[["average"]])["mean"]
        for name, values in own.items():
            measured[name].append(values)
    whole = {name: np.array(values) for name, values in measured.items() if len(values) == len(runs)}
    return {
        "runs": len(runs),
        "voters": len(students(runs[0])),
        "scores": {name: rounded(interval(values.mean(axis=1).tolist())) for name, values in whole.items()},
        "differences": {
            f"vote - {name}": rounded([(gap := whole["vote"] - whole[name]).mean(), *(over_questions(gap) or [])[:2]])
            for name in ("mean", "average")
            if name in whole
        },
    }


def of_agents(runs: list[pd.DataFrame], voters: int) -> dict:
    adapters = pd.concat([run[students(run)[0]] for run in runs], axis=1)
    choices = [scores(adapters.iloc[:, list(chosen)]) for chosen in combinations(range(len(runs)), voters)]
    means = {name: float(np.mean([one[name].mean() for one in choices])) for name in choices[0]}
    return {"runs": len(runs), "voters": voters, "scores": {name: round(mean, 4) for name, mean in means.items()}}


def rounded(values) -> list[float | None]:
    return [None if value is None else round(float(value), 4) for value in values]


if __name__ == "__main__":
    main()
