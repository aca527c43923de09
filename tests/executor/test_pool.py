"""Handing in jobs: from threads and coroutines, cancelled and closed."""

import asyncio
import gc
import threading
import tracemalloc
import weakref
from concurrent.futures import CancelledError, wait

import pytest

from trl_populora.executor import Executor, Job, Limits, Status
from trl_populora.executor.pool import Batch


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


def test_submit_returns_at_once_and_keeps_the_order(executor):
    futures = [executor.submit([plus(10 * batch + index) for index in range(3)]) for batch in range(5)]
    assert [values(future.result()) for future in futures] == [[10 * b, 10 * b + 1, 10 * b + 2] for b in range(5)]
    assert executor.submit([]).result() == []


def test_coroutines_wait_without_a_thread_each(executor):
    async def main():
        batches = [asyncio.wrap_future(executor.submit([plus(index)])) for index in range(20)]
        return [values(await batch)[0] for batch in batches]

    assert asyncio.run(main()) == list(range(20))


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


def test_a_hundred_thousand_queued_jobs_cost_no_memory_of_their_own(executor):
    executor.run_many([plus(0)])
    tracemalloc.start()
    future = executor.submit([plus(0)] * 100_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10 << 20
    assert future.cancel()
    with pytest.raises(CancelledError):
        future.result()
    assert values(executor.run_many([plus(3)])) == [3]
    assert executor.counts[Status.OK] < 1000


def test_close_ends_a_program_that_hangs(executor):
    hang = executor.submit([WAITS])
    while not executor._workers[0]._servers[0, True].jobs:
        threading.Event().wait(0.01)
    executor.close()
    with pytest.raises(RuntimeError, match="closed"):
        hang.result()


def test_close_cancels_what_waits_and_the_next_call_starts_anew(executor):
    future = executor.submit([plus(1)] * 10_000)
    executor.close()
    with pytest.raises((CancelledError, RuntimeError)):
        future.result()
    assert values(executor.run_many([plus(2)])) == [2]
    executor.close()
    executor.close()


def test_jobs_that_are_no_jobs_fail_their_own_batch_only(executor):
    with pytest.raises(AttributeError):
        executor.run_many([plus(1), "def f(): pass"])
    assert values(executor.run_many([plus(1)])) == [1]


def test_whoever_waits_for_a_cancelled_future_is_told(executor):
    futures = [executor.submit([plus(1)] * 10_000) for _ in range(3)]
    assert futures[2].cancel()
    assert wait([futures[2]], timeout=20).done == {futures[2]}
    executor.close()
    assert wait(futures, timeout=20).not_done == set()


def test_a_list_that_changes_after_submit(executor):
    jobs = [plus(1)] * 50
    future = executor.submit(jobs)
    jobs[:] = [plus(2)] * 70
    assert values(future.result()) == [1] * 50


def test_callbacks_cannot_end_a_worker_or_wait_for_it(executor, caplog):
    def leave(_):
        raise SystemExit

    found = []

    def call_again(_):
        try:
            executor.run_many([plus(1)])
        except RuntimeError as error:
            found.append(str(error))

    for callback in (leave, call_again):
        future = executor.submit([plus(1)] * 100)
        future.add_done_callback(callback)
        assert values(future.result()) == [1] * 100
        assert values(executor.run_many([plus(3)])) == [3]
    assert "callback" in caplog.text and "use submit" in found[0]


def test_a_closed_pool_takes_nothing(executor):
    executor.run_many([plus(1)])
    pool = executor._pool
    executor.close()
    assert not pool.put(Batch([plus(1)]))
    assert values(executor.run_many([plus(2)])) == [2]


def test_an_executor_that_is_dropped_ends_its_servers_without_waiting_for_them():
    executor = Executor(1, modules=("_thread",))
    future = executor.submit([WAITS])
    while not any(server._process for server in list(executor._workers[0]._servers.values())):
        threading.Event().wait(0.01)
    pool = executor._pool
    with pool._lock:  # whatever lock is held where garbage is collected
        del executor
        gc.collect()
    with pytest.raises((RuntimeError, CancelledError)):
        future.result(timeout=20)


def test_batches_are_not_left_to_the_garbage_collector(executor):
    gc.disable()
    try:
        future = executor.submit([plus(1)])
        future.result()
        executor.run_many([plus(1)])  # the worker has let go of the first batch
        known = weakref.ref(future)
        del future
        assert known() is None
    finally:
        gc.enable()
