"""The statements of a program, so that programs can be compared: `TaskType.parts` of the Python types."""

from __future__ import annotations

import ast
import builtins

from trl_populora.tasks.code.hygiene import parse
from trl_populora.tasks.code.source import HOSTILE
from trl_populora.tasks.task import Refusal


VARIABLE = "v"


def statements(program: str) -> frozenset[str]:
    """
    The statements of a program as lines of text. All variables have one name there, and a constant is only its type.
    So other names, numbers, texts and layout make no other statement.

    Args:
        program (`str`): Source text. Text that does not parse is one statement.
    """
    try:
        tree = parse(program)
        if isinstance(tree, Refusal):
            raise ValueError(tree.detail)
        lines = ast.unparse(_Plain().visit(tree)).splitlines()
    except HOSTILE:
        return frozenset([program])
    return frozenset(line.strip() for line in lines if line.strip())


class _Plain(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.Name:
        return node if hasattr(builtins, node.id) else ast.Name(VARIABLE, node.ctx)

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return ast.arg(VARIABLE)

    def visit_Constant(self, node: ast.Constant) -> ast.Name:
        return ast.Name(type(node.value).__name__, ast.Load())

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.Name:
        return ast.Name("str", ast.Load())
