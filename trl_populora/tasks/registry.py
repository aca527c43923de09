"""Finds task types by name: those of this package, those of other packages, and classes by module and name.

`BUILT_IN` is the only list of types. No other module contains names of types.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from importlib.metadata import entry_points
from typing import Any, get_type_hints

from trl_populora.extras import MissingPackageError
from trl_populora.named import named
from trl_populora.settings import check_keys, conform_plain, suggest, to_mapping
from trl_populora.tasks.base import TaskType


BUILT_IN = {
    "code_o": "trl_populora.tasks.code:CodeO",
    "code_i": "trl_populora.tasks.code:CodeI",
    "code_f": "trl_populora.tasks.code:CodeF",
    "math": "trl_populora.tasks.math:MathWord",
    "countdown": "trl_populora.tasks.countdown:Countdown",
    "sql": "trl_populora.tasks.sql:Sql",
}
"""Types that come with the package: id -> class."""
DEFAULT_TYPES = ("code_o", "code_i", "code_f")
"""Task types of a run that names none: those of Absolute Zero."""
GROUP = "trl_populora.task_types"
"""Entry points of other packages: the name is the id, the value `module:Class`."""


def known_task_types() -> dict[str, str]:
    """Id -> `module:Class` of the types of this package and of other installed packages.

    It reads the metadata of every installed package, which takes several milliseconds each time.
    """
    return {**{point.name: point.value for point in entry_points(group=GROUP)}, **BUILT_IN}


def task_type_class(name: str) -> type[TaskType]:
    """
    The class of a type by its name.

    Args:
        name (`str`): Id of a type of this package or of an installed one, or `"module:Class"`.

    Raises:
        ValueError: If there is no such type, or the object is not a task type.
    """
    path = name if ":" in name else BUILT_IN.get(name) or known_task_types().get(name)
    if path is None:
        own = "A class of your own is named 'module:Class'."
        raise ValueError(f"task type {name!r} is unknown. {suggest(name, sorted(known_task_types()))} {own}")
    found = named(path, label=f"task type {name!r}", form="an id, or 'module:Class'")
    if not (inspect.isclass(found) and issubclass(found, TaskType)):
        raise ValueError(f"task type {name!r} is {found!r}, not a subclass of trl_populora.tasks.TaskType.")
    missing = [*sorted(found.__abstractmethods__), *(one for one in ("id", "payload") if not hasattr(found, one))]
    if missing:
        raise ValueError(f"task type {name!r}: {found.__name__} does not define {', '.join(missing)}.")
    return found


def make_task_types(
    names: Sequence[str | TaskType] = DEFAULT_TYPES,
    *,
    style: str = "full",
    num_references: int | None = None,
    kwargs: Mapping[str, Mapping[str, Any] | None] | None = None,
) -> dict[str, TaskType]:
    """
    Creates task types.

    Args:
        names (`Sequence[str | TaskType]`, *optional*, defaults to the three Python types):
            Ids, `"module:Class"`, or instances, which are used without changes.
        style (`str`, *optional*, defaults to `"full"`):
            Wording of the prompts, `"full"` or `"compact"`; see [`TaskType`].
        num_references (`int`, *optional*):
            Reference tasks per proposal prompt. Default: 6 in the full style, 1 in the compact style.
        kwargs (`Mapping[str, Mapping]`, *optional*):
            Id of a type -> keyword arguments of its class. Those of known types that are not in `names` are ignored.

    Returns:
        `dict[str, TaskType]`: Types by id, in the order of `names`.

    Raises:
        ValueError: If a name or a keyword argument is unknown, or two types have the same id.
    """
    kwargs, types = dict(kwargs or {}), {}
    alone = isinstance(names, (str, TaskType))
    if alone or not names or not all(isinstance(name, (str, TaskType)) for name in names):
        given = names if isinstance(names, (list, tuple)) else ()
        classes = [one.__name__ for one in given if isinstance(one, type) and issubclass(one, TaskType)]
        hint = f" {classes[0]} is a class: write {classes[0]}()." if classes else ""
        raise ValueError(f"task_types={names!r} must be a list of names or objects of subclasses of TaskType.{hint}")
    for name in names:
        kind = type(name) if isinstance(name, TaskType) else task_type_class(name)
        if kind.id in BUILT_IN and task_type_class(kind.id) is not kind:
            raise ValueError(f"{kind.__qualname__} has the id {kind.id!r} of a type of this package: give it another.")
        if isinstance(name, TaskType):
            made = name
            own, there = kwargs.pop(made.id, None) or {}, to_mapping(made)
            usual = {field.name: field.default for field in fields(made)}
            if any(value not in (there.get(name), usual.get(name)) for name, value in own.items()):
                raise ValueError(f"settings of {made.id!r} are not used: it was passed as an object. Set them there.")
        else:
            made = _make(kind, {"style": style, "num_references": num_references}, kwargs.pop(kind.id, {}))
        if made.id in types:
            raise ValueError(
                f"two task types have the id {made.id!r}: {types[made.id]!r} and {made!r}. Name each once."
            )
        types[made.id] = made
    foreign = set(kwargs) - set(BUILT_IN)
    if unknown := sorted(foreign - set(known_task_types())) if foreign else []:
        raise ValueError(f"task_kwargs has settings of unknown task types {unknown}; in play are {list(types)}.")
    return types


def recorded(types: Sequence[TaskType]) -> tuple[list[str], dict[str, dict[str, Any] | None]]:
    """
    Names and keyword arguments with which [`make_task_types`] creates these types again.

    A type of this package or of an installed one is named by its id, any other type by `"module:Class"`. Keyword
    arguments that are not plain data cannot be stored, so they become `None`.
    """
    known, names, kwargs = known_task_types(), [], {}
    for one in types:
        by_id = one.id in known and task_type_class(one.id) is type(one)
        names.append(one.id if by_id else f"{type(one).__module__}:{type(one).__qualname__}")
        own = {field.name: getattr(one, field.name) for field in fields(one) if field.init}
        common = ("style", "num_references")  # always written: a run has its own for types that it makes
        own = {n: value for n, value in own.items() if n in common or value != getattr(type(one), n, None)}
        try:
            kwargs[one.id] = json.loads(json.dumps(own))
        except (TypeError, ValueError):
            kwargs[one.id] = None
    return names, kwargs


def families_of(types: Mapping[str, TaskType], families: Sequence[str] | None) -> dict[str, tuple[str, ...] | None]:
    """
    The families of a run for each type; `None` for those that a type uses by default.

    A type that has none of these families uses its default ones.

    Raises:
        ValueError: If no type has a family of that name.
    """
    known = {name for one in types.values() for name in one.families}
    unknown = sorted(set(families or ()) - known)
    if unknown or (families is not None and not families):
        hint = f"Choose from {sorted(known)}, or leave the setting out for the default ones."
        hint = suggest(unknown[0], known, hint) if unknown else hint
        raise ValueError(f"seed_families={families}: there are no seed families {unknown} of {list(types)}. {hint}")
    return {
        name: tuple(family for family in families or () if family in one.families) or None
        for name, one in types.items()
    }


def _make(kind: type[TaskType], common: Mapping[str, Any], own: Mapping[str, Any] | None) -> TaskType:
    if own is None:
        raise ValueError(
            f"task type {kind.id!r} was made in Python with settings that could not be recorded. Make it there again: "
            f"task_types=[{kind.__name__}(...)]."
        )
    if not isinstance(own, Mapping):
        raise ValueError(f"settings of task type {kind.id!r} must be a mapping of names to values, got {own!r}.")
    setting, defaults = f"settings of task type {kind.id!r}", {field.name: field.default for field in fields(kind)}
    check_keys(own, [field.name for field in fields(kind) if field.init], setting=setting)
    try:
        hints = get_type_hints(kind) if own else {}
    except Exception:  # hints of a user's that only a type checker can read
        hints = {}
    unset = {name for name, value in own.items() if value is None and defaults[name] is None}
    try:
        checked = {name: conform_plain(name, own[name], hints.get(name, Any)) for name in own.keys() - unset}
        return kind(**{**common, **own, **checked})
    except MissingPackageError:
        raise
    except (TypeError, ValueError) as error:
        raise ValueError(f"{setting}: {error}") from None
