"""Plain Python values as JSON and back. JSON has no tuples, sets and complex numbers; here they are tagged objects."""

from __future__ import annotations

from typing import Any


def to_json(value: Any) -> Any:
    """
    A value for `json.dumps`: numbers, text, `None` and lists as they are; what JSON lacks, and dicts, as an object
    with one key, the name of its type.

    Raises:
        TypeError: If the value holds another type.
    """
    kind = type(value)
    if kind in (int, float, str, bool, type(None)):
        return value
    if kind is list:
        return [to_json(one) for one in value]
    if kind is tuple:
        return {"tuple": [to_json(one) for one in value]}
    if kind is set:
        return {"set": [to_json(one) for one in value]}
    if kind is dict:
        return {"dict": [[to_json(key), to_json(one)] for key, one in value.items()]}
    if kind is complex:
        return {"complex": [value.real, value.imag]}
    raise TypeError(f"{kind.__name__} is no type of a test's value")


def from_json(value: Any) -> Any:
    """The value that [`to_json`] wrote."""
    if type(value) is list:
        return [from_json(one) for one in value]
    if type(value) is not dict:
        return value
    ((kind, parts),) = value.items()
    if kind == "dict":
        return {from_json(key): from_json(one) for key, one in parts}
    if kind == "complex":
        return complex(*parts)
    return {"tuple": tuple, "set": set}[kind](from_json(one) for one in parts)
