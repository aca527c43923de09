"""The referee: what became of an answer, from its text and its execution. Self-play and evaluation both ask here.

An answer is solved, wrong, refused (badly formed) or spared: its execution failed for reasons that are not the
program's, so nobody knows whether it is right. What an outcome is worth is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from trl_populora.executor import Execution, Job, Status
from trl_populora.tasks.base import TaskType
from trl_populora.tasks.task import Answer, Refusal, Task


INFRASTRUCTURE = Refusal(
    "infra_error", "the executor failed, not the program; the row is neither rewarded nor punished"
)


def is_spared(refusal: Refusal | None) -> bool:
    """Whether a refusal is nobody's fault: the row is neither right nor wrong, and no number may count it."""
    return refusal is not None and refusal.reason == INFRASTRUCTURE.reason


class Verdict(NamedTuple):
    """What became of one answer. Exactly one of solved, wrong, refused and spared is true.

    Attributes:
        solved (`bool`): The answer is right.
        refusal (`Refusal` or `None`): Why no answer could be read or, if `spared`, judged.
    """

    solved: bool
    refusal: Refusal | None = None

    @property
    def spared(self) -> bool:
        """The executor failed, not the program: neither right nor wrong."""
        return is_spared(self.refusal)

    @property
    def refused(self) -> bool:
        """No answer could be read."""
        return self.refusal is not None and not self.spared

    @property
    def wrong(self) -> bool:
        """An answer was read, judged and found wrong."""
        return not self.solved and self.refusal is None


def verdict_on(task_type: TaskType, task: Task, answer: Answer | Refusal, execution: Execution | None) -> Verdict:
    """The one rule that turns an answer and its execution into an outcome.

    Args:
        task_type ([`TaskType`]): Type of the task; it judges what can be judged.
        task ([`Task`]): What was asked.
        answer ([`Answer`] or [`Refusal`]): What `TaskType.parse_answer` read.
        execution ([`Execution`] or `None`): Of the answer's job; `None` if it needs none.
    """
    if isinstance(answer, Refusal):
        return Verdict(False, answer)
    if execution is not None and execution.status is Status.INFRA_ERROR:
        return Verdict(False, INFRASTRUCTURE)
    return Verdict(task_type.judge(task, answer, execution))


def judge_answers(
    types: Sequence[TaskType],
    tasks: Sequence[Task],
    texts: Sequence[str],
    run_many: Callable[[Sequence[Job]], list[Execution]],
) -> list[Verdict]:
    """Parse completions, run what has to be run in one batch, and judge `texts[i]` as an answer to `tasks[i]`.

    Args:
        types (`Sequence[TaskType]`): Type of each task.
        tasks (`Sequence[Task]`): What was asked.
        texts (`Sequence[str]`): Completions, one per task.
        run_many (`Callable`): Runs programs, order kept.
    """
    answers = [kind.parse_answer(task, text) for kind, task, text in zip(types, tasks, texts, strict=True)]
    jobs = {
        i: job
        for i, (kind, task, answer) in enumerate(zip(types, tasks, answers, strict=True))
        if not isinstance(answer, Refusal) and (job := kind.answer_job(task, answer)) is not None
    }
    executions = dict(zip(jobs, run_many(list(jobs.values())), strict=True))
    return [
        verdict_on(kind, task, answer, executions.get(i))
        for i, (kind, task, answer) in enumerate(zip(types, tasks, answers, strict=True))
    ]
