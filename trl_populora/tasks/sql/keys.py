"""When two tasks are the same: not by their names, layout, case, comments, order of tables or order of rows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from trl_populora.tasks.sql.query import Token, normal_tokens, number_names, read_query
from trl_populora.tasks.sql.tables import Table, sorted_rows


def task_key(tables: Sequence[Table], query: str) -> str:
    """
    Equal for tasks that differ in such things only, and for no others.

    Names become numbers in the order in which they first stand in the query, so that each part keeps what it was. The
    names of columns that the query does not mention follow: a NATURAL JOIN compares them.
    """
    tokens = read_query(query)[1]
    first = {token.text: place for place, token in reversed(list(enumerate(tokens)))}
    tables = sorted(tables, key=lambda table: first.get(table.name, len(tokens)))
    names = number_names([*tokens, *(Token("word", name) for table in tables for name, _ in table.columns)])
    known = [
        [
            names.get(table.name, table.name),
            [[names.get(name, name), kind] for name, kind in table.columns],
            sorted_rows(table.rows),
        ]
        for table in tables
    ]
    content = json.dumps([normal_tokens(tokens, names), known])
    return hashlib.sha256(content.encode("ascii")).hexdigest()[:32]
