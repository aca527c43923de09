"""A second look at the finished runs of an experiment: what its YAML did not register.

    python benchmarks/second_look.py runs/experiments/NAME --exam chains_weak \
        --questions recipes.chains.exams:chains_weak --first 144 --json benchmarks/results/NAME_second_look.json

from the root of a clone. For each arm: the mean student's score on the questions of the exam from number `--first` on,
for example those on which settings were not chosen, and its difference to every other arm with Student's 95 % interval
over seeds, and with other questions or other groups of questions as chance, too (`over_questions`); and the norm of
the students' updates along the run (`delta_norm`: Frobenius norm, over all matrices).
"""

import argparse
import json
from collections import defaultdict
from itertools import combinations
from pathlib import Path
from statistics import fmean

import numpy as np

from trl_populora.evaluation import make_exam
from trl_populora.experiments.questions import right_by_question
from trl_populora.reporting.over_seeds import difference, interval, over_questions
from trl_populora.reporting.played_run import PlayedRun, read_run
from trl_populora.run_files.layout import EVALUATION_FILE, EVALUATION_FOLDER


def main() -> None:
    parser = argparse.ArgumentParser(description="Part of an exam, and sizes of updates, by arm.")
    parser.add_argument("folder", type=Path, help="folder of an experiment")
    parser.add_argument("--exam", required=True, help="name of the exam in the records")
    parser.add_argument(
        "--questions", required=True, help="the same exam as module:function, for the questions' order"
    )
    parser.add_argument("--first", type=int, required=True, help="number of the first question that counts, from 0")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    asked = {question.id: question.group for question in make_exam(options.questions, {}).questions[options.first :]}
    arms = finished(options.folder)
    right = {arm: {run.seed: answers(run, options.exam, list(asked)) for run in runs} for arm, runs in arms.items()}
    scores = {arm: {seed: float(own.mean()) for seed, own in runs.items()} for arm, runs in right.items()}
    groups = np.array(list(asked.values()))
    found = {
        "questions": len(asked),
        "arms": {arm: {"seeds": sorted(own), **rounded(interval(list(own.values())))} for arm, own in scores.items()},
        "differences": {
            f"{one} - {other}": rounded(difference(scores[one], scores[other]))
            | wider(right[one], right[other], groups)
            for one, other in combinations(scores, 2)
        },
        "delta_norm": {arm: norms(runs) for arm, runs in arms.items()},
    }
    print(json.dumps(found, indent=1))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


def finished(folder: Path) -> dict[str, list[PlayedRun]]:
    """Arm -> its runs that have taken their exam."""
    arms = defaultdict(list)
    for run in sorted(folder.glob("*/seed_*")):
        if (run / EVALUATION_FOLDER / EVALUATION_FILE).exists():
            arms[run.parent.name].append(read_run(str(run)))
    if not arms:
        raise SystemExit(f"{folder} holds no finished run (ARM/seed_N with an exam).")
    return dict(arms)


def answers(run: PlayedRun, exam: str, asked: list[str]) -> np.ndarray:
    """Share of the students of a run that solve each of these questions."""
    right = right_by_question(run, exam, of="mean")
    missing = set(asked) - right.keys()
    if missing or not asked:
        raise SystemExit(f"{run.folder} has no answers of {exam} to {len(missing)} of {len(asked)} questions.")
    return np.array([right[question] for question in asked])


def wider(ours: dict[int, np.ndarray], theirs: dict[int, np.ndarray], groups: np.ndarray) -> dict[str, list[float]]:
    """Intervals of a difference for other seeds and other questions, and for other seeds and other groups of them."""
    apart = np.array([ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())])
    means = np.array([[one[groups == group].mean() for group in dict.fromkeys(groups.tolist())] for one in apart])
    reaches = {"questions": over_questions(apart), "groups": over_questions(means)} if len(apart) > 1 else {}
    return {name: [round(reach.low, 4), round(reach.high, 4)] for name, reach in reaches.items() if reach is not None}


def norms(runs: list[PlayedRun]) -> dict[str, float]:
    """Round, from 1 -> norm of the students' updates, mean over students and runs, where it was measured."""
    found = defaultdict(list)
    for run in runs:
        for summary in run.history:
            own = [one.delta_norm for one in summary.members if one.role != "teacher" and one.delta_norm is not None]
            if own:
                found[str(summary.round + 1)].append(fmean(own))
    return {number: round(fmean(values), 2) for number, values in found.items()}


def rounded(record: tuple) -> dict[str, float | None]:
    """The first three parts of an interval or a difference: its middle, low and high end."""
    return {name: None if one is None else round(one, 4) for name, one in zip(("mean", "low", "high"), record)}


if __name__ == "__main__":
    main()
