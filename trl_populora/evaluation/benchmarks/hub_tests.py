"""The tests of a record of EvalPlus' data sets, in either of their two forms. Nothing is run.

The JSON lines of a release have columns `base_input`, `plus_input` and `atol`. The data sets on the Hub have a column
`test` instead: a Python program with the inputs in a list.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any

from .benchmark import Record


@dataclass(frozen=True)
class Tests:
    """The tests of one function.

    Attributes:
        name (`str`): Of the function.
        inputs (`list[list]`): The arguments of each call.
        atol (`float`): Absolute tolerance of numbers; 0 for none.
        typed (`bool`): Whether `inputs` have their tuples, sets and complex numbers, which JSON lacks.
    """

    name: str
    inputs: list
    atol: float
    typed: bool


def read_tests(record: Record) -> Tests:
    """
    The tests of a record.

    Raises:
        ValueError: If it has no tests in either form.
    """
    if "base_input" in record and "plus_input" in record:
        # One problem of MBPP+ has an empty object where a list is meant.
        inputs = [*record["base_input"], *record["plus_input"]]
        return Tests(record["entry_point"], inputs, record.get("atol", 0), typed=False)
    try:
        return _of_program(record["test"])
    except (KeyError, ValueError, SyntaxError, TypeError) as error:
        raise ValueError(
            f"{record['task_id']} has no tests that can be read ({type(error).__name__}: {error}). Use the JSON "
            "lines of an EvalPlus release, with the columns base_input, plus_input and atol."
        ) from None


def _of_program(source: str) -> Tests:
    nodes = list(ast.walk(ast.parse(source)))
    lists = [
        node.value
        for node in nodes
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["inputs"]
    ]
    if len(lists) != 1:
        raise ValueError("no list named 'inputs' in the column 'test'")
    # The last lines are `assertion(candidate(*inp), exp, atol)` and, in HumanEval+, `check(name)`.
    calls = {
        node.func.id: node.args for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    tested = calls["assertion"][0] if "assertion" in calls else None
    if not isinstance(tested, ast.Call) or not isinstance(tested.func, ast.Name):
        raise ValueError("no call of 'assertion' in the column 'test'")
    atol = _value(calls["assertion"][2])
    name = ast.unparse(calls["check"][0]) if "check" in calls else tested.func.id
    return Tests(name, _value(lists[0]), atol, typed=True)


class _Floats(ast.NodeTransformer):
    """`inf`, `nan` and `float('inf')` as constants, which `ast.literal_eval` reads."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(float(node.id)) if node.id in ("inf", "nan") else node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        if isinstance(node.func, ast.Name) and node.func.id == "float" and len(node.args) == 1:
            return ast.Constant(float(ast.literal_eval(self.visit(node.args[0]))))
        return node


def _value(node: ast.expr) -> Any:
    """The value of a literal that may hold `inf`, `nan`, `float('inf')` and `set()`."""
    return ast.literal_eval(_Floats().visit(node))
