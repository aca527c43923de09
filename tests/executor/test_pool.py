"""Handing in jobs: from several threads, interrupted by a close, dropped."""

import gc
import threading
import weakref
from pathlib import Path

import psutil
import pytest

from trl_populora.executor import Executor, Job, Limits, Status
from trl_populora.executor import executor as module


WAITS = Job(
    "import _thread\ndef f():\n    lock = _thread.allocate_lock()\n    lock.acquire()\n    lock.acquire()",
    ((),),
    Limits(wall_seconds=60),
)


def plus(index):
    return Job(f"def f(x): return x + {index}", ((0,),))


@pytest.fixture
def executor():
    with Executor(1, modules=("_thread", "time")) as executor:
        yield executor


def values(executions):
    return [execution.values[0].value for execution in executions]


class Call(threading.Thread):
    """`run_many` in a thread of its own: what it returns or raises."""

    def __init__(self, executor, jobs):
        super().__init__(daemon=True)
        self.executor, self.jobs, self.found = executor, jobs, None
        self.start()

    def run(self):
        try:
            self.found = self.executor.run_many(self.jobs)
        except BaseException as error:
            self.found = error

    def result(self):
        self.join(20)
        assert not self.is_alive()
        return self.found


def wait_for(condition):
    while not condition():
        threading.Event().wait(0.01)


def test_results_are_in_the_order_of_the_jobs():
    with Executor(3) as executor:
        assert values(executor.run_many([plus(index) for index in range(30)])) == list(range(30))
        assert executor.run_many([]) == []


def test_threads_share_an_executor(executor):
    found = {}
    threads = [
        threading.Thread(target=lambda n=n: found.update({n: values(executor.run_many([plus(n)] * 10))}))
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {n: [n] * 10 for n in range(8)}
    assert executor.counts[Status.OK] == 80


def test_jobs_that_are_no_jobs_fail_their_own_batch_only(executor):
    with pytest.raises(AttributeError):
        executor.run_many([plus(1), "def f(): pass"])
    assert values(executor.run_many([plus(1)])) == [1]


def test_close_ends_a_program_that_hangs_and_whoever_waits_is_told(executor, monkeypatch):
    waiting = []

    class Counted(module.Pool):
        def put(self, batch):
            super().put(batch)
            waiting.extend(batch.jobs)

    monkeypatch.setattr(module, "Pool", Counted)
    assert executor.isolation
    (server,) = map(psutil.Process, executor.pids)
    idle = len(server.children(recursive=True))
    hang = Call(executor, [WAITS])
    wait_for(lambda: len(server.children(recursive=True)) > idle)
    waits = [Call(executor, [plus(1)] * 1000) for _ in range(3)]
    wait_for(lambda: len(waiting) == 3001)
    executor.close()
    for call in (hang, *waits):
        assert isinstance(call.result(), RuntimeError) and "closed" in str(call.result())
    assert values(executor.run_many([plus(2)])) == [2]
    executor.close()
    executor.close()


def test_an_executor_without_servers_starts_none_for_no_jobs(executor):
    assert executor.run_many([]) == [] and executor.pids == []


def test_jobs_of_a_batch_that_failed_are_not_run(executor):
    with pytest.raises(AttributeError):
        executor.run_many(["def f(): pass", *[plus(1)] * 1000])
    assert values(executor.run_many([plus(1)])) == [1]
    assert executor.counts[Status.OK] == 1


def test_a_call_that_races_with_close_does_not_wait_for_ever(executor, monkeypatch):
    class Closed(module.Pool):
        def put(self, batch):
            executor.close()
            super().put(batch)

    with monkeypatch.context() as patched:
        patched.setattr(module, "Pool", Closed)
        assert "closed" in str(Call(executor, [plus(1)]).result())
    assert values(executor.run_many([plus(2)])) == [2]


def test_an_executor_that_is_dropped_ends_its_servers():
    before = set(threading.enumerate())
    executor = Executor(2)
    executor.run_many([plus(1)])
    servers = executor.pids
    threads = {thread for thread in set(threading.enumerate()) - before if thread.name == "populora-executor"}
    assert len(servers) >= 2 and len(threads) == 2
    del executor
    gc.collect()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in servers))


def test_batches_are_not_left_to_the_garbage_collector(executor, monkeypatch):
    known = []

    class Known(module.Batch):
        def __init__(self, jobs):
            super().__init__(jobs)
            known.append(weakref.ref(self))

    monkeypatch.setattr(module, "Batch", Known)
    gc.disable()
    try:
        executor.run_many([plus(1)])
        executor.run_many([plus(1)])  # the worker has let go of the first batch
        assert known[0]() is None
    finally:
        gc.enable()
