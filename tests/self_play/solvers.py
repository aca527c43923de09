"""Two scripted students: one that sees only what is obvious, one that works things out by hand, up to a limit.

Where an output is too much work but can only be one of a few numbers, both guess.

They run the programs of `degenerate_tasks.py`, which are ours, in this process, and count byte codes: what a patient
reader would have to do step by step.
"""

import ast
import random
import sys

from trl_populora.tasks import Task
from trl_populora.tasks.code.pairs import visible
from trl_populora.tasks.parsing import fence


WEAK, STRONG = 12, 1500  # byte codes that a student follows
MOST_CHARACTERS = 40  # of an answer that is worked out by hand
MOST_OUTPUTS = 20  # among which a student guesses


class Tired(Exception):
    pass


def solve(task: Task, budget: int, rng: random.Random) -> str:
    """A completion that answers the task as well as the student can."""
    if task.type == "code_o":
        value = run(task.payload.program, _values(task.payload.input), budget)
        if value is None or len(value) > MOST_CHARACTERS:
            outputs = few_outputs(task.payload.program)
            value = str(rng.randrange(outputs)) if outputs else "'no idea'"
        return fence("output", value)
    if task.type == "code_i":
        kinds = [type(value) for value in _values(task.payload.input)]  # which the program tells to whoever reads it
        fitting = [text for text in CANDIDATES if [type(value) for value in _values(text)] == kinds]
        tried = fitting[: max(1, budget // 20)]
        found = (text for text in tried if run(task.payload.program, _values(text), budget) == task.payload.output)
        return fence("input", next(found, "'no idea'"))
    guesses = GUESSES[: max(1, budget // 100)] + (_linear(task),) * (budget == STRONG)
    fitting = (guess for guess in guesses if all(run(guess, _values(g), 10**6) == out for g, out in visible(task)))
    return fence("python", next(fitting, GUESSES[0]))


def run(program: str, arguments: tuple, budget: int) -> str | None:
    """`repr` of what `f` returns, or `None` if it raises or needs more than `budget` byte codes."""
    left = budget

    def trace(frame, event, _):
        nonlocal left
        frame.f_trace_opcodes = True
        left -= event == "opcode"
        if left < 0:
            raise Tired
        return trace

    scope = {"__name__": "task"}
    exec(program, scope)
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        return repr(scope["f"](*arguments))
    except Exception:
        return None
    finally:
        sys.settrace(before)


def few_outputs(program: str) -> int:
    """The m of `return ... % m` at the end of a program, as every reader can see it, or 0."""
    last = ast.parse(program).body[-1].body[-1]
    value = last.value if isinstance(last, ast.Return) else None
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mod) and isinstance(value.right, ast.Constant):
        return value.right.value if value.right.value <= MOST_OUTPUTS else 0
    return 0


def _values(text: str) -> tuple:
    return ast.literal_eval(f"({text},)")


CANDIDATES = ("0", "1", "'a'", *map(str, range(2, 30)), *("'" + "a" * n + "'" for n in range(2, 12)), "[]", "[1]")
CANDIDATES += ("1, 2", "3, 5", "7, 11", "[1, 2, 3]", "''", "True", "False", "-1", "100", "1000")
GUESSES = (
    "def f(x):\n    return x",
    "def f(x):\n    return len(x)",
    "def f(x):\n    return sum(x)",
    "def f(x):\n    return x[::-1]",
    "def f(x):\n    return x * x",
)


def _linear(task: Task) -> str:
    """The line through the first two visible pairs, if they are numbers."""
    points = [(ast.literal_eval(a), ast.literal_eval(b)) for a, b in visible(task)[:2]]
    if not all(type(x) is int and type(y) is int for x, y in points):
        return GUESSES[0]
    (x, y), (u, v) = points
    slope = (v - y) // (u - x)
    return f"def f(x):\n    return {slope} * x + {y - slope * x}"
