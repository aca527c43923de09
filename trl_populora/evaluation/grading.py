"""Judging completions against tasks by the rule of self-play (`tasks.judge_answers`), with a second try.

The one place where evaluation grades.
"""

from collections.abc import Callable, Mapping, Sequence

from ..executor import Execution, Job, Status
from ..tasks import Task, TaskType, Verdict, judge_answers


RunMany = Callable[[Sequence[Job]], list[Execution]]


def grade(
    tasks: Sequence[Task],
    completions: Sequence[str],
    *,
    task_types: Mapping[str, TaskType],
    run_many: RunMany,
) -> list[Verdict]:
    """Grade `completions[i]` as an answer to `tasks[i]`.

    An answer whose execution failed for reasons that are not the program's is run once more. If it fails again it is
    `spared`: neither right nor wrong. Leave it out of means, and say how many there were.

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
    return judge_answers([task_types[task.type] for task in tasks], tasks, completions, _with_second_try(run_many))


def _with_second_try(run_many: RunMany) -> RunMany:
    def run(jobs: Sequence[Job]) -> list[Execution]:
        executions = list(run_many(jobs))
        failed = [i for i, execution in enumerate(executions) if execution.status is Status.INFRA_ERROR]
        if failed:
            for i, execution in zip(failed, run_many([jobs[i] for i in failed]), strict=True):
                executions[i] = execution
        return executions

    return run
