"""Whether two mathematical answers in LaTeX mean the same, by math-verify. Runs in a fork server's children only.

`Job("from trl_populora.tasks.latex_answers import f", ((right, answer),), modules=(name,))`, with the name of
this module, judges hostile text within the job's limits.

math-verify imports much of sympy when a function first needs it, a child can import nothing, and math-verify takes a
failed import for a wrong answer. So this module, while the fork server imports it, imports what may be needed and
judges a few answers, which also fills the parser's caches; and an import that fails later is an error.
"""

import pkgutil
import sys
from importlib import import_module

from math_verify import parse, verify


_WATCHED = ("antlr4", "latex2sympy2_extended", "math_verify", "mpmath", "sympy")
_ROOMS = (
    "assumptions calculus codegen combinatorics concrete functions integrals matrices ntheory physics.units polys "
    "series sets simplify solvers"
)
_REHEARSED = (
    (r"$\frac{1}{2}$", "$0.5$"),
    ("12", "$12.5$"),
    (r"$x^2+2x+1$", r"\boxed{(x+1)^2}"),
    (r"$x=3$", "$x = 4$"),
    (r"$1 < x \le 2$", "$(1, 2]$"),
    (r"$\{1, \sqrt{2}\}$", r"$\{\sqrt{2}, 1\}$"),
    (r"$(-\infty, 2) \cup (3, 4)$", r"$(-\infty, 2)$"),
    (r"$\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}$", r"$\begin{bmatrix} 1 & 2 \\ 3 & 4 \end{bmatrix}$"),
    (r"$\int_0^1 x dx + \log_2 8 + 3!$", r"$\lim_{x \to 0} \frac{\sin x}{x} + \sin^2 x$"),
    (r"$\sum_{n=1}^{9} n^2$", "$3 + 4i$"),
)


class _Watch:
    """A finder of modules that finds none and remembers which of math-verify's own were asked for."""

    asked: list[str] = []

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.partition(".")[0] in _WATCHED:
            self.asked.append(name)


def f(right: str, answer: str) -> bool:
    """
    Judge one answer. The program of a job: it may take any time and memory.

    Args:
        right (`str`):
            The right answer, in LaTeX or as a number: `$\\frac{1}{2}$`, `\\boxed{3}`, `0.5`.
        answer (`str`):
            The text to judge.

    Returns:
        `bool`: whether both mean the same.

    Raises:
        `ValueError`: if there is nothing to read in the right answer.
        `ImportError`: if math-verify needed a module that is not here, so that nothing is known.
    """
    # Without time limits of its own, which need signals: the job has limits.
    parsed = parse(right, parsing_timeout=0)
    if not parsed:
        raise ValueError("no answer in the right answer")
    same = verify(parsed, parse(answer, parsing_timeout=0), allow_set_relation_comp=True, timeout_seconds=None)
    if _Watch.asked:
        raise ImportError(f"{_Watch.asked[0]} was not imported in time")
    return bool(same)


def _rehearse() -> None:
    for room in _ROOMS.split():
        package = import_module(f"sympy.{room}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if ".tests" not in module.name and ".benchmarks" not in module.name:
                import_module(module.name)
    for right, answer in _REHEARSED:
        f(right, answer)


_rehearse()
sys.meta_path.insert(0, _Watch())  # pyright: ignore[reportArgumentType]
