"""Every benchmark's own right answers, graded: all must be accepted.

    python benchmarks/gold.py --data FOLDER [--json] [--benchmarks humaneval_plus gsm8k ...]

FOLDER holds the benchmarks' files, as JSON lines; those that are not there are left out. The last line is one line of
JSON: for each benchmark `gold`, the share of right answers that its grader accepts, `tasks`, `seconds` (elapsed), and
`dirty`, the questions that the benchmark lists as not acceptable, with the reason. The exit code is 1 if an answer is
not accepted and not listed, or is listed and accepted.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence

from trl_populora.evaluation.benchmarks import BUILT_IN, Benchmark, benchmark
from trl_populora.evaluation.grading import Grade
from trl_populora.executor import Executor
from trl_populora.tasks import Run


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder with the benchmarks' files")
    parser.add_argument("--benchmarks", nargs="+", default=list(BUILT_IN), help="ids; all by default")
    parser.add_argument("--json", action="store_true", help="print the last line only")
    options = parser.parse_args(arguments)
    try:
        chosen = [benchmark(name) for name in options.benchmarks]
    except ValueError as error:
        parser.error(str(error))
    chosen = [one for one in chosen if os.path.exists(os.path.join(options.data, one.file))]
    if not chosen:
        parser.error(f"{options.data} holds none of the files of {', '.join(options.benchmarks)}.")
    summary, ok = {}, True
    with Executor() as executor:
        for one in chosen:
            if one.gold is None:
                summary[one.id] = {"gold": None, "reason": "its records hold no right answers"}
                continue
            start = time.perf_counter()
            grades = grade_gold(one, options.data, executor.run_many)
            wrong = {id_: grade for id_, grade in grades.items() if grade.verdict != "solved"}
            summary[one.id] = {
                "gold": 1 - len(wrong) / len(grades),
                "tasks": len(grades),
                "seconds": round(time.perf_counter() - start, 3),
                "dirty": dict(one.dirty),
            }
            surprising = sorted(wrong.keys() ^ one.dirty.keys())
            ok = ok and not surprising
            if not options.json:
                print(f"{one.title}: {len(grades) - len(wrong)} of {len(grades)} accepted")
                for id_ in surprising:
                    print(f"  {id_}: {_why(grades.get(id_))}")
    print(json.dumps(summary))
    return 0 if ok else 1


def grade_gold(one: Benchmark, data: str, run: Run) -> dict[str, Grade]:
    """The grade of each question's own right answer, by the question's id."""
    records, _ = one.records(data)
    questions = [one.question(record, place) for place, record in enumerate(records)]
    answers = [one.gold(record) for record in records]
    grades = one.grader(run).grade(answers, [question.reference for question in questions])
    return {question.id: grade for question, grade in zip(questions, grades, strict=True)}


def _why(grade: Grade | None) -> str:
    if grade is None:
        return "listed as dirty, but there is no such question"
    if grade.verdict == "solved":
        return "listed as dirty, but accepted"
    return f"{grade.verdict}: {grade.detail or grade.answer}"


if __name__ == "__main__":
    sys.exit(main())
