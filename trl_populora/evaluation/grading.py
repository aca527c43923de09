"""Grading: what became of an answer (`Grade`), and who decides (`Grader`, a metric of Hugging Face `evaluate`).

A grader reads completions as data and judges them in the sandbox. It never fails on what a model wrote: an answer that
cannot be read, is too long or makes the judge hang is a counted failure.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import datasets
import evaluate

from ..executor import Execution, Executor, Job, Status
from ..tasks import Run


VERDICTS = {
    "solved": "the answer is right",
    "wrong": "an answer was read, and it is not right",
    "refused": "no answer could be read",
    "failed": "judging the answer took too long, too much memory, or broke the judge: not right",
    "spared": "the sandbox itself failed, twice: neither right nor wrong, and in no share",
}
"""What a [`Grade`] can say."""
SHOWN = 1_000  # characters of an answer that a record keeps


@dataclass(frozen=True)
class Grade:
    """What became of one answer.

    Attributes:
        verdict (`str`): One of `VERDICTS`.
        answer (`str`): What was read as the answer, at most `SHOWN` characters of it; empty if nothing was.
        detail (`str`): Why it is not right, for people.
        seconds (`float`): CPU seconds that judging took in the sandbox.
    """

    verdict: str
    answer: str = ""
    detail: str = ""
    seconds: float = 0.0

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise ValueError(f"verdict={self.verdict!r} must be one of {list(VERDICTS)}.")
        object.__setattr__(self, "answer", self.answer[:SHOWN])
        object.__setattr__(self, "detail", self.detail[:SHOWN])

    @property
    def score(self) -> float:
        """1 if solved, 0 if not, NaN if spared."""
        return float("nan") if self.verdict == "spared" else float(self.verdict == "solved")


class Grader(evaluate.Metric):
    """Base of the graders: `predictions` are completions, `references` the JSON texts of [`Question.reference`].

    A subclass writes `judge`.

    Args:
        run (`Run`, *optional*): Runs programs in the sandbox, order kept: `Executor.run_many`. If unset, each call
            starts an executor of its own and closes it.
        kwargs: Arguments of [`~evaluate.Metric`].

    Returns (from `compute`):
        `dict`: `accuracy` and `well_formed`, shares in [0, 1] of the answers that are not spared (NaN if there are
        none), and `spared`, their number.
    """

    description: str = "Share of answers that are right."

    def __init__(self, run: Run | None = None, **kwargs: Any) -> None:
        self._run = run
        super().__init__(**({"keep_in_memory": True} | kwargs))

    def grade(self, completions: Sequence[str], references: Sequence[str]) -> list[Grade]:
        """Judges `completions[i]` by `references[i]`. Programs that the sandbox failed to run are run once more.

        Where `judge` raises for some answers, these are `"failed"`.

        Raises:
            ValueError: If lengths differ, or if `judge` raises for every answer: then the grader is at fault.
        """
        if len(completions) != len(references):
            raise ValueError(f"{len(completions)} completions and {len(references)} references: give one for each.")
        if not completions:
            return []
        with self._runner() as run:
            judge = partial(self.judge, run=_with_second_try(run))
            try:
                return _one_each(judge(completions, references), completions)
            except Exception as error:
                return self._one_by_one(completions, references, judge, error)

    def _one_by_one(
        self,
        completions: Sequence[str],
        references: Sequence[str],
        judge: Callable[..., list[Grade]],
        cause: Exception,
    ) -> list[Grade]:
        """The grades of answers of which some break the judge."""
        grades, broken = [], 0
        for completion, reference in zip(completions, references, strict=True):
            try:
                grades += _one_each(judge([completion], [reference]), [completion])
            except Exception as error:
                grades.append(Grade("failed", detail=f"the grader raised {_told(error)}"))
                broken += 1
        if broken == len(grades):
            raise ValueError(f"{type(self).__name__} raised for every answer: {_told(cause)}") from cause
        return grades

    @abstractmethod
    def judge(self, completions: Sequence[str], references: Sequence[str], run: Run) -> list[Grade]:
        """One grade for each completion. Total: never raises for what a completion holds."""

    @contextmanager
    def _runner(self) -> Iterator[Run]:
        if self._run is not None:
            yield self._run
            return
        with Executor() as executor:
            yield executor.run_many

    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description=self.description,
            citation="",
            inputs_description="predictions: completions. references: what the grader needs, as JSON.",
            features=datasets.Features(dict.fromkeys(("predictions", "references"), datasets.Value("string"))),
        )

    def _compute(self, predictions: Sequence[str], references: Sequence[str]) -> dict[str, float | int]:
        return summarise(self.grade(predictions, references))


def summarise(grades: Sequence[Grade]) -> dict[str, float | int]:
    """`accuracy` and `well_formed` of the grades that are not spared, and the number of those that are."""
    counts = Counter(grade.verdict for grade in grades)
    judged = (len(grades) - counts["spared"]) or float("nan")
    return {
        "accuracy": counts["solved"] / judged,
        "well_formed": (len(grades) - counts["spared"] - counts["refused"]) / judged,
        "spared": counts["spared"],
    }


def _one_each(grades: list[Grade], completions: Sequence[str]) -> list[Grade]:
    if len(grades) != len(completions):
        raise ValueError(f"judge gave {len(grades)} grades for {len(completions)} completions")
    return grades


def _told(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300].rstrip(": ")


def _with_second_try(run: Run) -> Run:
    def again(jobs: Sequence[Job]) -> list[Execution]:
        executions = list(run(jobs))
        failed = [i for i, execution in enumerate(executions) if execution.status is Status.INFRA_ERROR]
        if failed:
            for i, execution in zip(failed, run([jobs[i] for i in failed]), strict=True):
                executions[i] = execution
        return executions

    return again
