"""What of a program's text counts: its source without comments, and a key that renamed copies share.

Here: reading and rewriting source text by its tokens and its syntax tree. Not here: what a program may contain
(`hygiene.py`), and the stock in which duplicates are looked up (`buffer.py`).
"""

from __future__ import annotations

import ast
import hashlib
import io
import json
import tokenize
from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from trl_populora.tasks.hygiene import parse
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
_IGNORED_FIELDS = frozenset({"annotation", "returns", "type_comment", "type_params", "kind", "ctx"})


class _Cut(NamedTuple):
    """A range of text, by (line from 1, column in characters), and what takes its place."""

    start: tuple[int, int]
    end: tuple[int, int]
    replacement: str = ""


def strip_comments(program: str) -> str | Refusal:
    """
    The program without comments, docstrings and statements that only hold text: words to the reader, no code.

    What is left runs the same. A program that has none of them comes back byte for byte as it was written; otherwise
    the characters are cut out, and where that does not leave the same syntax tree (text that shares a line with other
    statements) the tree is written anew. Text in string values, names and annotations stays: it is part of the code.

    Args:
        program (`str`):
            Source text that parses.

    Returns:
        `str`, or `Refusal` (`syntax_error`) for a program too deeply nested to be rewritten.
    """
    tree = parse(program)
    if isinstance(tree, Refusal):
        return tree
    try:
        text = _drop_text(tree)
        cuts = [_place(program, node) for node in text] + _comments(program)
        if not cuts:
            return program
        short = _cut(program, cuts)
        again = parse(short)
        if not isinstance(again, Refusal) and list(_flatten(again)) == list(_flatten(tree)):
            return short
    except HOSTILE:
        pass
    try:
        return ast.unparse(tree)
    except HOSTILE as error:
        return Refusal("syntax_error", f"comments cannot be removed: {type(error).__name__}")


def task_key(type: str, program: str, inputs: Iterable[str]) -> str:
    """
    A key that tasks share when they are the same up to names, layout, comments and annotations of the program.

    Args:
        type (`str`):
            Task type.
        program (`str`):
            Source text. Names that it binds, but for `f`, are numbered in order of appearance. Text that does not
            parse stands for itself.
        inputs (`Iterable[str]`):
            Literal texts of the argument lists; their order does not matter.

    Returns:
        `str`: 32 hexadecimal digits.
    """
    try:
        tree = parse(program)
        if isinstance(tree, Refusal):
            raise ValueError(tree.detail)
        _drop_text(tree)
        shape = list(_flatten(tree, names=_numbered(tree)))
    except HOSTILE:
        shape = program.split()
    content = json.dumps([type, shape, sorted(set(inputs))])
    return hashlib.sha256(content.encode("ascii")).hexdigest()[:32]


def _flatten(tree: ast.AST, names: dict[str, str] | None = None) -> Iterator[str]:
    """The tree as flat text, breadth first and without recursion: equal for equal trees and for no others.

    With `names`, names are replaced and annotations are left out.
    """
    waiting = deque([tree])
    while waiting:
        node = waiting.popleft()
        yield type(node).__name__
        for field, value in ast.iter_fields(node):
            if names is not None and field in _IGNORED_FIELDS:
                continue
            many = isinstance(value, list)
            yield f"{field}{len(value) if many else ''}"
            for item in value if many else [value]:
                if isinstance(item, ast.AST):
                    waiting.append(item)
                    yield "*"
                elif names is not None and type(item) is str and not isinstance(node, (ast.Constant, ast.Attribute)):
                    yield names.get(item, item)
                else:
                    yield f"{type(item).__name__} {hex(item) if type(item) is int else repr(item)}"


def _numbered(tree: ast.AST) -> dict[str, str]:
    """Every name that the program binds, except `f`, in order of appearance -> `v0`, `v1` and so on."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        name = None
        if isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
            name = node.id
        elif isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.ExceptHandler, ast.MatchAs, ast.MatchStar)):
            name = node.name
        elif isinstance(node, ast.alias):
            name = node.asname
        if name and name != "f":
            found.setdefault(name, f"v{len(found)}")
    return found


def _comments(program: str) -> list[_Cut]:
    tokens = tokenize.generate_tokens(io.StringIO(program).readline)
    return [_Cut(token.start, token.end) for token in tokens if token.type == tokenize.COMMENT]


def _drop_text(tree: ast.AST) -> list[ast.stmt]:
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


def _place(program: str, node: ast.stmt) -> _Cut:
    """Where a statement stands. The tree counts columns in bytes, tokens in characters."""
    lines = program.split("\n")

    def column(line: int, offset: int) -> int:
        return len(lines[line - 1].encode()[:offset].decode())

    start = (node.lineno, column(node.lineno, node.col_offset))
    end = (node.end_lineno, column(node.end_lineno, node.end_col_offset))
    return _Cut(start, end, getattr(node, "replacement", ""))


def _is_bare_text(node: ast.AST) -> bool:
    """A statement that is a string, or strings in a tuple, list or set: nothing that does anything."""
    if not isinstance(node, ast.Expr):
        return False
    parts = list(ast.walk(node))
    texts = any(isinstance(part, ast.Constant) and isinstance(part.value, (str, bytes)) for part in parts)
    return (texts or isinstance(node.value, ast.JoinedStr)) and all(isinstance(part, _TEXT_NODES) for part in parts)


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
