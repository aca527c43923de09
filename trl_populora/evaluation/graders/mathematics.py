"""`MathAccuracy`: grades mathematical answers with math-verify, in the sandbox."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ...executor import Execution, Job, Limits, Status
from ...extras import require
from ...tasks import Run
from ...tasks.math.answers import compare_plain, in_batches
from ...tasks.math.written import MAX_ANSWER, Number, read_answer, read_number, tidy
from ..grading import Grade, Grader
from .math_text import (
    MARK,
    MAX_DEPTH,
    find_answer,
    find_number,
    hedges,
    is_list,
    nesting,
    split,
    with_commas,
    without_unit,
)


HARNESS = "trl_populora.tasks.math.equivalence"
PROGRAM = f"from {HARNESS} import compare as f"
BATCH = 32  # comparisons in one job
LIMITS = Limits(cpu_seconds=3.0, wall_seconds=30.0, memory_mb=1024)  # of a job; a comparison takes milliseconds
DECIMALS = 6  # that math-verify compares
GUARD = Fraction(1, 10**4)  # relative error that this rounding may make
SMALL = Fraction(1, 10**3)  # below it, that rounding is too coarse for anything but written numbers

Pair = tuple[str | tuple[int, int], str]  # what `compare` is given


def math_reference(
    answers: Sequence[str],
    *,
    form: str = "boxed",
    kind: str = "",
    several: bool = False,
    atol: Sequence[float] = (),
    rtol: float = 0.0,
    unit: str = "",
) -> str:
    """Data that [`MathAccuracy`] needs to judge an answer, as JSON. Unset values are left out.

    Args:
        answers (`Sequence[str]`): Right answer, or answers, in LaTeX.
        form (`str`, *optional*, defaults to `"boxed"`): Where a completion has its answer: `"boxed"`, in its last
            `\\boxed{...}`, see [`find_answer`]; `"number"`, after its last `####`, see [`find_number`].
        kind (`str`, *optional*): `"Numerical"`, `"Expression"`, `"Equation"`, `"Interval"` or `"Tuple"`: for people.
        several (`bool`, *optional*, defaults to `False`): Whether several answers are required, in any order.
        atol (`Sequence[float]`, *optional*): Allowed absolute error of a number; one for all or one for each.
        rtol (`float`, *optional*, defaults to `0.0`): Allowed relative error of a number.
        unit (`str`, *optional*): Unit that an answer may have.

    Raises:
        ValueError: If there is no right answer, or one that is empty, or no number where only numbers are read.
    """
    for answer in answers or ("",):
        if not answer.strip() or form == "number" and find_number(f"{MARK} {answer}") is None:
            raise ValueError(f"{answer!r:.60} is no right {'number' if form == 'number' else 'answer'}")
    values = {
        "answers": list(answers),
        "form": form,
        "kind": kind,
        "several": several,
        "atol": list(atol),
        "rtol": rtol,
        "unit": unit,
    }
    defaults = {"form": "boxed", "kind": "", "several": False, "atol": [], "rtol": 0.0, "unit": ""}
    return json.dumps({key: value for key, value in values.items() if defaults.get(key) != value})


class MathAccuracy(Grader):
    """Share of completions with the right answer. References are made by [`math_reference`].

    The answer is the content of the last `\\boxed{...}`, or else what the text calls its answer. For GSM8K, it is the
    text after the last `####`. Numbers are compared in this process, exactly or within the error that the reference
    allows. math-verify judges everything else, in the sandbox.

    Verdicts are those of math-verify, with these corrections:
    - one box counts, the last; math-verify joins boxes that stand near each other. Without a box, a formula or number
      somewhere in the text is not an answer;
    - a number must be computed: `3+4`, `3!` or `\\sqrt{49}` is not 7. An answer must not have sums, products,
      integrals, limits or derivatives that the right answer does not have. If that is a constant, this also holds for
      other functions;
    - numbers that differ by more than one part in ten thousand differ: math-verify rounds to six decimals, so that any
      small number is 0. If the reference allows an error, only that is used;
    - `4.5e33` is a number, not a multiple of e; `E_1` is a name, and so is `dx/dt`, which math-verify takes for 0;
    - letters after an expression are variables, not units: `6m` is not 6. `7\\text{ or 8}` is not 7. Words after a
      number are units, as in `7 pens`, if they do not change it, as in `7 dozen`;
    - an equation such as `y' + ky = 0` requires a relation: math-verify would compare its 0 with an answer that is not
      a relation;
    - if several answers are required, there must be equally many, each equal to a different right one, in any order.
      For a percentage, the number before the sign is right, too.

    Args:
        run (`Run`, *optional*): See [`Grader`].
        kwargs: Arguments of [`~evaluate.Metric`].

    Raises:
        ValueError: If math-verify is not installed.

    Example:
        ```python
        >>> MathAccuracy().compute(
        ...     predictions=["It is $\\\\boxed{\\\\frac{1}{2}}$."], references=[math_reference(["0.5"])]
        ... )
        {'accuracy': 1.0, 'well_formed': 1.0, 'spared': 0}
        ```
    """

    description = "Share of mathematical answers that are right, judged by math-verify in a sandbox."

    def __init__(self, run: Run | None = None, **kwargs: Any) -> None:
        require("math_verify", user="MathAccuracy")
        super().__init__(run, **kwargs)

    def judge(self, completions: Sequence[str], references: Sequence[str], run: Run) -> list[Grade]:
        """One grade for each completion. Equal comparisons are made once."""
        read = [_read(json.loads(reference), text) for text, reference in zip(completions, references, strict=True)]
        pairs = [pair for one in read if isinstance(one, _Comparison) for pair in one.pairs()]
        known = _compare(list(dict.fromkeys(pairs)), run)
        return [one if isinstance(one, Grade) else one.grade(known) for one in read]


@dataclass(frozen=True)
class _Comparison:
    """An answer that was read. `table[i][j]` says whether right answer i equals given answer j, or what the sandbox
    is to compare."""

    answer: str
    table: list[list[bool | Pair]]

    def pairs(self) -> Iterator[Pair]:
        return (entry for row in self.table for entry in row if not isinstance(entry, bool))

    def grade(self, known: Mapping[Pair, tuple[str, float]]) -> Grade:
        free = set(range(len(self.table)))
        for row in self.table:
            free.discard(next((j for j in sorted(free) if _is_right(row[j], known)), -1))
        met = [known[pair] for pair in self.pairs()]
        seconds = sum(cost for _, cost in met)
        if not free:
            return Grade("solved", self.answer, seconds=seconds)
        verdicts = [verdict for verdict, _ in met]
        worst = next((one for one in ("spared", "failed", "refused") if one in verdicts), "wrong")
        return Grade(worst, self.answer, _DETAIL.get(worst, ""), seconds)


_DETAIL = {
    "spared": "the sandbox failed",
    "failed": "judging it took too much time or memory",
    "refused": "math-verify cannot read it",
}


def _is_right(entry: bool | Pair, known: Mapping[Pair, tuple[str, float]]) -> bool:
    return entry if isinstance(entry, bool) else known[entry][0] == "solved"


def _read(wanted: Mapping, completion: str) -> Grade | _Comparison:
    """The answer of a completion, beside the right ones; a grade if there is nothing to compare."""
    boxed = wanted.get("form", "boxed") == "boxed"
    found = find_answer(completion) if boxed else find_number(completion)
    if found is not None and len(found) > MAX_ANSWER:
        return Grade("refused", found, f"more than {MAX_ANSWER} characters")
    answer = tidy(found or "")
    if not answer:
        return Grade("refused", detail='no \\boxed{...}, and no "answer is"' if boxed else "no number, or several")
    if nesting(answer) > MAX_DEPTH:
        return Grade("failed", answer, f"brackets nest more than {MAX_DEPTH} deep")
    golds, given = [tidy(one) for one in wanted["answers"]], [answer]
    if wanted.get("several", False):
        golds, given = [one for gold in golds for one in split(gold)], split(answer)
    elif read_number(golds[0]) is None and is_list(golds[0]):
        golds, given = [with_commas(golds[0])], [with_commas(answer)]
    if len(golds) != len(given):
        return Grade("wrong", answer, f"{len(given)} answers, and not {len(golds)}")
    atol = [Fraction(str(one)) for one in wanted.get("atol", ())]
    atols = atol if len(atol) == len(golds) else [atol[0] if atol else Fraction(0)] * len(golds)
    if wanted.get("several", False):
        golds, atols, given = _without_common(golds, atols, given)
    rtol = Fraction(str(wanted.get("rtol", 0)))
    table = [[_entry(gold, one, atol, rtol) for one in given] for gold, atol in zip(golds, atols, strict=True)]
    return _Comparison(answer, table)


def _without_common(
    golds: list[str], atols: list[Fraction], given: list[str]
) -> tuple[list[str], list[Fraction], list[str]]:
    """Right answers with their allowed errors, and given answers, without the texts that stand in both."""
    left, kept = Counter(given), []
    for gold, atol in zip(golds, atols, strict=True):
        if left[gold]:
            left[gold] -= 1
        else:
            kept.append((gold, atol))
    return [gold for gold, _ in kept], [atol for _, atol in kept], list(left.elements())


def _entry(gold: str, answer: str, atol: Fraction, rtol: Fraction) -> bool | Pair:
    """Whether two texts are equal, or what the sandbox is to compare."""
    if hedges(answer):
        return answer == gold
    right = read_number(gold)
    given = read_number(answer) if right is None else read_answer(answer)
    if right is not None and given is not None:
        return _is_near(right, given, atol, rtol)
    if right is None or right.percent:
        return (without_unit(gold), without_unit(answer))
    if 0 < abs(right.value) < SMALL or compare_plain(str(right.value), answer) is False:
        return False
    return ((right.value.numerator, right.value.denominator), answer)


def _is_near(right: Number, given: Number, atol: Fraction, rtol: Fraction) -> bool:
    readings = {given.value}
    if right.percent != given.percent:
        readings.add(given.value / 100 if given.percent else given.value * 100)
    allowed = max(atol, rtol * abs(right.value))
    if not allowed and (right.decimal or given.decimal):
        allowed = GUARD * abs(right.value)
        readings = {one for one in readings if round(one, DECIMALS) == round(right.value, DECIMALS)}
    return any(abs(one - right.value) <= allowed for one in readings)


def _compare(pairs: Sequence[Pair], run: Run) -> dict[Pair, tuple[str, float]]:
    """Verdicts and CPU seconds of comparisons."""

    def job(part: Sequence[Pair]) -> Job:
        return Job(PROGRAM, tuple(part), LIMITS, modules=(HARNESS,))

    return in_batches(pairs, run, job, _verdict, batch=BATCH, limits=LIMITS)


def _verdict(execution: Execution, place: int) -> tuple[str, float]:
    if execution.status is Status.OK:
        return str(execution.values[place].value), execution.seconds / len(execution.values)
    return "spared" if execution.status is Status.INFRA_ERROR else "failed", execution.seconds
