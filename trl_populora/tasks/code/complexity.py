"""Complexity measures of programs. They show whether tasks become more complex, or trivial.

Nothing is executed here, only parsed.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache

from trl_populora.tasks.base import on_scale
from trl_populora.tasks.code.hygiene import parse
from trl_populora.tasks.task import Refusal


# Where a feature of a task's place is 0 and where it is 1 (our choice): a bare `return x` to a screen and a half.
RANGES = {
    "log_ast_nodes": (math.log(6), math.log(600)),
    "ast_depth": (4.0, 20.0),
    "log_cyclomatic": (0.0, math.log(40)),
    "log_output_length": (0.0, math.log(1_000)),
}


@dataclass(frozen=True)
class Complexity:
    """Measures of one program (the selection is that of PopuLoRA's diagnostics).

    Attributes:
        ast_depth (`int`): Nodes on the longest path from the module to a leaf of the syntax tree.
        ast_nodes (`int`): Nodes of the syntax tree, without expression contexts.
        lines (`int`): Lines that are neither empty nor only a comment.
        cyclomatic (`int`): 1 + decision points of the whole program.
        halstead_volume (`float` or `None`): Length times log2 of the vocabulary, in bits (radon).
        halstead_effort (`float` or `None`): Volume times difficulty (radon).
        cognitive (`int` or `None`): Cognitive complexity, which weighs nesting (complexipy).

    A measure is `None` if its package is not installed (`pip install trl-populora[diagnostics]`) or cannot handle the
    program.
    """

    ast_depth: int
    ast_nodes: int
    lines: int
    cyclomatic: int
    halstead_volume: float | None
    halstead_effort: float | None
    cognitive: int | None

    def known(self) -> dict[str, float]:
        """The measures that are there, by name."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@lru_cache(maxsize=16_384)
def program_complexity(program: str) -> Complexity | None:
    """Measure `program`; `None` if it does not parse.

    One at the edge of the parser's recursion limit may be accepted by the executor and fail here, deeper in a stack.
    """
    tree = parse(program)
    if isinstance(tree, Refusal):
        return None
    depth, nodes = _tree_size(tree)
    volume, effort = _halstead(tree)
    return Complexity(
        ast_depth=depth,
        ast_nodes=nodes,
        lines=sum(1 for line in program.splitlines() if line.strip() and not line.lstrip().startswith("#")),
        cyclomatic=_cyclomatic(tree),
        halstead_volume=volume,
        halstead_effort=effort,
        cognitive=_cognitive(program),
    )


def place(complexity: Complexity, outputs: Sequence[str]) -> tuple[float, float, float, float]:
    """A task's position in the unit cube, from its four features and their `RANGES`.

    Args:
        complexity (`Complexity`): Of the program.
        outputs (`Sequence[str]`): Literal texts of its outputs; their mean length counts.
    """
    lengths = [len(text) for text in outputs]
    raw = (
        math.log(complexity.ast_nodes),
        float(complexity.ast_depth),
        math.log(complexity.cyclomatic),
        math.log(max(sum(lengths) / len(lengths), 1.0)) if lengths else 0.0,
    )
    a, b, c, d = (on_scale(value, *ends) for value, ends in zip(raw, RANGES.values(), strict=True))
    return a, b, c, d


def _tree_size(tree: ast.AST) -> tuple[int, int]:
    # By hand, level by level: the recursive way fails on deep trees, and ast.walk knows no depth.
    depth, nodes, level = 0, 0, [tree]
    while level:
        depth += 1
        nodes += len(level)
        level = [
            child for node in level for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr_context)
        ]
    return depth, nodes


def _cyclomatic(tree: ast.AST) -> int:
    """By radon's rules, and also in nested functions and methods, where radon counts in another way."""
    found = 1
    for node in ast.walk(tree):
        if isinstance(node, ast.If | ast.IfExp | ast.Assert):
            found += 1
        elif isinstance(node, ast.For | ast.AsyncFor | ast.While):
            found += 1 + bool(node.orelse)
        elif isinstance(node, ast.Try | ast.TryStar):
            found += len(node.handlers) + bool(node.orelse)
        elif isinstance(node, ast.BoolOp):
            found += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            found += 1 + len(node.ifs)
        elif isinstance(node, ast.match_case):  # `case _` is an else
            found += (
                node.guard is not None or not isinstance(node.pattern, ast.MatchAs) or node.pattern.pattern is not None
            )
    return found


def _halstead(tree: ast.AST) -> tuple[float | None, float | None]:
    try:
        from radon.metrics import h_visit_ast
    except ImportError:
        return None, None
    try:
        total = h_visit_ast(tree).total
    except (AttributeError, RecursionError, ZeroDivisionError, ValueError):
        return None, None
    return float(total.volume), float(total.effort)


def _cognitive(program: str) -> int | None:
    try:
        from complexipy import code_complexity
    except ImportError:
        return None
    try:
        return int(code_complexity(program).complexity)
    except Exception:  # a Rust parser of its own: what it raises on Python it does not know is not documented
        return None
