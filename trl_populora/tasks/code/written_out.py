"""Whether the literal of an answer is worked out. `0b1011` for 11, `{3, 3, 1}` for `{1, 3}` and `'ab' 'cd'` for
`'abcd'` leave the work to Python's parser.

The text was read as a literal before. Its tokens and its syntax tree are looked at, and nothing runs.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
import warnings

from trl_populora.executor import literals


_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|N\{[^{}]*\}|[0-7]{1,3}|.)", re.DOTALL)
_SKIPPED = (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)


def check_written(text: str, value: object) -> None:
    """
    Checks that an answer is written as `repr` would show it, but for layout, quotes and the form of decimal numbers.

    Args:
        text (`str`): Text that `literals.parse_literal` reads.
        value (`object`): What it reads.

    Raises:
        `NotLiteral`: For integers of another base, strings side by side, escapes of printable ASCII, and a set or dict
            with an element or key twice.
    """
    source = "(" + text.replace("\r", "\n") + "\n)"
    before = 0
    for kind, token, *_ in tokenize.generate_tokens(io.StringIO(source).readline):
        if kind in _SKIPPED:
            continue
        if kind == tokenize.NUMBER and token[:2].lower() in ("0x", "0o", "0b"):
            raise literals.NotLiteral(f"{token[:20]} is not decimal")
        if kind == tokenize.STRING and (kind == before or _spells_ascii(token)):
            raise literals.NotLiteral("a string in parts, or with escapes for plain letters")
        before = kind
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = ast.parse(source, mode="eval")
    if _num_written(tree) != _num_held(value):
        raise literals.NotLiteral("an element of a set, or a key of a dict, is written twice")


def _spells_ascii(token: str) -> bool:
    """Whether a string literal has an escape that stands for a printable sign of ASCII, or for nothing."""
    prefix = token.partition(token[-1])[0].lower()  # before the first quote
    kinds = "x01234567" + ("" if "b" in prefix else "uUN\n")
    for escape in [] if "r" in prefix else _ESCAPE.findall(token):
        if escape[0] in kinds:
            sign = ast.literal_eval(f'{prefix}"""\\{escape}"""')
            sign = sign.decode("latin-1") if isinstance(sign, bytes) else sign
            if len(sign) < 2 and sign.isascii() and sign.isprintable():
                return True
    return False


def _num_written(tree: ast.AST) -> int:
    """Elements and keys of all sets and dicts, as they are written."""
    nodes = list(ast.walk(tree))
    sets = sum(len(node.elts) for node in nodes if isinstance(node, ast.Set))
    return sets + sum(len(node.keys) for node in nodes if isinstance(node, ast.Dict))


def _num_held(value: object) -> int:
    """Elements and keys of all sets and dicts in a value."""
    if isinstance(value, dict):
        return len(value) + _num_held([*value, *value.values()])
    if isinstance(value, (list, tuple, set)):
        return isinstance(value, set) * len(value) + sum(map(_num_held, value))
    return 0
