"""Held-out tasks: exams of seed tasks that are in no run's buffer, references or warm start. Also exams of fixed
tasks.

Held-out tasks are drawn with a separate seed, per type and level. Their keys are reserved in every run with this type
and these settings, even if it does not use the exam. So the exam is unseen by all these runs.
"""

from __future__ import annotations

import json
import logging
import os
import random
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from ..run_files.files import parse_objects, read_json
from ..run_files.layout import STATE_FILE
from ..tasks import Run, Task, TaskType, make_task_types
from ..tasks.registry import known_task_types
from .exam import Exam, Question


if TYPE_CHECKING:
    from .grading import Grader


logger = logging.getLogger(__name__)

HELD_OUT_SEED = 1_000_003
PER_TYPE = 64
SHARE = 4  # an exam takes at most one in so many of the tasks that a type has
MANY_DRAWS = 1024  # that show about how many different tasks a type has, where it seems to have few
REPEATS = 4  # among the first draws, up to which a type has hundreds of tasks
LEVELS = ("held_out", "held_out_easy")
"""Names of the exams: tasks of the default families of a type, and of those that a small base learns first."""


def held_out_tasks(task_type: TaskType, level: str = "held_out") -> list[Task]:
    """Fixed list of different seed tasks of one type: `PER_TYPE`, or fewer if the type has few.

    An exam has at most a quarter of a type's tasks, and never the one from which a run without seed tasks starts. So
    it may be empty.

    Raises:
        ValueError: For an unknown level.
    """
    return list(_held_out(task_type, level).values())


def reserved_keys(types: Mapping[str, TaskType]) -> set[str]:
    """Keys of all tasks that are reserved for exams in runs with these types.

    The same record as a task of another type can reveal the answer: a program with input and output is a task for both
    `code_o` and `code_i`. So types with the same kind of record also reserve each other's tasks. Another input with
    which a program returns the same output solves a `code_i` question, too ([`TaskType.question_keys`]).
    """
    pairs = [(one, other) for one in types.values() for other in types.values() if other.payload is one.payload]
    return set().union(*(_kept(_keys_under, one, other) for one, other in pairs))


def task_keys(exam: Exam, types: Mapping[str, TaskType]) -> set[str]:
    """Keys that the tasks of an exam have for these types, as in [`reserved_keys`], if its questions are tasks.

    They may be of other types: a `code_i` question keeps tasks of `code_o` out. Tasks of a type that cannot be found
    are left out.
    """
    known, tasks = _tasks_of(exam, types)
    return set().union(*(_asked(task, known, types) for task in tasks))


def questions_shown(exam: Exam, folder: str, types: Mapping[str, TaskType]) -> int:
    """How many questions of an exam the tasks in the buffer of a finished run show with an answer.

    Args:
        exam (`Exam`): An exam; 0 if its questions are no tasks.
        folder (`str`): Folder of the run; 0 if it has no buffer, as after a warm start only.
        types (`Mapping[str, TaskType]`): Task types of the run.

    Raises:
        ValueError: If the run's state is damaged.
    """
    known, tasks = _tasks_of(exam, types)
    stored = _stored(folder) if tasks and os.path.isfile(os.path.join(folder, STATE_FILE)) else []
    payloads = [(types[one["type"]], one["payload"]) for one in stored if one["type"] in types]
    shown = {key for kind, record in payloads for key in kind.shown_keys(kind.payload.from_json(record))}
    return sum(not shown.isdisjoint(_asked(task, known, types)) for task in tasks)


def _asked(task: Task, known: Mapping[str, TaskType], types: Mapping[str, TaskType]) -> set[str]:
    """Keys of a task's question, and those that it has as a task of others of `types`."""
    alike = [one for one in types.values() if one.payload is known[task.type].payload]
    return {*known[task.type].question_keys(task.payload), *(one.key(task.payload) for one in alike)}


def _tasks_of(exam: Exam, types: Mapping[str, TaskType]) -> tuple[dict[str, TaskType], list[Task]]:
    """The tasks of an exam and their types: those given, and others of the package or of installed ones."""
    records = [json.loads(question.reference) for question in exam.questions] if exam.of_tasks else []
    others = {record["type"] for record in records} & known_task_types().keys() - types.keys()
    known = {**(make_task_types(sorted(others)) if others else {}), **types}
    return known, [known[record["type"]].read_task(record) for record in records if record["type"] in known]


def _stored(folder: str) -> list[dict[str, Any]]:
    """The tasks in the buffer of a run, as JSON."""
    state = read_json(os.path.join(folder, STATE_FILE), missing="it is no run with a buffer.")
    return state.get("source", {}).get("buffer", {"tasks": []})["tasks"]


def _held_out(task_type: TaskType, level: str) -> Mapping[str, Task]:
    """Held-out tasks by key. Cached, because a run needs them several times."""
    if level not in LEVELS:
        raise ValueError(f"level={level!r} must be one of {LEVELS}.")
    families = (task_type.easy_families or None) if level == "held_out_easy" else None
    return _kept(_draw, task_type, families)


def _keys_under(one: TaskType, other: TaskType) -> frozenset[str]:
    """Keys that the held-out tasks of one type have as tasks of another, and those of their questions."""
    payloads = [task.payload for level in LEVELS for task in _held_out(one, level).values()]
    return frozenset(key for payload in payloads for key in (other.key(payload), *one.question_keys(payload)))


def _kept(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function of task types returns, computed once for each of them."""
    try:
        hash(arguments)
    except TypeError:  # a type of a user's, with lists or mappings for settings
        return function(*arguments)
    return _once(function, *arguments)


@lru_cache(maxsize=256)
def _once(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


def _draw(task_type: TaskType, families: tuple[str, ...] | None) -> Mapping[str, Task]:
    rng = random.Random(f"{HELD_OUT_SEED}/{task_type.id}")
    first = task_type.key(task_type.simplest().payload)
    found: dict[str, Task] = {}  # by key: no task twice under other names
    for draws in range(MANY_DRAWS):
        if len(found) == PER_TYPE and draws - PER_TYPE <= REPEATS:  # by the birthday problem there are about 500
            return found
        if len(found) == PER_TYPE * SHARE:
            break
        task = task_type.generate(rng, families=families)
        key = task_type.key(task.payload)
        if key != first:
            found.setdefault(key, task)
    return dict(list(found.items())[: len(found) // SHARE])


def held_out_exam(types: Mapping[str, TaskType], level: str = "held_out") -> Exam:
    """Held-out tasks of all task types, in turn, so that the first N questions cover all types.

    Raises:
        ValueError: If no type has enough different seed tasks to hold out any.
    """
    turns = zip_longest(*(held_out_tasks(one, level) for one in types.values()))
    tasks = [task for turn in turns for task in turn if task is not None]
    if not tasks:
        raise ValueError(
            f"exam {level!r}: {list(types)} have too few different seed tasks to hold any out. Choose another exam."
        )
    return task_exam(level, tasks, types)


def frozen_exam(path: str, types: Mapping[str, TaskType]) -> Exam:
    """Tasks of another run, as an exam.

    Args:
        path (`str`): JSON lines of tasks (`Task.to_json`), or the folder of a run. Of a run, it uses the tasks in its
            buffer that its members wrote.
        types (`Mapping[str, TaskType]`): Task types. Tasks of other types are left out.

    Raises:
        ValueError: If the path holds no task of these types, or a task was altered.
    """
    try:
        if os.path.isdir(path):
            records = [record for record in _stored(path) if not str(record.get("author")).startswith("seed")]
        else:
            with open(path, "rb") as file:
                records = [*parse_objects(file, path)]
    except OSError as error:
        raise ValueError(f"the tasks in {path} cannot be read: {error.strerror}.") from None
    tasks = []
    for number, record in enumerate(records, start=1):
        try:
            tasks += [types[record["type"]].read_task(record)] if record["type"] in types else []
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"{path}: record {number} is no task ({type(error).__name__}: {error}).") from None
    if not tasks:
        raise ValueError(f"{path} holds no task of the types in play, {list(types)}.")
    if others := {record["type"] for record in records} - set(types):
        logger.warning(
            f"tasks:{path}: {len(records) - len(tasks)} of {len(records)} tasks are left out, because their types are "
            f"not in play: {', '.join(sorted(others))}."
        )
    return task_exam(f"tasks:{path}", tasks, types)


def task_exam(name: str, tasks: Iterable[Task], types: Mapping[str, TaskType]) -> Exam:
    """An exam of tasks. Their types make the prompts and judge the answers.

    Raises:
        ValueError: If the type of a task is not among `types`, or there is no task.
    """
    tasks = list(tasks)
    if missing := sorted({task.type for task in tasks} - types.keys()):
        raise ValueError(f"exam {name!r} has tasks of the type {missing[0]!r}, and types are given for {list(types)}.")
    questions = tuple(
        Question(task.id, types[task.type].solve_prompt(task), json.dumps(task.to_json()), task.type) for task in tasks
    )
    return Exam(name, questions, partial(_task_grader, types=dict(types)), of_tasks=True)


def _task_grader(run: Run | None, *, types: Mapping[str, TaskType]) -> Grader:
    from .graders.task_accuracy import TaskAccuracy

    return TaskAccuracy(run, task_types=types)
