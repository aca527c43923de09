"""Finds out which names of a program may mean a builtin or an import, and which are certainly the program's own.

A parameter with the name `id` is not the builtin `id`. A name that a function binds is always its own. A name that the
top level binds is its own in all text after an unconditional binding. Before that, or after a `del`, the name means
the builtin. In doubt, the name counts as the builtin. This module reads the syntax tree, and evaluates no code.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator


FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def foreign_loads(tree: ast.Module) -> Iterator[ast.Name]:
    """
    Every place that reads a name which may be a builtin or an import.

    Args:
        tree (`ast.Module`):
            A program.

    Yields:
        `ast.Name`: the reading node. Names that an import binds are always among them.
    """
    owned: set[str] = set()
    unsafe = _unbound_somewhere(tree)
    for statement in tree.body:
        bound = _bound_by(statement) - unsafe
        if isinstance(statement, ast.FunctionDef):
            head, body = _parts(statement)
            inner = _own(statement)
            loads = [node for part in head for node in _loads(part, frozenset())]
            known = set() if statement.decorator_list else bound  # a decorator may call it before its name is bound
            loads += [node for part in body for node in _loads(part, inner) if node.id not in known]
        else:
            loads = list(_loads(statement, frozenset()))
        yield from (node for node in loads if node.id not in owned)
        owned |= bound
        owned -= imported_by(statement)


def at_top(*statements: ast.stmt) -> Iterator[ast.AST]:
    """Every node outside functions, lambdas and classes: what runs before `f` is called."""
    todo: list[ast.AST] = list(statements)
    while todo:
        node = todo.pop()
        yield node
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            continue
        todo += ast.iter_child_nodes(node)


def _loads(node: ast.AST, local: frozenset[str]) -> Iterator[ast.Name]:
    """Reading nodes below `node` whose name no enclosing function binds; `local` are the names bound so far."""
    if isinstance(node, ast.Name):
        if isinstance(node.ctx, ast.Load) and node.id not in local:
            yield node
        return
    if isinstance(node, FUNCTIONS):
        outer, parts = _parts(node)
        inner = (local - _declared_global(node)) | _own(node)
    elif isinstance(node, COMPREHENSIONS):
        targets = {name for generator in node.generators for name in _stored(generator.target)}
        outer, inner = [node.generators[0].iter], local | targets
        parts = [child for child in ast.iter_child_nodes(node) if child is not node.generators[0]]
        parts += [node.generators[0].target, *node.generators[0].ifs]
    elif isinstance(node, ast.ClassDef):  # what a class binds, its methods do not see
        outer, parts = _parts(node)
        inner = local - _declared_global(node)
    else:
        outer, parts, inner = list(ast.iter_child_nodes(node)), [], local
    for child in outer:
        yield from _loads(child, local)
    for child in parts:
        yield from _loads(child, inner)


def _parts(scope: Function | ast.ClassDef) -> tuple[list[ast.AST], list[ast.AST]]:
    """What is evaluated where a function or class is defined (decorators, defaults, annotations, bases, also those of
    type parameters), and its body."""
    body: list[ast.AST] = [*scope.body] if isinstance(scope.body, list) else [scope.body]
    inside = {id(node) for node in body}
    return [child for child in ast.iter_child_nodes(scope) if id(child) not in inside], body


def _own(function: Function) -> frozenset[str]:
    """Names that are local to a function, except those that it imports."""
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    names = {argument.arg for argument in named if argument is not None}
    imported: set[str] = set()
    for node in own_nodes(function):
        names |= binds(node)
        imported |= imported_by(node)
    return frozenset(names - imported - _declared_global(function))


def _declared_global(scope: Function | ast.ClassDef) -> set[str]:
    return {name for node in own_nodes(scope) if isinstance(node, ast.Global) for name in node.names}


def own_nodes(scope: Function | ast.ClassDef | ast.Module) -> Iterator[ast.AST]:
    """The nodes of a function's, class's or module's own body, without those of functions and classes in it."""
    todo: list[ast.AST] = list(scope.body) if isinstance(scope.body, list) else [scope.body]
    while todo:
        node = todo.pop()
        yield node
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            todo += _parts(node)[0]
        elif isinstance(node, COMPREHENSIONS):  # its targets are its own; only `:=` reaches out of it
            todo += [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.comprehension)]
            todo += [part for generator in node.generators for part in (generator.iter, *generator.ifs)]
        else:
            todo += ast.iter_child_nodes(node)


def binds(node: ast.AST) -> set[str]:
    """Names that a node binds by itself, imports left out."""
    if isinstance(node, ast.Name):
        return {node.id} if not isinstance(node.ctx, ast.Load) else set()
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return {node.name}
    if isinstance(node, (ast.MatchAs, ast.MatchStar, ast.ExceptHandler)):
        return {node.name} if node.name else set()
    if isinstance(node, ast.MatchMapping):
        return {node.rest} if node.rest else set()
    return set()


def imported_by(node: ast.AST) -> set[str]:
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return {alias.asname or alias.name.split(".")[0] for alias in node.names}
    return set()


def _bound_by(statement: ast.stmt) -> set[str]:
    """Names that a statement of the top level binds without a condition."""
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        return {statement.name}
    targets: list[ast.expr] = []
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
        targets = [statement.target]
    return {name for target in targets for name in _stored(target)}


def _stored(target: ast.expr) -> set[str]:
    return {n.id for n in ast.walk(target) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def _unbound_somewhere(tree: ast.Module) -> set[str]:
    """Names that are deleted, also by the end of an `except ... as name`, or that an import binds."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Del):
            names.add(node.id)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            names.add(node.name)
        names |= imported_by(node)
    return names
