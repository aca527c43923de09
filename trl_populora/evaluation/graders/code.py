"""Finds the code in a completion, and runs it round by round until it is wrong. All graders of code use this
module."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ...executor import Execution, Job, Status
from ...tasks import Run
from ...tasks.parsing import FENCE, MAX_COMPLETION, fences, final_text
from ..grading import Grade
from . import harness


HARNESS = inspect.getsource(harness)
"""What stands before each job."""
MODULES = ("sys", "ast", "html", "logging", "pprint", "queue", "threading", "traceback", "warnings", "zlib")
"""What answers may import beside the modules of [`Executor`]: harmless in a child that can open no file and start no
thread or process."""
TOO_LONG = Grade("refused", detail=f"the completion is longer than {MAX_COMPLETION} characters")
NO_CODE = Grade("refused", detail="there is no block of code")


@dataclass(frozen=True)
class Round:
    """One job for an answer, and the check of its result.

    Attributes:
        job (`Job`): It runs the answer.
        fault (`Callable[[Execution], str]`): Returns why the outcome is not right, as text; empty if it is right.
    """

    job: Job
    fault: Callable[[Execution], str]


@dataclass(frozen=True)
class Trial:
    """The code of an answer, and the rounds that it must pass. Rounds are made when they are needed."""

    code: str
    rounds: Iterator[Round]


def read_code(completion: str, defines: str | None = None) -> str | Grade:
    """
    The code in a completion, or the grade of one that has none. Nothing is parsed here.

    Only the text after a `</think>` is used. The code is the last fenced block with `def <defines>`, or else the last
    Python block, or else the last block. A last fence without an end goes to the end of the text. A text without
    fences is used as a whole.

    Args:
        completion (`str`): What was written.
        defines (`str`, *optional*): Name of the required function or class.
    """
    if len(completion) > MAX_COMPLETION:
        return TOO_LONG
    text = final_text(completion)
    blocks = fences(f"{text}\n{FENCE}")
    if not blocks:
        return text if text.strip() and FENCE not in text else NO_CODE
    defining = re.compile(rf"^[ \t]*(?:async )?(?:def|class)[ \t]+{re.escape(defines or '')}\b", re.MULTILINE)
    best = [one for one in blocks if defines and defining.search(one.body)]
    best = best or [one for one in blocks if one.label == "python"] or blocks
    return best[-1].body if best[-1].body.strip() else NO_CODE


def judge_in_rounds(trials: Sequence[Trial | Grade], run: Run) -> list[Grade]:
    """
    One grade for each trial: `solved` if it passes all rounds.

    A trial ends with the first round that it does not pass, so wrong answers are cheap. A program that takes too much
    time or memory is wrong. Text that is not Python is refused.
    """
    grades = [one if isinstance(one, Grade) else None for one in trials]
    seconds = [0.0] * len(trials)
    open_ = {i: one for i, one in enumerate(trials) if isinstance(one, Trial)}
    while open_:
        rounds = {i: next(trial.rounds, None) for i, trial in open_.items()}
        for i, one in rounds.items():
            if one is None:
                grades[i] = Grade("solved", open_.pop(i).code, seconds=seconds[i])
        left = [(i, one) for i, one in rounds.items() if one is not None]
        # what may take longest first: no worker waits
        left.sort(key=lambda pair: -limits.cpu_seconds if (limits := pair[1].job.limits) else 0.0)
        for (i, one), execution in zip(left, run([one.job for _, one in left]), strict=True):
            seconds[i] += execution.seconds
            verdict, detail = _outcome(one, execution)
            if verdict:
                grades[i] = Grade(verdict, open_.pop(i).code, detail, seconds[i])
    return [one for one in grades if one is not None]


def _outcome(one: Round, execution: Execution) -> tuple[str, str]:
    if execution.status is Status.INFRA_ERROR:
        return "spared", ""
    if execution.status is Status.TOO_LARGE:
        return "failed", "code and input are too large for the sandbox"
    if harness.NoPython.__name__ in (execution.error, *(value.error for value in execution.values[:1])):
        return "refused", "the code is not Python"
    if execution.status is Status.OUTPUT_LIMIT:
        return "wrong", "far more output than a right answer has"
    if not execution.values:
        return "wrong", f"before the first call: {execution.error or execution.status.value}"
    fault = one.fault(execution)
    return ("wrong", fault) if fault else ("", "")
