"""Named families of seed programs, from one-liners to small algorithms and classes, roughly in order of difficulty.

A family is a function from a random generator to a program, an endless supply of argument tuples, and one line that
says what the program computes. Programs of one family differ in form as well as in constants. Not here: turning a
sample into a task (`seeds.py`).
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
