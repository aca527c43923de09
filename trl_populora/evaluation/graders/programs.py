"""`ProgramTests`: grades a program by its output, or a method by its return value, as LiveCodeBench does."""

from __future__ import annotations

import base64
import binascii
import io
import json
import pickle
import zlib
from collections.abc import Iterator, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple

from ...executor import Execution, Job, Limits, Status
from ...tasks import Run
from ..grading import Grade, Grader
from .code import HARNESS, MODULES, Round, Trial, judge_in_rounds, read_code


_STARS = (
    "string re datetime collections heapq bisect copy math random statistics itertools functools operator io sys json "
    "builtins typing"
).split()
HEADER = "\n".join(
    [f"from {one} import *" for one in _STARS]
    + [f"import {one}" for one in _STARS if one not in ("builtins", "typing")]
    + ["sys.setrecursionlimit(50_000)"]
)
"""What runs before every answer: LiveCodeBench has it so, since contest sites import these names."""
_TOGETHER = 32  # problems whose tests are in memory at a time
_MOST_BYTES = 1 << 24  # of a result, and of a program and its input


class Test(NamedTuple):
    """One test: standard input and output, or arguments as lines of JSON and the result as JSON."""

    __test__ = False  # pytest

    input: str
    output: str


def program_reference(function: str | None, public: str, private: str) -> str:
    """
    The reference of a problem of LiveCodeBench.

    Args:
        function (`str` or `None`): Name of the function or method; `None` for a program that reads standard input.
        public (`str`): Public tests: a JSON list of objects with `input` and `output`.
        private (`str`): Private tests: the same, or packed: base64 of zlib of a pickled JSON text.
    """
    return json.dumps({"function": function, "public": public, "private": private})


def read_tests(text: str) -> list[Test]:
    """
    The tests of a column of LiveCodeBench, `public_test_cases` or `private_test_cases`.

    Args:
        text (`str`): A JSON list of objects with `input` and `output`, or base64 of zlib of a pickle of such a text. A
            pickle that holds anything but a text is not loaded.

    Raises:
        ValueError: If it is neither.
    """
    try:
        cases = json.loads(text if text.lstrip().startswith("[") else _unpacked(text))
        if not isinstance(cases, list):
            raise TypeError(f"a {type(cases).__name__} instead of a list")
        return [Test(one["input"], one["output"]) for one in cases]
    except (ValueError, TypeError, KeyError, EOFError, pickle.UnpicklingError, zlib.error, binascii.Error) as error:
        raise ValueError(
            f"tests cannot be read ({type(error).__name__}: {error}); they must be a JSON list of objects with "
            "'input' and 'output', or base64 of zlib of a pickle of such a text, as in LiveCodeBench's data."
        ) from None


def _unpacked(text: str) -> str:
    found = _TextUnpickler(io.BytesIO(zlib.decompress(base64.b64decode(text, validate=True)))).load()
    if type(found) is not str:
        raise ValueError(f"the pickle holds a {type(found).__name__}, not a text")
    return found


class _TextUnpickler(pickle.Unpickler):
    """Loads no class and no function, so no pickled code can run."""

    def find_class(self, module_name: str, global_name: str) -> Any:
        raise pickle.UnpicklingError(f"the pickle names {module_name}.{global_name}")


class ProgramTests(Grader):
    """Share of completions that pass all tests of their problem. References: [`program_reference`].

    Each test runs in a separate process with its own limits. Testing stops at the first failed test. Outputs are
    compared in this process, line by line, without spaces at the ends. If both lines have only numbers, their values
    are compared. The result of a method must equal the expected one, and a tuple counts as a list.

    Args:
        run (`Run`, *optional*): See [`Grader`].
        seconds (`float`, *optional*, defaults to `6.0`): CPU time that one test may take.
        memory_mb (`int`, *optional*, defaults to `2048`): Address space in MiB. As many programs as the sandbox has
            workers run at a time.
        kwargs: Arguments of [`~evaluate.Metric`].
    """

    description = "Share of programs that pass all tests, run in a sandbox."

    def __init__(self, run: Run | None = None, *, seconds: float = 6.0, memory_mb: int = 2048, **kwargs: Any) -> None:
        self._seconds = seconds
        self._memory_mb = memory_mb
        super().__init__(run, **kwargs)

    def judge(self, completions: Sequence[str], references: Sequence[str], run: Run) -> list[Grade]:
        """One grade for each completion.

        Raises:
            ValueError: If the tests of a reference cannot be read.
        """
        unique = list(dict.fromkeys(references))
        grades: dict[int, Grade] = {}
        for start in range(0, len(unique), _TOGETHER):
            problems = {reference: _problem(reference) for reference in unique[start : start + _TOGETHER]}
            places = [i for i, reference in enumerate(references) if reference in problems]
            trials = [self._trial(completions[i], *problems[references[i]]) for i in places]
            grades.update(zip(places, judge_in_rounds(trials, run), strict=True))
        return [grades[i] for i in range(len(completions))]

    def _trial(self, completion: str, function: str | None, tests: list[Test]) -> Trial | Grade:
        code = read_code(completion, function)
        return code if isinstance(code, Grade) else Trial(code, self._rounds(code, function, tests))

    def _rounds(self, code: str, function: str | None, tests: list[Test]) -> Iterator[Round]:
        answer = f"load_method({code!r}, {HEADER!r}, {function!r})(text)"
        if function is None:
            answer = f"run_program({code!r}, {HEADER!r}, text)"
        program = f"{HARNESS}\ndef f(text):\n    return {answer}\n"
        for number, test in enumerate(tests, 1):
            most = min(2 * len(test.output.encode("utf-8", "surrogatepass")) + 4096, _MOST_BYTES)
            limits = Limits(self._seconds, 3 * self._seconds + 10, self._memory_mb, most, _MOST_BYTES)
            job = Job(program, ((test.input,),), limits, modules=MODULES, lazy=True)
            yield Round(job, partial(_fault, function, number, test))


def _problem(reference: str) -> tuple[str | None, list[Test]]:
    fields = json.loads(reference)
    tests = read_tests(fields["public"]) + read_tests(fields["private"])
    if not tests:
        raise ValueError("a problem has no tests; a program is judged by at least one.")
    return fields["function"], tests


def _fault(function: str | None, number: int, test: Test, execution: Execution) -> str:
    """Why a test is not passed; empty if it is."""
    (value,) = execution.values
    if value.status is not Status.OK:
        return f"test {number}: {value.error or value.status.value}"
    if function is None and value.data[:1] != b"s":  # pyright: ignore[reportOptionalSubscript]
        return f"test {number}: no text"  # whatever it is, it is not worth reading
    try:
        out: Any = value.value
    except ValueError:
        return f"test {number}: {Status.PROTOCOL_VIOLATION.value}"
    if function is None:
        right = _is_same_output(out, test.output)
    else:
        right = (list(out) if isinstance(out, tuple) else out) == json.loads(test.output)
    return "" if right else f"test {number}: {str(out)[:200]!r}, expected {test.output[:200]!r}"


def _is_same_output(printed: str, expected: str) -> bool:
    lines, others = ([line.strip() for line in text.strip().split("\n")] for text in (printed, expected))
    return len(lines) == len(others) and all(map(_is_same_line, lines, others))


def _is_same_line(line: str, other: str) -> bool:
    if line == other:
        return True
    try:
        return [Decimal(one) for one in line.split()] == [Decimal(one) for one in other.split()]
    except ArithmeticError:  # not a number, or one that does not compare
        return False
