"""`TaskAccuracy`: grading tasks of self-play by its referee."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ...tasks import Answer, Referee, Run, Task, TaskType, Verdict, make_task_types
from ...tasks.registry import BUILT_IN
from ..grading import Grade, Grader


class TaskAccuracy(Grader):
    """Share of completions that solve their task. References are tasks: `json.dumps(task.to_json())`.

    Args:
        run (`Run`, *optional*): See [`Grader`].
        task_types (`Mapping[str, TaskType]`, *optional*): Types by id; those of the package if unset.
        kwargs: Arguments of [`~evaluate.Metric`].

    Example:
        ```python
        >>> TaskAccuracy().compute(predictions=["```output\\n3\\n```"], references=[json.dumps(task.to_json())])
        {'accuracy': 1.0, 'well_formed': 1.0, 'spared': 0}
        ```
    """

    description = "Share of reasoning tasks solved, judged by their task types in a sandbox."

    def __init__(
        self, run: Run | None = None, *, task_types: Mapping[str, TaskType] | None = None, **kwargs: Any
    ) -> None:
        self._types = make_task_types(list(BUILT_IN)) if task_types is None else dict(task_types)
        super().__init__(run, **kwargs)

    def judge(self, completions: Sequence[str], references: Sequence[str], run: Run) -> list[Grade]:
        """One grade for each completion.

        Raises:
            ValueError: If a task is of a type that is not given.
        """
        records = [json.loads(reference) for reference in references]
        unknown = sorted({record["type"] for record in records} - set(self._types))
        if unknown:
            raise ValueError(f"TaskAccuracy knows no task types {unknown}; give them as task_types.")
        tasks = [self._types[record["type"]].read_task(record) for record in records]
        verdicts = Referee(self._types, run).judge(tasks, completions)
        return [self._grade(*one) for one in zip(tasks, completions, verdicts, strict=True)]

    def _grade(self, task: Task, completion: str, verdict: Verdict) -> Grade:
        if verdict.refusal is not None and not verdict.spared:
            return Grade("refused", detail=f"{verdict.refusal.reason}: {verdict.refusal.detail}".rstrip(": "))
        read = self._types[task.type].parse_answer(task, completion)
        answer = str(read.value) if isinstance(read, Answer) else ""
        if verdict.spared:
            return Grade("spared", answer)
        return Grade("solved" if verdict.solved else "wrong", answer)
