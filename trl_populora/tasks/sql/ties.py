"""The places of a query where SQL leaves the order of rows open: where a trial can decide it.

A decided order is one of those that the query allows. So if two of them give different results, then the query has
more than one right result. Rows in another order do not show this after GROUP BY or UNION: SQLite sorts there.

- An ORDER BY of a SELECT may have ties. Without one, any order is right. All columns of its rows decide.
- The same holds for the window of a function. There, the order in which SQLite has the rows decides, or its reverse.
  A frame of peers, or a function such as rank, means something else without ties. Such windows stay as they are.

`harness.py` tries each place and leaves out what SQLite does not accept there, so a wrong guess here does no harm.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from trl_populora.tasks.sql.harness import TIE
from trl_populora.tasks.sql.query import Token


class Place(NamedTuple):
    """Where terms of an ORDER BY can be written."""

    before: str  # the query between the previous place and this one
    start: str  # what goes before the terms
    term: str  # one term; empty for the numbers of the columns
    end: str  # what goes after the terms


class Level(NamedTuple):
    """The tokens in one pair of parentheses, or the whole query."""

    kind: str  # "select", "window" or "other"
    first: int  # its first token
    words: dict[str, int]  # its words outside of inner parentheses, and the first place of each
    name: str  # of a window in a WINDOW clause


_PEERS = frozenset("rank dense_rank percent_rank cume_dist".split())
_BY_ROW = frozenset("row_number lag lead ntile first_value".split())  # may use an order without ties in any window
_ALL_ROWS = " ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"  # what a window without an order means


def open_places(tokens: Sequence[Token]) -> tuple[Place, ...]:
    """The places, in their order; the last one has the end of the query. Empty if no order can matter."""
    found: dict[int, tuple[str, str, str]] = {}  # token -> what goes before it
    users: dict[str, set[str]] = {}  # named window -> its functions
    named: list[tuple[Level, int]] = []
    closed: dict[int, Level] = {}  # closing parenthesis -> its level
    levels = [Level("select", 0, {}, "")]
    for i, token in enumerate(tokens):
        if token == ("sign", "("):
            levels.append(_open(tokens, i))
        elif token == ("sign", ")") and len(levels) > 1:
            level = closed[i] = levels.pop()
            if level.kind == "select":
                found |= _select(level, i, end="" if "limit" in level.words else " LIMIT -1")
            elif level.name:
                named.append((level, i))
            elif level.kind == "window":
                function = _function(tokens, level.first - 2, closed)
                users.setdefault(tokens[level.first].text, set()).add(function)
                found |= _window(level, i, {function})
        elif token.kind == "word":
            if token.text not in ("rows", "range", "groups") or _begins_frame(tokens, i):
                levels[-1].words.setdefault(token.text, i)
            if i and tokens[i - 1] == ("word", "over"):
                users.setdefault(token.text, set()).add(_function(tokens, i - 1, closed))
    for level, _ in reversed(named):  # who uses a window also uses the one that it begins with
        users.setdefault(tokens[level.first].text, set()).update(users.get(level.name, ()))
    for level, end in named:
        found |= _window(level, end, users.get(level.name, set()))
    if {"order", "limit"} & levels[0].words.keys():
        found |= _select(levels[0], len(tokens), end="")
    places, at = [], 0
    for i in sorted(found):
        places.append(Place(_text(tokens[at:i]), *found[i]))
        at = i
    return (*places, Place(_text(tokens[at:]), "", "", "")) if places else ()


def _open(tokens: Sequence[Token], i: int) -> Level:
    """The level that the parenthesis at `i` begins."""
    first = tokens[i + 1].text if i + 1 < len(tokens) else ""
    if first in ("select", "with"):
        return Level("select", i + 1, {}, "")
    before = tokens[i - 1].text if i else ""
    is_named = before == "as" and i > 1 and first != "values"
    kind = "window" if is_named or before == "over" else "other"
    return Level(kind, i + 1, {}, tokens[i - 2].text if is_named else "")


def _begins_frame(tokens: Sequence[Token], i: int) -> bool:
    """Whether a word is not the name of a column."""
    after = tokens[i + 1] if i + 1 < len(tokens) else Token("", "")
    return after.kind == "number" or after.text in ("between", "unbounded", "current")


def _select(level: Level, end_at: int, end: str) -> dict[int, tuple[str, str, str]]:
    """The place of a SELECT. With a LIMIT, SQLite keeps an order inside another query."""
    return {level.words.get("limit", end_at): (", " if "order" in level.words else " ORDER BY ", "", end)}


def _window(level: Level, end_at: int, functions: set[str]) -> dict[int, tuple[str, str, str]]:
    """The place of a window, if an order without ties keeps the meaning of these functions."""
    frame = next((word for word in ("rows", "range", "groups") if word in level.words), "")
    ordered = "order" in level.words
    by_row = frame == "rows" or not ordered or functions <= _BY_ROW
    if not functions or functions & _PEERS or frame in ("range", "groups") or "exclude" in level.words or not by_row:
        return {}
    start, end = ", " if ordered else " ORDER BY ", "" if ordered or frame else _ALL_ROWS
    return {level.words.get(frame, end_at): (start, f"{TIE}()", end)}


def _function(tokens: Sequence[Token], over: int, closed: dict[int, Level]) -> str:
    """The name of the function before this OVER; there may be a FILTER between them."""
    for _ in range(2):
        opened = closed[over - 1].first - 1 if over - 1 in closed else 0
        name = tokens[opened - 1].text if opened else ""
        if name != "filter":
            return name
        over = opened - 1
    return ""


def _text(tokens: Sequence[Token]) -> str:
    return " ".join(token.text for token in tokens)
