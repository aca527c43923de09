"""Held-out tasks: exams of seed tasks that no run's buffer, reference or warm start may hold, and of frozen tasks.

`RESERVED` exams are drawn from a seed of their own, per type and level. Their keys are reserved in every run, whether
it asks them or not, so that the same exam is unseen by all runs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING

from ..run_files.files import read_json
from ..run_files.layout import STATE_FILE
from ..tasks import Run, Task, TaskType
from .exam import Exam, Question


if TYPE_CHECKING:
    from .grading import Grader


HELD_OUT_SEED = 1_000_003
PER_TYPE = 64
LEVELS = ("held_out", "held_out_easy")
"""Names of the exams: tasks of all families of a type, and of those that a small base learns first."""


def held_out_tasks(task_type: TaskType, level: str = "held_out") -> list[Task]:
    """`PER_TYPE` different seed tasks of one type, always the same.

    Raises:
        ValueError: For an unknown level.
    """
    if level not in LEVELS:
        raise ValueError(f"level={level!r} must be one of {LEVELS}.")
    families = (task_type.easy_families or None) if level == "held_out_easy" else None
    found: dict[str, Task] = {}  # by key: no task twice under other names
    count = PER_TYPE
    while len(found) < PER_TYPE:
        for task in task_type.seeds(count, seed=HELD_OUT_SEED, families=families):
            found.setdefault(task_type.key(task.payload), task)
        count += PER_TYPE
    return list(found.values())[:PER_TYPE]


def reserved_keys(types: Mapping[str, TaskType]) -> set[str]:
    """Keys of all tasks that runs with these types keep for exams."""
    return {one.key(task.payload) for one in types.values() for level in LEVELS for task in held_out_tasks(one, level)}


def held_out_exam(types: Mapping[str, TaskType], level: str = "held_out") -> Exam:
    """Held-out tasks of all types in play, by turns, so that the first N are of all types."""
    turns = zip_longest(*(held_out_tasks(one, level) for one in types.values()))
    return task_exam(level, [task for turn in turns for task in turn if task is not None], types)


def frozen_exam(path: str, types: Mapping[str, TaskType]) -> Exam:
    """Tasks of another run, as an exam.

    Args:
        path (`str`): JSON lines of tasks (`Task.to_json`), or a run's folder: then the tasks that its members wrote
            and that are in its buffer.
        types (`Mapping[str, TaskType]`): Types in play; tasks of others are left out.

    Raises:
        ValueError: If the path holds no task of these types, or a task was altered.
    """
    try:
        if os.path.isdir(path):
            state = read_json(os.path.join(path, STATE_FILE), missing="it is no run with a buffer.")
            stored = state.get("source", {}).get("buffer", {"tasks": []})["tasks"]
            records = [record for record in stored if not record["author"].startswith("seed")]
        else:
            with open(path, encoding="utf-8") as file:
                records = [json.loads(line) for line in file if line.strip()]
        tasks = [types[record["type"]].read_task(record) for record in records if record["type"] in types]
    except OSError as error:
        raise ValueError(f"the tasks in {path} cannot be read: {error.strerror}.") from None
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} does not hold tasks as JSON lines ({type(error).__name__}: {error}).") from None
    if not tasks:
        raise ValueError(f"{path} holds no task of the types in play, {list(types)}.")
    return task_exam(f"tasks:{path}", tasks, types)


def task_exam(name: str, tasks: Iterable[Task], types: Mapping[str, TaskType]) -> Exam:
    """An exam of tasks, worded and judged by their types."""
    questions = tuple(
        Question(task.id, types[task.type].solve_prompt(task), json.dumps(task.to_json()), task.type) for task in tasks
    )
    return Exam(name, questions, partial(_task_grader, types=dict(types)))


def _task_grader(run: Run | None, *, types: Mapping[str, TaskType]) -> Grader:
    from .graders.task_accuracy import TaskAccuracy

    return TaskAccuracy(run, task_types=types)
