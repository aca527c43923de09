"""The statements of a program, so that programs can be compared: `TaskType.parts` of the Python types."""

from __future__ import annotations

import ast
import builtins
import copy
from collections.abc import Iterator
from typing import Any

from trl_populora.tasks.code.hygiene import parse
from trl_populora.tasks.code.scopes import binds, imported_by
from trl_populora.tasks.code.source import HOSTILE
from trl_populora.tasks.task import Refusal


NAME = "v"
UNREADABLE = "?"
# Not the names that `site` and notebooks add, so that all processes agree.
BUILTINS = frozenset(vars(builtins)) - {"_", "copyright", "credits", "display", "exit", "get_ipython", "help", "quit"}
BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


def statements(program: str) -> frozenset[str]:
    """
    The statements of a program as lines of text, blocks by their headers. All names that the program gives are one
    name there, a constant is only its type (and sign), and annotations and decorators are left out. So other names,
    numbers, texts and layout make no other statement. A statement that does nothing is one, too.

    Args:
        program (`str`): Source text. All text that cannot be read is the same statement.
    """
    tree = parse(program)
    if isinstance(tree, Refusal):
        return frozenset([UNREADABLE])
    nodes = list(ast.walk(tree))
    given = set().union(*(binds(node) | imported_by(node) for node in nodes))
    plain = _Plain(BUILTINS - given - {node.arg for node in nodes if isinstance(node, ast.arg)})
    return frozenset(line for node in nodes if isinstance(node, ast.stmt) for line in _lines(node, plain))


def _lines(node: ast.stmt, plain: _Plain) -> Iterator[str]:
    """The text of a statement without what is in its blocks."""
    header = copy.copy(node)
    for field in BLOCKS:
        if hasattr(header, field):
            setattr(header, field, [])
    try:
        for line in ast.unparse(plain.visit(header)).splitlines():
            if line := line.strip():
                yield line
    except HOSTILE:
        yield UNREADABLE


class _Plain(ast.NodeTransformer):
    """Makes names and constants alike, in a copy of a statement's header and in its expressions themselves."""

    def __init__(self, kept: frozenset[str]) -> None:
        self.kept = kept

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return node if node.id in self.kept else ast.Name(NAME, node.ctx)

    def visit_alias(self, node: ast.alias) -> ast.alias:
        return ast.alias(node.name, None)

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return ast.arg(NAME)

    def visit_Constant(self, node: ast.Constant) -> ast.Name:
        return ast.Name(type(node.value).__name__, ast.Load())

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.expr:
        values = [self.visit(part.value) for part in node.values if isinstance(part, ast.FormattedValue)]
        return ast.Call(ast.Name("str", ast.Load()), values, [])

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        value = node.value if node.value is not None else ast.Constant(None)
        return self.visit(ast.Assign([node.target], value, lineno=node.lineno))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.name, node.returns, node.decorator_list = NAME, None, []
        return self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.name, node.decorator_list = NAME, []
        return self.generic_visit(node)

    def visit_Global(self, node: ast.Global) -> ast.stmt:
        return type(node)([NAME])

    visit_AsyncFunctionDef: Any = visit_FunctionDef
    visit_Nonlocal: Any = visit_Global
