"""One form for every setting, whichever way it came: constructor, recipe or command line.

A command line knows text only, YAML reads `1e-3` as text and `1` as a whole number, and Python takes anything. Here a
value becomes what its type hint says, or is refused. Whether a value makes sense is decided in `checks`.
"""

import json
import re
from collections.abc import Collection, Iterable
from dataclasses import fields
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints


WORDS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    list: "a list",
    dict: "a mapping",
}
EXPONENT = re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+")  # a number in YAML 1.2, text in YAML 1.1


def conform(settings: Any, *, own: Collection[str]) -> None:
    """Give every field of a dataclass the type of its hint, in place.

    Whole numbers become floats where floats are wanted, a lone text becomes a list of one where only lists are, a
    tuple becomes a list, and JSON text becomes a mapping.

    Args:
        settings (dataclass): Settings as they were given.
        own (`Collection[str]`): Fields that are refused if they do not fit.

    Raises:
        ValueError: Naming the field, its value and what it must be.
    """
    hints = get_type_hints(type(settings))
    for field in fields(settings):
        hint, value = hints[field.name], getattr(settings, field.name)
        fitted = _fit(value, hint, strict=field.name in own)
        if field.name in own and not _fits(fitted, hint):
            raise ValueError(f"{field.name}={value!r} must be {describe(hint)}.")
        setattr(settings, field.name, fitted)


def describe(hint: Any) -> str:
    """What a value of this type is called in a message, such as "a whole number, or unset"."""
    kinds = [get_origin(kind) or kind for kind in alternatives(hint)]
    words = [WORDS[kind] for kind in kinds if kind in WORDS and not (kind is str and dict in kinds)]
    return " or ".join(words) + (", or unset" if NoneType in kinds else "")


def alternatives(hint: Any) -> tuple:
    """The types that a hint allows: those of a union, or the one that it names."""
    return (hint,) if get_origin(hint) in (list, dict) or not get_args(hint) else get_args(hint)


def _fit(value: Any, hint: Any, *, strict: bool) -> Any:
    kinds = {get_origin(kind) or kind: kind for kind in alternatives(hint)}
    if float in kinds and int not in kinds and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if list in kinds:
        if isinstance(value, str) and str not in kinds:
            value = [value]
        if isinstance(value, (list, tuple)):
            return _elements(value, get_args(kinds[list]))
    if dict in kinds:
        if strict and isinstance(value, str):
            try:
                value = json.loads(value)
            except ValueError:
                return value
        if isinstance(value, dict):
            return _numbers(value)
    return value


def _elements(values: Iterable, kinds: tuple) -> list:
    values = list(values)
    if kinds != (float,):
        return values
    try:
        return [value if isinstance(value, bool) else float(value) for value in values]
    except (TypeError, ValueError):
        return values


def _numbers(value: Any) -> Any:
    """Text such as "1e-3" inside a mapping to the number that YAML meant."""
    if isinstance(value, dict):
        return {key: _numbers(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_numbers(one) for one in value]
    return float(value) if isinstance(value, str) and EXPONENT.fullmatch(value) else value


def _fits(value: Any, hint: Any) -> bool:
    kinds = {get_origin(kind) or kind: kind for kind in alternatives(hint)}
    if isinstance(value, str) and dict in kinds:
        return False
    if isinstance(value, list) and list in kinds:
        wanted = get_args(kinds[list])
        return not wanted or all(type(one) in wanted for one in value)
    return type(value) in kinds
