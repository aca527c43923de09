"""`Job.modules`: what a program may import beyond the executor's own modules."""

import pytest

from trl_populora.executor import Executor, Job, Limits, Status


ROOMY = Limits(cpu_seconds=5, wall_seconds=20)
LATEX = ("trl_populora.tasks.math.harness",)
SQL = """
import sqlite3
def f(*statements):
    connection = sqlite3.connect(":memory:")
    for statement in statements:
        rows = connection.execute(statement).fetchall()
    return rows
"""


@pytest.fixture(scope="module")
def executor():
    with Executor(1, ROOMY) as executor:
        yield executor


def test_a_job_may_import_what_it_names_and_no_other_job_may(executor):
    program = "import sqlite3\ndef f(): return sqlite3.__name__"
    assert executor.run(program, ((),)).error == "ModuleNotFoundError"
    assert executor.run(program, ((),), modules=("sqlite3",)).values[0].value == "sqlite3"
    assert executor.run(program, ((),), modules=("csv",)).error == "ModuleNotFoundError"
    assert executor.run(program, ((),)).error == "ModuleNotFoundError"


def test_the_modules_of_all_programs_are_there_too(executor):
    program = "import json, csv\ndef f(): return json.dumps([csv.__name__])"
    assert executor.run(program, ((),), modules=("csv",)).values[0].value == '["csv"]'


def test_servers_start_when_a_job_first_names_their_modules():
    with Executor(1) as executor:
        executor.run("import math\ndef f(): return 1", ((),))
        executor.run("def f(): return 1", ((),))
        assert len(executor.pids) == 2
        for _ in range(2):
            executor.run("def f(): return 1", ((),), modules=("csv",))
            assert len(executor.pids) == 3


def test_sql_in_memory_is_deterministic(executor):
    statements = ("CREATE TABLE t(a, b)", "INSERT INTO t VALUES (2, 'x'), (1, NULL)", "SELECT * FROM t ORDER BY a")
    execution = executor.run(SQL, (statements, ("SELECT 0.5, x'00'",)), deterministic=True, modules=("sqlite3",))
    assert execution.status is Status.OK
    assert [value.value for value in execution.values] == [[(1, None), (2, "x")], [(0.5, b"\0")]]
    chance = executor.run(SQL, (("SELECT random()",),), deterministic=True, modules=("sqlite3",))
    assert chance.status is Status.NONDETERMINISTIC


def test_a_module_of_the_callers_own_folders(executor, tmp_path, monkeypatch):
    (tmp_path / "judge_of_a_test.py").write_text("import csv\ntable = {1: 2}\ndef f(x): return table[x]")
    monkeypatch.syspath_prepend(tmp_path)
    program = "from judge_of_a_test import f"
    assert executor.run(program, ((1,),), modules=("judge_of_a_test",)).values[0].value == 2
    # A program can import nothing that was not imported before it ran.
    (tmp_path / "imported_later.py").write_text("")
    later = "def f(x): import imported_later"
    assert executor.run(later, ((1,),), modules=("judge_of_a_test",)).values[0].error == "ModuleNotFoundError"
    assert executor.run("import sys\ndef f(): return sys.path", ((),), modules=("sys",)).values[0].value == []


def test_the_callers_folders_do_not_hide_the_standard_library(executor, tmp_path, monkeypatch):
    (tmp_path / "colorsys.py").write_text("hidden = True")
    monkeypatch.syspath_prepend(tmp_path)
    program = "import colorsys\ndef f(): return hasattr(colorsys, 'hidden')"
    assert executor.run(program, ((),), modules=("colorsys",)).values[0].value is False


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "module 'broken_module' cannot be imported .*No module named"),
        ("import no_such_module", "'broken_module' cannot be imported .*no_such_module"),
        ("1 / 0", "'broken_module' cannot be imported .ZeroDivisionError"),
        ("raise SystemExit", "'broken_module' cannot be imported .SystemExit"),
        (
            "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()",
            "broken_module starts threads",
        ),
    ],
)
def test_a_module_that_cannot_be_imported_is_named(executor, tmp_path, monkeypatch, text, reason):
    if text is not None:
        (tmp_path / "broken_module.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(RuntimeError, match=reason):
        executor.run("def f(): return 1", ((),), modules=("broken_module",))
    assert executor.run("def f(): return 1", ((),)).status is Status.OK


@pytest.mark.parametrize("modules", ["sqlite3", ["sqlite3"], ("",), ("os; exit()",), (b"os",), ("a..b",)])
def test_modules_that_are_no_names(modules):
    with pytest.raises(ValueError, match=r"Job.modules is .*\('sqlite3',\)"):
        Job("def f(): return 1", ((),), modules=modules)


@pytest.mark.slow
def test_numpy(executor):
    program = """
import numpy, numpy.random
def f(seed):
    chance = numpy.random.default_rng(seed)
    return float(numpy.linalg.inv(numpy.eye(50) / 2).sum()), int(chance.integers(10, size=100).sum())
"""
    execution = executor.run(program, ((1,), (2,)), deterministic=True, modules=("numpy", "numpy.random"))
    assert execution.status is Status.OK
    assert [value.value[0] for value in execution.values] == [100.0] * 2


@pytest.mark.slow
def test_a_package_that_imports_at_first_use_is_made_ready_by_a_module_of_ours(executor):
    program = "from trl_populora.tasks.math.harness import judge as f"
    answers = (r"\frac{2}{4}", "0.5", r"50\%", r"\frac{1}{3}", "I do not know", "")
    execution = executor.run(program, tuple((1, 2, answer) for answer in answers), modules=LATEX)
    assert [value.value for value in execution.values] == [True, True, True, False, False, False]
