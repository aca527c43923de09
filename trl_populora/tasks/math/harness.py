"""The program that judges answers with math-verify. Runs in children of a fork server only, never in the trainer.

`Job("from <this module> import judge as f", ((numerator, denominator, answer), ...), modules=(<this module>,))` gives
one bool a call. The answer is data: of math-verify's readers only the one for LaTeX is used, a grammar; the one for
plain expressions hands text to sympy's `parse_expr`, which evaluates it. math-verify's own time limits need signals,
which a child may not set; it runs without them, under the limits of the job. A child can import nothing either, so
this module judges a few answers when the fork server imports it: that loads what sympy and math-verify load at first
use, and fills the caches of the parser.
"""

from __future__ import annotations

import logging

from math_verify import LatexExtractionConfig, parse, verify
from sympy import Basic, Integer, Mul, Number, Pow, Rational, Symbol, UnevaluatedExpr
from sympy import FiniteSet as Set
from sympy.core.relational import Equality
from sympy.logic.boolalg import And


_HUNDREDTH = UnevaluatedExpr(Rational(1, 100))
_MOST_EXPONENT = 30  # of a power of ten
_FORMS = (
    r"\frac{1}{2}",
    r"\frac12",
    "1/2",
    "0.5",
    r"50\%",
    r"12.5\%",
    "x=3",
    "1+2=3",
    r"1\frac{1}{2}",
    r"1.2\times10^3",
)
_FORMS += (
    "10^6",
    "1,000",
    "-2",
    r"3\text{ cm}^2",
    "3 km",
    r"\{3\}",
    "(3)",
    "5 or 6",
    r"\pm3",
    r"\sqrt{3}",
    r"\pi",
    "3x",
    "x<3",
)
_FORMS += (
    r"3^{\circ}",
    r"\mathbf{3}",
    r"\text{three}",
    "[1, 2)",
    "2.5",
    r"\approx 3",
    "abc",
    r"\infty",
    "3!",
    r"\frac",
    "|3|",
)


def judge(numerator: int, denominator: int, answer: str) -> bool:
    """
    Whether an answer is a number and the right one.

    Args:
        numerator (`int`): Of the right answer.
        denominator (`int`): Of the right answer.
        answer (`str`): LaTeX, without dollar signs and line breaks.

    Returns:
        `bool`: what `verify(right, answer)` says, and for a percentage what it says of one of its two readings.
    """
    right = Rational(numerator, denominator)
    found = parse(f"${answer}$", (LatexExtractionConfig(),), fallback_mode="no_fallback", parsing_timeout=0)
    readings = [reading for value in found for reading in _readings(value)]
    return any(verify(right, reading, timeout_seconds=None) for reading in readings)


def _readings(value: Basic) -> list[Basic]:
    """The value if it is written as a number; of a percentage also the number before the sign; nothing otherwise.

    What math-verify parses is not evaluated, so `2 + 3` is a sum here: an answer that leaves the work to the judge.
    """
    while isinstance(value, (Equality, And, Set)):  # x = 5, 2 + 3 = 5, {5}: as `verify` reads them
        if isinstance(value, Set) and len(value.args) != 1:
            return []
        value = getattr(value, "_unsorted_args", value.args)[-1] if isinstance(value, And) else value.args[-1]
    if isinstance(value, Mul) and len(value.args) == 2 and value.args[1] == _HUNDREDTH:
        return [value, value.args[0]] if _is_number(value.args[0]) else []
    return [value] if _is_number(value) else []


def _is_number(value: Basic) -> bool:
    """A number, perhaps with a sign, as a ratio of two, or times a power of ten. A symbol stands for `\\text{...}`."""
    if isinstance(value, (Number, Symbol)):
        return True
    if isinstance(value, Pow):
        base, exponent = value.args
        power = base == 10 and isinstance(exponent, Integer) and abs(exponent) <= _MOST_EXPONENT
        return power or exponent == -1 and isinstance(base, Number)
    if isinstance(value, Mul):
        factors = [factor for factor in value.args if factor != -1]
        plain = [factor for factor in factors if isinstance(factor, Number)]
        return len(factors) <= 2 and len(plain) <= 1 and all(map(_is_number, factors))
    return False


logging.disable()
for _form in _FORMS:
    judge(1, 2, _form)
    judge(3, 1, _form)
