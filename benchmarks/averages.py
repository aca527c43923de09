"""Is the average of a run's students better than one of them, or than the students of another arm?

    python benchmarks/averages.py runs/experiments/chains_population --arms pairs population --others single_agent wide

from the root of a clone, after `populora evaluate RUN --average` of every run of `--arms` with the experiment's exams.
For each arm: the mean student, the average (one adapter, whose update is the mean of the students' updates), and their
difference; then the average minus the mean student of other arms. Seeds are paired; intervals are those of `populora
experiment`. The JSON goes to `benchmarks/results/averages.json`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from trl_populora.experiments.questions import with_questions
from trl_populora.reporting.comparison import PlayedRun, read_run
from trl_populora.reporting.over_seeds import difference


def main() -> None:
    parser = argparse.ArgumentParser(description="Averages of students, compared.")
    parser.add_argument("experiment", type=Path)
    parser.add_argument("--arms", nargs="+", required=True)
    parser.add_argument("--others", nargs="*", default=[])
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/averages.json"))
    options = parser.parse_args()
    (exam,) = json.loads((options.experiment / "experiment.json").read_text())["exam_names"].values()
    runs = {arm: finished(options.experiment / arm, exam) for arm in (*options.arms, *options.others)}
    record: dict = {"experiment": str(options.experiment), "exam": exam, "values": {}, "differences": {}}
    for arm, own in runs.items():
        kinds = ("mean", "average") if arm in options.arms else ("mean",)
        for of in kinds:
            record["values"][f"{arm}, {of}"] = {seed: round(run.exams[exam][of], 4) for seed, run in own.items()}
    for arm in options.arms:
        for other in (arm, *(one for one in runs if one != arm)):
            found = compared(runs[arm], runs[other], exam)
            if found:
                record["differences"][f"average of {arm} - mean of {other}"] = found
    options.json.write_text(json.dumps(record, indent=1) + "\n")
    print(table(record))


def finished(folder: Path, exam: str) -> dict[int, PlayedRun]:
    """Seed -> run, of those that have taken the exam."""
    runs = (read_run(str(place)) for place in sorted(folder.glob("seed_*")) if (place / "population.json").is_file())
    return {run.seed: run for run in runs if "mean" in run.exams.get(exam, {})}


def compared(arm: dict[int, PlayedRun], other: dict[int, PlayedRun], exam: str) -> dict | None:
    """The average of one arm minus the mean student of another, over common seeds."""
    seeds = sorted(seed for seed in arm.keys() & other.keys() if "average" in arm[seed].exams[exam])
    if len(seeds) < 2:
        return None
    scores = [{seed: runs[seed].exams[exam][of] for seed in seeds} for runs, of in ((arm, "average"), (other, "mean"))]
    ours, theirs = ([runs[seed] for seed in seeds] for runs in (arm, other))
    reach = with_questions(ours, theirs, exam, of="average", control_of="mean")
    found = difference(*scores)
    return {
        "seeds": seeds,
        "difference": round(found.difference, 4),
        "over_seeds": [round(end, 4) for end in (found.low, found.high) if end is not None],
        "over_seeds_and_questions": reach and [round(reach.low, 4), round(reach.high, 4)],
    }


def table(record: dict) -> str:
    """Markdown of the differences."""
    lines = [
        "| difference | mean | 95%, other seeds | 95%, other seeds and questions | seeds |",
        "|---|---|---|---|---|",
    ]
    for name, one in record["differences"].items():
        ends = [one["over_seeds"], one["over_seeds_and_questions"]]
        told = [f"{end[0]:+.3f} to {end[1]:+.3f}" if end else "-" for end in ends]
        lines.append(f"| {name} | {one['difference']:+.3f} | {told[0]} | {told[1]} | {len(one['seeds'])} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
