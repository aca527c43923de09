"""The key of a task. Tasks with the same key are the same task.

Names, layout, case, comments, the order of tables and the order of rows do not change the key.
"""

from __future__ import annotations

from collections.abc import Sequence

from trl_populora.tasks.sql.query import Token, normal_tokens, number_names, read_query
from trl_populora.tasks.sql.tables import Table, sorted_rows
from trl_populora.tasks.task import digest


def task_key(tables: Sequence[Table], query: str) -> str:
    """
    The key: 32 hexadecimal digits. It is equal for tasks that differ only in what the module names, and for no others.

    Every name becomes a number, in the order in which names first stand in the query. Columns that the query does not
    mention get the numbers after these. They matter, because a NATURAL JOIN compares the names of all columns.
    """
    tokens = read_query(query)[1]
    first = {token.text: place for place, token in reversed(list(enumerate(tokens)))}
    tables = sorted(tables, key=lambda table: first.get(table.name, len(tokens)))
    columns = [name for table in tables for name, _ in table.columns]
    own = {*columns, *(table.name for table in tables)}
    names = number_names([*tokens, *(Token("word", name) for name in columns)], own)
    known = [
        [
            names.get(table.name, table.name),
            [[names.get(name, name), kind] for name, kind in table.columns],
            sorted_rows(table.rows),
        ]
        for table in tables
    ]
    return digest([normal_tokens(tokens, names), known], 32)
