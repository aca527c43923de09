"""Tables and results as text, and the values in them.

A table is a line with its name and typed columns, then one line for each row. A blank line ends it:

    people(id INTEGER, name TEXT, height REAL)
    1 | Ann | 1.72
    2 | Bob | NULL

A result has only the lines of rows. The format contains no SQL, so the text of a table is only data. Each value has
the type of its column. Every table has one normal form. Queries are in `query.py`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from typing import Any, NamedTuple

from trl_populora.tasks.parsing import decimals_in
from trl_populora.tasks.sql.query import NOT_NAMES


Cell = int | float | str | None
Row = tuple[Cell, ...]

TYPES = {"INTEGER": "INTEGER", "INT": "INTEGER", "REAL": "REAL", "FLOAT": "REAL", "TEXT": "TEXT"}
MAX_DIGITS, MAX_DECIMALS = 9, 3  # of a number, before and after its point
MAX_COLUMNS = 8  # of a table
_HEADER = re.compile(r"([A-Za-z_][A-Za-z0-9_]{0,30}) ?\(([^()]*)\)")
_COLUMN = re.compile(r"([A-Za-z_][A-Za-z0-9_]{0,30}) +([A-Za-z]+)")
_INTEGER = re.compile(r"[+-]?[0-9]{1,30}")
_NUMBER = re.compile(r"[+-]?[0-9]{1,30}(?:\.[0-9]{0,30})?")


class Table(NamedTuple):
    """One table. Cells have the type of their column, or are `None`."""

    name: str
    columns: tuple[tuple[str, str], ...]  # name and type, `INTEGER`, `REAL` or `TEXT`
    rows: tuple[Row, ...]


def read_tables(text: str) -> tuple[Table, ...]:
    """Parses tables. Raises `ValueError` with the problem."""
    blocks: list[list[str]] = [[]]
    for line in text.split("\n"):
        if line.strip():
            blocks[-1].append(line.strip())
        elif blocks[-1]:
            blocks.append([])
    tables = tuple(_read_table(lines) for lines in blocks if lines)
    _check_names([table.name for table in tables], "tables")
    return tables


def write_tables(tables: Sequence[Table]) -> str:
    """The normal form of tables, which [`read_tables`] parses."""
    blocks = []
    for name, columns, rows in tables:
        declared = ", ".join(f"{column} {kind}" for column, kind in columns)
        blocks.append(f"{name}({declared})\n{write_rows(rows)}")
    return "\n\n".join(blocks)


def write_rows(rows: Sequence[Row]) -> str:
    return "\n".join(" | ".join(write_cell(cell) for cell in row) for row in rows)


def write_cell(cell: Cell) -> str:
    return "NULL" if cell is None else cell if isinstance(cell, str) else repr(cell)


def split_row(line: str) -> tuple[str, ...]:
    """The texts of the cells of a line. A bar at both ends of the line is optional."""
    line = line.strip()
    if len(line) > 1 and line[0] == line[-1] == "|":
        line = line[1:-1]
    return tuple(cell.strip() for cell in line.split("|"))


def check_cell(cell: object) -> Cell:
    """
    Checks a value of a table or a result.

    Returns:
        `Cell`: The value. A float that differs by rounding only from a number with at most three digits after its
        point becomes that number: 0.1 + 0.2 becomes 0.3.

    Raises:
        ValueError: For text that cannot stand in a cell, a number with too many digits, or another type.
    """
    if cell is None:
        return None
    if type(cell) is str:
        if not cell.isprintable() or "|" in cell or cell != cell.strip() or cell[:1] in ("", "'", '"'):
            raise ValueError(
                "text must be printable and not empty. It must contain no bar, start with no quote, and have no space "
                f"at its ends; got {cell[:40]!r}"
            )
        if cell.upper() == "NULL":
            raise ValueError("the text NULL cannot be distinguished from the value NULL")
        return cell
    if isinstance(cell, bool) or not isinstance(cell, (int, float)) or not abs(cell) < 10**MAX_DIGITS:
        raise ValueError(f"a number has at most {MAX_DIGITS} digits before its point, got {str(cell)[:40]}")
    settled = settle(cell)
    if type(settled) is float and settled != round(settled, MAX_DECIMALS):
        raise ValueError(f"a number has at most {MAX_DECIMALS} digits after its point, got {settled!r}")
    return settled


def check_result(cell: object) -> Cell:
    """As [`check_cell`], of a value of a result: the numbers in a text have as few digits after their points."""
    for number in decimals_in(cell) if isinstance(cell, str) else ():
        if len(number.partition(".")[2].rstrip("0")) > MAX_DECIMALS:
            raise ValueError(f"a number in a text has at most {MAX_DECIMALS} digits after its point, got {number}")
    return check_cell(cell)


ROUNDING = 1e-12
"""What short sums of floats may be off, as a share. (With 1e-9, any large float would have three decimals.)"""


def settle(cell: Cell) -> Cell:
    """The value without rounding errors of floating-point sums; see [`check_cell`]. -0.0 becomes 0.0."""
    if type(cell) is not float:
        return cell
    rounded = round(cell, MAX_DECIMALS) + 0.0
    return rounded if abs(cell - rounded) <= ROUNDING * max(1.0, abs(cell)) else cell


def same_cell(cell: Cell, text: str) -> bool:
    """Whether a text is right for a cell: the same number, or the same text, with or without quotes."""
    if cell is None:
        return text.upper() == "NULL"
    if isinstance(cell, str):
        return text == cell or text in (f"'{cell}'", f'"{cell}"')
    return _NUMBER.fullmatch(text) is not None and Fraction(text) == Fraction(repr(cell))


def same_rows(result: Sequence[Row], rows: Sequence[Sequence[str]], *, ordered: bool) -> bool:
    """Whether these texts are the rows of a result. Compares sequences if `ordered`, otherwise multisets."""
    if len(rows) != len(result):
        return False
    if ordered:
        return all(_same_row(right, row) for right, row in zip(result, rows, strict=True))
    rows = [tuple(row) for row in rows]
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_bipartite_matching

    same = {pair: _same_row(*pair) for pair in set(product(result, rows))}
    fits = [[same[right, row] for row in rows] for right in result]  # 5 and '5' look alike: a row may fit several
    return not rows or bool((maximum_bipartite_matching(csr_array(fits)) >= 0).all())


def sorted_rows(rows: Sequence[Row]) -> list[Row]:
    """Rows in one fixed order: NULL, then numbers, then text, from the first column on."""
    return sorted(rows, key=lambda row: [sort_key(cell) for cell in row])


def sort_key(cell: Cell) -> tuple[int, Any]:
    """Sorts cells in the order of SQLite."""
    return _rank(cell), cell or 0 if not isinstance(cell, str) else cell


def _same_row(right: Row, row: Sequence[str]) -> bool:
    return len(right) == len(row) and all(same_cell(cell, text) for cell, text in zip(right, row, strict=True))


def _rank(cell: Cell) -> int:
    return 0 if cell is None else 2 if isinstance(cell, str) else 1


def _read_table(lines: Sequence[str]) -> Table:
    header = _HEADER.fullmatch(lines[0])
    if header is None:
        raise ValueError(f"a table starts with a line such as people(id INTEGER, name TEXT), got {lines[0][:60]!r}")
    columns = []
    for part in header[2].split(","):
        column = _COLUMN.fullmatch(part.strip())
        if column is None or column[2].upper() not in TYPES:
            raise ValueError(f"a column is a name and INTEGER, REAL or TEXT, got {part.strip()[:60]!r}")
        columns.append((column[1].lower(), TYPES[column[2].upper()]))
    _check_names([name for name, _ in columns], "columns")
    if len(columns) > MAX_COLUMNS:
        raise ValueError(f"a table has at most {MAX_COLUMNS} columns, got {len(columns)}")
    name, rows = header[1].lower(), []
    for line in lines[1:]:
        cells = split_row(line)
        if len(cells) != len(columns):
            raise ValueError(f"{name} has {len(columns)} columns, got {len(cells)} cells in {line[:60]!r}")
        rows.append(tuple(_read_cell(cell, kind) for cell, (_, kind) in zip(cells, columns, strict=True)))
    if not rows:
        raise ValueError(f"{name} has no rows")
    return Table(name, tuple(columns), tuple(rows))


def _read_cell(text: str, kind: str) -> Cell:
    if text == "NULL":
        return None
    if kind == "TEXT":
        quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
        return check_cell(text[1:-1] if quoted else text)
    pattern, make = (_INTEGER, int) if kind == "INTEGER" else (_NUMBER, float)
    if not pattern.fullmatch(text):
        raise ValueError(f"a cell of type {kind} must be such a number or NULL, got {text[:40]!r}")
    return check_cell(make(text))


def _check_names(names: Sequence[str], what: str) -> None:
    taken = sorted(set(names) & NOT_NAMES)
    if taken:
        raise ValueError(f"{what} may not be called {', '.join(taken)}: SQL uses these words")
    if len(set(names)) < len(names):
        raise ValueError(f"two {what} have the same name")
