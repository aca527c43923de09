"""Converts literal text to plain values and back. It is safe for any text that a model may write.

`ast.literal_eval` evaluates literals only, but its compiler can run out of stack on long or deeply nested text. So the
length of the text is limited first. Then a scanner reads it once: it accepts only the tokens of literals, with limited
nesting and without chains of operators. Only then is the text given to `ast.literal_eval`. The result always has a
canonical form.
"""

import ast
import re
import warnings
from cmath import isfinite
from typing import Any

from . import canonical


# Atomic groups, because possessive repetitions of groups match wrongly before Python 3.11.5.
_STRING = r"""(?:[bB][rR]?|[rR][bB]?|[uU])?(?:
    \"\"\"(?>(?:[^"\\]++|\\.|"(?!""))*)\"\"\" | '''(?>(?:[^'\\]++|\\.|'(?!''))*)''' |
    "(?!"")(?>(?:[^"\\\n]++|\\.)*)" | '(?!'')(?>(?:[^'\\\n]++|\\.)*)' | \"\" | ''
)"""
_NUMBER = r"""
    0[xX][0-9a-fA-F_]++ | 0[oO][0-7_]++ | 0[bB][01_]++ |
    (?:[0-9][0-9_]*+\.?[0-9_]*+ | \.[0-9][0-9_]*+)(?>(?:[eE][-+]?[0-9_]+)?)[jJ]?
"""
_TOKEN = re.compile(
    rf"(?P<space>[ \t\r\n]++)|(?P<string>{_STRING})|(?P<number>{_NUMBER})|(?P<name>True|False|None|set\(\))"
    r"|(?P<open>[\[({])|(?P<close>[\])}])|(?P<sign>[-+])|(?P<mark>[,:])",
    re.VERBOSE | re.DOTALL,
)
_PIECE = re.compile(rf"(?P<string>{_STRING})|(?P<comment>\#[^\r\n]*+)|(?P<quote>['\"])", re.VERBOSE | re.DOTALL)
_NAME = re.compile(r"[ \t\r\n;]*([A-Za-z_][A-Za-z0-9_]*)[ \t]*=(?!=)")
_REFUSALS = (ValueError, SyntaxError, TypeError, MemoryError, RecursionError, OverflowError, canonical.Unplain)
_PAIRS = {"]": "[", ")": "(", "}": "{"}


class NotLiteral(ValueError):
    """The text is not a literal of a plain value, or the value has no literal text."""


def parse_arguments(text: str, max_bytes: int = 8192) -> tuple:
    """
    Read the argument list of a call, such as the text between the parentheses of `f(1, 'a')`.

    Args:
        text (`str`):
            `"1, 'a'"` gives `(1, 'a')`, `"3"` gives `(3,)`, `"(1, 2)"` gives `((1, 2),)`, empty text gives `()`.
        max_bytes (`int`, *optional*, defaults to `8192`):
            Refuse longer text.

    Returns:
        `tuple`: one plain value per argument.

    Raises:
        `NotLiteral`: if the text is anything else.
    """
    _scan(text, max_bytes)
    text = text.strip(" \t\r\n")
    if not text:
        return ()
    return _evaluate(f"({text}\n)" if text.endswith(",") else f"({text}\n,)")


def parse_named_arguments(text: str, max_bytes: int = 8192) -> tuple[tuple, dict[str, object]]:
    """
    Read the argument list of a call in which the last arguments may have names, or a list of assignments.

    Args:
        text (`str`):
            As for `parse_arguments`, then `name=literal` separated by commas: `"1, b='a'"` gives `((1,), {"b": "a"})`.
            If all values have names, semicolons or line breaks may separate them, too: `"a = 1\\nb = 'a'"`.
        max_bytes (`int`, *optional*, defaults to `8192`):
            Refuse longer text.

    Returns:
        `tuple[tuple, dict[str, object]]`: the values without and with a name; one plain value each.

    Raises:
        `NotLiteral`: if the text is anything else, or gives a name twice. `a = 1, 2` is refused, because it could mean
            a tuple or two arguments.
    """
    _check_size(text, max_bytes)
    (_, head), *pieces = _cut_at_names(text)
    if not pieces:
        return parse_arguments(text, max_bytes), {}
    head = head.strip(" \t\r\n")
    if head and not head.endswith(","):
        raise NotLiteral(f"no comma before the name {pieces[0][0]}")
    named: dict[str, object] = {}
    for number, (name, piece) in enumerate(pieces, start=1):
        if number < len(pieces):
            piece = _without_separator(piece, assignments=not head)
        piece = piece.strip(" \t\r\n")
        values = () if piece.endswith(",") else parse_arguments(piece, max_bytes)
        if len(values) != 1 or name in named:
            raise NotLiteral(f"not exactly one value for the name {name}")
        named[name] = values[0]
    return parse_arguments(head, max_bytes), named


def without_comments(text: str, max_bytes: int = 8192) -> str:
    """
    An argument list without the comments in it.

    Args:
        text (`str`):
            `"1, '#'  # two"` gives `"1, '#'  "`.
        max_bytes (`int`, *optional*, defaults to `8192`):
            Refuse longer text.

    Returns:
        `str`: text for `parse_named_arguments`, which then checks that it holds literals.

    Raises:
        `NotLiteral`: if the text is too long, or a string in it is not closed.
    """

    def keep(match: re.Match) -> str:
        if match.lastgroup == "quote":
            raise NotLiteral(f"a string that is not closed at character {match.start()}")
        return match.group("string") or ""

    _check_size(text, max_bytes)
    return _PIECE.sub(keep, text)


def parse_literal(text: str, max_bytes: int = 65536) -> object:
    """
    Read one literal.

    Args:
        text (`str`):
            Literal text; white space around it is ignored. `1, 2` without brackets is the tuple `(1, 2)`.
        max_bytes (`int`, *optional*, defaults to `65536`):
            Refuse longer text.

    Returns:
        `object`: a plain value.

    Raises:
        `NotLiteral`: if the text is anything else.
    """
    _scan(text, max_bytes)
    return _evaluate(f"({text}\n)" if text.strip(" \t\r\n") else "")


def to_literal(value: object) -> str:
    """
    Write a plain value as literal text. The text is the same in every process.

    Args:
        value (`object`):
            A plain value.

    Returns:
        `str`: text that `parse_literal` turns back into a value with the same canonical bytes. Sets are written in
        sorted order, dicts in insertion order.

    Raises:
        `NotLiteral`: if there is no such text (nan, inf, a frozenset, some complex numbers) or the value is not plain.
    """
    try:
        data = canonical.encode(value, max_bytes=None)
    except canonical.Unplain as error:
        raise NotLiteral(f"no plain value: {error}") from None
    text = _write(value)
    try:
        same = canonical.encode(ast.literal_eval(text), max_bytes=None) == data
    except _REFUSALS:
        same = False
    if not same:
        raise NotLiteral(f"a value of type {type(value).__name__} has no literal text")
    return text


def _cut_at_names(text: str) -> list[tuple[str, str]]:
    """Cuts text at each `name=` outside brackets and strings: an empty name with the text before the first one, and
    each name with its text."""
    parts: list[tuple[str, str]] = []
    name, start, depth, position = "", 0, 0, 0
    may_start = True  # after a comma, a semicolon or a line break
    while position < len(text):
        match = _NAME.match(text, position) if may_start and not depth else None
        if match is not None:
            parts.append((name, text[start:position]))
            name, may_start = match.group(1), False
            start = position = match.end()
            continue
        if text[position] == ";" and not depth:
            position, may_start = position + 1, True
            continue
        match = _TOKEN.match(text, position)
        if match is None:
            raise NotLiteral(f"not a literal at character {position}: {text[position : position + 20]!r}")
        kind, token, position = match.lastgroup, match.group(), match.end()
        depth += (kind == "open") - (kind == "close")
        may_start = token == "," or kind == "space" and (may_start or "\n" in token)
    return [*parts, (name, text[start:])]


def _without_separator(piece: str, *, assignments: bool) -> str:
    """The text of a value without the separator between it and the next name."""
    bare = piece.rstrip(" \t\r\n")
    if bare.endswith(",") or assignments and bare.endswith(";"):
        return bare[:-1]
    if not assignments:
        raise NotLiteral("no comma between two named values")
    return bare


def _check_size(text: str, max_bytes: int) -> None:
    if len(text) > max_bytes or len(text.encode("utf-8", "surrogatepass")) > max_bytes:
        raise NotLiteral(f"text of more than {max_bytes} bytes")


def _scan(text: str, max_bytes: int) -> None:
    _check_size(text, max_bytes)
    stack: list[str] = []
    before, signs, position = "", 0, 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise NotLiteral(f"not a literal at character {position}: {text[position : position + 20]!r}")
        kind, token, position = match.lastgroup, match.group(), match.end()
        if kind == "space":
            continue
        if kind in ("string", "number", "name") and before in ("number", "name") or kind == before == "sign":
            raise NotLiteral(f"two values without a comma before character {position}")
        if kind == "open":
            stack.append(token)
            if len(stack) > canonical.MAX_DEPTH or before in ("string", "number", "name", "close"):
                raise NotLiteral(f"a bracket that opens no literal, or one too many, before character {position}")
        elif kind == "close" and (not stack or stack.pop() != _PAIRS[token]):
            raise NotLiteral(f"a bracket without its pair before character {position}")
        # A sign in front of a number, and one inside a complex number: more would be arithmetic.
        signs = signs + 1 if kind == "sign" else signs if kind == "number" else 0
        if signs > 2:
            raise NotLiteral(f"arithmetic before character {position}")
        before = kind
    if stack:
        raise NotLiteral(f"{len(stack)} brackets are not closed")


def _evaluate(text: str) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an unknown escape in a string is the model's affair
            value = ast.literal_eval(text)
        canonical.encode(value, max_bytes=None)
    except _REFUSALS as error:
        raise NotLiteral(f"not a literal: {str(error)[:100]}") from None
    return value


def _write(value: Any) -> str:
    if type(value) in (float, complex) and not isfinite(value):
        raise NotLiteral(f"{value!r} has no literal text")
    if type(value) is frozenset:
        raise NotLiteral("a frozenset has no literal text")
    if type(value) is list:
        return "[" + ", ".join([_write(item) for item in value]) + "]"
    if type(value) is tuple:
        return "(" + ", ".join([_write(item) for item in value]) + (",)" if len(value) == 1 else ")")
    if type(value) is dict:
        return "{" + ", ".join([f"{_write(key)}: {_write(item)}" for key, item in value.items()]) + "}"
    if type(value) is set:
        return "{" + ", ".join([_write(key) for key in canonical.ordered(value)]) + "}" if value else "set()"
    return repr(value)
