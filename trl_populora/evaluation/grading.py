"""Grading: the grade of an answer (`Grade`) and the grader (`Grader`, a metric of Hugging Face `evaluate`).

A grader reads completions as data and judges them in the sandbox. It never raises an error because of a model's text.
An answer that cannot be read, is too long or makes the grader hang counts as a failure.
"""

from __future__ import annotations

import logging
import os
import signal
import tempfile
import threading
import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import datasets
import evaluate

from ..executor import Execution, Executor, Job, Status
from ..tasks import Run


logger = logging.getLogger(__name__)

VERDICTS = {
    "solved": "the answer is right",
    "wrong": "an answer was read, and it is not right",
    "refused": "no answer could be read",
    "failed": "judging took too long or too much memory, or the grader failed: counts as not right",
    "spared": "the sandbox itself failed, twice: neither right nor wrong, and not counted",
}
"""What a [`Grade`] can say."""
SHOWN = 1_000  # characters of an answer that a record keeps
BROKEN = "the grader"  # how the detail of an answer begins on which the grader itself failed
PATIENCE, PATIENCE_PER_ANSWER = 30.0, 0.5  # seconds that a grader may take, without those of the sandbox
MOST_HANGS = 20  # enough to find one answer among a million; then the others are given up


@dataclass(frozen=True)
class Grade:
    """Grade of one answer.

    Attributes:
        verdict (`str`): One of `VERDICTS`.
        answer (`str`): The extracted answer, at most `SHOWN` characters of it; empty if there is none.
        detail (`str`): Why it is not right, as text to read.
        seconds (`float`): CPU seconds of judging in the sandbox.
    """

    verdict: str
    answer: str = ""
    detail: str = ""
    seconds: float = 0.0

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise ValueError(f"verdict={self.verdict!r} must be one of {list(VERDICTS)}.")
        for name in ("answer", "detail"):
            text: Any = getattr(self, name)
            if not isinstance(text, str):
                raise TypeError(f"{name} must be text, got {text!r:.100}")
            object.__setattr__(self, name, text[:SHOWN])

    @property
    def broke_the_grader(self) -> bool:
        """Whether the grader itself failed on the answer, and not the sandbox."""
        return self.verdict == "failed" and self.detail.startswith(BROKEN)

    @property
    def score(self) -> float:
        """1 if solved, 0 if not, NaN if spared."""
        return float("nan") if self.verdict == "spared" else float(self.verdict == "solved")


class Grader(evaluate.Metric):
    """Base class of graders. `predictions` are completions, and `references` are the JSON texts of
    [`Question.reference`].

    A subclass implements `judge`.

    Args:
        run (`Run`, *optional*): Runs programs in the sandbox and returns results in their order, such as
            `Executor.run_many`. If unset, each call starts and closes its own executor.
        kwargs: Arguments of [`~evaluate.Metric`].

    Returns (from `compute`):
        `dict`: `accuracy` and `well_formed`, shares in [0, 1] of the answers that are not spared (NaN if there are
        none), and `spared`, the number of spared answers (those that the sandbox failed to run).
    """

    description: str = "Share of answers that are right."

    def __init__(self, run: Run | None = None, **kwargs: Any) -> None:
        self._run = run
        kwargs.setdefault("keep_in_memory", True)
        if kwargs["keep_in_memory"]:  # it makes a folder all the same, and a home may be missing
            kwargs.setdefault("cache_dir", os.path.join(tempfile.gettempdir(), f"trl_populora-{os.getuid()}"))
        super().__init__(**kwargs)

    def grade(self, completions: Sequence[str], references: Sequence[str]) -> list[Grade]:
        """Judges `completions[i]` by `references[i]`. Programs that the sandbox failed to run are run once more.

        Answers on which `judge` raises or hangs are `"failed"`. The others get their grades.

        Raises:
            ValueError: If lengths differ.
        """
        if len(completions) != len(references):
            raise ValueError(f"{len(completions)} completions and {len(references)} references: give one for each.")
        if not completions:
            return []
        with self._runner() as run:
            grades = self._judge(completions, references, _with_second_try(run), hangs=[])
        broken = [grade.detail for grade in grades if grade.broke_the_grader]
        if broken:
            logger.warning(f"{type(self).__name__} failed on {len(broken)} of {len(grades)} answers: {broken[0]}.")
        return grades

    def _judge(
        self, completions: Sequence[str], references: Sequence[str], run: Run, *, hangs: list[int]
    ) -> list[Grade]:
        """The grades. If `judge` fails, it is called again on each half."""
        count = len(completions)
        try:
            with _time_limit(PATIENCE + count * PATIENCE_PER_ANSWER) as not_counted:
                grades = list(self.judge([*completions], [*references], not_counted(run)))
            other = next((one for one in grades if not isinstance(one, Grade)), None)
            if len(grades) == count and other is None:
                return grades
            problem = f"gave {len(grades)} grades for {count} answers"
            if len(grades) == count:
                problem = f"gave {other!r:.100}, which is no Grade"
        except _TooLong as error:
            hangs.append(count)
            problem = f"took more than {error} s"
        except Exception as error:
            problem = "raised " + " ".join(f"{type(error).__name__}: {error}".split()).rstrip(": ")[:300]
        if count == 1 or len(hangs) >= MOST_HANGS:
            return [Grade("failed", detail=f"{BROKEN} {problem}")] * count
        half = count // 2
        return [
            *self._judge(completions[:half], references[:half], run, hangs=hangs),
            *self._judge(completions[half:], references[half:], run, hangs=hangs),
        ]

    @abstractmethod
    def judge(self, completions: Sequence[str], references: Sequence[str], run: Run) -> list[Grade]:
        """One grade for each completion. It must never raise an error because of the content of a completion."""

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
        grades = self.grade(predictions, references)
        if all(grade.broke_the_grader for grade in grades):
            raise ValueError(f"{type(self).__name__} failed on every answer: {grades[0].detail.rstrip('.')}.")
        return summarise(grades)


def summarise(grades: Sequence[Grade]) -> dict[str, float | int]:
    """`accuracy` and `well_formed` of the grades that are not spared, and the number of spared ones."""
    counts = Counter(grade.verdict for grade in grades)
    judged = (len(grades) - counts["spared"]) or float("nan")
    return {
        "accuracy": counts["solved"] / judged,
        "well_formed": (len(grades) - counts["spared"] - counts["refused"]) / judged,
        "spared": counts["spared"],
    }


class _TooLong(BaseException):
    """Not a subclass of `Exception`, because a grader may catch those."""


@contextmanager
def _time_limit(seconds: float) -> Iterator[Callable[[Run], Run]]:
    """Raises [`_TooLong`] after this number of seconds. Works only in the main thread; in other threads it does
    nothing.

    Yields a function that excludes time in the sandbox, which has its own limits.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda run: run
        return

    def stop(*_: object) -> None:
        raise _TooLong(f"{seconds:.0f}")

    def not_counted(run: Run) -> Run:
        def paused(jobs: Sequence[Job]) -> list[Execution]:
            left, _ = signal.setitimer(signal.ITIMER_REAL, 0)
            try:
                return run(jobs)
            finally:
                signal.setitimer(signal.ITIMER_REAL, max(left, 0.001))

        return paused

    started, handler = time.monotonic(), signal.signal(signal.SIGALRM, stop)
    outer, _ = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield not_counted
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if outer:  # somebody else's alarm goes on
            signal.setitimer(signal.ITIMER_REAL, max(outer - (time.monotonic() - started), 0.001))


def _with_second_try(run: Run) -> Run:
    def again(jobs: Sequence[Job]) -> list[Execution]:
        executions = list(run(jobs))
        failed = [i for i, execution in enumerate(executions) if execution.status is Status.INFRA_ERROR]
        if failed:
            for i, execution in zip(failed, run([jobs[i] for i in failed]), strict=True):
                executions[i] = execution
        return executions

    return again
