"""Is the average of a single agent's weights over time as good as the average of a population's students?

    python benchmarks/time_average.py runs/experiments/weak_time_average --against \
        runs/experiments/weak_sharing/students

from the root of a clone, after `populora experiment`. Of every finished run of a single agent, the adapters of the
last checkpoints become one adapter by the operator `average`, which also makes the average of students. It is written
to `<experiment>_averaged/ARM/seed_N` and takes the experiment's exams, greedily. Then it is compared with the last
weights of the same run, and with the average of the students of other arms (`--against`). Seeds are paired; intervals
are those of `populora experiment`. The JSON goes to `benchmarks/results/NAME_averages.json`.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections import defaultdict
from itertools import combinations
from pathlib import Path

from trl_populora.cli import main as populora
from trl_populora.evolution import breed
from trl_populora.experiments.questions import with_questions
from trl_populora.population.adapters import read_adapter, write_adapter
from trl_populora.reporting.over_seeds import difference, interval
from trl_populora.reporting.played_run import PlayedRun, read_run
from trl_populora.run_files.checkpoint import whole_checkpoints
from trl_populora.run_files.layout import EVALUATION_FILE, EVALUATION_FOLDER


LEFT_OUT = ("checkpoint-*", "rounds", "probes", "probes.jsonl", EVALUATION_FOLDER)


def main() -> None:
    parser = argparse.ArgumentParser(description="Weights of single agents, averaged over time.")
    parser.add_argument("experiment", type=Path, help="folder of an experiment whose runs kept their checkpoints")
    parser.add_argument("--last", type=int, default=10, help="checkpoints that are averaged, the newest ones")
    parser.add_argument("--against", type=Path, nargs="*", default=[], help="folders of arms with several students")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    registered = json.loads((options.experiment / "experiment.json").read_text())
    exams, names = list(registered["exam_names"]), list(registered["exam_names"].values())
    arms: dict[str, list[PlayedRun]] = defaultdict(list)
    for run in sorted(options.experiment.glob("*/seed_*")):
        if not (run / EVALUATION_FOLDER / EVALUATION_FILE).exists():
            continue
        target = options.experiment.with_name(options.experiment.name + "_averaged") / run.parent.name / run.name
        if not (target / EVALUATION_FOLDER / EVALUATION_FILE).exists():
            average_checkpoints(run, target, last=options.last)
            if populora(["evaluate", str(target), "--exams", *exams]):
                raise SystemExit(f"{target} could not take its exams.")
        arms[f"{run.parent.name}, last weights"].append(read_run(str(run)))
        arms[f"{run.parent.name}, average over time"].append(read_run(str(target)))
    for folder in options.against:
        arms[f"{folder.name}, average of students"] = [read_run(str(one)) for one in sorted(folder.glob("seed_*"))]
    found = {"checkpoints": options.last} | {exam: compared(arms, exam) for exam in names}
    print(json.dumps(found, indent=1))
    path = options.json or Path("benchmarks/results") / f"{options.experiment.name}_averages.json"
    path.write_text(json.dumps(found, indent=1) + "\n")
    for exam in names:
        print(table(found[exam]))


def average_checkpoints(run: Path, target: Path, *, last: int) -> None:
    """Copies a run of one member, with the average of its last checkpoints in place of its weights.

    Raises:
        SystemExit: If the run has fewer checkpoints, or more than one member.
    """
    kept = [Path(folder) for folder in whole_checkpoints(str(run))]
    members = [row["id"] for row in json.loads((run / "population.json").read_text())["members"]]
    if len(members) != 1 or len(kept) < last:
        raise SystemExit(f"{run} has {len(members)} members and {len(kept)} checkpoints. Wanted: one, and {last}.")
    (member,) = members
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(run, target, ignore=shutil.ignore_patterns(*LEFT_OUT))
    read = [read_adapter(folder / member) for folder in kept[-last:]]
    write_adapter(target / member, read[-1][0], breed("average", [factors for _, factors in read], seed=0))


def compared(arms: dict[str, list[PlayedRun]], exam: str) -> dict:
    """Scores of each arm by seed with their interval, and differences of every two of them over common seeds."""
    kinds = {name: "average" if name.endswith("of students") else "mean" for name in arms}
    scores = {
        name: {run.seed: run.exams[exam][kinds[name]] for run in own if kinds[name] in run.exams.get(exam, {})}
        for name, own in arms.items()
    }
    differences = {}
    for one, other in combinations(scores, 2):
        found = difference(scores[other], scores[one])
        reach = with_questions(arms[other], arms[one], exam, of=kinds[other], control_of=kinds[one])
        differences[f"{other} - {one}"] = {
            "seeds": sorted(scores[one].keys() & scores[other].keys()),
            "difference": round(found.difference, 4),
            "over_seeds": ends(found),
            "over_seeds_and_questions": reach and ends(reach),
        }
    values = {
        name: {
            "seeds": {seed: round(score, 4) for seed, score in own.items()},
            "interval": ends(interval([*own.values()])),
        }
        for name, own in scores.items()
    }
    return {"values": values, "differences": differences}


def ends(found: tuple) -> list[float] | None:
    """Low and high end of an interval or a difference, if it has any."""
    return None if found.low is None else [round(found.low, 4), round(found.high, 4)]


def table(record: dict) -> str:
    """Markdown of scores and differences of one exam."""

    def told(reach: list[float] | None, sign: str = "") -> str:
        return f"{reach[0]:{sign}.3f} to {reach[1]:{sign}.3f}" if reach else "-"

    lines = ["| weights | mean | 95%, other seeds | seeds |", "|---|---|---|---|"]
    for name, one in record["values"].items():
        own = list(one["seeds"].values())
        lines.append(f"| {name} | {sum(own) / len(own):.3f} | {told(one['interval'])} | {len(own)} |")
    head = "| difference | mean | 95%, other seeds | 95%, other seeds and questions | seeds |"
    lines += ["", head, "|---|---|---|---|---|"]
    for name, one in record["differences"].items():
        both = [told(one[key], "+") for key in ("over_seeds", "over_seeds_and_questions")]
        lines.append(f"| {name} | {one['difference']:+.3f} | {both[0]} | {both[1]} | {len(one['seeds'])} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
