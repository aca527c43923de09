"""The public behaviour of `Executor` on programs that mean no harm."""

import os
import subprocess
import sys
import threading
from itertools import count

import pytest

from trl_populora.executor import Execution, Executor, ExecutorSettings, Job, Limits, Status, Value


@pytest.fixture(scope="module")
def executor():
    with Executor(2) as executor:
        yield executor


def test_values_come_back_in_order(executor):
    execution = executor.run("def f(x, y):\n    return {x: [y, None]}", ((1, "a"), ("b", (2.5, True))))
    assert execution.status is Status.OK
    assert [value.value for value in execution.values] == [{1: ["a", None]}, {"b": [(2.5, True), None]}]
    assert execution.values[1].literal == "{'b': [(2.5, True), None]}"
    assert 0 < execution.seconds < 0.5 and execution.peak_memory > 1 << 20


def test_the_interpreter_finds_what_it_imports_by_itself(executor):
    """Python 3.12 divides and prints large integers in a module of Python, `_pylong`."""
    large = 10**6000
    execution = executor.run("def f(x): return (x**6000 // 3**6000) % 1000, x**6000 % 3**5000 % 1000", ((10,),))
    assert execution.values[0].value == (large // 3**6000 % 1000, large % 3**5000 % 1000)


def test_a_generic_class_finds_typing(executor):
    """For `class A[T]`, the interpreter imports `typing`. Before Python 3.12, a text of this form stands for one."""
    program = "def f(x):\n 'class A[T]: pass'\n return __builtins__['__imp' + 'ort__']('typing') and x"
    if sys.version_info >= (3, 12):
        program = "class A[T]:\n def g(self, x: T) -> T: return x\ndef f(x): return A[int]().g(x)"
    assert executor.run(program, ((1,),)).values[0].value == 1


@pytest.mark.parametrize(
    "program, value",
    [
        ("def f(s): return s.encode('cp1252').hex()", "e9"),
        ("def f(s): return s.encode('utf-16-le').hex()", "e900"),
        ("def f(s): return s.encode('ascii', 'namereplace').decode()", "\\N{LATIN SMALL LETTER E WITH ACUTE}"),
        ("def f(s): return '\\N{BULLET}' + s", "•é"),
        ("def f(s):\n Δ = s\n return Δ", "é"),
        ("import datetime\ndef f(s): return datetime.datetime.strptime('2024-01-05', '%Y-%m-%d').day", 5),
    ],
)
def test_codecs_and_names_of_characters_need_no_import(executor, program, value):
    """As in any other Python: no sandbox refuses what only the interpreter imports."""
    execution = executor.run(program, (("é",),))
    assert execution.status is Status.OK and execution.values[0].value == value


def test_no_inputs_only_defines(executor):
    assert executor.run("def f(): pass", ()).status is Status.OK


@pytest.mark.parametrize(
    ("program", "status", "error"),
    [
        ("def f(:", Status.SYNTAX_ERROR, "SyntaxError"),
        ("f = 1", Status.EXCEPTION, "NameError"),
        ("1 / 0\ndef f(x): return x", Status.EXCEPTION, "ZeroDivisionError"),
        ("raise SystemExit", Status.BASE_EXCEPTION, "SystemExit"),
        ("import torch\ndef f(x): return x", Status.EXCEPTION, "ModuleNotFoundError"),
        ("while True: pass", Status.CPU_TIMEOUT, None),
    ],
)
def test_a_program_that_fails_has_no_values(executor, program, status, error):
    execution = executor.run(program, ((1,), (2,)), Limits(cpu_seconds=0.1))
    assert (execution.status, execution.values, execution.error) == (status, (), error)


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        ("return [][0]", Status.EXCEPTION, "IndexError"),
        ("class Odd(Exception): pass\n    raise Odd", Status.EXCEPTION, "Odd"),
        ("raise KeyboardInterrupt", Status.BASE_EXCEPTION, "KeyboardInterrupt"),
        ("raise MemoryError", Status.MEMORY, "MemoryError"),
        ("return object()", Status.UNPLAIN, "type object is not plain"),
        ("return 'a' * 100_000", Status.UNPLAIN, "value too large"),
        ("return missing", Status.EXCEPTION, "NameError"),
    ],
)
def test_a_call_that_fails_does_not_disturb_the_next(executor, body, status, error):
    program = f"def f(x):\n    if x: return x\n    {body}"
    execution = executor.run(program, ((1,), (0,), (2,)))
    assert execution.status is status
    assert [value.status for value in execution.values] == [Status.OK, status, Status.OK]
    assert execution.values[1] == Value(status, None, error)


def test_calls_after_a_death_carry_its_status(executor):
    program = "def f(x):\n    while x == 2: pass\n    return x"
    execution = executor.run(program, ((1,), (2,), (3,)), Limits(cpu_seconds=0.1))
    assert [value.status for value in execution.values] == [Status.OK, Status.CPU_TIMEOUT, Status.CPU_TIMEOUT]


def test_limits(executor):
    allocate = "def f(n):\n    return len(bytearray(n << 20))"
    assert executor.run(allocate, ((50,),)).status is Status.OK
    assert executor.run(allocate, ((90,),), Limits(memory_mb=96)).status is Status.MEMORY
    assert executor.run("def f(x): return x", (("a" * 100,),), Limits(result_bytes=50)).status is Status.UNPLAIN
    assert executor.run("#" * 70_000 + "\ndef f(x): return x", ((1,),)).status is Status.TOO_LARGE
    assert executor.run("def f(x): return x", (("a" * 2_000_000,),)).status is Status.TOO_LARGE
    endless = executor.run("def f():\n    while True: pass", ((),), Limits(cpu_seconds=0.1))
    assert endless.status is Status.CPU_TIMEOUT and endless.seconds >= 0.1  # never earlier than promised
    wait = "import _thread\ndef f():\n    lock = _thread.allocate_lock()\n    lock.acquire()\n    lock.acquire()"
    assert executor.run(wait, ((),), Limits(wall_seconds=0.1)).status is Status.WALL_TIMEOUT


def test_large_arguments_and_results(executor):
    argument = list(range(40_000))
    execution = executor.run("def f(x): return x[:9000]", ((argument,),) * 3)
    assert [value.value for value in execution.values] == [argument[:9000]] * 3


def test_each_call_gets_its_own_arguments(executor):
    shared = [1]
    execution = executor.run("def f(x, y):\n    x.append(2)\n    return y", ((shared, shared), (shared, shared)))
    assert [value.value for value in execution.values] == [[1], [1]]


def test_printing_is_harmless(executor):
    program = "import sys\ndef f(x):\n    print(x, file=sys.stderr)\n    print('a', flush=True)\n    return x"
    assert executor.run(program, ((1,),)).values[0].value == 1


def test_many_jobs_keep_their_order(executor):
    before = sum(executor.counts.values())
    jobs = [Job(f"def f(x): return x * {index}", ((2,),)) for index in range(50)]
    assert [execution.values[0].value for execution in executor.run_many(jobs)] == [2 * index for index in range(50)]
    assert sum(executor.counts.values()) == before + 50
    assert executor.run_many([]) == []


def test_a_deterministic_job_is_accepted(executor):
    program = "def f(x): return sorted({*x})"
    jobs = [Job(program, tuple((f"b{i}a",) for i in range(count)), None, True) for count in (1, 2, 5)]
    for job, execution in zip(jobs, executor.run_many(jobs)):
        assert execution.status is Status.OK
        assert [value.value for value in execution.values] == [sorted(set(text)) for (text,) in job.inputs]


def test_a_difference_is_marked_where_it_is(executor):
    program = "def f(x):\n    return hash(x) if x == 'a' else 1 // x"
    execution = executor.run(program, ((1,), ("a",), (0,)), deterministic=True)
    assert execution.status is Status.NONDETERMINISTIC
    assert [value.status for value in execution.values] == [Status.OK, Status.NONDETERMINISTIC, Status.EXCEPTION]


def test_calls_that_depend_on_each_other_are_not_deterministic(executor):
    program = "seen = []\ndef f(x):\n    seen.append(x)\n    return len(seen)"
    assert executor.run(program, ((1,),), deterministic=True).status is Status.OK
    assert executor.run(program, ((1,), (2,)), deterministic=True).status is Status.NONDETERMINISTIC


@pytest.mark.parametrize(
    "program",
    [
        "def a(): return 0\ndef b(): return 1\ndef f(): return [g() for g in {a, b}]",
        "def f():\n    a, b = object(), object()\n    return [(a, b).index(o) for o in {a, b}]",
        "def f():\n    a, b = [], []\n    return id(a) < id(b)",
        "def f(): return str(object())[-3:]",
    ],
    ids=count(),
)
def test_addresses_are_others_in_other_servers(executor, program):
    assert executor.run(program, ((),), deterministic=True).status is Status.NONDETERMINISTIC


def test_every_job_has_its_own_random_numbers(executor):
    """Otherwise a program that shows a single random bit would pass or fail for as long as the servers run."""
    programs = [f"import random\ndef f(): return random.random() # {index}" for index in range(3)]
    jobs = [Job(program, ((),)) for program in programs]
    assert len({execution.values[0].value for execution in executor.run_many(jobs)}) == 3
    assert executor.run(programs[0], ((),), deterministic=True).status is Status.NONDETERMINISTIC
    seeded = programs[0].replace("def", "random.seed(1)\ndef")
    assert executor.run(seeded, ((),), deterministic=True).status is Status.OK


def test_a_deterministic_job_may_use_half_its_time(executor):
    program = "import time\ndef f():\n    while time.process_time() < 0.12: pass\n    return 1"
    assert executor.run(program, ((),), Limits(cpu_seconds=0.2)).status is Status.OK
    assert executor.run(program, ((),), Limits(cpu_seconds=0.2), deterministic=True).status is Status.CPU_TIMEOUT


def test_bad_arguments_are_named():
    for make, word in [
        (lambda: Executor(0), "workers is 0"),
        (lambda: Executor(1, modules=("no_such_module",)).isolation, "no_such_module"),
        (lambda: Limits(cpu_seconds=0), "cpu_seconds is 0"),
        (lambda: Limits(memory_mb=1), "memory_mb is 1"),
        (lambda: Job(b"", ()), "is a bytes"),
        (lambda: Job("", [(1,)]), "tuple of arguments"),
        (lambda: Job("", (1,)), "tuple of arguments"),
        (lambda: Job("", ((object(),),)), "not a plain value"),
    ]:
        with pytest.raises((ValueError, RuntimeError), match=word):
            make()


def test_value_without_data():
    with pytest.raises(ValueError, match="cpu_timeout"):
        _ = Value(Status.CPU_TIMEOUT).value
    assert Execution(Status.OK, (), 0.0, 0).error is None


def test_closing_and_starting_again():
    executor = Executor(1)
    assert executor.run("def f(): return 1", ((),)).status is Status.OK
    executor.close()
    executor.close()
    assert executor.run("def f(): return 2", ((),)).values[0].value == 2
    executor.close()


def test_other_threads_and_forked_processes(executor):
    seen = []
    thread = threading.Thread(target=lambda: seen.append(executor.run("def f(): return 1", ((),))))
    thread.start()
    thread.join()
    assert executor.run("def f(): return 2", ((),)).values[0].value == 2
    pid = os.fork()
    if pid == 0:
        try:
            value = executor.run("def f(): return 3", ((),)).values[0].value
            executor.close()
            os._exit(value)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
    assert executor.run("def f(): return 4", ((),)).values[0].value == 4
    assert seen[0].values[0].value == 1


def test_the_room_imports_nothing_heavy():
    code = "import sys, trl_populora.executor; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    names = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "numpy", "transformers", "trl", "multiprocessing"} & set(names)


def test_settings_make_the_executor_they_say():
    made = ExecutorSettings(workers=3, memory_mb=128, wall_seconds=2.0).make(cores=5)
    assert (made.workers, made.limits) == (3, Limits(memory_mb=128, wall_seconds=2.0))
    assert ExecutorSettings().make(cores=5).workers == 5 and ExecutorSettings().make().workers == Executor().workers
    for bad, words in (({"workers": 0}, "workers=0"), ({"memory_mb": 1}, "memory_mb is 1")):
        with pytest.raises(ValueError, match=words):
            ExecutorSettings(**bad)


def test_a_page_without_bytes_is_no_failure_of_the_server(monkeypatch):
    """Older kernels leave one in the pipe after a write from a bad address: `kernel_programs.py` makes it for real."""
    read, empty = os.read, []

    def once_nothing(descriptor, size):
        if not empty and not os.get_blocking(descriptor):
            empty.append(descriptor)
            raise BlockingIOError
        return read(descriptor, size)

    slow = "import time\ndef f():\n    while time.process_time() < 0.05: pass\n    return 5"
    with Executor(1) as executor:
        executor.run(slow, ((),))
        servers = executor.pids
        monkeypatch.setattr(os, "read", once_nothing)
        assert executor.run(slow, ((),)).values[0].value == 5
        assert empty and executor.pids == servers  # otherwise the job ran again, in a new one
