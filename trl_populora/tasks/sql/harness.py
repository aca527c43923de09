"""Runs one query over given tables, in an SQLite database of its own in memory. The query is hostile text.

In a run, queries of models are run only in children of a fork server, by `Job(PROGRAM, inputs, modules=(MODULE,))`.
Seed tasks are run here in the trainer's process, because this package wrote their queries.

SQLite itself limits what a query may do. It asks an authorizer, a function of ours, before every read, call of a
function and kind of statement. The authorizer refuses everything that the lists here do not name. So only one `SELECT`
over the given tables can run, and no result depends on time, chance, files or row numbers.
"""

from __future__ import annotations

import bisect
import itertools
import sqlite3
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from typing import Any


MODULE = "trl_populora.tasks.sql.harness"
PROGRAM = f"from {MODULE} import run_query as f"

FUNCTIONS = frozenset(
    "abs avg ceil ceiling coalesce count cume_dist dense_rank first_value floor glob group_concat ifnull iif instr "
    "lag last_value lead length like lower ltrim max min mod nth_value ntile nullif percent_rank pow power rank "
    "replace round row_number rtrim sign sqrt substr substring sum total trim typeof upper".split()
)
"""Functions that a query may call. The result of each depends only on its arguments. Formats and JSON are left out."""

STEPS = ("floor", "ceil", "ceiling")
TIE = "open_tie"  # a function that decides ties; where none are decided, it does not exist
MAX_COLUMNS = 50  # of a result
MAX_ROWS = 100  # of a result; `result_bytes` of a task allows far fewer
_LIMITS = (
    (sqlite3.SQLITE_LIMIT_LENGTH, 10_000),  # bytes of a value
    (sqlite3.SQLITE_LIMIT_COLUMN, MAX_COLUMNS),
    (sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 100),
    (sqlite3.SQLITE_LIMIT_COMPOUND_SELECT, 20),
    (sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 50),
    (sqlite3.SQLITE_LIMIT_ATTACHED, 0),
    # SQLITE_LIMIT_PARSER_DEPTH, which is new in 3.53. In 3.40, 100 is built in.
    *([(12, 100)] if sqlite3.sqlite_version_info >= (3, 53) else []),
)


def run_query(
    tables: Sequence[tuple[str, Sequence[tuple[str, str]], Sequence[tuple]]],
    query: str,
    reverse: bool,
    max_steps: int,
    decided: tuple[Sequence[tuple[str, str, str, str]], bool, bool] | None = None,
    plain: bool = False,
) -> tuple[str, Any]:
    """
    The result of a query.

    Args:
        tables (`Sequence`): Name, columns (name and type) and rows of each, rows in the order of insertion.
        query (`str`): Text of the query.
        reverse (`bool`):
            Whether SQLite visits rows backwards where the query leaves the order open, and makes no index for a join.
        max_steps (`int`): Instructions of SQLite's virtual machine after which the query is stopped.
        decided (`tuple`, *optional*):
            Places of the query (`ties.Place`) where its order is decided, and whether by its columns backwards, and in
            windows by its rows backwards. The query may then take four times as many instructions.
        plain (`bool`, *optional*, defaults to `False`):
            Whether `min` and `max` are aggregates like others, which do not choose the row of the columns beside them.
            Without effect on a query that uses them in windows.

    Returns:
        `tuple[str, Any]`: `("rows", rows)`; or the reason of a refusal, and a message.
    """
    connection, denied = sqlite3.connect(":memory:", isolation_level=None), []
    empty, unclear = sqlite3.connect(":memory:"), []  # a database to ask what SQLite itself has and does
    try:
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute(f"PRAGMA reverse_unordered_selects = {int(reverse)}")
        connection.execute(f"PRAGMA automatic_index = {int(not reverse)}")
        # The name of another schema before it, as in temp.json_each, would lead to SQLite's own table.
        denied += [name for name, _, _ in tables if _is_built_in(empty, name)]
        if denied:
            return "not_allowed", denied[0]
        connection.execute("BEGIN")
        for name, columns, rows in tables:
            declared = ", ".join(f'"{column}" {kind}' for column, kind in columns)
            connection.execute(f'CREATE TABLE "{name}" ({declared})')
            places = ", ".join("?" * len(columns))
            connection.executemany(f'INSERT INTO "{name}" VALUES ({places})', rows)
        connection.execute("COMMIT")
        for limit, value in _LIMITS:
            connection.setlimit(limit, value)
        text = query.lower()
        for name, counts, function in (("round", (1, 2), _round), *((name, (1,), _whole) for name in STEPS)):
            for count in counts if name in text else ():
                call = partial(function, empty, unclear, name)
                connection.create_function(name, count, call, deterministic=True)
        for name in ("min", "max") if plain else ():
            connection.create_aggregate(name, 1, partial(_Extreme, name))
        connection.set_authorizer(_authorizer({name for name, _, _ in tables}, denied, empty))
        connection.set_progress_handler(lambda: 1, max_steps)
        if decided is not None:
            connection.set_progress_handler(lambda: 1, 4 * max_steps)
            query = _decide(connection, *decided)
        rows = connection.execute(query).fetchmany(MAX_ROWS + 1)
    except (sqlite3.Error, sqlite3.Warning) as error:
        if plain and "window function" in str(error):
            return run_query(tables, query, reverse, max_steps, decided)
        stopped = getattr(error, "sqlite_errorname", "") == "SQLITE_INTERRUPT"
        if denied or unclear:
            return ("not_allowed", denied[0]) if denied else ("unclear_value", unclear[0])
        return "too_many_steps" if stopped else "sql_error", str(error)
    finally:
        connection.close()
        empty.close()
    if len(rows) > MAX_ROWS:
        return "too_large", f"the result has more than {MAX_ROWS} rows"
    if any(isinstance(cell, bytes) for row in rows for cell in row):
        return "unclear_value", "the result has a blob"
    return "rows", rows


class _Extreme:
    """The aggregate `min` or `max`, by the order of SQLite: numbers before texts, and no NULL."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.values: list[Any] = []

    def step(self, value: Any) -> None:
        if value is not None:
            self.values.append(value)

    def finalize(self) -> Any:
        order = {"min": min, "max": max}[self.name]
        return order(self.values, key=lambda value: (isinstance(value, str), value), default=None)


def _whole(empty: sqlite3.Connection, unclear: list[str], name: str, value: Any) -> Any:
    """SQLite's own `floor` or `ceil`. It stops at a number that is a whole one but for rounding, such as `2.3 * 100`:
    the result would be another one."""
    if isinstance(value, float) and 0 < abs(value - round(value)) <= 1e-12 * max(1.0, abs(value)):
        unclear.append(f"{name}({value!r}) depends on how floats are rounded")
        raise ValueError
    return empty.execute(f"SELECT {name}(?)", (value,)).fetchone()[0]


def _round(empty: sqlite3.Connection, unclear: list[str], name: str, value: Any, digits: Any = 0) -> Any:
    """SQLite's own `round`. It stops at a number such as 2.675, which is to be rounded to 2 digits: a float is a bit
    below or above it, and versions of SQLite round it down or up."""
    call = "SELECT round(?1, ?2), CAST(?1 AS REAL), min(30, max(0, CAST(?2 AS INTEGER)))"
    rounded, number, places = empty.execute(call, (value, digits)).fetchone()
    if rounded is not None and abs(number) < 2**52:
        shifted = abs(Fraction(number)) * 10**places
        if 0 < abs(shifted % 1 - Fraction(1, 2)) <= min(shifted / 10**12, Fraction(1, 1000)):
            unclear.append(f"versions of SQLite may differ in round({number!r}, {places})")
            raise ValueError
    return rounded


def _decide(
    connection: sqlite3.Connection, places: Sequence[tuple[str, str, str, str]], columns_back: bool, rows_back: bool
) -> str:
    """The query with as many terms at each place as SQLite accepts there."""
    numbers = itertools.count(1)
    connection.create_function(TIE, 0, lambda: next(numbers) * (-1 if rows_back else 1))
    columns = [f"{number} COLLATE BINARY{' DESC' * columns_back}" for number in range(1, MAX_COLUMNS + 1)]
    query = ""
    for i, (before, start, term, end) in enumerate(places):
        terms = [term] if term else columns
        texts = [start + ", ".join(terms[:count]) + end for count in range(1, len(terms) + 1)] if start else []
        query, rest = f"{query} {before}", " ".join(place[0] for place in places[i + 1 :])
        count = bisect.bisect_left(texts, True, key=partial(_fails, connection, f"EXPLAIN {query}", rest))
        query += texts[count - 1] if count else ""
    return query


def _fails(connection: sqlite3.Connection, before: str, after: str, text: str) -> bool:
    try:
        connection.execute(f"{before}{text} {after}")
    except sqlite3.Error:
        return True
    return False


def _authorizer(tables: set[str], denied: list[str], empty: sqlite3.Connection) -> Callable[..., int]:
    """The authorizer for these tables. It adds to `denied` what it refuses."""

    def authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
        if action == sqlite3.SQLITE_READ and second:
            allowed = first in tables and second.upper() != "ROWID"
        elif action == sqlite3.SQLITE_READ:  # of a whole row, as in count(*): of a table, or of a subquery
            allowed = first in tables or not _is_built_in(empty, first or "")
        elif action == sqlite3.SQLITE_FUNCTION:
            allowed = (second or "").lower() in FUNCTIONS or second == TIE
        else:
            allowed = action == sqlite3.SQLITE_SELECT  # and no SQLITE_RECURSIVE: a recursive query is a loop
        if not allowed:
            denied.append(" ".join(name for name in (first, second) if name) or "the statement")
        return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY

    return authorize


def _is_built_in(empty: sqlite3.Connection, name: str) -> bool:
    """Whether SQLite itself has a table of this name, or makes one, such as `sqlite_master` and `json_each`."""
    return not _fails(empty, "EXPLAIN SELECT 1 FROM ", "", '"' + name.replace('"', '""') + '"')


_WARM = (("t", (("a", "INTEGER"),), ((2,), (1,))),)
for _ in range(3):  # the first queries of a process are slow; children are forked after them
    run_query(_WARM, "SELECT max(a) FROM t GROUP BY a ORDER BY 1", True, 1000)
