"""Judges answers with math-verify. It runs only in children of a fork server, never in the trainer's process.

`Job("from <this module> import judge as f", ((numerator, denominator, answer), ...), modules=(<this module>,))`
returns one bool for each call.

The answer is data. math-verify has two parsers, and only the one for LaTeX is used, which is a grammar. The other one
passes text to sympy's `parse_expr`, which evaluates it. math-verify's own time limits need signals, which a child may
not use. So it runs without them, under the limits of the job.

A child cannot import anything. So this module judges a few answers when the fork server imports it. This loads what
sympy and math-verify load at first use, and fills the caches of the parser.
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
    r"\frac{1}{2} ~ \frac12 ~ 1/2 ~ 0.5 ~ 50\% ~ 12.5\% ~ x=3 ~ 1+2=3 ~ 1\frac{1}{2} ~ 1.2\times10^3 ~ 10^6 ~ 1,000"
    r" ~ -2 ~ 3\text{ cm}^2 ~ 3 km ~ \{3\} ~ (3) ~ 5 or 6 ~ \pm3 ~ \sqrt{3} ~ \pi ~ 3x ~ x<3 ~ 3^{\circ} ~ \mathbf{3}"
    r" ~ \text{three} ~ [1, 2) ~ 2.5 ~ \approx 3 ~ abc ~ \infty ~ 3! ~ \frac ~ |3| ~ \frac{1}{2}=0.5"
)


def judge(numerator: int, denominator: int, answer: str) -> bool:
    """
    Whether an answer is a number and the right one.

    Args:
        numerator (`int`): Of the right answer.
        denominator (`int`): Of the right answer.
        answer (`str`): LaTeX, without dollar signs and line breaks.

    Returns:
        `bool`: The result of `verify(right, answer)`. A percentage has two readings, of which one must be right.
    """
    right = Rational(numerator, denominator)
    found = parse(f"${answer}$", (LatexExtractionConfig(),), fallback_mode="no_fallback", parsing_timeout=0)
    readings = [reading for value in found for reading in _readings(value)]
    return any(verify(right, reading, timeout_seconds=None) for reading in readings)


def _readings(value: Basic) -> list[Basic]:
    """The value, if it is written as a number. For a percentage also the number before the sign. Otherwise nothing.

    math-verify does not evaluate what it parses. So `2 + 3` is a sum here, which is not accepted as an answer.
    """
    while isinstance(value, (Equality, And, Set)):  # x = 5, 2 + 3 = 5, {5}: as `verify` reads them
        if isinstance(value, Equality) and isinstance(value.lhs, Number) and not _same(value.lhs, value.rhs):  # 8 = 7
            return []
        if isinstance(value, Set) and len(value.args) != 1:
            return []
        value = getattr(value, "_unsorted_args", value.args)[-1] if isinstance(value, And) else value.args[-1]
    if isinstance(value, Mul) and len(value.args) == 2 and value.args[1] == _HUNDREDTH:
        return [value, value.args[0]] if _is_number(value.args[0]) else []
    return [value] if _is_number(value) else []


def _same(left: Number, right: Basic) -> bool:
    """Whether a number equals the other side, as math-verify compares them: for sympy, 1/2 is neither 0.5 nor 50%."""
    return left == right or bool(_readings(right)) and verify(left, right, timeout_seconds=None)


def _is_number(value: Basic) -> bool:
    """Whether it is a number, a ratio of two, or a number times a power of ten. A symbol stands for `\\text{...}`."""
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
for _form in _FORMS.split(" ~ "):
    judge(1, 2, _form)
    judge(3, 1, _form)
