"""Answers that work a chain out line by line before their output block, and ones that end too early.

Only for tasks of the chain families, whose programs are this package's own: they run in this process. A base learns
these answers; self-play judges the block at their end alone, as it does for all tasks.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from trl_populora.executor import canonical, literals
from trl_populora.tasks import Task
from trl_populora.tasks.code.families.chains import run_statement


PATIENCE = 3  # lines after which an answer may end too early


@dataclass(frozen=True)
class Step:
    """One line of a chain as it runs.

    Attributes:
        text (`str`): The statement, or the line above a block.
        before, after (`Any`): The state; both the same for the line above a block.
        holds (`bool` or `None`): Whether the condition of a branch holds; `None` for other lines.
        changes (`bool`): Whether it is a statement.
    """

    text: str
    before: Any
    after: Any
    holds: bool | None = None
    changes: bool = True


def trace(program: str, state: Any) -> list[Step]:
    """
    What happens line by line.

    Args:
        program (`str`): A program of a chain family, and no other.
        state (`Any`): Its argument.
    """
    (function,) = ast.parse(program).body
    return list(_walk(function.body[:-1], state, program))


def _walk(body: Sequence[ast.stmt], state: Any, program: str) -> Iterator[Step]:
    for node in body:
        text = ast.get_source_segment(program, node)
        head = text.partition("\n")[0]
        inner: list[Sequence[ast.stmt]] = []
        if isinstance(node, ast.If):
            holds = bool(run_statement(f"x = {ast.get_source_segment(program, node.test)}", state))
            yield Step(head, state, state, holds, changes=False)
            inner = [node.body] if holds else []
        elif isinstance(node, ast.For):
            yield Step(head, state, state, changes=False)
            inner = [node.body] * node.iter.args[0].value
        else:
            after = run_statement(text, state)
            yield Step(text, state, after)
            state = after
        for part in inner:
            for step in _walk(part, state, program):
                yield step
                state = step.after


def worked_output(task: Task, *, stops: float = 0.0, rng: random.Random | None = None) -> str:
    """The answer to a `code_o` task: each statement with the state after it, then the block."""
    (state,) = literals.parse_arguments(task.payload.input)
    steps = _until_stop(trace(task.payload.program, state), stops, rng)
    lines = [_line(step, step.after) for step in steps]
    return "\n".join([*lines, f"```output\n{_text(steps[-1].after)}\n```"])


def worked_input(task: Task, *, stops: float = 0.0, rng: random.Random | None = None) -> str:
    """The answer to a `code_i` task, worked backwards: each statement with the state before it, from the last one."""
    (state,) = literals.parse_arguments(task.payload.input)
    steps = _until_stop(trace(task.payload.program, state)[::-1], stops, rng)
    lines = [_line(step, step.before) for step in steps]
    return "\n".join([*lines, f"```input\n{_text(steps[-1].before)}\n```"])


def _until_stop(steps: list[Step], stops: float, rng: random.Random | None) -> list[Step]:
    """The first steps: from `PATIENCE` on, each is the last one with this chance."""
    kept = min(PATIENCE, len(steps))
    while stops and kept < len(steps) and rng.random() >= stops:
        kept += 1
    return steps[:kept] if stops else steps


def _line(step: Step, state: Any) -> str:
    if step.holds is not None:
        return f"{step.text} # {step.holds}"
    return f"{step.text} # {_text(state)}" if step.changes else step.text


def _text(value: Any) -> str:
    """Literal text in canonical form, as tasks hold it: dicts sorted by key."""
    return literals.to_literal(canonical.decode(canonical.encode(value)))
