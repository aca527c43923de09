"""Small random values, and functions with which families write their programs."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from textwrap import dedent, indent


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
    """An endless iterator of argument tuples. Each is drawn when it is needed."""
    return iter(draw, None)


def define(parameters: str, *lines: str) -> str:
    """Source code of `f`. The lines are those of its body."""
    return f"def f({parameters}):\n" + indent("\n".join(lines), "    ")


def block(text: str) -> str:
    """A whole program, written as an indented block."""
    return dedent(text).strip()


def choose(rng: random.Random, forms: str) -> tuple[str, str]:
    """One of several texts, and its remark.

    Args:
        rng (`random.Random`): Random generator.
        forms (`str`): Indented block of texts, one below the other. The comment at the end of each text is its remark.
    """
    *parts, _ = re.split("(?:  |^)# (.*)\n?", block(forms), flags=re.MULTILINE)
    text, remark = rng.choice(list(zip(parts[::2], parts[1::2])))
    return text.rstrip(), remark


def one_of(rng: random.Random, parameters: str, forms: str, draw: Callable[[], tuple]) -> Sample:
    """One of several programs that take the same arguments.

    Args:
        rng (`random.Random`): Random generator.
        parameters (`str`): Parameters of `f`.
        forms (`str`): Programs and their messages, in the format of [`choose`]. A program without `def f(` is the body
            of `f`.
        draw (`Callable[[], tuple]`): Function that draws arguments.
    """
    program, message = choose(rng, forms)
    return program if "def f(" in program else define(parameters, program), forever(draw), message


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
