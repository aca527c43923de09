"""`MathAccuracy`: grading mathematical answers."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ...tasks import Run
from ..grading import Grade, Grader


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
    """What [`MathAccuracy`] needs to judge an answer, as JSON; what is not set is left out.

    Args:
        answers (`Sequence[str]`): Right answer, or answers, in LaTeX.
        form (`str`, *optional*, defaults to `"boxed"`): Where a completion has its answer: `"boxed"`, in its last
            `\\boxed{...}`; `"number"`, after its last `####`.
        kind (`str`, *optional*): `"Numerical"`, `"Expression"`, `"Equation"`, `"Interval"` or `"Tuple"`, if known.
        several (`bool`, *optional*, defaults to `False`): Several answers are wanted, in any order.
        atol (`Sequence[float]`, *optional*): Absolute error that a number may have; one for all or one for each.
        rtol (`float`, *optional*, defaults to `0.0`): Relative error that a number may have.
        unit (`str`, *optional*): Unit that an answer may carry.
    """
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
    """Share of completions with the right answer. References are made by [`math_reference`]."""

    description = "Share of mathematical answers that are right."

    def judge(self, completions: Sequence[str], references: Sequence[str], run: Run) -> list[Grade]:
        """One grade for each completion."""
        raise NotImplementedError
