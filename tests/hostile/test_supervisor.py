"""What must hold when parts of the machinery die, are missing, or start in odd places."""

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.hostile.measures import leave_out
from trl_populora.executor import Executor, Job, Limits, Status
from trl_populora.executor import executor as module
from trl_populora.executor.server import Server, ServerLost
from trl_populora.executor.worker import KINDS

ONE = Job("def f(x): return x + 1", ((1,),))
SLOW = Job("def f(x):\n while True: pass", ((1,),), Limits(cpu_seconds=30, wall_seconds=30))


def server_pids(executor):
    """All processes of all fork servers, the one outside a namespace first."""
    outer = executor.pids
    return outer + [child for pid in outer for child in children(pid)]


def children(pid):
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += map(int, task.read_text().split())
        except OSError:
            continue
    return found


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0] not in "ZX"
    except OSError:
        return False


def gone(pids, seconds=5.0):
    deadline = time.monotonic() + seconds
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.005)
    return not any(map(alive, pids))


@pytest.mark.parametrize("victim", [0, -1])
def test_a_killed_server_is_replaced_and_the_job_run_again(victim):
    with Executor(1) as executor:
        assert executor.run_many([ONE])[0].status is Status.OK
        pids = server_pids(executor)
        os.kill(pids[victim], signal.SIGKILL)
        assert executor.run_many([ONE, ONE])[0].values[0].value == 2
        assert executor.counts[Status.INFRA_ERROR] == 0
        assert gone([pids[victim]])
    assert gone(pids)


def test_a_server_killed_during_a_job():
    with Executor(1) as executor:
        executor.run_many([ONE])
        first = server_pids(executor)

        def kill():
            seen = set()
            while len(seen) < 2:  # the first run and the second, each in a server of its own
                for pid in executor.pids:
                    if pid not in seen and any(map(children, children(pid))):  # busy
                        seen.add(pid)
                        os.kill(pid, signal.SIGKILL)
                time.sleep(0.002)

        killer = threading.Thread(target=kill, daemon=True)
        if executor.isolation != "L3":
            pytest.skip("finds the running child by its place below a namespace")
        killer.start()
        execution = executor.run_many([SLOW])[0]
        killer.join()
        assert (execution.status, execution.values) == (Status.INFRA_ERROR, ())
        assert executor.run_many([ONE])[0].status is Status.OK
        first += server_pids(executor)
    assert gone(first)


def test_no_server_can_be_started(monkeypatch):
    more = replace(ONE, modules=("csv",))  # needs a server that does not run yet
    with Executor(1) as executor:
        assert executor.run_many([ONE])[0].status is Status.OK
        pids = server_pids(executor)
        for pid in executor.pids:
            os.kill(pid, signal.SIGKILL)
        assert gone(pids)
        monkeypatch.setattr(sys, "executable", "/nonexistent/python")
        assert [execution.status for execution in executor.run_many([ONE, more])] == [Status.INFRA_ERROR] * 2
        monkeypatch.undo()
        assert [execution.status for execution in executor.run_many([ONE, more])] == [Status.OK] * 2
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    with pytest.raises(RuntimeError, match="cannot start"):
        Executor(1).run_many([ONE])


def test_no_descriptors_left():
    import resource

    with Executor(1) as executor:
        executor.run_many([ONE])
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 1, hard))
        held = []
        try:
            while True:
                held.append(os.dup(0))
        except OSError:
            pass
        try:
            assert executor.run_many([ONE])[0].status is Status.INFRA_ERROR
        finally:
            for descriptor in held:
                os.close(descriptor)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert executor.run_many([ONE])[0].status is Status.OK


@pytest.mark.slow
@pytest.mark.parametrize(
    ("without", "level"),
    [(["namespaces"], "L2"), (["landlock"], "L2"), (["namespaces", "landlock"], "L1"), (["seccomp"], "L0")],
)
def test_levels(without, level, monkeypatch):
    executor = Executor(1, accept_unsafe=True)
    with executor:
        full = executor.isolation
    if full != "L3":
        pytest.skip(f"this machine reaches {full} only")
    leave_out(monkeypatch, without)
    with executor:
        if level == "L1":
            with pytest.warns(UserWarning, match="only by seccomp"):
                assert executor.isolation == level
        assert executor.isolation == level
        assert executor.run_many([ONE])[0].values[0].value == 2
        assert (
            executor.run_many([Job(SLOW.program, SLOW.inputs, Limits(cpu_seconds=0.05))])[0].status
            is Status.CPU_TIMEOUT
        )
        assert (
            executor.run("import os\ndef f(): os.kill(os.getppid(), 9)", ((),)).status is not Status.INFRA_ERROR
            or level == "L0"
        )


def test_no_filter_is_refused(monkeypatch):
    leave_out(monkeypatch, ["seccomp"])
    executor = Executor(1)
    with pytest.raises(RuntimeError, match="accept_unsafe"):
        executor.run_many([ONE])
    assert executor.pids == []


def test_a_filter_that_does_nothing_is_noticed(tmp_path, monkeypatch):
    """The level comes from what was tried, not from what was installed."""
    source = Path(module.__file__).parent
    for file in source.glob("*.py"):
        text = file.read_text()
        if file.name == "syscalls.py":
            assert "0x00050000 | 1" in text
            text = text.replace("0x00050000 | 1", "0x7FFF0000")
        (tmp_path / file.name).write_text(text)
    monkeypatch.setattr("trl_populora.executor.server.ZYGOTE", str(tmp_path / "zygote.py"))
    with pytest.raises(RuntimeError, match="no working seccomp filter"):
        Executor(1).run_many([ONE])


def test_a_child_that_cannot_confine_itself_runs_nothing(tmp_path, monkeypatch):
    source = Path(module.__file__).parent
    for file in source.glob("*.py"):
        text = file.read_text()
        if file.name == "child.py":
            text = text.replace("source, inputs, cpu", "1 / 0; source, inputs, cpu")
        (tmp_path / file.name).write_text(text)
    monkeypatch.setattr("trl_populora.executor.server.ZYGOTE", str(tmp_path / "zygote.py"))
    with Executor(1) as executor:
        assert executor.run_many([ONE])[0].status is Status.INFRA_ERROR


SCRIPT = """
import os, sys, threading
from trl_populora.executor import Executor, Job, Limits
executor = Executor(2)
{}
"""


def script(body, **arguments):
    environment = {**os.environ, "PYTHONPATH": str(Path(module.__file__).parents[2])}
    code = SCRIPT.format(body)
    return subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment, **arguments
    )


@pytest.mark.slow
@pytest.mark.parametrize("without", [[], ["namespaces"]])
def test_nothing_survives_the_caller(without):
    process = script(
        f"""
import pytest
from tests.hostile.measures import leave_out
leave_out(pytest.MonkeyPatch(), {without})
executor.run("def f(): return 1", ((),))
while len(executor.pids) < 3:  # that of this job, and one with modules for each worker
    executor.run_many([Job("import math\\nwhile True: pass", (), Limits(0.05))] * 2)
threading.Timer(0.2, lambda: print("busy", flush=True)).start()
executor.run_many([Job("while True: pass", (), Limits(30, 30)) for _ in range(2)])
"""
    )
    process.stdout.readline()
    below = []
    todo = [process.pid]
    while todo:
        found = children(todo.pop())
        below += found
        todo += found
    assert len(below) >= (4 if without else 6)
    process.kill()
    process.wait()
    process.stdout.close()
    assert gone(below, 2.0)


def test_nothing_survives_a_fork_that_still_holds_the_sockets():
    process = script(
        """
executor.run("def f(): return 1", ((),))
if os.fork() == 0:
    import time
    time.sleep(20)
print(os.getpid(), flush=True)
sys.stdin.read()
""",
        stdin=subprocess.PIPE,
    )
    pid = int(process.stdout.readline())
    below = children(pid)
    sleeper = [child for child in below if b"zygote" not in Path(f"/proc/{child}/cmdline").read_bytes()]
    servers = [child for child in below if child not in sleeper]
    servers += [child for server in servers for child in children(server)]
    process.kill()
    process.wait()
    try:
        assert len(sleeper) == 1 and servers
        assert gone(servers, 4.0) and alive(sleeper[0])
    finally:
        os.kill(sleeper[0], signal.SIGKILL)
        process.stdout.close()
        process.stdin.close()


@pytest.mark.slow
def test_standard_descriptors_closed():
    read, write = os.pipe()
    process = script(
        f"""
for descriptor in (0, 1, 2):
    os.close(descriptor)
values = [executor.run("def f(x): return x + 1", ((1,),), deterministic=True).values[0].value for _ in range(3)]
executor.close()
os.write({write}, repr(values).encode())
""",
        pass_fds=[write],
    )
    os.close(write)
    with open(read) as result:
        assert result.read() == "[2, 2, 2]"
    process.wait()
    process.stdout.close()


def test_an_interpreter_in_a_bare_environment():
    process = subprocess.run(
        [
            sys.executable,
            "-c",
            SCRIPT.format(
                "print(executor.run('def f(x): return x + chr(233)', (('a',),)).values[0].value == 'a\\xe9')"
            ),
        ],
        env={"PYTHONPATH": str(Path(module.__file__).parents[2]), "LC_ALL": "C"},
        capture_output=True,
        text=True,
    )
    assert (process.stdout, process.stderr) == ("True\n", "")


def test_signals_ignored_and_blocked_by_the_caller():
    process = script(
        """
import signal
for number in (signal.SIGALRM, signal.SIGPROF, signal.SIGPIPE):
    signal.signal(number, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM, signal.SIGPROF, signal.SIGPIPE])
wait = "import _thread" + chr(10) + "def f():" + chr(10) + " a = _thread.allocate_lock(); a.acquire(); a.acquire()"
jobs = [Job("while True: pass", (), Limits(0.05)), Job(wait, ((),), Limits(wall_seconds=0.1))]
print(*[e.status.value for e in executor.run_many(jobs)])
"""
    )
    assert process.communicate()[0] == "cpu_timeout wall_timeout\n"


def test_started_from_a_thread_that_ends():
    executor = Executor(2)
    thread = threading.Thread(target=lambda: executor.run_many([ONE] * 4))
    thread.start()
    thread.join()
    pids = server_pids(executor)
    assert executor.run_many([ONE] * 4)[3].values[0].value == 2
    assert pids and server_pids(executor)[: len(pids)] == pids
    executor.close()
    assert gone(pids)


def test_an_interrupt_leaves_nothing_running():
    process = script(
        """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job would ignore it
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    executor.run_many([Job("while True: pass", (), Limits(30, 30)) for _ in range(2)])
except KeyboardInterrupt:
    print("interrupted", executor.pids, executor.run("def f(): return 5", ((),)).values[0].value)
executor.close()
"""
    )
    assert process.communicate(timeout=30)[0] == "interrupted [] 5\n"


def test_a_server_is_recycled(monkeypatch):
    monkeypatch.setattr("trl_populora.executor.server.JOBS_PER_LIFE", 3)
    with Executor(1) as executor:
        assert executor.isolation
        (other,) = executor.pids  # of programs that import something
        executor.run_many([ONE])
        (before,) = set(executor.pids) - {other}
        assert {execution.values[0].value for execution in executor.run_many([ONE] * 7)} == {2}
        (now,) = set(executor.pids) - {other}
        assert now != before and gone([before])


def test_a_refused_module_and_a_lost_server_are_told_apart():
    settings = {"modules": ["no_such_module"], "third_party": False, "without": [], "accept_unsafe": False}
    server = Server(settings | KINDS[0])
    with pytest.raises(RuntimeError, match="no_such_module"):
        server.start()
    assert not server.alive
    assert not issubclass(ServerLost, RuntimeError)
