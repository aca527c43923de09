"""The part of a program's text that counts: its source without comments and tests.

It reads and rewrites source text by tokens and syntax tree. `hygiene.py` has the rules for programs. `keys.py`
compares tasks.
"""

from __future__ import annotations

import ast
import builtins
import io
import tokenize
from collections import deque
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from trl_populora.tasks.code.hygiene import check_program, is_test, parse
from trl_populora.tasks.code.scopes import binds, imported_by
from trl_populora.tasks.task import Refusal


HOSTILE = (SyntaxError, ValueError, RecursionError, MemoryError, tokenize.TokenError, LookupError)
"""What text that was written to break a parser can raise here."""

_TEXT_NODES = (
    ast.Expr,
    ast.Constant,
    ast.JoinedStr,
    ast.FormattedValue,
    ast.Tuple,
    ast.List,
    ast.Set,
    ast.expr_context,
)
MOST_BITS = 64  # of a number in text that is taken out: the decimal text of a huge one is an error


class _Cut(NamedTuple):
    """A range of text, by (line from 1, column in characters), and what takes its place."""

    start: tuple[int, int]
    end: tuple[int, int]
    replacement: str = ""


def strip_comments(program: str) -> str | Refusal:
    """
    The program without comments, docstrings, statements that contain only text, and tests behind `f`.

    Without these parts, the program runs in the same way. Tests are `print(f(3))` and `assert f(2) == 4` with only
    literals, and the `__main__` block, which the executor does not run. The rest is the program of the task: the
    executor runs it, students see it, and its outputs are the right ones.

    A program without such parts is returned unchanged. Otherwise, the characters are cut out. If this does not give
    the right syntax tree (because text shares a line with other statements), the source is written again from the
    tree. Text in string values, names and annotations stays, because it is part of the code.

    Args:
        program (`str`):
            Source text that parses.

    Returns:
        `str`, or `Refusal` (`syntax_error`) for a program that cannot be rewritten, such as a too deeply nested one.
    """
    tree = parse(program)
    if isinstance(tree, Refusal):
        return tree
    try:
        tests = _drop_tests(tree)
        cuts = [_place(program, node) for node in [*drop_text(tree), *tests]] + _comments(program)
        if not cuts:
            return program
        short = _cut(program, cuts)
        short = short.rstrip("\n") if tests else short
        if _reads_as(short, tree):
            return short
    except HOSTILE:
        pass
    try:
        anew = ast.unparse(tree)
        if _reads_as(anew, tree):
            return anew
        detail = "the program is another one when it is written anew"
    except HOSTILE as error:
        detail = type(error).__name__
    return Refusal("syntax_error", f"comments cannot be removed: {detail}")


def read_program(program: str, **limits: Any) -> str | Refusal:
    """A proposed program without comments, after all rules of [`check_program`]."""
    refusal = check_program(program, **limits)
    if refusal is not None:
        return refusal
    bare = strip_comments(program)
    if bare == program or isinstance(bare, Refusal):
        return bare
    return check_program(bare, **limits) or bare


def flatten(
    tree: ast.AST,
    places: Collection[tuple[type, str]] = (),
    names: Collection[str] = (),
    ignored: Collection[tuple[int, str]] = (),
) -> Iterator[str]:
    """
    A syntax tree as flat text, breadth first and without recursion: equal for equal trees and for no others.

    Args:
        tree (`ast.AST`):
            The tree.
        places (`Collection[tuple[type, str]]`, *optional*):
            Types of nodes and fields whose text may be a name that is replaced.
        names (`Collection[str]`, *optional*):
            Names that are replaced there by numbers, in order of appearance.
        ignored (`Collection[tuple[int, str]]`, *optional*):
            Fields, by the `id` of their node and their name, that are left out.

    Yields:
        `str`: types, fields, and values.
    """
    numbers: dict[str, int] = {}
    waiting = deque([tree])
    while waiting:
        node = waiting.popleft()
        yield type(node).__name__
        for field, value in ast.iter_fields(node):
            if (id(node), field) in ignored:
                continue
            many = isinstance(value, list)
            yield f"{field}{len(value) if many else ''}"
            for item in value if many else [value]:
                if isinstance(item, ast.AST):
                    waiting.append(item)
                    yield "*"
                elif isinstance(item, str) and item in names and (type(node), field) in places:
                    yield f"name {numbers.setdefault(item, len(numbers))}"
                else:
                    yield f"{type(item).__name__} {hex(item) if type(item) is int else repr(item)}"


def _reads_as(text: str, tree: ast.Module) -> bool:
    again = parse(text)
    return not isinstance(again, Refusal) and list(flatten(again)) == list(flatten(tree))


def _comments(program: str) -> list[_Cut]:
    tokens = tokenize.generate_tokens(io.StringIO(program).readline)
    return [_Cut(token.start, token.end) for token in tokens if token.type == tokenize.COMMENT]


def drop_text(tree: ast.AST) -> list[ast.stmt]:
    """Takes statements that only hold text out of the tree and returns them; an empty body gets a `pass`."""
    dropped: list[ast.stmt] = []
    for parent in list(ast.walk(tree)):
        for name, value in ast.iter_fields(parent):
            if not isinstance(value, list) or not any(map(_is_bare_text, value)):
                continue
            text = [node for node in value if _is_bare_text(node)]
            dropped += text
            left = [node for node in value if node not in text]
            if not left and not isinstance(parent, ast.Module):
                text[0].replacement = "pass"
                left = [ast.copy_location(ast.Pass(), text[0])]
            setattr(parent, name, left)
    return dropped


def _drop_tests(tree: ast.Module) -> list[ast.stmt]:
    """Takes the tests behind the first definition of `f` out of the tree and returns them."""
    own = {name for node in ast.walk(tree) for name in binds(node) | imported_by(node)}
    known = {*dir(builtins)} - own
    places = (i for i, node in enumerate(tree.body) if isinstance(node, ast.FunctionDef) and node.name == "f")
    dropped = [node for node in tree.body[next(places, 0) :] if _only_tries(node, known)]
    tree.body = [node for node in tree.body if node not in dropped]
    return dropped


def _only_tries(node: ast.stmt, known: set[str]) -> bool:
    """Whether a statement is a test that calls `f`, reads nothing else but `known` names, and binds none."""
    if not is_test(node) or isinstance(node, ast.If):
        return is_test(node)
    parts = list(ast.walk(node))
    calls = {id(part.func) for part in parts if isinstance(part, ast.Call)}
    names = [part for part in parts if isinstance(part, ast.Name)]
    tried = [id(name) for name in names if name.id == "f"]
    others = all(name.id in known and isinstance(name.ctx, ast.Load) for name in names if name.id != "f")
    return others and bool(tried) and calls.issuperset(tried)


def _place(program: str, node: ast.stmt) -> _Cut:
    """Where a statement stands. The tree counts columns in bytes, tokens in characters."""
    lines = program.split("\n")

    def column(line: int, offset: int) -> int:
        return len(lines[line - 1].encode()[:offset].decode())

    start = (node.lineno, column(node.lineno, node.col_offset))
    last, offset = node.end_lineno or node.lineno, node.end_col_offset or 0  # a tree that was parsed has both
    end = (last, column(last, offset))
    return _Cut(start, end, getattr(node, "replacement", ""))


def _is_bare_text(node: ast.AST) -> bool:
    """A statement that is a string, or strings in a tuple, list or set: nothing that does anything, or fails."""
    if not isinstance(node, ast.Expr):
        return False
    parts = list(ast.walk(node))
    texts = any(isinstance(part, ast.Constant) and isinstance(part.value, (str, bytes)) for part in parts)
    bare = all(isinstance(part, _TEXT_NODES) for part in parts) and not any(map(_may_fail, parts))
    return bare and (texts or isinstance(node.value, ast.JoinedStr))


def _may_fail(part: ast.AST) -> bool:
    """A set of what has no hash, a format that does not fit, or a number too long to be written."""
    if isinstance(part, ast.Set):
        return any(isinstance(inner, (ast.List, ast.Set)) for item in part.elts for inner in ast.walk(item))
    if isinstance(part, ast.FormattedValue):
        return part.format_spec is not None
    return isinstance(part, ast.Constant) and type(part.value) is int and part.value.bit_length() > MOST_BITS


def _cut(program: str, cuts: list[_Cut]) -> str:
    """Cuts the ranges out, and with them the lines of which nothing is left."""
    lines = dict(enumerate(program.split("\n"), start=1))
    for (first, start), (last, end), replacement in sorted(cuts, reverse=True):
        rest = (lines[first][:start] + replacement + lines[last][end:]).rstrip()
        for line in range(first, last + 1):
            lines.pop(line, None)
        if rest:
            lines[first] = rest
    return "\n".join(lines[number] for number in sorted(lines))
