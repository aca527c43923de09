"""Settings that are mappings: each stands for a dataclass that says what it may hold.

`None` means the defaults. After construction such a setting holds all its keys, so that what a run records is what it
used.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..evolution import EvolutionSettings
from ..executor import ExecutorSettings
from ..self_play.rewards import RewardSettings
from ..tasks import DEFAULT_TYPES, known_task_types, make_task_types, task_type_class
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


def complete(args: Any) -> None:
    """Give every nested setting all its keys, in place.

    Raises:
        ValueError: Naming the setting, the key and what it must be.
    """
    for name, nested in NESTED.items():
        setattr(args, name, _complete(nested, getattr(args, name), setting=name))
    args.task_kwargs = _task_kwargs(args)


def _task_kwargs(args: Any) -> dict[str, dict[str, Any]]:
    """Settings of every type in play, by id, and of others that are given."""
    if not args.task_types:
        raise ValueError(f"task_types=[] must name at least one type, such as those of the default: {DEFAULT_TYPES}.")
    given = args.task_kwargs or {}
    kinds = {kind.id: kind for kind in map(task_type_class, args.task_types)}
    known = known_task_types()
    check_keys(given, {**kinds, **known}, setting="task_kwargs")
    kinds |= {name: task_type_class(name) for name in given if name not in kinds}
    common = ("style", "num_references")  # those of the run, unless a type has its own
    args_of = {
        name: _complete(
            Nested(kind, without=tuple(one for one in common if one not in (given.get(name) or {}))),
            given.get(name),
            setting=f"task_kwargs.{name}",
        )
        for name, kind in kinds.items()
    }
    make_task_types(args.task_types, kwargs=args_of)  # each only once
    return {name: values for name, values in args_of.items() if values}


def _complete(nested: Nested, given: Mapping[str, Any] | None, *, setting: str) -> dict[str, Any]:
    if not isinstance(given, Mapping | None):
        raise ValueError(f"{setting}={given!r} must be a mapping, or unset.")
    record = from_mapping(nested.record, given, setting=setting, without=nested.without)
    return to_mapping(record, without=nested.without)
