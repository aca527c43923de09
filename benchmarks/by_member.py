"""Single students in the finished runs of an experiment, for what its means hide.

    python benchmarks/by_member.py runs/experiments/stops_rates --exam chains --without none/student_3 \
        --json benchmarks/results/stops_rates_by_member.json

from the root of a clone, after the experiment, or after its archive was unpacked (`experiment_results.py`). For each
run and student: score in the exam, learning rate at the end, mean length of completions in the last 50 rounds, the
round after which it was first replaced, and its rating (lower bound, mu - 3 sigma) before the first replacement of the
run. With `--without ARM/STUDENT`, the mean scores of the arms without that student of that arm, and their
differences with Student's 95 % interval over seeds; such a comparison is not registered.
"""

import argparse
import json
from itertools import combinations
from pathlib import Path
from statistics import fmean

from trl_populora.reporting.over_seeds import difference, interval
from trl_populora.reporting.played_run import PlayedRun, read_run
from trl_populora.run_files.run import read_table


def main() -> None:
    parser = argparse.ArgumentParser(description="Single students of an experiment's runs.")
    parser.add_argument("folder", type=Path, help="folder of an experiment")
    parser.add_argument("--exam", required=True, help="name of the exam, as in the results")
    parser.add_argument("--without", metavar="ARM/STUDENT", help="a student to leave out of the means of its arm")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers to a file")
    options = parser.parse_args()
    runs: dict[str, dict[int, dict]] = {}
    for place in sorted(options.folder.glob("*/seed_*")):
        arm, seed = place.parent.name, int(place.name.removeprefix("seed_"))
        runs.setdefault(arm, {})[seed] = students_of(read_run(str(place)), options.exam)
    if not runs:
        parser.error(f"{options.folder} has no runs: name the folder of an experiment, with ARM/seed_N in it.")
    result = {"experiment": options.folder.name, "exam": options.exam, "students": runs}
    if options.without:
        arm, _, student = options.without.partition("/")
        if arm not in runs or any(student not in own for own in runs[arm].values()):
            parser.error(f"--without {options.without}: choose an arm of {sorted(runs)} and one of its students.")
        result |= {"without": options.without} | means_without(runs, arm, student)
    text = json.dumps(result, indent=1)
    print(text)
    if options.json:
        options.json.write_text(text + "\n", encoding="utf-8")


def students_of(run: PlayedRun, exam: str) -> dict[str, dict]:
    (scores,) = (one["scores"] for one in run.evaluation["exams"] if one["exam"] == exam)
    rates = {member["id"]: member["learning_rate"] for member in read_table(run.folder)["members"]}
    histories: dict[str, list] = {}
    for summary in run.history:
        for member in summary.members:
            histories.setdefault(member.name, []).append(member)
    replaced = {name: first_replaced(own) for name, own in histories.items()}
    first = min((after for after in replaced.values() if after), default=None)
    return {
        name: {
            "score": scores[name]["accuracy"],
            "learning_rate": rates[name],
            "length": round(fmean(member.length for member in own[-50:]), 1),
            "first_replaced": replaced[name],
            "rating_before": None if first is None else round(own[first - 1].mu - 3 * own[first - 1].sigma, 2),
        }
        for name, own in histories.items()
        if name in scores
    }


def first_replaced(rounds: list) -> int | None:
    """Rounds after which the slot got another member."""
    pairs = enumerate(zip(rounds, rounds[1:]), start=1)
    return next((played for played, (one, after) in pairs if after.version > one.version), None)


def means_without(runs: dict[str, dict[int, dict]], arm: str, student: str) -> dict:
    means = {
        name: {
            seed: fmean(one["score"] for who, one in own.items() if (name, who) != (arm, student))
            for seed, own in seeds.items()
        }
        for name, seeds in runs.items()
    }
    spans = {name: interval(list(values.values())) for name, values in means.items()}
    pairs = {f"{b} - {a}": difference(means[b], means[a])._asdict() for a, b in combinations(means, 2)}
    return {"means": {name: [span.mean, span.low, span.high] for name, span in spans.items()}, "differences": pairs}


if __name__ == "__main__":
    main()
