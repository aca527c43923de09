"""Trials of a query: runs on changed tables, which show whether the query is a fair task.

The query runs on the tables of the task, and on changed tables. The rules concern only the results, so they hold for
any SQL:

- With the rows in another order, or visited in another order, the result must stay the same. This finds LIMIT without
  ORDER BY, ties in an ORDER BY, columns beside an aggregate, group_concat, and sums whose digits depend on the order.
  Among the orders are those of each column, upwards and downwards. In these, `min` and `max` do not choose the row of
  the columns beside them, as they do in SQLite only.
- Where the query leaves the order of rows open, two orders must give the same result, too (`ties.py`). This finds the
  same after GROUP BY and UNION.
- Without the rows of one table, the result must change. Otherwise the query does not use the table.
- With half of a table's rows, or with other values in a column, at least one result must be different and not empty.
  Otherwise the result is a constant.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

from trl_populora.tasks.sql.tables import Cell, Row, Table, check_result, settle, sort_key, sorted_rows, write_tables
from trl_populora.tasks.sql.ties import Place
from trl_populora.tasks.task import Refusal


SHUFFLES = 2  # number of random orders of rows, in addition to the reversed one
Outcome = tuple[str, Any]  # what `harness.run_query` returns


class Trial(NamedTuple):
    """One run of a query."""

    kind: str  # "base", "order", "ties", "empty" or "change"
    tables: tuple[Table, ...]
    reverse: bool = False  # visit rows backwards, and make no index for a join
    plain: bool = False  # `min` and `max` choose no row for columns beside them
    decided: tuple[bool, bool] | None = None  # for "ties": whether columns, and rows in windows, go backwards


def trials(tables: tuple[Table, ...], places: Sequence[Place] = ()) -> list[Trial]:
    """
    All trials of a task, with those of ties if the query has places for them. The first one has the tables as they
    are. Equal arguments give equal trials.
    """
    rng = random.Random(write_tables(tables))
    orders = [_each(tables, (table.rows[::-1] for table in tables))]
    orders += [_each(tables, (rng.sample(table.rows, len(table.rows)) for table in tables)) for _ in range(SHUFFLES)]
    found = [Trial("base", tables), Trial("order", tables, True)]
    found += [Trial("order", order, i % 2 == 0) for i, order in enumerate(orders)]
    for place in range(max(len(table.columns) for table in tables)):  # first and last rows have the ends of a column
        rising = _each(tables, (_by_column(table, place) for table in tables))
        falling = _each(rising, (table.rows[::-1] for table in rising))
        found += [Trial("order", order, plain=True) for order in (rising, falling)]
    if places:
        windows = {bool(place.term) for place in places[:-1]}
        found += [Trial("ties", tables, decided=(False, False))]
        found += [Trial("ties", tables, decided=(not window, window)) for window in sorted(windows)]
    for i, table in enumerate(tables):
        found.append(Trial("empty", _with(tables, i, ())))
        halves = [table.rows[start::2] for start in (0, 1)]
        found += [Trial("change", _with(tables, i, half)) for half in halves if half]
        for place in range(len(table.columns)):
            other = [(*row[:place], _other(row[place]), *row[place + 1 :]) for row in table.rows]
            found.append(Trial("change", _with(tables, i, other)))
    return found


def judge_trials(
    kinds: Sequence[str], tables: Sequence[Table], outcomes: Sequence[Outcome], *, ordered: bool
) -> tuple[Row, ...] | Refusal:
    """
    The result of the query, or the reason why it cannot be a task.

    Args:
        kinds (`Sequence[str]`): Kind of each trial, in the order of [`trials`].
        tables (`Sequence[Table]`): Tables of the task.
        outcomes (`Sequence[Outcome]`): What the harness returned, trial by trial.
        ordered (`bool`): Whether the query orders its whole result. If not, rows are compared as a multiset.
    """
    by_kind = {kind: [o for k, o in zip(kinds, outcomes, strict=True) if k == kind] for kind in set(kinds)}
    for reason, value in [*by_kind["base"], *by_kind["order"], *by_kind.get("ties", [])]:
        if reason != "rows":
            return Refusal(reason, str(value)[:200])
    base = _rows(outcomes[0], ordered)
    if not base:
        return Refusal("empty_result", "the query returns no rows")
    if any(_rows(outcome, ordered) != base for outcome in by_kind["order"]):
        return Refusal("row_order", "the result depends on the order in which rows are stored")
    if any(_rows(outcome, ordered) != base for outcome in by_kind.get("ties", [])):
        return Refusal("row_order", "the query leaves an order open, as by ties, and its result depends on it")
    for table, outcome in zip(tables, by_kind["empty"], strict=True):
        if _rows(outcome, ordered) == base:
            return Refusal("idle_table", f"the result is the same when {table.name} has no rows")
    if all(_rows(outcome, ordered) in (None, [], base) for outcome in by_kind["change"]):
        return Refusal("constant_result", "no change of the tables changes the result")
    try:
        return tuple(tuple(check_result(cell) for cell in row) for row in base)
    except ValueError as error:
        return Refusal("unclear_value", str(error)[:200])


def _rows(outcome: Outcome, ordered: bool) -> list[Row] | None:
    """Rows of an outcome in the form for comparison; `None` if the query failed."""
    reason, rows = outcome
    if reason != "rows":
        return None
    rows = [tuple(settle(cell) for cell in row) for row in rows]
    return rows if ordered else sorted_rows(rows)


def _with(tables: tuple[Table, ...], place: int, rows: Sequence[Row]) -> tuple[Table, ...]:
    return (*tables[:place], tables[place]._replace(rows=tuple(rows)), *tables[place + 1 :])


def _each(tables: tuple[Table, ...], rows: Any) -> tuple[Table, ...]:
    return tuple(table._replace(rows=tuple(own)) for table, own in zip(tables, rows, strict=True))


def _by_column(table: Table, place: int) -> Sequence[Row]:
    """The rows in the order of a column; as they are if the table has fewer columns."""
    if place >= len(table.columns):
        return table.rows
    return sorted(table.rows, key=lambda row: sort_key(row[place]))


def _other(cell: Cell) -> Cell:
    """Another value of the same type."""
    return None if cell is None else f"{cell}x" if isinstance(cell, str) else cell + 1
