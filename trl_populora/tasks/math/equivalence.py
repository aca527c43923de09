"""Compares mathematical answers of any form with math-verify.

Like `harness.py`, which compares numbers, it runs only in children of a fork server, and treats answers as data. A
fork server also imports the parent packages of a module. This module is in this folder because its parents are light.

`Job("from <this module> import compare as f", ((gold, answer), ...), modules=(<this module>,))` returns one word for
each call.
"""

from __future__ import annotations

import re
from itertools import product

from latex2sympy2_extended.latex2sympy2 import NormalizationConfig
from math_verify import LatexExtractionConfig, parse, verify
from sympy import Basic, Derivative, Function, Integral, Limit, MatMul, MatPow, MatrixBase, Product, Sum, Symbol
from sympy.core.relational import Equality, Relational
from sympy.logic.boolalg import And

from .harness import judge  # importing it loads and warms math-verify, and silences logging


_Value = Basic | MatrixBase
_WORK = (Sum, Product, Integral, Limit, Derivative, MatMul, MatPow)
_CONFIG = (
    LatexExtractionConfig(
        normalization_config=NormalizationConfig(
            basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="none", equations=False
        )
    ),
)
# What sympy works out when it reads the text, so that no trace is left in the value.
_AT_ONCE = re.compile(r"\\(?:min|max|gcd|lcm|det)(?![A-Za-z])")
# Comparing these pairs loads what sympy and math-verify load at first use: every form of right answer, and ways to
# compare.
_FORMS = r"""
3\sqrt{13} ~ \sqrt{117}
18+2\pi ~ 24.283185
1 \pm \sqrt{19} ~ 1-\sqrt{19}, 1+\sqrt{19}
\frac{2016}{2017^2} ~ \frac{2016}{4068289}
2^{1009} ~ 2 \cdot 2^{1008}
1+274i ~ 274i + 1
\frac{100!}{2^{50}} ~ 100! \cdot 2^{-50}
-\log_{10} 250 ~ \ln 3
\binom{2n}{n} ~ n!
p-q ~ q-p
2n-2 ~ 2(n-1)
\lfloor\frac{2n-1}{5}\rfloor ~ \lceil n/2\rceil+1
a+b ~ x^2
\frac{n(n+1)(2n+1)}{6} ~ \sum_{k=1}^n k^2
\frac{1-p^2}{3} ~ \frac{(1-p)(1+p)}{3}
5r^5 ~ 5r^4
x=5 ~ 5
y=2x+3 ~ 2x-y+3=0
f(x)=2x ~ 2x
k=2n-1 ~ k+1=2n
5x-7y+11z+4=0 ~ 5x=7y-11z-4
(\frac{3}{5},\frac{8}{3}] ~ \frac35 < x \le \frac83
(-\infty,2)\cup(3,\infty) ~ x \ne 2
x \in [-2,7] ~ [-2,7]
k \ge 2 ~ 2 \le k
k \ge 2 ~ \emptyset
\{1,2\} ~ 1, 2
(6,31,-1) ~ (6,31,1)
(1,2) ~ 1,2
(2,\frac{\pi}{2}) ~ (2,1.570796)
\begin{pmatrix} -1/3 \\ 2/3 \end{pmatrix} ~ \begin{bmatrix} 1 \\ 2 \end{bmatrix}
\begin{pmatrix} 1 & 0 \\ 0 & 1 \end{pmatrix} ~ \begin{pmatrix} 1 & 0 \\ 0 & 1.0 \end{pmatrix}
52_8 ~ 52_{8}
\text{Evelyn} ~ Evelyn
\text{(C)} ~ C
\cot x ~ \frac{\cos x}{\sin x}
90^\circ ~ 90
62.5\% ~ 0.625
\frac{\cos(2t)}{15}+C_1 e^t ~ C_1 e^t + \cos(2t)/15
\ln 2 + i\pi/3 ~ \ln(1+\sqrt3 i)
m \frac{dv}{dt}+bv=f ~ m v' + b v = f
y'+ry-rx(t)=0 ~ \dot{y}+ry=rx
\frac{1}{L C s^2+R C s+1} ~ \frac{1}{1+RCs+LCs^2}
\sqrt{4 \pi G \rho_0 r_0^2} ~ 2 r_0 \sqrt{\pi G \rho_0}
\arcsin(1.3\sin\theta_w) ~ \sin^{-1}(1.3\sin\theta_w)
\frac{1}{3} E_1+\frac{2}{3} E_2 ~ (E_1+2E_2)/3
\int_0^1 x\,dx ~ \frac{1}{2}
\lim_{x\to 0}\frac{\sin x}{x} ~ 1
\prod_{k=1}^3 k ~ 6
\emptyset ~ \{\}
|x| ~ \max(x,-x)
\frac{1}{0} ~ \infty
\tan^2 x ~ \sec^2 x-1
\gcd(4,6) ~ 2
a \pmod{7} ~ a
\overline{AB} ~ AB
\mathbb{R} ~ (-\infty,\infty)
x^{10}-1 ~ x-1
"""


def compare(gold: str | tuple[int, int], answer: str) -> str:
    """
    Whether an answer is equal to the right one.

    Args:
        gold (`str` or `tuple[int, int]`): Right answer in LaTeX, without dollar signs and line breaks, or a number as
            numerator and denominator.
        answer (`str`): The text to judge, in LaTeX likewise.

    Returns:
        `str`: `"solved"` if math-verify finds them equal and the answer is worked out; `"refused"` if it cannot be
        parsed and is not the same text; otherwise `"wrong"`.
    """
    if set(_AT_ONCE.findall(answer)) - set(_AT_ONCE.findall(gold) if isinstance(gold, str) else ()):
        return "wrong"
    if isinstance(gold, tuple):
        return "solved" if judge(*gold, answer) else "wrong"
    rights, readings = (
        parse(f"${text}$", _CONFIG, fallback_mode="first_match", parsing_timeout=0) for text in (gold, answer)
    )
    for right, reading in product(rights, readings):
        if not _leaves_work(right, reading) and verify(_named(right), _named(reading), timeout_seconds=None):
            return "solved"
    return "wrong" if any(isinstance(reading, _Value) for reading in readings) else "refused"


def _leaves_work(right: _Value | str, reading: _Value | str) -> bool:
    """Whether an answer is not worked out, or is no equation where one is needed.

    It is not worked out if it has a sum, product, integral, limit, derivative or matrix product that the right answer
    does not have. If the right answer is a constant, the same holds for functions: `\\arctan 1` for `\\frac{\\pi}{4}`.
    If the right answer is an equation such as `y' + ky = 0`, math-verify would compare only the 0.
    """
    if isinstance(right, str) or isinstance(reading, str):
        return False
    relation = isinstance(reading, (Relational, And))
    if isinstance(right, Equality) and right.lhs.is_Add and not relation:
        return True
    same = [one.lhs == one.rhs for one in (right, reading) if isinstance(one, Equality)]
    if same in ([True, False], [False, True]):
        return True  # N=n+1 for N=n, which math-verify reads as n=n
    if isinstance(right, Equality) and relation and reading.free_symbols != right.free_symbols:
        return True  # such as 0=1, which math-verify reads as N=n
    kinds = _WORK if right.free_symbols else (*_WORK, Function)
    return bool(_kinds(reading, kinds) - _kinds(right, kinds))


def _named(value: _Value | str) -> _Value | str:
    """The value with a name for each derivative, because math-verify works out `\\frac{dx}{dt}` as 0."""
    if isinstance(value, str):
        return value
    return value.xreplace({one: Symbol(str(one)) for one in value.atoms(Derivative)})


def _kinds(value: _Value, kinds: tuple[type, ...]) -> set[type]:
    return {type(node) for node in value.atoms(*kinds)}


for _form in _FORMS.strip().splitlines():
    compare(*_form.split(" ~ "))
