"""Answers that work a chain out line by line before their output block, and ones that end too early.

Only for tasks of the chain families, whose programs are this package's own: they run in this process. A base learns
these answers; self-play judges the block at their end alone, as it does for all tasks.
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from trl_populora.executor import canonical, literals
from trl_populora.tasks import Task
from trl_populora.tasks.code.families.chains import run_statement


PATIENCE = 3  # lines after which an answer may end too early
# Held-out statement -> the known one that the base may take it for, with the placeholders of the families.
TAKEN_FOR = {
    "x = x[2:] + x[:2]": "x = x[1:] + x[:1]",
    "x = x[1:] + [D]": "x = x + [D]",
    "x = [v for v in x if v < D]": "x = [v for v in x if v > D]",
    "x = sorted(x)[::-1]": "x = sorted(x)",
    "x = x[-3:]": "x = x[:3]",
    "x = x[1:] + 'A'": "x = x + 'A'",
    "x = x.replace('A', 'BA')": "x = x.replace('A', 'AB')",
    "x = ''.join(sorted(x))[::-1]": "x = ''.join(sorted(x))",
    "x['A'] = len(x)": "x.pop('A', 0)",
    "x = {k: v for k, v in x.items() if v < D}": "x = {k: v for k, v in x.items() if v > D}",
    "x = {k: (v + D) % 10 for k, v in x.items() if k != 'A'}": "x = {k: (v + D) % 10 for k, v in x.items()}",
}
_HOLES = {"D": r"\d", "A": "[a-d]", "B": "[a-d]"}


def _pattern(template: str) -> re.Pattern[str]:
    """What a template's statements look like."""
    parts, seen = [], set()
    for one in template:
        again = one in seen
        parts.append(f"(?P={one})" if again else f"(?P<{one}>{_HOLES[one]})" if one in _HOLES else re.escape(one))
        seen |= {one} & set(_HOLES)
    return re.compile("".join(parts))


_TAKEN = [(_pattern(template), template, other) for template, other in TAKEN_FOR.items()]


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


def confusion(statement: str) -> tuple[str, str] | None:
    """The template of a held-out statement, and the statement that it may be taken for; `None` for others."""
    for pattern, template, other in _TAKEN:
        found = pattern.fullmatch(statement)
        if found:
            return template, other.translate(str.maketrans(found.groupdict()))
    return None


def trace(program: str, state: Any, *, confused: float = 0.0, rng: random.Random | None = None) -> list[Step]:
    """
    What happens line by line.

    Args:
        program (`str`): A program of a chain family, and no other.
        state (`Any`): Its argument.
        confused (`float`, *optional*, defaults to 0): Chance that a held-out statement is taken for another one.
        rng (`random.Random`, *optional*): Decides where.
    """
    (function,) = ast.parse(program).body

    def run(text: str, state: Any) -> Any:
        other = confusion(text) if confused else None
        return run_statement(other[1] if other and (confused == 1 or rng.random() < confused) else text, state)

    return list(_walk(function.body[:-1], state, program.splitlines(), run))


def _walk(
    body: Sequence[ast.stmt], state: Any, lines: Sequence[str], run: Callable[[str, Any], Any]
) -> Iterator[Step]:
    for node in body:
        text = lines[node.lineno - 1].strip()  # each statement has a line, or one for its head
        inner: list[Sequence[ast.stmt]] = []
        if isinstance(node, ast.If):
            holds = bool(run_statement(f"x = {ast.unparse(node.test)}", state))
            yield Step(text, state, state, holds, changes=False)
            inner = [node.body] if holds else []
        elif isinstance(node, ast.For):
            yield Step(text, state, state, changes=False)
            inner = [node.body] * node.iter.args[0].value
        else:
            after = run(text, state)
            yield Step(text, state, after)
            state = after
        for part in inner:
            for step in _walk(part, state, lines, run):
                yield step
                state = step.after


def worked_output(task: Task, *, stops: float = 0.0, confused: float = 0.0, rng: random.Random | None = None) -> str:
    """The answer to a `code_o` task: each statement with the state after it, then the block."""
    (state,) = literals.parse_arguments(task.payload.input)
    steps = _until_stop(trace(task.payload.program, state, confused=confused, rng=rng), stops, rng)
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
