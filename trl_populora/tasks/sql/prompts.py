"""The text of the prompts: the request and the rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trl_populora.tasks.base import Message
from trl_populora.tasks.parsing import fence
from trl_populora.tasks.sql.harness import FUNCTIONS
from trl_populora.tasks.sql.tables import MAX_COLUMNS, MAX_DECIMALS, MAX_DIGITS
from trl_populora.tasks.task import Task
from trl_populora.tasks.wording import MARKS_RULE, REASONING_NOTE, paragraphs, user


if TYPE_CHECKING:
    from trl_populora.tasks.sql.sql import Sql

EXAMPLE = "people(id INTEGER, name TEXT, height REAL)\n1 | Ann | 1.72\n2 | Bob | NULL"


def task_text(task: Task) -> str:
    """Tables and query of a task as fenced blocks, without its result."""
    return f"{fence('tables', task.payload.tables)}\n{fence('query', task.payload.query)}"


def propose_prompt(limits: Sql, shown: str) -> list[Message]:
    """The prompt for a new task. `shown` is the text of the references; empty if there are none."""
    if limits.style == "compact":
        ask = "Write new tables with rows in a ```tables block, and an SQL query on them in a ```query block."
        return user(paragraphs(ask, shown or fence("tables", EXAMPLE)))
    return user(
        paragraphs(
            "Invent a puzzle about SQL: one or more small tables with rows, and one query on them. The solver sees "
            "tables and query and must work out the result without a computer. SQLite runs the query to get the "
            "right result, so do not give it yourself.",
            "Make the result hard to work out, but possible by careful reasoning: joins, groups, subqueries, "
            "NULL, window functions, rows that only just fall in or out.",
            "A table is a line with its name and typed columns, then one line per row. A blank line ends it:",
            fence("tables", EXAMPLE),
            _rules(limits),
            shown and "These puzzles exist already. Write one that is new, different in its idea, and not easier:",
            shown,
            "First write a short plan: what makes the result hard to find. "
            + REASONING_NOTE
            + " Then give exactly these two blocks:",
            fence("tables", "..."),
            fence("query", "SELECT ..."),
        )
    )


def _rules(limits: Sql) -> str:
    """The rules that the task type and the sandbox apply."""
    return "\n".join(
        [
            "Rules:",
            f"- At most {limits.max_tables} tables, {limits.max_rows} rows in all and {MAX_COLUMNS} columns in each. "
            "Columns are INTEGER, REAL or TEXT. A cell is such a value or NULL, never empty; text holds no bar.",
            "- One statement that starts with SELECT or WITH, without recursion. Names are plain words, not quoted. "
            "There are no parameters. CAST knows INTEGER, REAL, TEXT and NUMERIC.",
            f"- It may call only these functions: {', '.join(sorted(FUNCTIONS))}. Dates are texts such as "
            "2024-05-31; compare them, or take parts of them by substr.",
            "- The result is not empty and depends on the rows of every table. It does not depend on the order "
            "in which rows are stored, or on another that the query leaves open: LIMIT, and row_number or lag over a "
            "window, need an ORDER BY without ties, an ORDER BY of the whole leaves none open, and a column beside an "
            "aggregate is one that is grouped by.",
            f"- Numbers have at most {MAX_DIGITS} digits before and {MAX_DECIMALS} after the point, also in "
            "a text: round averages and quotients. Text in the result is not empty and has no bar, quote or space at "
            "its ends.",
            f"- The query takes at most {limits.max_steps} instructions of SQLite's virtual machine.",
            f"- The tables have at most {limits.tables_bytes} bytes, the query {limits.query_bytes}, the result "
            f"{limits.result_bytes}. Anything larger is refused. Comments in the query are taken out.",
            MARKS_RULE,
            "- It is not an earlier puzzle with other names or another layout.",
        ]
    )


def solve_prompt(limits: Sql, task: Task) -> list[Message]:
    """The prompt for the result of a query."""
    order = "in the order of the query" if task.payload.ordered else "in any order"
    if limits.style == "compact":
        ask = f"What does the query return? Answer in a ```result block, one line per row, {order}."
        return user(paragraphs(ask, task_text(task)))
    return user(
        paragraphs(
            "Work out what this SQL query returns in SQLite. A table is a line with its name and typed columns, "
            "then one line per row; a bar stands between cells.",
            task_text(task),
            f"Give the rows of the result {order}, one line per row, with a bar between cells: no line of column "
            "names. Equal rows stand as often as the query returns them. Write NULL for NULL, and numbers as "
            "decimal numbers.",
            REASONING_NOTE + " Give your answer in this form:",
            fence("result", "... | ..."),
        )
    )
