"""Judging completions against tasks: parse, run what has to be run, compare. The one place where evaluation grades."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ..executor import Execution, Job
from ..tasks import Refusal, Task, TaskType


class Grade(NamedTuple):
    """Verdict on one completion: solved or not, and why no answer could be read, if none could."""

    solved: bool
    refusal: Refusal | None = None


def grade(
    tasks: Sequence[Task],
    completions: Sequence[str],
    *,
    task_types: Mapping[str, TaskType],
    run_many: Callable[[Sequence[Job]], list[Execution]],
) -> list[Grade]:
    """Grade `completions[i]` as an answer to `tasks[i]`.

    Args:
        tasks (`Sequence[Task]`): What was asked.
        completions (`Sequence[str]`): What was written.
        task_types (`Mapping[str, TaskType]`): Types by id.
        run_many (`Callable`): Runs programs, order kept: `Executor.run_many`.

    Raises:
        ValueError: If lengths differ, or a task is of a type that is not given.
    """
    if len(tasks) != len(completions):
        raise ValueError(f"{len(tasks)} tasks and {len(completions)} completions: give one completion per task.")
    unknown = sorted({task.type for task in tasks} - set(task_types))
    if unknown:
        raise ValueError(f"Tasks of type {unknown} cannot be graded; known types are {sorted(task_types)}.")
    types = [task_types[task.type] for task in tasks]
    answers = [kind.parse_answer(task, text) for kind, task, text in zip(types, tasks, completions)]
    jobs = {
        i: job
        for i, (kind, task, answer) in enumerate(zip(types, tasks, answers))
        if not isinstance(answer, Refusal) and (job := kind.answer_job(task, answer)) is not None
    }
    executions = dict(zip(jobs, run_many(list(jobs.values())), strict=True))
    return [
        Grade(False, answer) if isinstance(answer, Refusal) else Grade(kind.judge(task, answer, executions.get(i)))
        for i, (kind, task, answer) in enumerate(zip(types, tasks, answers))
    ]
