"""Hostile data, SQL text and LaTeX answers, in the hands of our own programs: every case ends in an allowed way."""

import sqlite3

import pytest

from trl_populora.executor import Executor, Job, Limits, Status

LIMITS = Limits(cpu_seconds=0.4, wall_seconds=10, memory_mb=256)
QUERY = """
import sqlite3
def f(statements):
    connection = sqlite3.connect(":memory:")
    for statement in statements:
        rows = connection.execute(statement).fetchall()
    return rows
"""
JUDGE = "from trl_populora.tasks.math.harness import judge as f"
LATEX = ("trl_populora.tasks.math.harness",)
ERROR = {"exception OperationalError"}
TOO_MUCH = {"cpu_timeout", "memory", "memory MemoryError"}
ENDLESS = "WITH RECURSIVE c(x) AS (SELECT {first} UNION ALL SELECT {next} FROM c) SELECT {what} FROM c"

SQL = {
    "load a library": (["SELECT load_extension('/lib/x86_64-linux-gnu/libc.so.6')"], ERROR),
    "load a library by name": (["SELECT load_extension('libc', 'system')"], ERROR),
    "attach a new file": (["ATTACH '{folder}/new.db' AS a", "CREATE TABLE a.t(x)"], ERROR),
    "attach a file that is there": (["ATTACH '{folder}/there.db' AS a", "SELECT * FROM a.sqlite_master"], ERROR),
    "attach by uri": (["ATTACH 'file:{folder}/there.db?mode=rw' AS a", "CREATE TABLE a.t(x)"], ERROR),
    "vacuum into a file": (["CREATE TABLE t(x)", "VACUUM INTO '{folder}/copy.db'"], ERROR),
    "read a file": (["SELECT readfile('{folder}/there.db')"], ERROR),
    "write a file": (["SELECT writefile('{folder}/new.db', 'text')"], ERROR),
    "start an editor": (["SELECT edit('text', 'sh')"], ERROR),
    "files for large sorts": (
        [
            "CREATE TABLE t(x)",
            "INSERT INTO t WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 99999) SELECT x FROM c",
            "PRAGMA cache_size = 1",
            "PRAGMA temp_store = FILE",
            "SELECT count(*) FROM (SELECT x, hex(zeroblob(500)) FROM t ORDER BY -x, 2)",
        ],
        ERROR | TOO_MUCH,
    ),
    "endless recursion": ([ENDLESS.format(first="1", next="x + 1", what="count(*)")], {"cpu_timeout"}),
    "endless rows": (
        [ENDLESS.format(first="zeroblob(9999999)", next="zeroblob(9999999)", what="x")],
        TOO_MUCH | ERROR,
    ),
    "endless text": ([ENDLESS.format(first="hex(zeroblob(999999))", next="x || x", what="max(x)")], TOO_MUCH | ERROR),
    "huge blob": (["SELECT hex(zeroblob(900000000))"], TOO_MUCH),
    "huge text": (["SELECT printf('%.*c', 900000000, 'x')"], TOO_MUCH),
    "large result": (["SELECT hex(zeroblob(100000))"], {"unplain value too large"}),
    "cross join": (
        [
            "CREATE TABLE t(x)",
            "INSERT INTO t WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 5000) SELECT x FROM c",
            "SELECT count(*) FROM t, t AS b, t AS c, t AS d WHERE t.x + b.x + c.x = d.x",
        ],
        {"cpu_timeout"},
    ),
    "slow pattern": ([f"SELECT hex(zeroblob(20000)) LIKE '{'%0' * 2000}%1'"], {"cpu_timeout", "ok [(0,)]"} | ERROR),
    "deep nesting": (["SELECT " + "(" * 60_000 + "1" + ")" * 60_000], ERROR),
    "long chain": (["SELECT 1" + "+ 1" * 60_000], ERROR),
    "many statements in one": (["SELECT 1; DROP TABLE t"], {"exception ProgrammingError", "exception Warning"}),
    "text that is no text": (["SELECT CAST(x'ff' AS TEXT)"], ERROR),
    "a null byte": (["SELECT 1\0; garbage"], {"exception ProgrammingError", "exception ValueError"}),
    "random number": (["SELECT random()"], {"nondeterministic"}),
    "random bytes": (["SELECT randomblob(8)"], {"nondeterministic"}),
    "order by chance": (
        [ENDLESS.format(first="1", next="x + 1", what="x") + " ORDER BY random() LIMIT 5"],
        {"cpu_timeout", "memory MemoryError"} | ERROR,
    ),
    "order of few by chance": (
        [
            "CREATE TABLE t(x)",
            "INSERT INTO t VALUES (1), (2), (3), (4), (5), (6), (7), (8)",
            "SELECT x FROM t ORDER BY random()",
        ],
        {"nondeterministic"},
    ),
    "fractions of a second": (["SELECT strftime('%f', 'now')"], {"nondeterministic"}),
    "an address": (
        ["SELECT hex(fts3_tokenizer('simple'))"],
        {"nondeterministic"}
        | ERROR
        | ({"ok [('',)]"} if sqlite3.sqlite_version_info > (3, 40, 1) else set()),  # none in 3.53
    ),
    "a poisoned tokenizer": (
        ["SELECT fts3_tokenizer('simple', x'4141414141414141')", "CREATE VIRTUAL TABLE t USING fts3(x)"],
        {"killed"} | ERROR,
    ),
    "an honest query": (
        [
            "CREATE TABLE t(a, b)",
            "INSERT INTO t VALUES (1, 'x'), (2, NULL)",
            "SELECT b, a * 1.5 FROM t ORDER BY a DESC",
        ],
        {"ok [(None, 3.0), ('x', 1.5)]"},
    ),
}

LONG = 100_000
ANSWERS = {
    "letters": "a" * LONG,
    "dollars": "$" * LONG,
    "boxes": r"\boxed{" * (LONG // 7),
    "boxes that close": r"\boxed{" * (LONG // 8) + "}" * (LONG // 8),
    "braces": "$" + "{" * (LONG // 2) + "1" + "}" * (LONG // 2) + "$",
    "brackets": "$" + "(" * (LONG // 2) + "1" + ")" * (LONG // 2) + "$",
    "left and right": "$" + r"\left(" * 5000 + "1" + r"\right)" * 5000 + "$",
    "fractions": "$" + r"\frac{1}{" * 10_000 + "2" + "}" * 10_000 + "$",
    "roots": "$" + r"\sqrt{" * 10_000 + "2" + "}" * 10_000 + "$",
    "powers": "$" + "2^{" * 20_000 + "2" + "}" * 20_000 + "$",
    "sums": "$" + "2+" * (LONG // 2) + "2$",
    "answers": "the answer is " * (LONG // 14),
    "backslashes": "$" + "\\" * LONG + "$",
    "null bytes": "\0" * LONG,
    "a large power": "9**9**9**9",
    "a large power in LaTeX": "$9^{9^{9^{9}}}$",
    "a large factorial": "$(10^9)!$",
    "a factorial of a factorial": "$" + "9" + "!" * 50 + "$",
    "a hard integral": r"$\int_0^1 \sin(\sin(\sin(x^{x^{x}}))) dx$",
    "a long sum": r"$\sum_{n=1}^{10^{12}} \frac{\sin n}{n^n}$",
    "a large matrix": r"$\begin{pmatrix}" + "1 & " * 20_000 + r"1 \end{pmatrix}$",
    "a huge number": "9" * LONG,
    "a long decimal": "0." + "3" * LONG,
    "system": "__import__('os').system('touch {folder}/new.db')",
    "system in LaTeX": r"$__import__('os').system('touch {folder}/new.db')$",
    "exit in a box": r"\boxed{__import__('os')._exit(0)}",
    "a forged frame": r"$\operatorname{__import__('os').write(3,b'v')}$",
    "attributes": r"\boxed{().__class__.__base__.__subclasses__()}",
    "a lambda": r"$\text{(lambda: exec('import os'))()}$",
    "names of sympy": r"$\text{S.Half.func.__globals__}$",
}


@pytest.fixture(scope="module")
def executor():
    with Executor(2, LIMITS) as executor:
        executor.run_many([Job(QUERY, ((["SELECT 1"],),), modules=("sqlite3",))] * 2)
        yield executor


def outcome(execution):
    value = execution.values[0] if execution.values else execution
    return f"ok {value.value}" if value.status is Status.OK else f"{value.status} {value.error or ''}".strip()


def test_hostile_sql(executor, tmp_path):
    (tmp_path / "there.db").write_bytes(b"")
    (tmp_path / "there.db").chmod(0o666)
    tmp_path.chmod(0o777)
    inputs = [([text.replace("{folder}", str(tmp_path)) for text in statements],) for statements, _ in SQL.values()]
    jobs = [Job(QUERY, (arguments,), deterministic=True, modules=("sqlite3",)) for arguments in inputs]
    seen = dict(zip(SQL, map(outcome, executor.run_many(jobs)), strict=True))
    assert {name: seen[name] for name, (_, wanted) in SQL.items() if seen[name] not in wanted} == {}
    assert [path.name for path in tmp_path.iterdir()] == ["there.db"]
    assert (tmp_path / "there.db").read_bytes() == b""


@pytest.mark.slow
def test_hostile_answers(executor, tmp_path):
    """None is right, ends the judge of another, or is evaluated as Python."""
    tmp_path.chmod(0o777)
    texts = [text.replace("{folder}", str(tmp_path)) for text in ANSWERS.values()]
    jobs = []
    for text in texts:
        jobs += [Job(JUDGE, ((-7, 1, answer),), modules=LATEX) for answer in (text, "-7.0")]
    executions = executor.run_many(jobs)
    seen = dict(zip(ANSWERS, map(outcome, executions[::2]), strict=True))
    allowed = {"ok False", "cpu_timeout", "memory MemoryError", "memory", "killed"}
    allowed |= {"exception ValueError", "exception RecursionError", "exception OverflowError"}
    assert {name: end for name, end in seen.items() if end not in allowed} == {}
    assert {outcome(execution) for execution in executions[1::2]} == {"ok True"}
    assert list(tmp_path.iterdir()) == []
