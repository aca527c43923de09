"""A key of a task. Copies with other names have the same key. Two different tasks never have the same key.

A name is replaced by a number only if this cannot change what a program does: it must always be a variable or a
parameter, and the program must not be able to show it. Names of classes, members, fields, keywords, imports and
builtins stay, and also names of functions that are used as values. In doubt, a name stays, because an undetected copy
costs little, but a new task that is refused as a copy costs its author a reward. So the number of duplicates by this
key is a lower bound.

`source.py` rewrites text. `buffer.py` finds duplicates.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Iterator
from functools import lru_cache

from trl_populora.tasks.code.hygiene import parse
from trl_populora.tasks.code.scopes import COMPREHENSIONS, FUNCTIONS, binds, own_nodes
from trl_populora.tasks.code.source import HOSTILE, drop_text, flatten
from trl_populora.tasks.task import Refusal, digest


_VARIABLES = frozenset(
    {
        (ast.Name, "id"),
        (ast.arg, "arg"),
        (ast.MatchAs, "name"),
        (ast.MatchStar, "name"),
        (ast.MatchMapping, "rest"),
        (ast.Global, "names"),
        (ast.Nonlocal, "names"),
        (ast.FunctionDef, "name"),
    }
)
"""Where the text of a node is the name of a variable (of a function, under the conditions of `_is_plain`)."""
_SHOWS_NAMES = frozenset({"dir", "eval", "exec", "globals", "locals", "vars", "ExitStack"})
_DUNDERS_THAT_SHOW_NAMES = ("__name__", "__qualname__", "__exit__", "__traceback__")
# What makes an annotation more than a remark.
_ACTS = (ast.Call, ast.NamedExpr, ast.Yield, ast.YieldFrom, ast.Await, ast.Lambda, *COMPREHENSIONS)
# The name of a function shows in the names of what is defined in it, and in the text of a generator.
_INNER = (*FUNCTIONS, ast.ClassDef, ast.GeneratorExp, ast.Yield, ast.YieldFrom)


def task_key(type: str, program: str, inputs: Iterable[str]) -> str:
    """
    A key that is equal for two tasks only if they are the same up to layout, comments, annotations of functions, and
    names.

    Equal keys mean equal tasks. Equal tasks may have different keys: a `pass`, a `+ 0` or an unused constant changes
    the key. So do names in programs that could show their own names (`e` in `except E as e`, `__name__`, `vars`).

    Args:
        type (`str`):
            Task type.
        program (`str`):
            Source text. Names of its variables and parameters, and of helper functions that are only called, are
            numbered in order of appearance. Text that does not parse stands for itself.
        inputs (`Iterable[str]`):
            Literal texts of the argument lists; their order does not matter.

    Returns:
        `str`: 32 hexadecimal digits.
    """
    return digest([type, _shape(program), sorted(set(inputs))], 32)


def pair_key(program: str, given: str) -> str:
    """A key that two tasks of any types share if both have this program with this input."""
    return task_key("pair", program, (given,))


def output_key(program: str, output: str) -> str:
    """A key that two tasks of any types share if the same program returns the same output in both."""
    return task_key("output", program, (output,))


def program_key(program: str) -> str:
    """A key that two tasks of any types share if both have this program."""
    return task_key("program", program, ())


@lru_cache(maxsize=1024)  # a program has several keys, and is asked for them several times in a round
def _shape(program: str) -> str:
    try:
        tree = parse(program)
        if isinstance(tree, Refusal):
            raise ValueError(tree.detail)
        drop_text(tree)
        ignored = _ignored(tree)
        shape: object = tuple(flatten(tree, _VARIABLES, _renamable(tree, ignored), ignored))
    except HOSTILE:
        shape = "no program", program
    return digest(shape, 64)


def _ignored(tree: ast.Module) -> set[tuple[int, str]]:
    """Fields (by node and name) that do not count: the `u` of `u''`, and annotations that nothing reads or runs.

    An annotation of a class body makes a field of a data class, and one of the top level is run.
    """
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    read = {id(node) for scope in (tree, *classes) for node in own_nodes(scope)}
    found: set[tuple[int, str]] = set()
    for node in ast.walk(tree):
        field = {ast.Constant: "kind", ast.arg: "annotation", ast.FunctionDef: "returns"}.get(type(node))
        if isinstance(node, ast.AnnAssign) and id(node) not in read:
            field = "annotation"
        value = getattr(node, field) if field else None
        if field and not (isinstance(value, ast.AST) and any(isinstance(part, _ACTS) for part in ast.walk(value))):
            found.add((id(node), field))
    return found


def _renamable(tree: ast.Module, ignored: set[tuple[int, str]]) -> frozenset[str]:
    """The names that can be replaced by others, everywhere at once, and the program does the same."""
    nodes = list(_walk(tree, ignored))
    texts = [(node, field, text) for node in nodes for field, text in _texts(node)]
    if any(_shows(node) for node in nodes) or any(
        text in _SHOWS_NAMES or any(dunder in text for dunder in _DUNDERS_THAT_SHOW_NAMES) for _, _, text in texts
    ):
        return frozenset()
    bound, fixed = set(), {"f", *dir(builtins)}
    fixed |= {text for node, field, text in texts if (type(node), field) not in _VARIABLES}
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    functions = {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
    unpacks = any(isinstance(node, ast.keyword) and node.arg is None for node in nodes)
    for node in nodes:
        bound |= binds(node)
        if isinstance(node, ast.arg):
            (fixed if unpacks else bound).add(node.arg)  # `g(**values)` finds parameters by name
        elif isinstance(node, ast.ClassDef):
            fixed |= {name for inner in own_nodes(node) for name in binds(inner)}
        elif isinstance(node, ast.FunctionDef) and not _is_plain(node):
            fixed.add(node.name)
        elif isinstance(node, ast.Name) and node.id in functions and id(node) not in called:
            fixed.add(node.id)  # a function as a value
    return frozenset(name for name in bound - fixed if not name.startswith("__"))


def _walk(tree: ast.AST, ignored: set[tuple[int, str]]) -> Iterator[ast.AST]:
    todo = [tree]
    while todo:
        node = todo.pop()
        yield node
        for field, value in ast.iter_fields(node):
            if (id(node), field) not in ignored:
                todo += [item for item in (value if isinstance(value, list) else [value]) if isinstance(item, ast.AST)]


def _texts(node: ast.AST) -> Iterator[tuple[str, str]]:
    for field, value in ast.iter_fields(node):
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, str):
                yield field, item


def _shows(node: ast.AST) -> bool:
    """Whether a node can show names: an exception bound to a name (its message may quote one), or a type alias."""
    return isinstance(node, ast.ExceptHandler) and node.name is not None or type(node).__name__ == "TypeAlias"


def _is_plain(function: ast.FunctionDef) -> bool:
    """Whether nothing shows the name of a function, unless it is used as a value."""
    inner = (part for statement in function.body for part in ast.walk(statement))
    return not function.decorator_list and not any(isinstance(part, _INNER) for part in inner)
