"""A signal handler may raise between almost any two instructions: no such place may leave anything behind."""

import _thread
import itertools
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from trl_populora.executor import Execution, Executor, Job, Status
from trl_populora.executor import executor as module
from trl_populora.executor.worker import Worker


LONG = Job("def f():\n    while True: pass", ((),))
SHORT = Job("def f(): return 5", ((),))
DONE = Execution(Status.OK, (), 0.0, 0)


class Bare(Worker):
    """A worker without processes, of which there would be too many."""

    started: set = set()
    busy: set = set()
    closed = False

    @property
    def pids(self):
        return [id(self)] if self in self.started else []

    def probe(self):
        self.started.add(self)
        return ["seccomp", "unprivileged", "landlock", "namespaces"]

    def run(self, job):
        self.busy.add(self)
        try:
            end = time.monotonic() + 0.02
            while job is LONG and time.monotonic() < end:
                if self.closed:
                    raise RuntimeError("closed")
                time.sleep(0.0005)
            return DONE
        finally:
            self.busy.discard(self)

    def close(self):
        self.closed = True
        super().close()
        self.started.discard(self)


def interrupted(call, at):
    """
    Make a call, and a signal arrive after so many instructions of it; whether there were so many.

    The interpreter looks for signals after some instructions only, for instance after calls. So the trace function
    must not raise by itself; and it ends by an iterator, since after a call it would be the one to be interrupted.
    """
    passed = 0

    def trace(frame, event, _):
        nonlocal passed
        frame.f_trace_opcodes = True
        passed += event == "opcode"
        if passed == at:
            sys.settrace(None)
            for _ in map(_thread.interrupt_main, (signal.SIGINT,)):
                return None
        return trace

    before = sys.gettrace()
    sys._getframe().f_trace_opcodes = True  # without one such frame, Python 3.12 traces no instructions
    try:
        sys.settrace(trace)
        call()
        time.sleep(0)  # where a signal that came last is found
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    return passed >= at


@pytest.fixture
def interruptible():
    """SIGINT raises `KeyboardInterrupt`, also if it was ignored when pytest began, as in a background job."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.timeout(600)  # a lock that an interrupt left behind
def test_an_interrupt_at_any_place_leaves_nothing_running(monkeypatch, interruptible):
    """
    It once failed on a loaded machine, because it counted the thread of an executor that another test of the same
    process shared. Load decided only which process of pytest-xdist ran which file.
    """
    monkeypatch.setattr(module, "Worker", Bare)
    others = set(threading.enumerate())  # of executors that other tests share
    for at in itertools.count(1, 7):
        executor = Executor(2)
        more = interrupted(lambda: executor.run_many([LONG] * 2), at)  # noqa: B023 (called here)
        assert not Bare.busy and len(Bare.started) == len(executor.pids), at
        found = []
        again = threading.Thread(target=lambda: found.extend(executor.run_many([SHORT])), daemon=True)  # noqa: B023
        again.start()
        again.join()
        assert found == [DONE], at
        executor.close()
        assert not Bare.started, at
        if not more:
            break
    assert at > 500
    for thread in set(threading.enumerate()) - others:
        if thread.name == "populora-executor":
            thread.join()  # at once: one that an interrupt has left behind would wait for jobs


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # in callbacks of weak references
def test_an_interrupt_of_a_close_leaves_nothing_running(monkeypatch, interruptible):
    """The rest may end in another thread; a second close does what the first could not begin."""
    monkeypatch.setattr(module, "Worker", Bare)
    for at in itertools.count(1, 3):
        executor = Executor(2)
        assert executor.run_many([SHORT]) == [DONE]
        more = interrupted(executor.close, at)
        executor.close()
        while Bare.started:  # until the test's time limit
            time.sleep(0.001)
        assert executor.run_many([SHORT]) == [DONE], at
        executor.close()
        if not more:
            break
    assert at > 50


def test_a_server_whose_watcher_is_killed_at_once_ends():
    """Between the fork and the request to be killed with the parent there is time for the parent to be killed."""
    code = """
import os, signal, sys, time
from trl_populora.executor import confine
fork = os.fork
def fork_and_die():
    watcher = os.getpid()
    if fork():
        os.kill(watcher, signal.SIGKILL)
    while os.getppid() == watcher:
        time.sleep(0.001)
    return 0
os.fork = fork_and_die
confine.leave_watcher(os.getppid())
os.write(1, b"serves on")
"""
    environment = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(os.path.dirname(module.__file__)))}
    process = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment, timeout=60)
    assert (process.returncode, process.stdout) == (-signal.SIGKILL, b"")
