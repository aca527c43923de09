"""MBPP+: 378 short Python problems (Austin et al. 2021), tested by EvalPlus (Liu et al. 2023).

An answer is right if it is right for the inputs of MBPP and for those that EvalPlus added, about a hundred for each
problem. Both published forms are read: the JSON lines of EvalPlus' releases and the data set on the Hub.
"""

from __future__ import annotations

from typing import Any

from ..exam import Question
from ..graders.functions import FunctionTests, function_reference
from .benchmark import Benchmark, Record, chat
from .hub_tests import read_tests


def _question(record: Record, place: int) -> Question:
    return Question(id=f"Mbpp/{_number(record)}", prompt=chat(_prompt(record)), reference=_reference(record))


def _number(record: Record) -> int:
    return int(str(record["task_id"]).removeprefix("Mbpp/"))


def _prompt(record: Record) -> str:
    # The release has the problem and its first test, within triple quotes; the Hub has them in two columns.
    text = record["prompt"].strip().strip('"').strip()
    problem, _, test = text.partition("\nassert ")
    test = f"assert {test}" if test else record["test_list"][0]
    return (
        f"{problem.strip()}\n\nYour function must pass this test:\n\n```python\n{test.strip()}\n```\n\n"
        "Answer with the complete, self-contained Python code, its imports included, in one ```python block."
    )


def _reference(record: Record) -> str:
    tests = read_tests(record)
    inputs = tests.inputs if tests.typed else [_typed(_number(record), one) for one in tests.inputs]
    return function_reference(
        tests.name,
        inputs,
        header="",
        solution=_solution(record),
        atol=tests.atol,
        oracle=ORACLES.get(tests.name, "equal"),
        also=ALSO_RIGHT.get(tests.name, ""),
    )


def _solution(record: Record) -> str:
    return record["canonical_solution"] if "canonical_solution" in record else record["code"]


def _gold(record: Record) -> str:
    return f"```python\n{_solution(record)}\n```"


ORACLES = {
    name: oracle
    for oracle, names in {
        # the order and the number of equal elements are left open
        "set": "similar_elements find_char_long common_in_nested_lists extract_singly larg_nnum intersection_array "
        "find_dissimilar Diff",
        # what counts is whether there is a match, which may be shown by a bool or by the match
        "not_none": "check_str text_match_three text_starta_endb",
    }.items()
    for name in names.split()
}
"""Functions that are not judged by equality, as in EvalPlus."""
ALSO_RIGHT = {
    # the height of a pyramid is the slant height to MBPP, and the distance of the apex from the base to most readers
    "surface_Area": """
import math

def surface_Area(edge, height):
    return round(edge**2 + 2 * edge * math.sqrt((edge / 2) ** 2 + height**2))
""",
    # MBPP compares digits from the left and drops the rest; padding the shorter number with zeros is right, too
    "digit_distance_nums": """
def digit_distance_nums(a, b):
    width = max(len(str(a)), len(str(b)))
    return sum(abs(int(x) - int(y)) for x, y in zip(str(a).zfill(width), str(b).zfill(width)))
""",
}
"""Functions whose statement can be read in a second way, with a solution for that reading, as in EvalPlus."""

# JSON has no tuples, sets and complex numbers. Which arguments hold them is not in the data, but known to EvalPlus by
# the number of the problem.
_EACH = {2, 116, 132, 143, 222, 261, 273, 394, 399, 421, 424, 429, 470, 560, 579, 596, 616, 630, 726, 740, 744, 809}
_EACH_IN_LISTS = {63, 64, 70, 94, 120, 237, 272, 299, 400, 409, 417, 438, 473, 614, 780}
_IN_FIRST = {75, 413, 444, 753}
_SECOND = {106, 750}
_FIRST = {250, 307, 405, 446, 617, 720, 763, 808}
_TUPLES_OF_TUPLES = {259, 401, 445}
_DEEP = {580, 615, 791}


def _typed(number: int, arguments: list) -> list[Any]:
    """The arguments of a call with their types."""
    first: Any = arguments[0] if arguments else None
    if number in _EACH:
        return [tuple(one) for one in arguments]
    if number in _EACH_IN_LISTS:
        return [[tuple(one) for one in argument] for argument in arguments]
    if number in _IN_FIRST:
        return [[tuple(one) for one in first], *arguments[1:]]
    if number in _SECOND:
        return [first, tuple(arguments[1])]
    if number in _FIRST:
        return [tuple(first), *arguments[1:]]
    if number in _TUPLES_OF_TUPLES:
        return [tuple(tuple(one) for one in argument) for argument in arguments]
    if number in _DEEP:
        return [_deep(one) for one in arguments]
    if number == 115:
        return [[set(one) if isinstance(one, list) and one else {} for one in first]]
    if number == 124:
        return [float(first), complex(arguments[1])]
    if number == 252:
        return [complex(first)]
    if number == 278:
        return [tuple(tuple(one) if isinstance(one, list) else one for one in first)]
    if number == 722:
        return [{key: tuple(value) for key, value in first.items()}, *arguments[1:]]
    return arguments


def _deep(value: Any) -> Any:
    return tuple(_deep(one) for one in value) if isinstance(value, list) else value


MBPP_PLUS = Benchmark(
    id="mbpp_plus",
    title="MBPP+",
    file="mbpp_plus.jsonl",
    hub="evalplus/mbppplus",
    columns=("task_id", "prompt"),
    question=_question,
    grader=FunctionTests,
    gold=_gold,
    max_completion_length=512,
)
"""MBPP+."""
