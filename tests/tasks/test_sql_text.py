"""The text of tables, results and queries: what is read, its normal form, and when two tasks are the same."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.drawn_examples import examples
from trl_populora.tasks.parsing import fence
from trl_populora.tasks.sql import Sql
from trl_populora.tasks.sql.query import is_ordered, measure, read_query
from trl_populora.tasks.sql.tables import (
    Table,
    check_cell,
    check_result,
    read_tables,
    same_cell,
    split_row,
    write_rows,
    write_tables,
)


TABLE = "people(id INTEGER, name TEXT, height REAL)\n1 | Ann | 1.72\n2 | Bob | NULL"


def is_cell(text):
    try:
        return check_cell(text) == text
    except ValueError:
        return False


NAMES = st.from_regex(r"[a-z]{2}[0-9]{1,3}", fullmatch=True)
CELLS = {
    "INTEGER": st.integers(-(10**9) + 1, 10**9 - 1) | st.none(),
    "REAL": st.integers(-(10**6), 10**6).map(lambda n: n / 1000) | st.none(),
    "TEXT": st.text(max_size=12).filter(is_cell) | st.none(),
}


@st.composite
def tables(draw):
    found = []
    for name in draw(st.lists(NAMES, min_size=1, max_size=3, unique=True)):
        names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
        kinds = [draw(st.sampled_from(sorted(CELLS))) for _ in names]
        rows = draw(st.lists(st.tuples(*(CELLS[kind] for kind in kinds)), min_size=1, max_size=4))
        found.append(Table(name, tuple(zip(names, kinds, strict=True)), tuple(rows)))
    return tuple(found)


@pytest.mark.slow
@given(tables())
def test_tables_come_back_from_their_normal_form(some):
    assert read_tables(write_tables(some)) == some


@pytest.mark.slow
@given(tables())
def test_the_text_of_a_row_is_right_for_that_row(some):
    for table in some:
        for row, line in zip(table.rows, write_rows(table.rows).split("\n"), strict=True):
            texts = split_row(line)
            assert len(texts) == len(row) and all(map(same_cell, row, texts))


@examples(300)
@given(st.text(max_size=200) | st.text(alphabet="ab1 '|(),\n;-/*_.INTEGERx", max_size=200))
def test_any_text_is_read_or_refused(text):
    for read in (read_tables, read_query):
        with contextlib.suppress(ValueError):
            read(text)
    for cell in (None, "a", 5, 0.5):
        assert same_cell(cell, text) in (True, False)


@pytest.mark.parametrize(
    "text",
    [
        TABLE.replace(" | ", "|"),
        TABLE.replace("INTEGER", "int").replace("REAL", "float").replace("people", "People"),
        "\n\n" + TABLE.replace("\n", "  \n  ") + "\n \n",
        TABLE.replace("1 | Ann | 1.72", "| 1 | 'Ann' | +1.720 |"),
    ],
)
def test_layout_of_tables_does_not_matter(text):
    assert write_tables(read_tables(text)) == TABLE


@pytest.mark.parametrize(
    "text, words",
    [
        ("1 | 2", "a table starts with a line such as"),
        ("CREATE TABLE t(a INTEGER)\n1", "a table starts with a line such as"),
        ("t()\n1", "a column is a name and"),
        ("t(a)\n1", "a column is a name and"),
        ("t(a BLOB)\n1", "a column is a name and"),
        ("t(a INTEGER PRIMARY KEY)\n1", "a column is a name and"),
        ("t(a INTEGER, A TEXT)\n1 | x", "two columns have the same name"),
        ("t(a INTEGER)\n1\n\nT(b INTEGER)\n1", "two tables have the same name"),
        ("select(a INTEGER)\n1", "SQL uses these words"),
        ("t(rowid INTEGER)\n1", "SQL uses these words"),
        ("t(" + ", ".join(f"a{i} TEXT" for i in range(9)) + ")\n1", "at most 8 columns, got 9"),
        ("t(a INTEGER)", "t has no rows"),
        ("t(a INTEGER)\n1 | 2", "t has 1 columns, got 2 cells"),
        ("t(a INTEGER)\nx", "such a number or NULL, got 'x'"),
        ("t(a INTEGER)\n1.5", "such a number or NULL, got '1.5'"),
        ("t(a INTEGER)\n٣", "such a number or NULL"),
        ("t(a REAL)\nnan", "such a number or NULL"),
        ("t(a REAL)\n1e5", "such a number or NULL"),
        ("t(a REAL)\n0.1234", "at most 3 digits after"),
        ("t(a INTEGER)\n1234567890", "at most 9 digits before"),
        ("t(a TEXT, b TEXT)\nx |", "text must be printable and not empty"),
        ("t(a TEXT)\n''", "text must be printable and not empty"),
        ("t(a TEXT)\n\u202ex", "text must be printable"),
        ("t(a TEXT)\n'null'", "cannot be distinguished from"),
    ],
)
def test_what_is_no_table(text, words):
    with pytest.raises(ValueError, match=words):
        read_tables(text)


def test_floats_lose_the_noise_of_sums_and_nothing_else():
    assert check_cell(0.1 + 0.2) == 0.3 and str(check_cell(-0.0)) == "0.0" and type(check_cell(3.0)) is float
    for value in (1 / 3, 0.1234, 1e9, float("inf"), float("nan"), 10**9, b"x", True and "NULL"):
        with pytest.raises(ValueError):
            check_cell(value)


def test_texts_have_the_decimals_of_numbers():
    for text in ("0.125", "a 2.5000", "1.2.3", "10.0.19045", "12345678901", "2024.05.31", "1.5 and 2.25", "-.5"):
        assert check_result(text) == text
    for text in ("0.1234", "x0.42857142857142855", "1.5 and 2.2501", "-.0625", "0.428571.0"):
        with pytest.raises(ValueError, match="a number in a text has at most 3 digits after its point"):
            check_result(text)
        assert check_cell(text) == text  # as the text of a table, which the student only reads


@pytest.mark.parametrize(
    "cell, right, wrong",
    [
        (5, ["5", "5.0", "+5", "5.", "005"], ["5.1", "five", "", "'5'", "5,0", "٥", "5e0", "4.9999999999", "NULL"]),
        (0.3, ["0.3", "0.30"], ["0.30000000000000004", "3/10", ".3.", "1/0"]),
        (-2.5, ["-2.5", "-2.50"], ["2.5", "--2.5"]),
        (0.0, ["0", "-0", "0.0"], ["", "NULL"]),
        (None, ["NULL", "null"], ["", "None", "0"]),
        ("Ann", ["Ann", "'Ann'", '"Ann"'], ["ann", "Ann.", "'Ann", ""]),
        ("5", ["5", "'5'"], ["5.0"]),
    ],
)
def test_when_a_text_is_right_for_a_cell(cell, right, wrong):
    assert all(same_cell(cell, text) for text in right)
    assert not any(same_cell(cell, text) for text in wrong)


@pytest.mark.parametrize(
    "text, normal",
    [
        ("SELECT a -- the answer is 5\nFROM t;", "SELECT a\nFROM t"),
        ("/* x */ SELECT a /* y\nz */ FROM t ; ;", "SELECT a   FROM t"),
        ("select '--' || '/*' || 'it''s; so' from t", "select '--' || '/*' || 'it''s; so' from t"),
        ("SELECT 1.5, .5, 2e3, a.b<>c", "SELECT 1.5, .5, 2e3, a.b<>c"),
    ],
)
def test_comments_and_the_end_are_taken_off(text, normal):
    assert read_query(text)[0] == normal
    assert read_query(normal) == read_query(text)


@pytest.mark.parametrize(
    "text",
    [
        "", ";", "-- SELECT 1", "VALUES (1)", "EXPLAIN SELECT 1", "PRAGMA user_version", "INSERT INTO t VALUES (1)",
        "SELECT 1; SELECT 2", "SELECT 1; DROP TABLE t", 'SELECT "a"', "SELECT `a`", "SELECT [a]", "SELECT ?",
        "SELECT :a", "SELECT @a", "SELECT $a", "SELECT x'41'", "SELECT 0x1F", "SELECT 1a", "SELECT 'a",
        "SELECT 1 /* a", "SELECT 'a\nb'", "SELECT 'a\u202eb'", "SELECT é", "SELECT '\ud800'", "SELECT \x00",
        "SELECT CAST(a AS BLOB)", "SELECT CAST(a AS point)", "SELECT a & 1", "SELECT 1\\2", "SELECT {1}",
    ],
)  # fmt: skip
def test_what_is_no_query(text):
    with pytest.raises(ValueError):
        read_query(text)


def test_reading_a_query_takes_linear_time():
    for text in ("'" * 99_999, "a" * 99_999 + "'", "9" * 99_999 + "a", "/*" + "*" * 99_999, "(" * 99_999 + "?"):
        with pytest.raises(ValueError):
            read_query(text)


@pytest.mark.parametrize(
    "query, ordered",
    [
        ("SELECT a FROM t ORDER BY a", True),
        ("SELECT a FROM t UNION SELECT a FROM u order by 1 LIMIT 2", True),
        ("SELECT a FROM (SELECT a FROM t ORDER BY a)", False),
        ("SELECT rank() OVER (ORDER BY a) FROM t", False),
        ("SELECT ' ORDER BY (' FROM t", False),
        ("SELECT ')' FROM t WHERE a IN (SELECT a FROM u ORDER BY '(' LIMIT 1)", False),
    ],
)
def test_whether_the_whole_is_ordered(query, ordered):
    assert is_ordered(read_query(query)[1]) is ordered


def test_measures():
    query = "SELECT a, max(b) FROM t JOIN u ON t.a = (SELECT max(c) FROM (SELECT c FROM v)) WHERE 'join' GROUP BY a"
    assert measure(read_query(query)[1]) == {"tokens": 35, "joins": 1, "clauses": 2, "functions": 2, "nesting": 2}


def key(tables_text, query):
    kind = Sql()
    draft = kind.parse_proposal(f"{fence('tables', tables_text)}\n{fence('query', query)}", [])
    tables, text, ordered, _ = draft.content
    assert draft.key == kind.key(kind.payload(write_tables(tables), text, ordered, ()))
    return draft.key


T = "t(a INTEGER, b TEXT)\n1 | x\n2 | y"
U = "u(a INTEGER, c INTEGER)\n1 | 5\n2 | 6"
JOIN = "SELECT t.b, p.c FROM t JOIN u AS p ON p.a = t.a WHERE p.c > 5"


@pytest.mark.parametrize(
    "tables_text, query",
    [
        (f"{T}\n\n{U}", "select T.b, P.C\n  from t join U as P\n on P.a=T.a where P.c>5 -- so\n;"),
        (f"{U}\n\n{T}", JOIN),
        ("t(a INTEGER, b TEXT)\n2 | y\n1 | x\n\n" + U, JOIN),
        (
            "men(nr INTEGER, job TEXT)\n1 | x\n2 | y\n\nwork(nr INTEGER, pay INTEGER)\n1 | 5\n2 | 6",
            "SELECT men.job, w.pay FROM men JOIN work AS w ON w.nr = men.nr WHERE w.pay > 5",
        ),
    ],
)
def test_the_same_task_in_other_words(tables_text, query):
    assert key(tables_text, query) == key(f"{T}\n\n{U}", JOIN)


@pytest.mark.parametrize(
    "tables_text, query",
    [
        (f"{T}\n\n{U}", JOIN.replace("> 5", ">= 5")),
        (f"{T}\n\n{U}", JOIN.replace("t.b", "t.a")),
        (f"{T}\n\n{U}".replace("x", "X"), JOIN),
        (f"{T}\n\n{U}".replace("1 | 5", "1 | 5\n1 | 5"), JOIN),
        (f"{T}\n\n{U}", JOIN.replace("JOIN u AS p", "LEFT JOIN u AS p")),
        (f"{T}\n\n{U}".replace("c INTEGER", "c REAL"), JOIN),
    ],
)
def test_another_task(tables_text, query):
    assert key(tables_text, query) != key(f"{T}\n\n{U}", JOIN)


def test_names_that_decide_are_kept_apart():
    both = "t(a INTEGER, b INTEGER)\n1 | 5\n2 | 5\n\nu(a INTEGER, b INTEGER)\n1 | 5\n2 | 5"
    assert key(both, "SELECT * FROM t NATURAL JOIN u") != key(
        both.replace("u(a INTEGER, b", "u(a INTEGER, c"), "SELECT * FROM t NATURAL JOIN u"
    )
    assert key(both, "SELECT t.a AS b FROM t, u ORDER BY b") != key(both, "SELECT t.a AS c FROM t, u ORDER BY t.b")
    assert key(T, "SELECT CAST(a AS REAL) FROM t") != key(T, "SELECT CAST(a AS TEXT) FROM t")
    assert key(T, "SELECT '1' FROM t") != key(T, "SELECT 1 FROM t")
    assert key(T, "SELECT min(a) FROM t") != key(T, "SELECT max(a) FROM t")
