"""Settings that are mappings: each stands for a dataclass that says what it may hold.

`None` means the defaults. After construction such a setting holds all its keys, so that what a run records is what it
used.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..evolution import EvolutionSettings
from ..executor import ExecutorSettings
from ..self_play.rewards import RewardSettings
from ..tasks import TaskLimits, task_types
from .conform import check_keys, from_mapping, to_mapping


class Nested(NamedTuple):
    """A dataclass that a mapping stands for, and those of its fields that are settings of their own."""

    record: type
    without: tuple[str, ...] = ()


NESTED = {
    "evolution_kwargs": Nested(EvolutionSettings, without=("interval",)),
    "executor_kwargs": Nested(ExecutorSettings),
    "reward_kwargs": Nested(RewardSettings, without=("teacher",)),
}
"""Setting -> what it stands for."""

TASKS = {"limits": Nested(TaskLimits)} | {
    name: Nested(type(kind), without=("style", "limits", "num_references")) for name, kind in task_types().items()
}
"""Key of `task_kwargs` -> what it stands for: the limits of all types, and each type by its name."""


def complete(args: Any) -> None:
    """Give every nested setting all its keys, in place.

    Raises:
        ValueError: Naming the setting, the key and what it must be.
    """
    for name, nested in NESTED.items():
        setattr(args, name, _complete(nested, getattr(args, name), setting=name))
    given = args.task_kwargs or {}
    check_keys(given, TASKS, setting="task_kwargs")
    whole = {key: _complete(nested, given.get(key), setting=f"task_kwargs.{key}") for key, nested in TASKS.items()}
    args.task_kwargs = {key: values for key, values in whole.items() if values}


def _complete(nested: Nested, given: Mapping[str, Any] | None, *, setting: str) -> dict[str, Any]:
    if not isinstance(given, Mapping | None):
        raise ValueError(f"{setting}={given!r} must be a mapping, or unset.")
    record = from_mapping(nested.record, given, setting=setting, without=nested.without)
    return to_mapping(record, without=nested.without)
