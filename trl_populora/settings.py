"""Settings as dataclasses: conversion of values to the types of their fields, and help texts from docstrings.

A command line gives only text, YAML reads `1e-3` as text and `1` as a whole number, and Python accepts anything. This
module converts the value of a field to the type of its hint, or refuses it. It does the same for the keys of a mapping
that becomes a dataclass. The dataclass itself checks whether a value makes sense.
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from functools import cache
from numbers import Integral, Real
from types import MappingProxyType, NoneType, UnionType
from typing import TYPE_CHECKING, Any, TypeVar, Union, get_args, get_origin, get_type_hints


if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Record = TypeVar("Record", bound="DataclassInstance")
Class = TypeVar("Class", bound=type)
WORDS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    list: "a list",
    dict: "a mapping",
}
SEVERAL = {int: " of whole numbers", float: " of numbers", str: " of texts"}
SAME = {tuple: list, Mapping: dict}  # a hint -> what values of it are given as
ENTRY = re.compile(r"^( +)(\w+) \(.+\):((?:\n\1 +\S.*)+)", re.MULTILINE)  # of a docstring: a field and its text
EXPONENT = re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+")  # a number in YAML 1.2, text in YAML 1.1


def documented(cls: Class) -> Class:
    """Class decorator: the text about a field in the docstring of a dataclass becomes its help on the command line.

    A field that the docstring does not describe keeps the help of the parent class.
    """
    told = {name: " ".join(text.split()).replace("%", "%%") for _, name, text in ENTRY.findall(cls.__doc__ or "")}
    before = {
        field.name: field.metadata for base in cls.__mro__[:0:-1] if is_dataclass(base) for field in fields(base)
    }
    for field in fields(cls):
        if field.name in told:
            field.metadata = MappingProxyType({"help": told[field.name]})
        elif not field.metadata:
            field.metadata = before.get(field.name, field.metadata)
    return cls


@cache  # a run asks for them often, and each time they are compiled from text
def hints_of(cls: type) -> dict[str, Any]:
    """Field or attribute -> its type."""
    return get_type_hints(cls)


def conform(settings: Any, *, own: Collection[str], free: Collection[str] = ()) -> None:
    """Give every field of a dataclass the type of its hint, in place.

    A value that does not fit is refused in fields of its own, and in inherited ones that are numbers, true or false,
    or mappings. (Inherited texts and lists may also be paths, choices and objects.)

    A whole number becomes a float if the hint asks for a float, and a number of NumPy becomes one of Python. A single
    text becomes a list if the hint allows only lists. A tuple becomes a list, and JSON text becomes a mapping.

    Args:
        settings (dataclass): Settings as they were given.
        own (`Collection[str]`): Fields that are not inherited.
        free (`Collection[str]`, *optional*): Inherited mappings that may also be the path of a file, or an object.

    Raises:
        ValueError: Naming the field, its value and what it must be.
    """
    hints = hints_of(type(settings))
    for field in fields(settings):
        hint, value = hints[field.name], getattr(settings, field.name)
        strict = field.name in own or (field.name not in free and _is_plain(hint))
        setattr(settings, field.name, _fitted(field.name, value, hint) if strict else _fit(value, hint, strict=False))


def from_mapping(
    record: type[Record], given: Mapping[str, Any] | None, *, setting: str, without: Collection[str] = ()
) -> Record:
    """A dataclass from a mapping of some of its fields, such as a setting of a recipe.

    Args:
        record (dataclass type): What the mapping stands for.
        given (`Mapping[str, Any]`, *optional*): Fields that differ from their defaults, typed as loosely as `conform`
            allows.
        setting (`str`): What the mapping is called in messages.
        without (`Collection[str]`, *optional*): Fields that the mapping cannot set; they keep their defaults.

    Raises:
        ValueError: For an unknown key, a value that does not fit its hint, or one that `record` refuses. It names the
            setting and the key.
    """
    hints = hints_of(record)
    known = [field.name for field in fields(record) if field.init and field.name not in without]
    if given is not None and not isinstance(given, Mapping):
        raise ValueError(f"{setting}={given!r} must be a mapping.")
    values: dict[str, Any] = _numbers(dict(given or {}))
    check_keys(values, known, setting=setting)
    try:
        return record(**{key: _fitted(key, value, hints[key]) for key, value in values.items()})
    except ValueError as error:
        raise ValueError(f"{setting}: {error}") from error


def conform_plain(name: str, value: Any, hint: Any) -> Any:
    """A value in the type of its hint, if that is a number, text, true or false, or one of these or unset. Values with
    other hints stay as they are: only the class that has them can tell.

    Raises:
        ValueError: Naming the setting, its value and what it must be.
    """
    kinds = set(get_args(hint)) if get_origin(hint) in (Union, UnionType) else {hint}
    if not kinds <= {int, float, bool, str, NoneType}:
        return value
    return _fitted(name, value if str in kinds else _numbers(value), hint)


def to_mapping(record: Any, *, without: Collection[str] = ()) -> dict[str, Any]:
    """The inverse of `from_mapping`, with all fields: what JSON and YAML can hold."""
    return {
        field.name: _plain(getattr(record, field.name))
        for field in fields(record)
        if field.init and field.name not in without
    }


def as_mapping(value: dict | str | None) -> dict[str, Any]:
    """A setting that may be given as a mapping, after `conform`; empty if it is unset."""
    return value if isinstance(value, dict) else {}


def check_keys(given: Mapping[str, Any], known: Collection[str], *, setting: str) -> None:
    """Raises `ValueError` for a key that is not known, with the nearest one that is."""
    for key in given:
        if key not in known:
            hint = suggest(key, known) if known else "It has no settings."
            raise ValueError(f"Unknown key {key!r} in {setting}. {hint}")


def suggest(word: object, known: Iterable[str], otherwise: str | None = None) -> str:
    """A sentence for the message about an unknown word.

    Args:
        word (`object`): The word; anything else is compared as text.
        known (`Iterable[str]`): What it could be.
        otherwise (`str`, *optional*): What to say if none of them resembles it; if unset, all of them.
    """
    known = list(known)
    begun = [one for one in known if len(str(word)) > 2 and one.startswith(str(word))]
    near = begun or get_close_matches(str(word), known, n=1)
    if near:
        return f"Did you mean {near[0]!r}?"
    return f"Choose from {known}." if otherwise is None else otherwise


def holds(value: Any, hint: Any) -> bool:
    """Whether data from JSON are of a type, down to their elements. Whole numbers are numbers, lists tuples."""
    plain, origin, inner = _parts(hint)
    if type(value) in plain:
        return True
    if origin in (Union, UnionType):
        return any(holds(value, one) for one in inner)
    if origin in (list, tuple):
        return isinstance(value, (list, tuple)) and all(holds(one, inner[0]) for one in value)
    if origin is dict:
        return isinstance(value, dict) and all(holds(one, inner[1]) for one in value.values())
    return hint is Any or type(value) is hint or (hint is float and type(value) is int)


@cache
def _parts(hint: Any) -> tuple[frozenset[type], Any, tuple]:
    """Plain types of which every value is of this type, its origin, and its arguments."""
    origin, inner = get_origin(hint), get_args(hint)
    kinds = inner if origin in (Union, UnionType) else (hint,)
    plain = {one for one in kinds if one in (str, int, float, bool, NoneType)} | ({int} if float in kinds else set())
    return frozenset(plain), origin, inner


def describe(hint: Any) -> str:
    """What a value of this type is called in a message, such as "a whole number, or unset"."""
    kinds = _kinds(hint)
    words = [WORDS[kind] for kind in kinds if kind in WORDS and not (kind is str and dict in kinds)]
    several = SEVERAL.get(next(iter(get_args(kinds.get(list))), None), "")
    words = [word + several if word == WORDS[list] else word for word in words]
    return " or ".join(words) + (", or unset" if NoneType in kinds else "")


def alternatives(hint: Any) -> tuple:
    """The types that a hint allows: those of a union, or the one that it names."""
    return (hint,) if get_origin(hint) in (list, dict, *SAME) or not get_args(hint) else get_args(hint)


@cache
def _is_plain(hint: Any) -> bool:
    """Whether a hint is that of a number, true or false, or a mapping; and not only of text."""
    kinds = _kinds(hint).keys() - {NoneType}
    return kinds <= {int, float, bool, str, dict} and not kinds <= {str}


@cache
def _kinds(hint: Any) -> dict[type, Any]:
    """The plain types that a hint allows, each with its full hint."""
    origins = ((get_origin(kind) or kind, kind) for kind in alternatives(hint))
    return {SAME.get(origin, origin): kind for origin, kind in origins}


def _fitted(name: str, value: Any, hint: Any) -> Any:
    fitted = _fit(value, hint, strict=True)
    if not _fits(fitted, hint):
        raise ValueError(f"{name}={value!r} must be {describe(hint)}{_as_text(value, hint)}.")
    return fitted


def _as_text(value: Any, hint: Any) -> str:
    """How to write a mapping, if a text was given for one."""
    if not isinstance(value, str) or dict not in _kinds(hint):
        return ""
    key, _, one = value.partition("=") if re.fullmatch(r"\w+=[\w.+-]+", value) else ("name", "", "1")
    return f", such as '{{\"{key}\": {one}}}' on the command line (JSON), or {{{key}: {one}}} in a recipe (YAML)"


def _fit(value: Any, hint: Any, *, strict: bool) -> Any:
    kinds = _kinds(hint)
    if isinstance(value, Real) and not isinstance(value, bool):  # also those of NumPy
        if int in kinds and isinstance(value, Integral):
            return int(value)
        if float in kinds:
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
    if kinds[:1] != (float,):
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
    kinds = _kinds(hint)
    if isinstance(value, str) and dict in kinds and list not in kinds:  # text is then JSON that could not be read
        return False
    if isinstance(value, list) and list in kinds:
        wanted = get_args(kinds[list])
        return not wanted or all(type(one) in wanted for one in value)
    return type(value) in kinds


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, (list, tuple)) else value
