"""Judging completions by the referee of self-play, with a second try. The one place where evaluation grades."""

from collections.abc import Mapping, Sequence

from ..executor import Execution, Job, Status
from ..tasks import Referee, Run, Task, TaskType, Verdict


def grade(
    tasks: Sequence[Task], completions: Sequence[str], *, task_types: Mapping[str, TaskType], run_many: Run
) -> list[Verdict]:
    """Grade `completions[i]` as an answer to `tasks[i]`.

    An answer whose execution failed for reasons that are not the program's is run once more. If it fails again it is
    `spared`: neither right nor wrong. Leave it out of means, and say how many there were.

    Args:
        tasks (`Sequence[Task]`): What was asked.
        completions (`Sequence[str]`): What was written.
        task_types (`Mapping[str, TaskType]`): Types by id.
        run_many (`Run`): Runs programs, order kept: `Executor.run_many`.

    Raises:
        ValueError: If lengths differ, or a task is of a type that is not given.
    """
    return Referee(task_types, _with_second_try(run_many)).judge(tasks, completions)


def _with_second_try(run_many: Run) -> Run:
    def run(jobs: Sequence[Job]) -> list[Execution]:
        executions = list(run_many(jobs))
        failed = [i for i, execution in enumerate(executions) if execution.status is Status.INFRA_ERROR]
        if failed:
            for i, execution in zip(failed, run_many([jobs[i] for i in failed]), strict=True):
                executions[i] = execution
        return executions

    return run
