"""The text of a query: its tokens, what it may contain, its normal form, and its complexity.

SQLite decides in the sandbox what a query may *do* (`harness.py`). The rules here keep its text readable. A query is
one statement of plain words, numbers and 'text'. Students see it without comments. Every function takes linear time.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from trl_populora.tasks.sql.harness import FUNCTIONS


KEYWORDS = frozenset(
    "abort action add after all alter always analyze and as asc attach autoincrement before begin between by cascade "
    "case cast check collate column commit conflict constraint create cross current current_date current_time "
    "current_timestamp database default deferrable deferred delete desc detach distinct do drop each else end escape "
    "except exclude exclusive exists explain fail false filter first following for foreign from full generated glob "
    "group groups having if ignore immediate in index indexed initially inner insert instead intersect into is isnull "
    "join key last left like limit match materialized natural no not nothing notnull null nulls of offset on or order "
    "others outer over partition plan pragma preceding primary query raise range recursive references regexp reindex "
    "release rename replace restrict returning right rollback row rows savepoint select set table temp temporary then "
    "ties to transaction trigger true unbounded union unique update using vacuum values view virtual when where "
    "window with without within".split()
)
CAST_TYPES = frozenset({"integer", "int", "real", "float", "text", "numeric"})
MEANINGFUL = KEYWORDS | FUNCTIONS | CAST_TYPES | {"binary", "nocase", "rtrim", "rowid", "oid", "_rowid_"}
"""Words that may have a meaning in SQLite. Any other word is a name."""
NOT_NAMES = (KEYWORDS - set("action first groups key last match plan query range row rows view".split())) | {
    "rowid", "oid", "_rowid_",
}  # fmt: skip
"""Words that no table or column may have as its name."""

CLAUSES = {
    "where": "where", "group": "group", "having": "having", "order": "order", "limit": "limit", "offset": "limit",
    "distinct": "distinct", "case": "case", "union": "set", "intersect": "set", "except": "set", "over": "window",
    "with": "with", "exists": "exists", "in": "in",
}  # fmt: skip
"""Word -> kind of clause that it begins."""

_TOKEN = re.compile(
    r"(?P<space>[ \t\n\r]+|--[^\n]*|/\*(?:[^*]|\*(?!/))*\*/)"
    r"|(?P<text>'(?:[^']|'')*')"
    r"|(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?![A-Za-z0-9_.]))"
    r"|(?P<word>[A-Za-z_][A-Za-z0-9_]*(?!['A-Za-z0-9_]))"
    r"|(?P<sign>\|\||<<|>>|<=|>=|<>|!=|==|/(?!\*)|[-+*%<>=(),.;])"
)


class Token(NamedTuple):
    """One token. `kind` is `"text"`, `"number"`, `"word"` or `"sign"`; words are in lower case."""

    kind: str
    text: str


def read_query(text: str) -> tuple[str, list[Token]]:
    """
    The query without comments, and its tokens.

    Raises:
        ValueError: If it is not one statement of such tokens that starts with SELECT or WITH.
    """
    pieces, tokens, at = [], [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ValueError(f"{text[at : at + 20]!r} is not a word, number, 'text' or sign of a query")
        kind, piece, at = match.lastgroup or "", match[0], match.end()
        if kind != "space":
            tokens.append(Token(kind, piece.lower() if kind == "word" else piece))
        if kind == "text" and not piece.isprintable():
            raise ValueError("a text in the query is not printable")
        pieces.append(" " if piece.startswith(("--", "/*")) else piece)
    while tokens and tokens[-1].text == ";":
        tokens.pop()
    if ";" in (token.text for token in tokens if token.kind == "sign"):
        raise ValueError("more than one statement")
    if not tokens or tokens[0].text not in ("select", "with"):
        raise ValueError("a query starts with SELECT or WITH")
    _check_casts(tokens)
    lines = [line.rstrip() for line in "".join(pieces).strip().rstrip("; \t\r\n").replace("\r", "").split("\n")]
    return "\n".join(line for line in lines if line), tokens


def is_ordered(tokens: Sequence[Token]) -> bool:
    """Whether the statement as a whole has an ORDER BY."""
    depth = 0
    for token in tokens:
        depth += (token.text == "(") - (token.text == ")")
        if depth == 0 and token == ("word", "order"):
            return True
    return False


def number_names(tokens: Sequence[Token], own: Collection[str] = ()) -> dict[str, int]:
    """Name -> number, in the order in which names first stand. Equal queries have names with equal numbers.

    Args:
        tokens (`Sequence[Token]`): Those of a query, and other names.
        own (`Collection[str]`, *optional*): Names of tables and columns. They may be those of functions and types, if
            the query does not use these.
    """
    around = zip(tokens, [Token("sign", ""), *tokens], [*tokens[1:], Token("sign", "")])
    used = {token.text for token, before, after in around if after.text == "(" or before.text == "as"}
    meaningful = MEANINGFUL - ((FUNCTIONS | CAST_TYPES) & set(own) - used)
    names: dict[str, int] = {}
    for kind, text in tokens:
        if kind == "word" and text not in meaningful:
            names.setdefault(text, len(names))
    return names


def normal_tokens(tokens: Sequence[Token], names: Mapping[str, int]) -> list[str]:
    """The tokens with numbers instead of names. They do not depend on layout, case or the choice of names."""
    same = {"==": "=", "!=": "<>"}
    return [f"#{names[text]}" if text in names else same.get(text, text) for _, text in tokens]


def measure(tokens: Sequence[Token]) -> dict[str, float]:
    """Complexity: number of tokens, joins, kinds of clauses and function calls, and the depth of nested SELECTs."""
    words = [text for kind, text in tokens if kind == "word"]
    depth, deepest, opened = 0, 0, []
    for token, after in zip(tokens, [*tokens[1:], Token("sign", "")], strict=True):
        if token.text == "(":
            opened.append(after == ("word", "select"))
            depth += opened[-1]
            deepest = max(deepest, depth)
        elif token.text == ")" and opened:
            depth -= opened.pop()
    calls = sum(one.text in FUNCTIONS and other.text == "(" for one, other in zip(tokens, tokens[1:]))
    return {
        "tokens": len(tokens),
        "joins": words.count("join"),
        "clauses": len({CLAUSES[word] for word in words if word in CLAUSES}),
        "functions": calls,
        "nesting": deepest,
    }


def _check_casts(tokens: Sequence[Token]) -> None:
    """Raises `ValueError` for a type in a CAST that is not in `CAST_TYPES`. SQLite would accept any name as a type."""
    opened, before = [], Token("sign", "")
    for token, after in zip(tokens, [*tokens[1:], Token("sign", "")], strict=True):
        if token.text == "(":
            opened.append(before.text == "cast")
        elif token.text == ")" and opened:
            opened.pop()
        elif token == ("word", "as") and opened and opened[-1] and after.text not in CAST_TYPES:
            raise ValueError(f"CAST knows the types {', '.join(sorted(CAST_TYPES))}, got {after.text[:20]!r}")
        before = token
