"""What members can do, measured: graders and greedy pass@1 for all members. Training never calls this room.

`TaskAccuracy` is imported on first use: Hugging Face `evaluate` takes a second to load.
"""

from typing import Any

from .grading import grade
from .held_out import BASE, Score, bootstrap_interval, evaluate_members, held_out_tasks, solved_or_nan


__all__ = [
    "BASE",
    "Score",
    "TaskAccuracy",
    "bootstrap_interval",
    "evaluate_members",
    "grade",
    "held_out_tasks",
    "solved_or_nan",
]


def __getattr__(name: str) -> Any:
    if name == "TaskAccuracy":
        from .task_accuracy import TaskAccuracy

        return TaskAccuracy
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
