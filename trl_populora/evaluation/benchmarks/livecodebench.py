"""LiveCodeBench: problems of programming contests (Jain et al. 2024), code generation.

An answer is a program that reads standard input and prints, or a method of a class `Solution`; the record says which.
"""

import json

from ..exam import Question
from ..graders.programs import ProgramTests, program_reference
from .benchmark import Benchmark, Record, chat


def _question(record: Record, place: int) -> Question:
    return Question(
        id=str(record["question_id"]),
        prompt=chat(_prompt(record["question_content"], record["starter_code"])),
        reference=_reference(record),
        group=str(record.get("difficulty", "")),
    )


def _prompt(problem: str, starter: str) -> str:
    if starter.strip():
        task = f"Complete this Python code.\n\n```python\n{starter.strip()}\n```\n\n"
    else:
        task = "Write a Python program that reads the input from standard input and prints the output.\n\n"
    return (
        f"{problem.strip()}\n\n{task}Answer with the complete, self-contained code, its imports included, in one "
        "```python block."
    )


def _reference(record: Record) -> str:
    return program_reference(
        json.loads(record["metadata"]).get("func_name"), record["public_test_cases"], record["private_test_cases"]
    )


LIVECODEBENCH = Benchmark(
    id="livecodebench",
    title="LiveCodeBench",
    file="livecodebench.jsonl",
    # The authors' own data set, livecodebench/code_generation_lite, is a script, which datasets 4 does not run.
    hub="lighteval/code_generation_lite",
    config="release_v6",
    columns=(
        "question_id",
        "question_content",
        "starter_code",
        "public_test_cases",
        "private_test_cases",
        "metadata",
    ),
    question=_question,
    date_column="contest_date",
    grader=ProgramTests,
    max_completion_length=2048,
    samples=10,
    temperature=0.2,
)
"""LiveCodeBench, code generation."""
