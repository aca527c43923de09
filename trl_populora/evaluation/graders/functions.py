"""`FunctionTests`: grading a Python function by what it returns, as EvalPlus does."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ...tasks import Run
from ..grading import Grade, Grader
from .plain_json import to_json


def function_reference(
    name: str,
    inputs: Sequence[Sequence[Any]],
    *,
    solution: str,
    header: str = "",
    atol: float = 0,
    oracle: str = "equal",
    also: str = "",
) -> str:
    """
    The reference of a question whose answer is a function.

    Args:
        name (`str`): Of the function.
        inputs (`Sequence[Sequence]`): The arguments of each call: plain values.
        solution (`str`): A program that defines the right function: its results are the expected ones.
        header (`str`, *optional*): What stands before every answer: imports and helper functions of the question.
        atol (`float`, *optional*, defaults to `0`): Absolute tolerance for numbers.
        oracle (`str`, *optional*, defaults to `"equal"`): How results are compared, one of `ORACLES`.
        also (`str`, *optional*): A second program; its results are right, too.
    """
    reference = {
        "name": name,
        "inputs": [to_json(list(one)) for one in inputs],
        "solution": solution,
        "header": header,
        "atol": atol,
        "oracle": oracle,
        "also": also,
    }
    return json.dumps(reference)


class FunctionTests(Grader):
    """Share of completions whose function returns the right values."""

    def judge(self, completions: Sequence[str], references: Sequence[str], run: Run) -> list[Grade]:
        """One grade for each completion."""
        raise NotImplementedError  # follows
