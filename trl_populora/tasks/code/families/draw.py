"""Small random values and the three lines of source that most families need."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from textwrap import dedent


# What a family returns: source of a program, an endless supply of argument tuples, and one line that says what f does.
Sample = tuple[str, Iterator[tuple], str]
Family = Callable[[random.Random], Sample]

WORDS = tuple(
    """
    red blue green sun moon star tree leaf root cat dog bird fish wolf bear milk bread salt corn rice river stone hill
    road lake cloud rain snow wind fire table chair lamp door glass paper ink book song drum
    """.split()  # noqa: SIM905
)


def forever(draw: Callable[[], tuple]) -> Iterator[tuple]:
    """An endless supply of argument tuples, drawn only when asked for."""
    return iter(draw, None)


def define(parameters: str, *lines: str) -> str:
    """Source of `f`. Lines are relative to its body."""
    return f"def f({parameters}):\n" + "\n".join(f"    {line}" for line in lines)


def source(*lines: str) -> str:
    return "\n".join(lines)


def block(text: str) -> str:
    """A whole program, written as an indented block."""
    return dedent(text).strip()


def integer(rng: random.Random, low: int = 0, high: int = 9) -> int:
    return rng.randint(low, high)


def ints(rng: random.Random, low: int = 0, high: int = 9, *, least: int = 3, most: int = 5) -> list[int]:
    return [rng.randint(low, high) for _ in range(rng.randint(least, most))]


def floats(rng: random.Random, *, least: int = 2, most: int = 5) -> list[float]:
    return [rng.randint(-40, 80) / 4 for _ in range(rng.randint(least, most))]


def letters(rng: random.Random, alphabet: str = "abc", *, least: int = 3, most: int = 6) -> str:
    return "".join(rng.choice(alphabet) for _ in range(rng.randint(least, most)))


def word(rng: random.Random) -> str:
    return rng.choice(WORDS)


def words(rng: random.Random, *, least: int = 2, most: int = 5) -> list[str]:
    return [rng.choice(WORDS) for _ in range(rng.randint(least, most))]


def sentence(rng: random.Random, *, least: int = 2, most: int = 5) -> str:
    return " ".join(words(rng, least=least, most=most))
