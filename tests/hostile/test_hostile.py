"""Every hostile program ends in one of its allowed ways, changes nothing, and does not disturb the next one.

At every isolation level that this machine can show: a measure that is left out must not be what the suite rests on.
"""

import os
import socket
import warnings

import determinism_programs
import pytest
import suite

from tests.drawn_examples import drawn
from tests.hostile.measures import leave_out
from trl_populora.executor import Executor, Job, Status, verdict

WITHOUT = {"L3": [], "L1": ["landlock", "namespaces"], "L2 namespaces": ["landlock"], "L2 landlock": ["namespaces"]}
LEVELS = [pytest.param(name, marks=[pytest.mark.slow] if WITHOUT[name] else []) for name in WITHOUT]


class Hostile:
    """An executor at one level, what surrounds it, and how its children ended."""

    def __init__(self, executor, canary, listener, datagrams):
        self.executor, self.canary, self.listener, self.datagrams = executor, canary, listener, datagrams
        self.header = f"CANARY = {str(canary)!r}; PORT = {listener.getsockname()[1]}\n"
        self.ends = []
        self.before = self.state()

    def state(self):
        """All that a program could have changed, by name."""
        received = []
        for receive in (self.listener.accept, lambda: self.datagrams.recv(1)):
            try:
                received.append(receive())
            except BlockingIOError:
                pass
        return {
            "canary": self.canary.read_text() if self.canary.exists() else None,
            "files beside it": sorted(path.name for path in self.canary.parent.iterdir()),
            "folders for all": [left_behind(folder) for folder in ("/tmp", "/dev/shm", "/var/tmp", ".", "/")],
            "received": received,
            "environment": {name: os.environ[name] for name in os.environ if not name.startswith("PYTEST_")},
            "folder": os.getcwd(),
            "children": self.children_left(),
            "errors of the executor": self.executor.counts[Status.INFRA_ERROR],
        }

    def children_left(self):
        """Processes below the fork servers that were not there when they were idle."""
        below = [len(suite.descendants(pid)) for pid in self.executor.pids]
        self.idle = getattr(self, "idle", max(below))
        return sum(count > self.idle for count in below)

    def disturbed(self, cases):
        """What the surroundings and the next normal jobs show after these programs, each followed by a normal one."""
        jobs = [job for case in cases for job in (suite.job(*case, self.header), suite.NORMAL)]
        executions = self.executor.run_many(jobs)
        wrong = [e for e in executions[1::2] if e.status is not Status.OK or e.values[0].value != suite.NORMAL_VALUE]
        now = self.state()
        changed = {name: now[name] for name in now if now[name] != self.before[name]}
        return executions[::2], changed | ({"next": wrong} if wrong else {})

    def outcome(self, execution):
        number = next((end.status for judged, end in self.ends if judged is execution), 0) & 127
        return suite.outcome(execution, number)


def left_behind(folder):
    """Entries that name this suite or belong to the user as whom programs run."""
    found = []
    for entry in os.scandir(folder):
        try:
            if "hostile" in entry.name.lower() or entry.stat(follow_symlinks=False).st_uid == 65534:
                found.append(entry.name)
        except FileNotFoundError:
            continue
    return sorted(name for name in found if not name.startswith("pytest-"))


@pytest.fixture(scope="module")
def full():
    with Executor(1) as executor:
        return executor.isolation


@pytest.fixture(scope="module", params=LEVELS)
def hostile(request, full, tmp_path_factory):
    without = WITHOUT[request.param]
    if without and full != "L3":
        pytest.skip(f"this machine reaches {full} only: no measure can be left out and the others be seen")
    canary = tmp_path_factory.mktemp("beside") / "canary"
    canary.write_text("untouched")
    os.environ["HOSTILE_SECRET"] = "a secret of the caller"
    leak = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(leak, True)
    with (
        pytest.MonkeyPatch.context() as patch,
        Executor(3, suite.LIMITS, modules=suite.MODULES_HERE) as executor,
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.socket(type=socket.SOCK_DGRAM) as datagrams,
    ):
        datagrams.bind(listener.getsockname())
        listener.setblocking(False)
        datagrams.setblocking(False)
        leave_out(patch, without)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of level L1; its warning has a test in test_supervisor.py
            assert executor.isolation == (request.param[:2] if without else full)
        assert executor.run_many([suite.NORMAL])[0].status is Status.OK
        around = Hostile(executor, canary, listener, datagrams)
        judge = verdict.judge

        def remember(end, *arguments, **options):
            execution = judge(end, *arguments, **options)
            around.ends.append((execution, end))
            return execution

        patch.setattr(verdict, "judge", remember)
        yield around
    os.close(leak)
    del os.environ["HOSTILE_SECRET"]


@pytest.mark.parametrize(
    "category",
    [pytest.param(name, marks=[pytest.mark.slow] if name == "bombs" else []) for name in suite.CATEGORIES],
)
def test_hostile_programs(hostile, category):
    cases = suite.CATEGORIES[category]
    executions, changed = hostile.disturbed(cases.values())
    seen = dict(zip(cases, map(hostile.outcome, executions), strict=True))
    hostile.ends.clear()
    assert {name: seen[name] for name, (_, wanted) in cases.items() if not suite.allowed(seen[name], wanted)} == {}
    if changed:  # one at a time, to learn which one it was
        each = {name: hostile.disturbed([case])[1] for name, case in cases.items()}
        raise AssertionError(f"{changed} after {[name for name in each if each[name]] or 'all of them together'}")


def test_there_are_enough_of_them():
    assert sum(map(len, suite.CATEGORIES.values())) >= 600
    names = [name for cases in suite.CATEGORIES.values() for name in cases]
    assert len({program for cases in suite.CATEGORIES.values() for program, _ in cases.values()}) == len(names)
    assert len(suite.DETERMINISM) >= 100


@pytest.mark.slow
def test_determinism(hostile):
    cases = suite.DETERMINISM
    jobs = [
        Job(program, inputs[0] if inputs else ((3,),), deterministic=True) for program, _, *inputs in cases.values()
    ]
    executions = dict(zip(cases, hostile.executor.run_many(jobs), strict=True))
    accepted = {name: execution.status in (Status.OK, Status.EXCEPTION) for name, execution in executions.items()}
    assert {name: accepted[name] for name in cases if cases[name][1] not in (None, accepted[name])} == {}
    statuses = {execution.status for execution in executions.values()}
    assert statuses == {Status.OK, Status.EXCEPTION, Status.NONDETERMINISTIC}


@pytest.mark.sized
def test_the_same_job_gives_the_same_verdict(hostile):
    """A thousand times (fewer in the fast tests), a job that succeeds, one that fails and one that is refused."""
    many, some = drawn(1000), drawn(50)
    good = Job("def f(x): return {x: [x, 'a', 1.5]}", ((3,),))
    bad = Job("def f(x): return [][x]", ((3,),))
    chance = Job(f"def f(x): return list(set({determinism_programs.WORDS}))", ((3,),), deterministic=True)
    executions = hostile.executor.run_many([good] * many + [bad] * some + [chance] * some)
    assert {execution.values[0].value == {3: [3, "a", 1.5]} for execution in executions[:many]} == {True}
    assert {execution.values[0].error for execution in executions[many : many + some]} == {"IndexError"}
    assert {execution.status for execution in executions[many + some :]} == {Status.NONDETERMINISTIC}
