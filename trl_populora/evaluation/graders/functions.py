"""`FunctionTests`: grades a Python function by its return values, as EvalPlus does."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ...executor import Execution, Job, Limits, Status, Value
from ...tasks import Run
from ..grading import Grade, Grader
from .code import HARNESS, MODULES, Round, Trial, judge_in_rounds, read_code
from .plain_json import from_json, to_json


RTOL = 1e-7
"""Relative tolerance wherever numbers are compared with an absolute one, as in EvalPlus."""
ATOL_OF_FLOATS = 1e-6
"""Absolute tolerance for floats, and for lists and tuples of nothing else, if the question gives none."""
_FIRST = 1  # calls of the first round
_FIRST_SHARE = 0.2  # of the CPU seconds
_PATIENCE = 4.0  # times what the solution takes
_SLACK = 1 << 16  # bytes of all results together, above twice the expected ones
_SOLUTION = Limits(cpu_seconds=120, wall_seconds=600, memory_mb=2048, result_bytes=1 << 20, source_bytes=1 << 24)


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
        name (`str`): Name of the function.
        inputs (`Sequence[Sequence]`): The arguments of each call: plain values.
        solution (`str`): A program that defines the right function: its results are the expected ones.
        header (`str`, *optional*): Code that runs before every answer: imports and helper functions of the question,
            and the first lines of the function.
        atol (`float`, *optional*, defaults to `0`): Absolute tolerance for numbers.
        oracle (`str`, *optional*, defaults to `"equal"`): How results are compared, one of `ORACLES`.
        also (`str`, *optional*): A second program; its results are right, too.

    Raises:
        ValueError: If there are no inputs, or `oracle` is unknown.
    """
    if not inputs:
        raise ValueError(f"{name}: there are no inputs; a function is judged by at least one call.")
    if oracle not in ORACLES:
        raise ValueError(f"{name}: oracle={oracle!r} must be one of {list(ORACLES)}.")
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


def _is_equal(out: Any, expected: Any, arguments: tuple, atol: float) -> bool:
    if out == expected:
        return True
    if atol == 0 and _is_floats(expected):
        atol = ATOL_OF_FLOATS
    return atol != 0 and type(out) is type(expected) and _is_close(out, expected, atol)


def _is_floats(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return bool(value) and all(isinstance(one, float) for one in value)
    return isinstance(value, float)


def _is_close(out: Any, expected: Any, atol: float) -> bool:
    if isinstance(out, (list, tuple)) and isinstance(expected, (list, tuple)):
        return len(out) == len(expected) and all(map(_is_close, out, expected, [atol] * len(out)))
    if not (isinstance(out, (int, float, complex)) and isinstance(expected, (int, float, complex))):
        return False
    try:
        return out == expected or abs(out - expected) <= atol + RTOL * abs(expected) < math.inf
    except OverflowError:  # an int that no float can hold
        return False


def _is_same_set(out: Any, expected: Any, arguments: tuple, atol: float) -> bool:
    try:
        known = set(expected)
        # Nothing that is not expected is put into a set: a set of keys made to collide takes quadratic time.
        return all(one in known for one in out) and set(out) == known
    except TypeError:  # nothing to iterate over, or elements without a hash
        return False


def _is_root(out: Any, expected: Any, arguments: tuple, atol: float) -> bool:
    (coefficients,) = arguments
    try:
        return abs(sum(c * math.pow(out, i) for i, c in enumerate(coefficients))) <= atol
    except (TypeError, ValueError, OverflowError):
        return False


def _is_match(out: Any, expected: Any, arguments: tuple, atol: float) -> bool:
    return (out if isinstance(out, bool) else out is not None) == (expected is not None)


ORACLES: dict[str, Callable[[Any, Any, tuple, float], bool]] = {
    "equal": _is_equal,
    "set": _is_same_set,
    "not_none": _is_match,
    "root": _is_root,
}
"""How results are compared: `equal` (floats within a tolerance), as sets (`set`), by whether there is one
(`not_none`), or as a root of the polynomial whose coefficients are the argument (`root`)."""


@dataclass(frozen=True)
class _Part:
    """Some calls of a question, what they should return, and the CPU seconds that the solution took."""

    calls: tuple[tuple, ...]
    expected: tuple[tuple[Value, ...], ...]  # for each call, the results that are right
    seconds: float


class FunctionTests(Grader):
    """Share of completions whose function returns the right values. References: [`function_reference`].

    The question's own solution computes the expected values once, in the sandbox. They never enter the process of an
    answer. Every call gets its own copy of its arguments.

    Args:
        run (`Run`, *optional*): See [`Grader`].
        seconds (`float`, *optional*, defaults to `10.0`): CPU time of all calls but the first together. The first call
            has a fifth of it. To both limits, four times the CPU time of the question's own solution is added.
        memory_mb (`int`, *optional*, defaults to `2048`): Address space of an answer in MiB. As many answers as the
            sandbox has workers run at a time.
        kwargs: Arguments of [`~evaluate.Metric`].

    Example:
        ```python
        >>> reference = function_reference("double", [[1], [2]], solution="def double(x): return 2 * x")
        >>> FunctionTests().compute(predictions=["def double(x): return x + x"], references=[reference])
        {'accuracy': 1.0, 'well_formed': 1.0, 'spared': 0}
        ```
    """

    description = "Share of functions that return the right values for all inputs, run in a sandbox."

    def __init__(self, run: Run | None = None, *, seconds: float = 10.0, memory_mb: int = 2048, **kwargs: Any) -> None:
        self._seconds = seconds
        self._memory_mb = memory_mb
        self._known: dict[str, list[_Part] | Grade] = {}
        super().__init__(run, **kwargs)

    def judge(self, completions: Sequence[str], references: Sequence[str], run: Run) -> list[Grade]:
        """One grade for each completion."""
        self._learn([one for one in dict.fromkeys(references) if not isinstance(self._known.get(one), list)], run)
        questions = {one: json.loads(one) for one in dict.fromkeys(references)}
        trials: list[Trial | Grade] = []
        for completion, reference in zip(completions, references, strict=True):
            question, parts = questions[reference], self._known[reference]
            code = read_code(completion, question["name"])
            if isinstance(parts, Grade):
                trials.append(parts)
            elif isinstance(code, Grade):
                trials.append(code)
            else:
                trials.append(Trial(code, self._rounds(question, parts, code)))
        return judge_in_rounds(trials, run)

    def _learn(self, references: Sequence[str], run: Run) -> None:
        """Computes the expected values of new questions. Nothing is kept of a call that fails."""
        todo: list[tuple] = []
        known: dict[str, list[_Part] | Grade] = {reference: [] for reference in references}
        for reference in references:
            question = json.loads(reference)
            calls = tuple(tuple(from_json(one)) for one in question["inputs"])
            for part in (calls[:_FIRST], calls[_FIRST:]):
                programs = [text for text in (question["solution"], question["also"]) if text and part]
                jobs = [_job(text, "", question["name"], part, _SOLUTION) for text in programs]
                # Of a match, which is not plain, it counts that there is one.
                usable = {Status.OK, Status.UNPLAIN} if question["oracle"] == "not_none" else {Status.OK}
                todo.append((reference, part, usable, jobs))
        executions = iter(run([job for *_, jobs in todo for job in jobs]))
        for reference, calls, usable, jobs in todo:
            found = [next(executions) for _ in jobs]
            parts = known[reference]
            broken = next((one for one in found if not _statuses(one) <= usable), None)
            if broken is not None:
                known[reference] = _no_judge(broken)
            elif found and isinstance(parts, list):
                expected = tuple(zip(*[one.values for one in found], strict=True))
                parts.append(_Part(calls, expected, found[0].seconds))
        self._known |= known

    def _rounds(self, question: dict[str, Any], parts: Sequence[_Part], code: str) -> Iterator[Round]:
        for part, share in zip(parts, (_FIRST_SHARE, 1.0), strict=False):
            seconds = share * self._seconds + _PATIENCE * part.seconds
            sizes = [max(len(value.data or b"") for value in values) for values in part.expected]
            # Longer results cannot be right, and need not be read.
            limits = Limits(seconds, 3 * seconds + 10, self._memory_mb, 2 * max(sizes) + 4096, 1 << 20)
            job = _job(code, question["header"], question["name"], part.calls, limits)
            job = replace(job, total_bytes=2 * sum(sizes) + _SLACK, lazy=True)
            yield Round(job, partial(_fault, question, part))


def _job(code: str, header: str, name: str, calls: tuple[tuple, ...], limits: Limits) -> Job:
    program = (
        f"{HARNESS}\n_answer = load_function({code!r}, {header!r}, {name!r})\n"
        "def f(*arguments):\n    return report(_answer(*arguments))\n"
    )
    return Job(program, calls, limits, modules=MODULES)


def _statuses(execution: Execution) -> set[Status]:
    return {one.status for one in execution.values} or {execution.status}


def _no_judge(execution: Execution) -> Grade:
    if execution.status is Status.INFRA_ERROR:
        return Grade("spared")
    bad = next((one for one in execution.values if one.status is not Status.OK), execution)
    reason = bad.error or bad.status.value
    return Grade("failed", detail=f"the solution of the question does not run here: {reason}")


def _fault(question: dict[str, Any], part: _Part, execution: Execution) -> str:
    """Why the results of some calls are not right; empty if they are."""
    oracle = ORACLES[question["oracle"]]
    for call, value, expected in zip(part.calls, execution.values, part.expected, strict=True):
        if value.status not in (Status.OK, Status.UNPLAIN):
            return f"{_call_text(question['name'], call)}: {value.error or value.status.value}"
        try:
            out = _read(value)
        except ValueError:
            return f"{_call_text(question['name'], call)}: {Status.PROTOCOL_VIOLATION.value}"
        if not any(_is_right(out, _read(one), call, question["atol"], oracle) for one in expected):
            return f"{_call_text(question['name'], call)} is {_shown(out)}, expected {_shown(_read(expected[0]))}"
    return ""


class _Other:
    """A result that is not plain data. It is equal to nothing."""

    def __repr__(self) -> str:
        return "no plain value"


def _read(value: Value) -> Any:
    """Reads a child's report: a value in a tuple, the hash of a large value, or that the value is not plain."""
    return (_Other(),) if value.status is Status.UNPLAIN else value.value


def _is_right(out: Any, expected: Any, call: tuple, atol: float, oracle: Callable) -> bool:
    if type(out) is tuple and type(expected) is tuple and len(out) == len(expected) == 1:
        return oracle(out[0], expected[0], call, atol)
    return type(out) is type(expected) is bytes and out == expected


def _call_text(name: str, call: tuple) -> str:
    return f"{name}({', '.join(_short(one) for one in call)})"


def _shown(reported: Any) -> str:
    return _short(reported[0]) if type(reported) is tuple else "a large value"


def _short(value: Any, most: int = 200) -> str:
    text = repr(value)
    return text if len(text) <= most else f"{text[:most]}..."
