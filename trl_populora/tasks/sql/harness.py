"""Runs one query over given tables, in an SQLite of its own. The query is hostile text.

In a run this is called in children of a fork server only: `Job(PROGRAM, inputs, modules=(MODULE,))`. The one exception
are seed tasks, whose queries this package wrote. SQLite itself decides what a query may do: its authorizer is asked
for every read, function and kind of statement, and what is not on the lists here is refused. So nothing but one
`SELECT` over the given tables runs, and nothing that depends on time, chance, files or row numbers.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any


MODULE = "trl_populora.tasks.sql.harness"
PROGRAM = f"from {MODULE} import run_query as f"

FUNCTIONS = frozenset(
    "abs avg ceil ceiling coalesce count cume_dist dense_rank first_value floor glob group_concat ifnull iif instr "
    "lag last_value lead length like lower ltrim max min mod nth_value ntile nullif percent_rank pow power rank "
    "replace round row_number rtrim sign sqrt substr substring sum total trim typeof upper".split()
)
"""Functions that a query may call. Each is a function of its arguments: no clock, no chance, no formats, no JSON."""

MAX_ROWS = 100  # of a result; far above what a task may have
_LIMITS = (
    (sqlite3.SQLITE_LIMIT_LENGTH, 10_000),  # bytes of a value
    (sqlite3.SQLITE_LIMIT_COLUMN, 50),
    (sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 100),
    (sqlite3.SQLITE_LIMIT_COMPOUND_SELECT, 20),
    (sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 50),
    (sqlite3.SQLITE_LIMIT_ATTACHED, 0),
)


def run_query(
    tables: Sequence[tuple[str, Sequence[tuple[str, str]], Sequence[tuple]]],
    query: str,
    reverse: bool,
    max_steps: int,
) -> tuple[str, Any]:
    """
    The result of a query.

    Args:
        tables (`Sequence`): Name, columns (name and type) and rows of each, rows in the order of insertion.
        query (`str`): Text of the query.
        reverse (`bool`):
            Have SQLite visit rows backwards where the query leaves the order open, and make no index for a join.
        max_steps (`int`): Instructions of SQLite's virtual machine after which the query is stopped.

    Returns:
        `tuple[str, Any]`: `("rows", rows)`, or a reason and a message.
    """
    connection, denied = sqlite3.connect(":memory:", isolation_level=None), []
    try:
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute(f"PRAGMA reverse_unordered_selects = {int(reverse)}")
        connection.execute(f"PRAGMA automatic_index = {int(not reverse)}")
        connection.execute("BEGIN")
        for name, columns, rows in tables:
            declared = ", ".join(f'"{column}" {kind}' for column, kind in columns)
            connection.execute(f'CREATE TABLE "{name}" ({declared})')
            places = ", ".join("?" * len(columns))
            connection.executemany(f'INSERT INTO "{name}" VALUES ({places})', rows)
        connection.execute("COMMIT")
        for limit, value in _LIMITS:
            connection.setlimit(limit, value)
        connection.set_authorizer(_authorizer({name for name, _, _ in tables}, denied))
        connection.set_progress_handler(lambda: 1, max_steps)
        rows = connection.execute(query).fetchmany(MAX_ROWS + 1)
    except (sqlite3.Error, sqlite3.Warning) as error:
        stopped = getattr(error, "sqlite_errorname", "") == "SQLITE_INTERRUPT"
        reason = "not_allowed" if denied else "too_many_steps" if stopped else "sql_error"
        return reason, denied[0] if denied else str(error)
    finally:
        connection.close()
    if len(rows) > MAX_ROWS:
        return "too_large", f"the result has more than {MAX_ROWS} rows"
    if any(isinstance(cell, bytes) for row in rows for cell in row):
        return "unclear_value", "the result has a blob"
    return "rows", rows


def _authorizer(tables: set[str], denied: list[str]) -> Callable[..., int]:
    """The function that SQLite asks what a query may do; it notes what it denies."""

    def authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
        if action == sqlite3.SQLITE_READ:
            # Without a column it is a row that counts, of a table or of what stands in WITH or FROM.
            counted = not second and not (first or "").lower().startswith("sqlite_")
            allowed = counted or (first in tables and (second or "").upper() != "ROWID")
        elif action == sqlite3.SQLITE_FUNCTION:
            allowed = (second or "").lower() in FUNCTIONS
        else:
            allowed = action == sqlite3.SQLITE_SELECT  # no recursion: a loop is a program, for other types
        if not allowed:
            denied.append(" ".join(name for name in (first, second) if name) or "the statement")
        return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY

    return authorize


_WARM = (("t", (("a", "INTEGER"),), ((2,), (1,))),)
for _ in range(3):  # what the first queries of a process set up, no child sets up again
    run_query(_WARM, "SELECT max(a) FROM t GROUP BY a ORDER BY 1", True, 1000)
