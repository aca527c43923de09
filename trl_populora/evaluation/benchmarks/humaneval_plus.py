"""HumanEval+: 164 Python functions to complete (Chen et al. 2021), tested by EvalPlus (Liu et al. 2023).

The tests are those of EvalPlus: the inputs of HumanEval and many more, up to a thousand for each function. An answer
is right if it is right for all of them. Both published forms are read: the JSON lines of EvalPlus' releases and the
data set on the Hub.
"""

from ..exam import Question
from ..graders.functions import FunctionTests, function_reference
from .benchmark import Benchmark, Record, chat
from .hub_tests import read_tests


def _question(record: Record, place: int) -> Question:
    return Question(id=record["task_id"], prompt=chat(_prompt(record["prompt"])), reference=_reference(record))


def _prompt(stub: str) -> str:
    return (
        f"Complete this Python function.\n\n```python\n{stub.strip()}\n```\n\n"
        "Answer with the complete, self-contained function, its imports and helper functions included, in one "
        "```python block."
    )


def _reference(record: Record) -> str:
    name = record["entry_point"]
    tests = read_tests(record)
    return function_reference(
        name,
        tests.inputs,
        header=record["prompt"],
        solution=record["prompt"] + record["canonical_solution"],
        atol=tests.atol,
        oracle="root" if name == "find_zero" else "equal",
    )


def _gold(record: Record) -> str:
    return f"```python\n{record['prompt']}{record['canonical_solution']}\n```"


HUMANEVAL_PLUS = Benchmark(
    id="humaneval_plus",
    title="HumanEval+",
    file="humaneval_plus.jsonl",
    hub="evalplus/humanevalplus",
    columns=("task_id", "prompt", "entry_point", "canonical_solution"),
    question=_question,
    grader=FunctionTests,
    gold=_gold,
    max_completion_length=512,
)
"""HumanEval+."""
