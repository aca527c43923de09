"""SQL results: what a query may do, what makes a task, and what answers it. The contract itself: tests/testing."""

import contextlib
import random
import sqlite3
import sys
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import trl_populora
from trl_populora.executor import Executor, Job, Limits
from trl_populora.tasks.parsing import fence
from trl_populora.tasks.sql import Sql
from trl_populora.tasks.sql.families import FAMILIES
from trl_populora.tasks.sql.harness import MODULE, PROGRAM, run_query
from trl_populora.tasks.sql.keys import task_key
from trl_populora.tasks.sql.sql import SqlTask
from trl_populora.tasks.sql.tables import read_tables, same_rows, split_row, write_rows
from trl_populora.tasks.sql.trials import trials
from trl_populora.tasks.task import Draft, Payload, Refusal, Task


T = "t(a INTEGER, b TEXT)\n1 | x\n2 | y\n3 | y"
U = "u(a INTEGER, c REAL)\n1 | 0.1\n1 | 0.2\n3 | NULL"
BOTH = f"{T}\n\n{U}"


def limits_depth():
    """Whether it is limited how deep a query is nested: SQLite 3.40 has a limit, and from 3.53 on we set one."""
    with contextlib.closing(sqlite3.connect(":memory:")) as connection, contextlib.suppress(sqlite3.OperationalError):
        connection.execute(f"SELECT {'(' * 300}1{')' * 300}")
        return sqlite3.sqlite_version_info >= (3, 53)
    return True


DEEP = ["SELECT " + "(" * 300 + "t.a" + ")" * 300 + " FROM t, u", "SELECT " + "+ " * 300 + "t.a FROM t, u"]


@pytest.fixture(scope="module")
def run():
    with Executor(1, Limits(cpu_seconds=2, wall_seconds=30)) as executor:
        yield executor.run_many


def nothing_runs(jobs):
    raise AssertionError("answers are judged without a program")


def propose(tables, query, run, **settings):
    kind = Sql(**settings)
    draft = kind.parse_proposal(f"{fence('tables', tables)}\n{fence('query', query)}", [])
    return draft if isinstance(draft, Refusal) else kind.verify([draft], run)[0]


def task_of(tables, query, run):
    payload = propose(tables, query, run)
    assert isinstance(payload, Payload), payload
    return Task.create("sql", payload)


def solved(task, text):
    kind = Sql()
    answer = kind.parse_answer(task, fence("result", text))
    return answer.reason if isinstance(answer, Refusal) else kind.judge([task], [answer], nothing_runs)[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "query, ordered, result",
    [
        ("SELECT * FROM t JOIN u USING (a)", False, ((1, "x", 0.1), (1, "x", 0.2), (3, "y", None))),
        ("SELECT b, sum(c) FROM t LEFT JOIN u USING (a) GROUP BY b", False, (("x", 0.3), ("y", None))),
        ("SELECT t.a FROM t, u WHERE u.c > 0.15 ORDER BY t.a DESC LIMIT 2", True, ((3,), (2,))),
        ("SELECT b FROM t WHERE a NOT IN (SELECT a FROM u)", False, (("y",),)),
        ("SELECT t.b, rank() OVER (ORDER BY u.c DESC) FROM t JOIN u USING (a)", False, (("x", 1), ("x", 2), ("y", 3))),
        ("SELECT CAST(sum(a) AS REAL) / 2 FROM (SELECT a FROM t UNION ALL SELECT a FROM u)", False, ((5.5,),)),
        (
            "WITH v AS (SELECT * FROM t, u) SELECT count(*), (SELECT count(*) FROM (SELECT a FROM u)) FROM v",
            False,
            ((9, 3),),
        ),
        ("SELECT count(*) FROM t, u", False, ((9,),)),
        (
            "WITH n(i) AS (SELECT a + 1 FROM t) SELECT i, b FROM n JOIN t ON t.a = n.i JOIN u USING (a)",
            False,
            ((3, "y"),),
        ),
        ("SELECT group_concat(b, '-') FROM (SELECT b FROM t JOIN u USING (a) WHERE c > 0.15)", False, (("x",),)),
    ],
)
def test_the_result_is_that_of_sqlite(query, ordered, result, run):
    payload = propose(BOTH, query, run)
    assert isinstance(payload, Payload), payload
    assert (payload.result, payload.ordered) == (result, ordered)


NOT_ALLOWED = [
    "SELECT random() FROM t, u", "SELECT a FROM t JOIN u USING (a) ORDER BY random()", "SELECT date('now') FROM t, u",
    "SELECT strftime('%s') FROM t, u", "SELECT current_timestamp FROM t, u", "SELECT rowid FROM t",
    "SELECT t.a FROM t, u WHERE u._rowid_ = 1", "SELECT load_extension('x') FROM t, u", "SELECT changes() FROM t, u",
    "SELECT sqlite_version() FROM t, u", "SELECT printf('%.*c', 900000000, 'x') FROM t, u", "SELECT hex(b) FROM t, u",
    "SELECT zeroblob(9) FROM t, u", "SELECT name FROM sqlite_master, t, u", "SELECT count(*) FROM sqlite_schema, t, u",
    "SELECT count(*) FROM pragma_database_list, t, u", "SELECT count(*) FROM t, u, json_each('[1]')",
    "SELECT * FROM json_each('[1]'), t, u", "SELECT count(*) FROM t, u, json_each AS v",
    "SELECT count(*) FROM t, u, dbstat",
    "SELECT * FROM pragma_table_info('t'), u", "SELECT * FROM pragma_database_list, t, u",
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9) SELECT i FROM n, t, u",
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n, t, u",
    "WITH x AS (SELECT 1) INSERT INTO t SELECT 1, 'x'", "WITH x AS (SELECT 1) DELETE FROM t",
    "WITH x AS (SELECT 1) UPDATE t SET a = 1", "SELECT b FROM t WHERE b MATCH 'x'", "SELECT * FROM dbstat, t, u",
]  # fmt: skip


@pytest.mark.parametrize("query", NOT_ALLOWED)
def test_sqlite_refuses_what_is_not_on_the_lists(query, run):
    refusal = propose(BOTH, query, run)
    assert refusal.reason == "not_allowed" or "no such table: dbstat" in refusal.detail, refusal


@pytest.mark.parametrize(
    "query, reason",
    [
        ("SELECT t.a FROM t, u LIMIT 1", "row_order"),
        ("SELECT t.b, u.c FROM t JOIN u USING (a) ORDER BY b", "row_order"),  # a tie that is left open
        ("SELECT t.b, t.a FROM t JOIN u ON 1 GROUP BY t.b", "row_order"),  # a column beside an aggregate
        ("SELECT group_concat(b) FROM t JOIN u USING (a)", "row_order"),
        ("SELECT row_number() OVER (), b FROM t JOIN u USING (a)", "row_order"),
        ("SELECT first_value(t.a) OVER (ORDER BY b) FROM t, u WHERE b = 'y'", "row_order"),
        ("SELECT b FROM t WHERE a > 9 UNION SELECT b FROM t JOIN u USING (a) WHERE c > 9", "empty_result"),
        ("SELECT 5", "idle_table"),
        ("SELECT max(a) FROM t", "idle_table"),
        ("SELECT a FROM t UNION SELECT a FROM u WHERE 0", "idle_table"),
        ("SELECT 5 FROM t, u LIMIT 1", "constant_result"),
        ("SELECT 7 WHERE EXISTS (SELECT 1 FROM t) AND EXISTS (SELECT 1 FROM u)", "constant_result"),
        ("SELECT DISTINCT 12 * 12 FROM t, u", "constant_result"),
        ("SELECT t.a / 3.0 FROM t, u", "unclear_value"),
        ("SELECT t.a * 1000000000 FROM t, u", "unclear_value"),
        ("SELECT (t.a / 7.0) || '' FROM t, u", "unclear_value"),
        ("SELECT CAST(sum(t.a / 7.0) AS TEXT) FROM t, u", "unclear_value"),
        ("SELECT 'about ' || sqrt(t.a + 1) || ' m' FROM t, u", "unclear_value"),
        ("SELECT 9e999 FROM t, u", "unclear_value"),
        ("SELECT b || '|' FROM t, u", "unclear_value"),
        ("SELECT substr(b, 2) FROM t, u", "unclear_value"),
        ("SELECT 'NULL' FROM t, u", "unclear_value"),
        ("SELECT '<thi' || 'nk>' FROM t, u", "reserved_text"),
        ("SELECT '<|end' FROM t, u", "reserved_text"),
        ("SELECT b FROM t, u WHERE", "sql_error"),
        ("SELECT nothing FROM t, u", "sql_error"),
        ("SELECT b FROM t JOIN u USING (a) WHERE b LIKE '" + "%" * 60 + "'", "sql_error"),
        ("SELECT replace(replace(b, 'y', '" + "y" * 300 + "'), 'y', '" + "y" * 300 + "') FROM t, u", "sql_error"),
        *[(query, "sql_error") for query in DEEP if limits_depth()],
        ("SELECT count(*) FROM t AS q, t AS r, t AS s, t AS t, u AS u, u AS v, u AS w", "too_many_steps"),
        ("SELECT count(*) FROM " + ", ".join(f"t AS t{i}" for i in range(40)) + ", u", "too_many_steps"),
        ("SELECT t.* , u.* FROM t, u, t AS v, u AS w, t AS x", "too_large"),
        ("PRAGMA table_info(t)", "not_a_query"),
        ("EXPLAIN SELECT * FROM t", "not_a_query"),
        ("ATTACH 'x' AS y", "not_a_query"),
        ("DROP TABLE t", "not_a_query"),
        ("SELECT * FROM t; DROP TABLE t", "not_a_query"),
    ],
)  # fmt: skip
def test_what_makes_no_task(query, reason, run):
    refusal = propose(BOTH, query, run)
    assert isinstance(refusal, Refusal) and refusal.reason == reason, refusal


@pytest.mark.slow
def test_names_that_grow_without_bound_end_in_the_sandbox(run):
    doubled = ", ".join(f"v{i + 1} AS (SELECT 1 FROM v{i} AS a, v{i} AS b)" for i in range(12))
    refusal = propose(BOTH, f"WITH v0 AS (SELECT 1 FROM t, u), {doubled} SELECT count(*) FROM v12", run)
    assert isinstance(refusal, Refusal) and refusal.reason in {"too_many_steps", "sql_error", "cpu_timeout", "memory"}


@pytest.mark.parametrize(
    "query",
    [
        "SELECT b.value FROM main.json_each AS a, temp.json_each(a.value) AS b",
        "SELECT b.value FROM json_each AS a, nowhere.json_each(a.value) AS b",
        "SELECT value FROM json_each UNION ALL SELECT value FROM temp.json_each('[1, 2]')",
        "SELECT count(*) FROM Json_Each",
        "SELECT value FROM json_each",
    ],
)
def test_no_table_may_hide_one_of_sqlites_own(query, run):
    refusal = propose("json_each(value TEXT)\n[1, 2]\n[5]", query, run)
    assert isinstance(refusal, Refusal) and refusal.reason == "not_allowed" and "json_each" in refusal.detail, refusal


@pytest.mark.parametrize(
    "query", ["SELECT * FROM t", "SELECT a FROM t; DROP TABLE t", "DROP TABLE t", "PRAGMA x", "?"]
)
def test_the_harness_alone_lets_one_select_through(query):
    """Without the rules on text: SQLite decides."""
    tables = tuple(map(tuple, read_tables(T)))
    reason, found = run_query(tables, query, False, 1000)
    assert reason == "rows" if query == "SELECT * FROM t" else reason in ("not_allowed", "sql_error"), found


def test_the_sandbox_gives_plain_rows_that_do_not_vary(run):
    inputs = ((tuple(map(tuple, read_tables(BOTH))), "SELECT c, b FROM t JOIN u USING (a)", False, 1000),)
    (execution,) = run([Job(PROGRAM, inputs, deterministic=True, modules=(MODULE,))])
    assert execution.values[0].value == ("rows", [(0.1, "x"), (0.2, "x"), (None, "y")])


@given(st.integers(-99_999, 99_999), st.integers(0, 4), st.integers(-1, 4))
@example(2675, 3, 2)
@example(125, 3, 2)
def test_round_gives_what_sqlite_gives_except_at_ties_that_no_float_holds(digits, decimals, places):
    number = Fraction(digits, 10**decimals)
    halfway = abs(number * 10 ** max(0, places)) % 1 == Fraction(1, 2)
    tables = (("t", (("x", "REAL"),), ((float(number),),)),)
    reason, found = run_query(tables, f"SELECT Round(x, {places}), x FROM t", False, 1000)
    if halfway and Fraction(float(number)) != number:
        assert reason == "unclear_value" and f"round({float(number)!r}, {places})" in found
    else:
        with contextlib.closing(sqlite3.connect(":memory:")) as plain:
            call = plain.execute("SELECT round(?1, ?2), ?1", (float(number), places))
            assert (reason, found) == ("rows", call.fetchall())


def test_round_takes_any_arguments_that_sqlites_own_takes(run):
    calls = "round(NULL), round(2.5, NULL), round('2.36x', '1'), round(7), round(-2.5), round(2.5, 99), round(1e300)"
    (row,) = run_query((), f"SELECT {calls}", False, 1000)[1]
    assert row == (None, None, 2.4, 7.0, -3.0, 2.5, 1e300)
    assert run_query((), "SELECT round(1, 2, 3)", False, 1000)[0] == "sql_error"
    refusal = propose(BOTH, "SELECT round(sum(c) / 0.4, 1) FROM t JOIN u USING (a)", run)
    assert refusal == Refusal("unclear_value", "versions of SQLite may differ in round(0.7500000000000001, 1)")


def test_limits_are_settings(run):
    query = "SELECT b FROM t WHERE a > 1"
    assert isinstance(propose(T, query, run, max_tables=1, max_rows=3, result_bytes=3), Payload)
    limits = ["max_rows=2", "tables_bytes=20", "query_bytes=10", "result_bytes=2", "max_steps=5"]
    names = [limit.partition("=") for limit in limits]
    reasons = [propose(T, query, run, **{name: int(value)}).reason for name, _, value in names]
    assert reasons == ["too_large"] * 4 + ["too_many_steps"]
    assert propose(BOTH, "SELECT * FROM t, u", run, max_tables=1).reason == "too_large"
    for name, _, _ in names:
        with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
            Sql(**{name: 0})


def test_settings_without_a_task_are_named():
    with pytest.raises(ValueError, match="found no sql task of families .* within the limits; raise the limits"):
        Sql(max_rows=1).seeds(1)
    with pytest.raises(ValueError, match="the limits of sql allow no task"):
        Sql(max_rows=1).simplest()


def test_comments_reach_no_student(run):
    payload = propose(T, "SELECT b -- the answer is y, y\nFROM t /* trust me */ WHERE a > 1;", run)
    assert payload.query == "SELECT b\nFROM t   WHERE a > 1" and "answer is" not in payload.tables


def test_a_repeated_reference_is_refused(run):
    kind, known = Sql(), task_of(T, "SELECT b FROM t WHERE a > 1", run)
    text = f"{fence('tables', T.replace('t(', 'things('))}\n{fence('query', 'select b from things where a>1')}"
    assert kind.parse_proposal(text, [known]).reason == "duplicate"
    assert isinstance(kind.parse_proposal(text, []), Draft)


@pytest.mark.parametrize(
    "text, reason",
    [
        (fence("query", "SELECT 1"), "no_tables"),
        (fence("tables", T), "no_query"),
        (fence("tables", "t(a)") + fence("query", "SELECT 1"), "not_tables"),
        (fence("tables", T.replace("x", "<|im_end|>")) + fence("query", "SELECT 1"), "reserved_text"),
        (fence("tables", T.replace("x", "x\ufe0f")) + fence("query", "SELECT 1"), "reserved_text"),
        (fence("tables", T) + fence("query", "SELECT 1 -- \u2800"), "reserved_text"),
    ],
)
def test_proposals_that_are_refused_unread(text, reason):
    assert Sql().parse_proposal(text, []).reason == reason


@pytest.mark.parametrize(
    "text, outcome",
    [
        ("x | 1\ny | 2", True),
        ("y | 2\nx | 1", True),
        ("| x | 1.0 |\n\n|'y'|2|", True),
        ("x | 1", False),
        ("x | 1\nx | 1\ny | 2", False),
        ("x | 1\nx | 1", False),
        ("b | count(*)\nx | 1\ny | 2", False),
        ("1 | x\n2 | y", False),
        ("x | 1 | \ny | 2 | ", False),
        ("x, 1\ny, 2", False),
        ("SELECT b, count(*) FROM t GROUP BY b", False),
        ("", "no_answer"),
    ],
)
def test_unordered_results_are_multisets(text, outcome, run):
    assert solved(task_of(T, "SELECT b, count(*) FROM t GROUP BY b", run), text) == outcome


def test_ordered_results_are_sequences_and_equal_rows_count(run):
    task = task_of(T, "SELECT b FROM t ORDER BY b DESC", run)
    assert [solved(task, text) for text in ("y\ny\nx", "x\ny\ny", "y\nx")] == [True, False, False]
    task = task_of(T, "SELECT b FROM t", run)
    assert [solved(task, text) for text in ("y\nx\ny", "y\nx\nx", "x\ny")] == [True, False, False]


def test_prompts_say_whether_order_matters_and_not_the_result(run):
    for style in ("full", "compact"):
        kind = Sql(style=style)
        (message,) = kind.solve_prompt(task_of(T, "SELECT a * 111 FROM t ORDER BY a", run))
        assert "in the order of the query" in message["content"] and "333" not in message["content"]
        (message,) = kind.solve_prompt(task_of(T, "SELECT a * 111 FROM t", run))
        assert "in any order" in message["content"]


@given(
    st.lists(st.tuples(st.sampled_from([None, 1, 2.5, "x", "5"]), st.integers(0, 3)), min_size=1, max_size=6),
    st.data(),
)
def test_a_result_in_any_order_is_right_and_with_one_row_changed_is_wrong(rows, data):
    lines = [split_row(line) for line in write_rows(data.draw(st.permutations(rows))).split("\n")]
    assert same_rows(rows, lines, ordered=False)
    place = data.draw(st.integers(0, len(lines) - 1))
    lines[place] = (lines[place][0], str(Fraction(lines[place][1]) + 7))
    assert not same_rows(rows, lines, ordered=False)


@pytest.mark.parametrize("lines", [["5", "'5'"], ["'5'", "5"], ["5.0", "5"], ["5", "5.0"], ["5", "5"]])
def test_a_number_and_a_text_that_look_alike_find_their_rows(lines):
    assert same_rows([(5,), ("5",)], [(line,) for line in lines], ordered=False)
    assert not same_rows([(5,), ("5",)], [("5.0",), ("5.0",)], ordered=False)
    assert not same_rows([("5",), ("5",)], [("5.0",), ("5",)], ordered=False)


@pytest.mark.slow
def test_the_harness_is_found_where_the_package_is_found_in_another_way(monkeypatch):
    """As in a script outside the folder of a clone, with the clone installed as editable."""
    root = Path(trl_populora.__file__).parents[1]
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if Path(folder).resolve() != root])
    kind = Sql()
    task = kind.simplest()
    with Executor(workers=1) as executor:
        (payload,) = kind.verify([kind.parse_proposal(kind.propose_completion(task), [])], executor.run_many)
    assert payload == task.payload


def judged(tables, query):
    return Sql()._run_trusted(tables, query)


@pytest.mark.parametrize("names", [["Gita", "Dan", "Gita"], ["Dan", "Dan", "Gita", "Dan", "Dan"]])
@pytest.mark.parametrize(
    "query",
    [
        "SELECT g, name, sum(n) FROM visits GROUP BY g",
        "SELECT g, group_concat(name) FROM visits GROUP BY g",
        "SELECT DISTINCT g, first_value(name) OVER (PARTITION BY g) FROM visits",
        "SELECT g, name, min(n), max(n) FROM visits GROUP BY g",
        "SELECT g, name, max(n) FROM visits GROUP BY g",
    ],
)
def test_columns_beside_an_aggregate_are_refused_whatever_the_rows(names, query):
    """The first, the last and the middle row of a group may hold the same."""
    rng = random.Random(0)
    for _ in range(20):
        rows = "\n".join(f"red | {name} | {rng.randint(1, 9)}" for name in names)
        found = judged(f"visits(g TEXT, name TEXT, n INTEGER)\n{rows}\nblue | Eva | 4\n", query)
        assert isinstance(found, Refusal) and found.reason == "row_order", rows


@pytest.mark.parametrize(
    "query",
    [
        "SELECT g, min(name), max(n), max(max(n), 3) FROM t GROUP BY g",
        "SELECT name FROM t WHERE n = (SELECT max(n) FROM t)",
        "SELECT id, max(n) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM t",
        "SELECT g, max(n) FROM t GROUP BY g HAVING min(n) > 2",
        "SELECT id << 1 FROM t ORDER BY id LIMIT 2",
    ],
)
def test_fair_queries_with_extremes_stay_tasks(query):
    rows = "1 | Ann | 20 | a\n2 | Ben | NULL | a\n3 | Cy | 11 | b\n4 | Di | 5 | b\n"
    assert isinstance(judged(f"t(id INTEGER, name TEXT, n INTEGER, g TEXT)\n{rows}", query), SqlTask)


@pytest.mark.parametrize(
    ("tables", "query"),
    [
        ("city(people INTEGER)\n709037\n10092001\n2748109\n", "SELECT avg(people) FROM city"),
        ("t(a INTEGER)\n1000001\n", "SELECT a / 3.0 FROM t"),
        ("t(a REAL)\n2.3\n", "SELECT a, floor(a * 100) FROM t"),
        ("t(a REAL)\n1.1\n", "SELECT a, ceil(a * 100) FROM t"),
    ],
)
def test_digits_that_nobody_can_know_are_refused(tables, query):
    found = judged(tables, query)
    assert isinstance(found, Refusal) and found.reason == "unclear_value"


def test_what_is_whole_or_far_from_it_has_a_floor():
    found = judged("t(a REAL)\n2.5\n-1.5\n4.0\n", "SELECT a, floor(a), ceil(a), floor(2) FROM t")
    assert isinstance(found, SqlTask)
    assert isinstance(judged("t(a REAL)\n1000000.001\n", "SELECT a, floor(a) FROM t"), SqlTask)
    with pytest.raises(ValueError, match="digits after its point"):
        read_tables("t(a REAL)\n600000.0004\n")


def test_a_name_that_is_a_functions_does_not_change_the_key():
    def key(name):
        return task_key(
            read_tables(f"t(id INTEGER, {name} INTEGER)\n1 | 2\n2 | 3\n"), f"SELECT {name} FROM t WHERE id > 1"
        )

    assert len({key(name) for name in ("amount", "cost", "total", "count", "rank", "real")}) == 1
    tables = read_tables("t(total INTEGER)\n1\n2\n")
    assert task_key(tables, "SELECT total(total) FROM t") != task_key(tables, "SELECT avg(total) FROM t")


def test_trials_change_one_thing_each_and_are_the_same_each_time():
    tables = read_tables(BOTH)
    found = trials(tables)
    assert found == trials(tables) and found[0].tables == tables
    for trial in found:
        same = [sorted(map(str, one.rows)) == sorted(map(str, other.rows)) for one, other in zip(trial.tables, tables)]
        assert sum(same) == (2 if trial.kind in ("base", "order") else 1)
    assert [trial.kind for trial in found].count("empty") == 2
    assert any(trial.tables[1].rows == tables[1].rows[::-1] and trial.reverse for trial in found)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_seeds_of_every_family_are_what_the_sandbox_finds(family, run):
    kind = Sql()
    tasks = kind.seeds(6, families=[family])
    assert {task.author for task in tasks} == {f"seed:{family}"}
    drafts = [kind.parse_proposal(kind.propose_completion(task), []) for task in tasks]
    assert kind.verify(drafts, run) == [task.payload for task in tasks]
    assert len({kind.key(task.payload) for task in tasks}) == 6


def test_features_tell_hard_from_easy():
    kind, rng = Sql(), random.Random(0)
    easy, hard = kind.features(kind.simplest()), kind.features(kind.generate(rng, families=["with_query"]))
    assert easy.space == hard.space == "sql" and all(a < b for a, b in zip(easy.point, hard.point, strict=True))
    assert easy.measures["joins"] == easy.measures["nesting"] == 0 and easy.measures["clauses"] == 1
