"""Named families of seed programs, from one-line programs to small algorithms and classes, roughly ordered by
difficulty.

A family is a function. It gets a random generator and returns a program, an endless iterator of argument tuples, and
one line that says what the program computes. Programs of a family differ in form and in constants. `seeds.py` makes
tasks from these samples.
"""

from __future__ import annotations

from trl_populora.tasks.code.families.chains import CHAINS
from trl_populora.tasks.code.families.classes import CLASSES
from trl_populora.tasks.code.families.classics import CLASSICS
from trl_populora.tasks.code.families.draw import Family, Sample
from trl_populora.tasks.code.families.easy import EASY
from trl_populora.tasks.code.families.numbers import NUMBERS
from trl_populora.tasks.code.families.sequences import SEQUENCES
from trl_populora.tasks.code.families.strings import STRINGS
from trl_populora.tasks.code.families.structures import STRUCTURES
from trl_populora.tasks.code.families.tables import TABLES


EASY_FAMILIES: tuple[str, ...] = tuple(family.__name__ for family in EASY)
DEFAULT_FAMILIES: tuple[str, ...] = tuple(
    family.__name__ for family in (*EASY, *SEQUENCES, *STRINGS, *TABLES, *NUMBERS, *STRUCTURES, *CLASSES, *CLASSICS)
)
FAMILIES: dict[str, Family] = {
    family.__name__: family
    for family in (*EASY, *SEQUENCES, *STRINGS, *TABLES, *NUMBERS, *STRUCTURES, *CLASSES, *CLASSICS, *CHAINS)
}

__all__ = ["DEFAULT_FAMILIES", "EASY_FAMILIES", "FAMILIES", "Family", "Sample"]
