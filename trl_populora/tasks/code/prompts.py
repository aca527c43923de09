"""Pieces of prompt text that more than one of the Python types uses: the rules for programs, and how tasks are shown.

Not here: the sentences that belong to one task type (its own file), and chat templates (`templates.py`).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from trl_populora.tasks.code.hygiene import (
    ALLOWED_DUNDERS,
    ALLOWED_MODULES,
    BANNED_ATTRIBUTES,
    BANNED_MEMBERS,
    BANNED_NAMES,
    CLASS_DUNDERS,
    LITERAL_NAMES,
)
from trl_populora.tasks.parsing import fence
from trl_populora.tasks.task import Task
from trl_populora.tasks.wording import MARKS_RULE


if TYPE_CHECKING:
    from trl_populora.tasks.code.base import CodeType


def program_rules(limits: CodeType) -> str:
    """The rules that `hygiene.py` and the executor apply, in words."""
    return "\n".join(
        [
            "Rules for the program:",
            "- It defines a function `f` with `def`, with at least one positional parameter, and `f` returns a value. "
            "Helper functions, generators, decorators, recursion and classes are welcome; no `async`.",
            "- Constants and tables may be computed outside functions, also from `f`: `T = [f(i) for i in range(9)]`. "
            "No other statement there calls `f`. Comments, docstrings and tests at the end "
            "(`print(f(3))`, `assert f(2) == 4`) are taken out.",
            f"- It may import only these modules: {_listed(ALLOWED_MODULES)}.",
            "- It does not use private names of a module, another module through one of these, a module as a value, "
            f"`import *`, {_listed(BANNED_MEMBERS)}.",
            "- Equal arguments give equal results in every process and in any order of calls: no randomness, clock, "
            "files or network, no result that depends on earlier calls or on the order of a set of strings.",
            f"- It does not use the builtins {_listed(BANNED_NAMES)}; variables of these names are fine, and `hash` "
            f"in `__hash__`. The name of an attribute stands in quotes in {_listed(LITERAL_NAMES)}; `vars` and "
            "`wraps` have one argument, `update_wrapper` two.",
            f"- No attributes {_listed(BANNED_ATTRIBUTES)}, and no `_private` one that the program does not set. Of "
            "`__double__` names, in strings too, only usual methods, `__all__` and "
            f"{_listed(ALLOWED_DUNDERS | CLASS_DUNDERS)}.",
            "- Arguments and results are plain values: numbers, strings, bytes, booleans, None, and lists, tuples, "
            "dicts and sets of them. No nan, no infinity.",
            f"- The program has at most {limits.program_bytes} bytes, its arguments {limits.input_bytes}, its result "
            f"{limits.output_bytes}. It runs in a fraction of a second: half of the time limit is too long. Anything "
            "larger or slower is refused.",
            "- The puzzle and its right answer are short: with the words around them they fit into a prompt, and the "
            "answer leaves most of a reply for thinking.",
            MARKS_RULE,
            "- It is not an earlier puzzle with other names.",
        ]
    )


def float_rule(limits: CodeType) -> str:
    """The rule for floats in results, in words; empty where there is none."""
    most, after = limits.max_float_digits, limits.max_decimals
    rule = f"- A float in a result or in its text has at most {most} significant digits, or {after} after its point"
    return f"{rule}, so use integers or round." if most else ""


INPUT_FORMAT = (
    "An input block holds the arguments of `f` separated by commas, as Python literals, without the call itself: for "
    "`f(3, 'a')` it holds `3, 'a'`. Names of f's parameters are read too: `n=3, s='a'`, or one `n = 3` a line."
)


def _listed(names: frozenset[str]) -> str:
    return ", ".join(sorted(names))


def references_text(references: Sequence[Task], *, k: int, rng: random.Random) -> str:
    """Program, input and output of at most `k` references in random order, or an empty string."""
    shown = [task.payload for task in rng.sample(list(references), min(k, len(references)))]
    return "\n\n".join(f"{fence('python', one.program)}\n{pairs_text(one.pairs[:1])}" for one in shown)


def pairs_text(pairs: Sequence[tuple[str, str]]) -> str:
    return "\n".join(f"{fence('input', given)}\n{fence('output', result)}" for given, result in pairs)
