"""How much of an exam was in the buffers of runs: tasks of the exam, and its programs with another input.

    python benchmarks/exam_overlap.py recipes.chains.exams:chains[:216] runs/experiments/chains_*/*/seed_*

from the root of a clone. Reads the newest checkpoint of each run. The JSON goes to
`benchmarks/results/exam_overlap.json`.
"""

import argparse
import json
from pathlib import Path

from trl_populora.evaluation import make_exams
from trl_populora.tasks import make_task_types


def main() -> None:
    parser = argparse.ArgumentParser(description="What of an exam was in the buffers of runs.")
    parser.add_argument("exam", help="an exam whose questions are code_o tasks")
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/exam_overlap.json"))
    options = parser.parse_args()
    (exam,) = make_exams([options.exam], make_task_types(["code_o"], style="compact"))
    asked = {task_of(json.loads(question.reference)) for question in exam.questions}
    programs = {program for program, _ in asked}
    found = {}
    for run in options.runs:
        checkpoints = sorted(run.glob("checkpoint-*/self_play.json"), key=lambda path: int(path.parent.name[11:]))
        if checkpoints:
            tasks = [task_of(task) for task in json.loads(checkpoints[-1].read_text())["source"]["buffer"]["tasks"]]
            share = sum(program in programs for program, _ in tasks) / len(tasks)
            found[str(run)] = {"exam_tasks": len(asked & set(tasks)), "share_with_exam_program": round(share, 4)}
    options.json.write_text(json.dumps({"exam": exam.name, "questions": len(asked), "runs": found}, indent=1) + "\n")
    shares = [one["share_with_exam_program"] for one in found.values()]
    counts = [one["exam_tasks"] for one in found.values()]
    print(f"{len(found)} runs; with a task of the exam: {sum(count > 0 for count in counts)}, at most {max(counts)};")
    print(f"tasks with a program of the exam: {min(shares):.1%} to {max(shares):.1%}")


def task_of(record: dict) -> tuple[str, str]:
    """Program and input of a task as it is stored."""
    return record["payload"]["program"], record["payload"]["inputs"][0]


if __name__ == "__main__":
    main()
