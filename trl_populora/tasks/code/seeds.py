"""Seed tasks: programs drawn from the families with their outputs, and the identity seed.

The programs of `families/` are ours. So this module runs them with a plain `exec` in this process to get their
outputs, thousands per second. Programs of models or users must never be run here: they go to the executor. The tests
also run every family through the executor and compare.
"""

from __future__ import annotations

import marshal
import random
from collections.abc import Iterable, Iterator
from itertools import islice

from trl_populora.executor import canonical, literals
from trl_populora.tasks.code.families import FAMILIES
from trl_populora.tasks.code.payload import CodePayload


MAX_DRAWS = 100  # redraws before a family or a set of families counts as too small for what is asked

_IDENTITY = "def f(x):\n    return x"
_IDENTITY_MESSAGE = "Give back what comes in, unchanged."
_IDENTITY_INPUTS = ("'seed'", "1", "[1, 2]", "{'a': 0}", "(2.5, None)", "'[3]'", "True", "-40", "''", "{7}")


def draw(family: str, rng: random.Random, count: int, *, with_message: bool) -> CodePayload | None:
    """A program of a family with `count` different inputs, or `None` if the family varies too little.

    Equal states of `rng` give equal payloads.
    """
    program, supply, message = FAMILIES[family](rng)
    inputs = _distinct(supply, count)
    if inputs is None:
        return None
    outputs = _run_trusted(program, inputs.values())
    return CodePayload(program, tuple(inputs), outputs, message if with_message else "")


def identity(count: int, *, with_message: bool) -> CodePayload:
    """The zero-data seed: `count` pairs of the identity function."""
    extra = (str(number) for number in range(100, 100 + count))
    texts = tuple(islice((*_IDENTITY_INPUTS, *extra), count))
    return CodePayload(_IDENTITY, texts, texts, _IDENTITY_MESSAGE if with_message else "")


def _distinct(supply: Iterator[tuple], count: int) -> dict[str, tuple] | None:
    """`count` different argument tuples under their literal texts, or `None` if the supply varies too little."""
    found: dict[str, tuple] = {}
    for arguments in islice(supply, MAX_DRAWS + 10 * count):
        found.setdefault(", ".join(map(_text, arguments)), arguments)
        if len(found) == count:
            return found
    return None


def _run_trusted(program: str, inputs: Iterable[tuple]) -> tuple[str, ...]:
    """Output texts of one of our own programs. Every call gets a copy of its arguments, which it may change."""
    scope: dict = {"__name__": "seed"}
    exec(program, scope)  # a program of this package, never one from outside
    outputs = [scope["f"](*marshal.loads(marshal.dumps(arguments))) for arguments in inputs]
    # Through the canonical form, as the executor's results go: dicts come out sorted by key.
    return tuple(_text(canonical.decode(canonical.encode(output))) for output in outputs)


def _text(value: object) -> str:
    """`literals.to_literal` for our own values, at the speed of `repr` where no dict or set is in play."""
    text = repr(value)
    return literals.to_literal(value) if "{" in text or "set" in text else text
