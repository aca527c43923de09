"""`TaskAccuracy`: grading by execution as a metric of Hugging Face `evaluate`, loaded from here and not from a hub."""

import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import datasets
import evaluate

from ..executor import Executor
from ..tasks import TaskType, make_task_types
from ..tasks.registry import BUILT_IN
from .grading import grade


class TaskAccuracy(evaluate.Metric):
    """Share of completions that solve their task, judged by running code in the sandbox.

    Predictions are completions, references are tasks as JSON texts (`json.dumps(task.to_json())`).

    Args:
        executor ([`Executor`], *optional*): Sandbox to use; one of its own, closed after each `compute`, if unset.
        task_types (`Mapping[str, TaskType]`, *optional*): Types by id; those of the package if unset.
        kwargs: Arguments of [`~evaluate.Metric`].

    Returns (from `compute`):
        `dict`: `accuracy` and `well_formed`, shares in [0, 1], and `spared`: answers that the executor failed to
        judge, twice; they have no part in the shares, which are NaN if there are no others.

    Example:
        ```python
        >>> metric = TaskAccuracy()
        >>> metric.compute(predictions=["```output\\n3\\n```"], references=[json.dumps(task.to_json())])
        {'accuracy': 1.0, 'well_formed': 1.0, 'spared': 0}
        ```
    """

    def __init__(
        self, executor: Executor | None = None, *, task_types: Mapping[str, TaskType] | None = None, **kwargs: Any
    ) -> None:
        self._executor = executor
        self._types = make_task_types(BUILT_IN) if task_types is None else dict(task_types)
        super().__init__(**({"keep_in_memory": True} | kwargs))

    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description="Share of Python reasoning tasks solved, judged by execution in a sandbox.",
            citation="",
            inputs_description="predictions: completions. references: tasks as JSON texts.",
            features=datasets.Features(dict.fromkeys(("predictions", "references"), datasets.Value("string"))),
        )

    def _compute(self, predictions: Sequence[str], references: Sequence[str]) -> dict[str, float | int]:
        records = [json.loads(reference) for reference in references]
        unknown = sorted({record["type"] for record in records} - set(self._types))
        if unknown:
            raise ValueError(f"TaskAccuracy knows no task types {unknown}; give them as task_types.")
        tasks = [self._types[record["type"]].read_task(record) for record in records]
        with Executor() if self._executor is None else nullcontext(self._executor) as executor:
            grades = grade(tasks, predictions, task_types=self._types, run_many=executor.run_many)
        judged = [verdict for verdict in grades if not verdict.spared]
        n = len(judged) or float("nan")
        return {
            "accuracy": sum(verdict.solved for verdict in judged) / n,
            "well_formed": sum(not verdict.refused for verdict in judged) / n,
            "spared": len(grades) - len(judged),
        }
