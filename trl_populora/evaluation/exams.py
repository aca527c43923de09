"""From names to exams: `held_out`, `held_out_easy`, `tasks:PATH`, a benchmark's id, or `module:Name`; each may end in
`[:N]` for its first N questions, and a benchmark with dates before that in `[2024-08-01:2025-02-01]`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import date
from typing import Any, NamedTuple

from ..extras import MissingPackageError
from ..run_files.layout import TABLE_SUFFIX
from ..settings import suggest
from ..tasks import TaskType, make_task_types
from ..tasks.registry import BUILT_IN as TYPES
from .benchmarks import BUILT_IN, Benchmark, Window, benchmark
from .exam import Exam
from .held_out import LEVELS, frozen_exam, held_out_exam, task_keys


_DAY = r"\d{4}-\d\d-\d\d"


def make_exams(
    names: Sequence[str], types: Mapping[str, TaskType], *, data: str | None = None, limit: int | None = None
) -> list[Exam]:
    """
    Makes exams from their names.

    Args:
        names (`Sequence[str]`): Names of exams, such as `["held_out", "gsm8k[:50]"]`.
        types (`Mapping[str, TaskType]`): Task types, for exams of tasks.
        data (`str`, *optional*): Folder with the files of benchmarks; the Hub if unset.
        limit (`int`, *optional*): Use only this number of first questions of each exam.

    Raises:
        ValueError: If a name is unknown or occurs twice, its data cannot be read, its grader needs a package
            that is not installed, or there is no question.
    """
    if isinstance(names, str) or len(set(names)) < len(names):
        raise ValueError(f"exams={names!r} must be a list of names, each once.")
    for name in names:
        check_grader(name)
    exams = [make_exam(name, types, data=data, limit=limit) for name in names]
    different = dict.fromkeys(exam.name for exam in exams)
    if len(different) < len(exams):
        limited = "" if limit is None else f" with limit={limit}"
        raise ValueError(
            f"{list(names)}{limited}: these names give only the exams {list(different)}. Name each exam once."
        )
    files: dict[str, str] = {}
    for exam in exams:
        if (other := files.setdefault(exam.file_stem, exam.name)) != exam.name:
            raise ValueError(
                f"the exams {other!r} and {exam.name!r} would both write {exam.file_stem}{TABLE_SUFFIX}: name one "
                "of them otherwise."
            )
    return exams


def exam_keys(names: Sequence[str], types: Mapping[str, TaskType]) -> set[str]:
    """Keys of the tasks in the exams of these names. Benchmarks have no tasks, and their data are not read.

    Raises:
        ValueError: As [`make_exams`] does.
    """
    exams = [
        make_exam(name, _every_type(types) if name.startswith("tasks:") else types)
        for name in names
        if not isinstance(_made_by(name), Benchmark)
    ]
    return {key for exam in exams for key in task_keys(exam, types)}


def _every_type(types: Mapping[str, TaskType]) -> Mapping[str, TaskType]:
    """These types, and those of this package that have what they need: files of tasks may hold any."""
    found: dict[str, TaskType] = {}
    for name in TYPES:
        with suppress(MissingPackageError):
            found |= make_task_types([name])
    return {**found, **types}


def needs_task_types(name: str) -> bool:
    """Whether the exam of this name is made of tasks."""
    return _split(name).whole in LEVELS or name.startswith("tasks:")


def check_grader(name: str) -> None:
    """Refuse a benchmark whose answers could not be graded here; its data are not read.

    Raises:
        ValueError: If its grader needs a package that is not installed, with the command that installs it.
    """
    if isinstance(found := _made_by(name), Benchmark):
        found.check_grader()


def make_exam(name: str, types: Mapping[str, TaskType], *, data: str | None = None, limit: int | None = None) -> Exam:
    """One exam; see [`make_exams`]."""
    whole, window, count = _split(name)
    counts = [most for most in (count, limit) if most is not None]
    if needs_task_types(name):
        if not types:
            raise ValueError(
                f"exam {name!r} needs task types, and there are none: name some (`populora evaluate`: --types), or "
                "choose a benchmark."
            )
        exam = held_out_exam(types, whole) if whole in LEVELS else frozen_exam(whole.removeprefix("tasks:"), types)
    elif (found := _made_by(name)) is not None:
        few = min(counts, default=None)
        exam = found.exam(data, limit=few, window=window) if isinstance(found, Benchmark) else _called(name, found)
        own = exam.name.partition("[")[0]
        if own in LEVELS or (own in BUILT_IN and found != benchmark(own)):
            raise ValueError(f"exam {name!r} calls itself {exam.name!r}, as an exam of this package does: rename it.")
    else:
        raise ValueError(
            f"exam {name!r} is unknown. {suggest(whole, [*LEVELS, *BUILT_IN])} Frozen tasks are named 'tasks:PATH', a "
            "benchmark or exam of yours 'module:Name'; '[:N]' at the end takes the first N questions, "
            "'[2024-08-01:2025-02-01]' those of these dates."
        )
    for most in counts:
        exam = exam.first(most)
    return exam


def _called(name: str, function: Callable[[], Any]) -> Exam:
    try:
        exam = function()
    except MissingPackageError:
        raise
    except Exception as error:  # a user's
        raise ValueError(
            f"exam {name!r}: {_split(name).whole}() failed ({type(error).__name__}: {error}). It is called without "
            "arguments and returns an Exam."
        ) from error
    if not isinstance(exam, Exam):
        raise ValueError(f"exam {name!r}: {_split(name).whole} gives {exam!r}, not a trl_populora.evaluation.Exam.")
    exam.make_grader(None)  # refused now if it cannot be made
    return exam


def _made_by(name: str) -> Any:
    """The benchmark or the function behind an exam's name; `None` for exams of tasks and unknown names. Raises
    `ValueError` if it has no dates and the name has some."""
    whole, window, _ = _split(name)
    of_tasks = needs_task_types(name)
    found = benchmark(whole) if not of_tasks and (":" in whole or whole in BUILT_IN) else None
    if window and (of_tasks or found) and not getattr(found, "date_column", None):
        raise ValueError(f"exam {name!r}: {whole} has no dates. Leave {window} out.")
    return found


class _Parts(NamedTuple):
    whole: str
    window: Window | None
    count: int | None


def _split(name: str) -> _Parts:
    """`"livecodebench[2024-08-01:][:50]"` as its parts. Raises `ValueError` for other brackets."""
    whole, window, count = name, None, None
    if found := re.search(r"\[:(\d+)\]\Z", whole):
        whole, count = whole[: found.start()], int(found[1])
    found = re.search(rf"\[({_DAY})?:({_DAY})?\]\Z", whole)
    if found and any(found.groups()):
        whole, window = whole[: found.start()], Window(_day(name, found[1]), _day(name, found[2]))
        if window.start and window.end and window.end < window.start:
            raise ValueError(f"exam {name!r}: {window.end} is before {window.start}. Name the first date first.")
    if whole.endswith("]") and not whole.startswith("tasks:"):
        raise ValueError(
            f"exam {name!r}: {whole[whole.find('[') :]} is neither '[:50]', for the first questions, nor a window of "
            "dates such as '[2024-08-01:2025-02-01]', which comes first if there are both."
        )
    return _Parts(whole, window, count)


def _day(name: str, text: str | None) -> date | None:
    try:
        return date.fromisoformat(text) if text else None
    except ValueError as error:
        raise ValueError(f"exam {name!r}: {text} is no date ({error}).") from None
