"""Every hostile program ends in one of its allowed ways, changes nothing, and does not disturb the next one."""

import os
import socket
import sys
from pathlib import Path

import pytest
from programs import CATEGORIES, DETERMINISM

from trl_populora.executor import Executor, Job, Limits, Status
from trl_populora.executor.executor import MODULES

RAW = (
    "os",
    "ctypes",
    "socket",
    "subprocess",
    "multiprocessing",
    "threading",
    "signal",
    "resource",
    "mmap",
    "select",
    "gc",
    "sys",
    "builtins",
    "atexit",
    "uuid",
    "pickle",
    "importlib.machinery",
    "weakref",
    "_thread",
    "_posixshmem",
    "errno",
    "encodings.idna",
    "multiprocessing.popen_fork",
)
LIMITS = Limits(cpu_seconds=0.15, wall_seconds=2.0, memory_mb=256)
NORMAL = Job("import math\ndef f(x): return math.isqrt(x) + len('abc'), sorted({3, 1, 2}), 'SECRET'", ((49,),))
NORMAL_VALUE = (10, [1, 2, 3], "SECRET")


def outcome(execution) -> str:
    status, error = execution.status, execution.error
    if execution.values:
        error = execution.values[0].error
        if status is Status.OK:
            return f"ok {execution.values[0].value!r}"
    return f"{status.value} {error}" if error else status.value


def allowed(seen: str, wanted: set[str]) -> bool:
    return seen in wanted or seen.split(" ")[0] in wanted


@pytest.fixture(scope="module")
def executor():
    with Executor(2, LIMITS, modules=MODULES + RAW) as executor:
        yield executor


@pytest.fixture(scope="module")
def surroundings(tmp_path_factory):
    """A canary file, a listener and a secret, and what of the machine a program could have changed."""
    canary = tmp_path_factory.mktemp("hostile") / "canary"
    canary.write_text("untouched")
    os.environ["HOSTILE_SECRET"] = "a secret of the caller"
    leak = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(leak, True)
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket(type=socket.SOCK_DGRAM) as datagrams:
        datagrams.bind(listener.getsockname())
        listener.setblocking(False)
        datagrams.setblocking(False)
        yield canary, listener, datagrams
    os.close(leak)
    del os.environ["HOSTILE_SECRET"]


@pytest.mark.parametrize("category", CATEGORIES)
def test_hostile_programs(category, executor, surroundings):
    canary, listener, datagrams = surroundings
    header = f"CANARY = {str(canary)!r}; PORT = {listener.getsockname()[1]}\n"
    jobs = []
    for program, _ in CATEGORIES[category].values():
        needs = "CANARY" in program or "PORT" in program
        jobs += [Job(header + program if needs else program, ((),)), NORMAL]
    executions = executor.run_many(jobs)
    wrong = {
        name: outcome(execution)
        for (name, (_, wanted)), execution in zip(CATEGORIES[category].items(), executions[::2])
        if not allowed(outcome(execution), wanted)
    }
    assert wrong == {}
    assert [execution.values[0].value for execution in executions[1::2]] == [NORMAL_VALUE] * len(CATEGORIES[category])
    assert executor.counts[Status.INFRA_ERROR] == 0
    assert canary.read_text() == "untouched" and [path.name for path in canary.parent.iterdir()] == ["canary"]
    assert not any(
        Path(folder, name).exists() for folder in ("/tmp", "/dev/shm", ".", "/") for name in ("hostile", "b", "x")
    )
    for receive in (listener.accept, lambda: datagrams.recv(1)):
        with pytest.raises(BlockingIOError):
            receive()
    assert children_left(executor) == 0


def test_there_are_enough_of_them():
    assert sum(map(len, CATEGORIES.values())) >= 150


def test_determinism(executor):
    jobs = [Job(program, ((3,),), deterministic=True) for program, _ in DETERMINISM.values()]
    executions = dict(zip(DETERMINISM, executor.run_many(jobs)))
    accepted = {name: execution.status in (Status.OK, Status.EXCEPTION) for name, execution in executions.items()}
    assert {name: accepted[name] for name in accepted if DETERMINISM[name][1] not in (None, accepted[name])} == {}
    assert executions["exception"].status is Status.EXCEPTION
    assert {executions[name].status for name, (_, good) in DETERMINISM.items() if good} == {
        Status.OK,
        Status.EXCEPTION,
    }


def test_the_same_job_gives_the_same_verdict(executor):
    job = Job("def f(x): return {x: [x, 'a', 1.5]}", ((3,),))
    assert {execution.values for execution in executor.run_many([job] * 200)} == {executor.run_many([job])[0].values}


def children_left(executor) -> int:
    """Processes below the fork servers, which should have none between two calls."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, parent = entry.joinpath("stat").read_text().rsplit(") ", 1)[1].split()[:2]
            except OSError:
                continue
            parents[int(entry.name)] = int(parent)
    servers = {
        server._process.pid for worker in executor._workers for server in worker._servers.values() if server.alive
    }
    inner = {pid for pid, parent in parents.items() if parent in servers}
    namespaced = executor.isolation == "L3"
    return sum(parent in inner for parent in parents.values()) if namespaced else len(inner)
