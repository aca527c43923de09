"""Handing in jobs: from threads and coroutines, in streams, cancelled, closed, and beside programs that hang."""

import asyncio
import threading
import tracemalloc
from concurrent.futures import CancelledError

import pytest

from trl_populora.executor import Executor, Job, Limits, Status


WAITS = Job(
    "import _thread\ndef f():\n    lock = _thread.allocate_lock()\n    lock.acquire()\n    lock.acquire()",
    ((),),
    Limits(wall_seconds=60),
)


def plus(index):
    return Job(f"def f(x): return x + {index}", ((0,),))


@pytest.fixture
def executor():
    with Executor(1, modules=("_thread",)) as executor:
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
    assert executor.counts[Status.OK] == 80 and executor.busy_seconds > 0


def test_a_stream_reads_no_further_than_it_may(executor):
    read = []

    def jobs():
        for index in range(200):
            read.append(index)
            yield plus(index)

    stream = executor.stream(jobs(), ahead=5)
    for index, execution in enumerate(stream):
        assert execution.values[0].value == index
        assert len(read) <= index + 5
        if index == 50:
            break
    stream.close()
    assert len(read) <= 55 and values(executor.run_many([plus(7)])) == [7]
    assert list(executor.stream([])) == []
    with pytest.raises(ValueError, match="ahead is 0"):
        next(executor.stream([plus(1)], ahead=0))


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


def test_a_hang_does_not_hold_up_the_others(executor):
    hang = executor.submit([WAITS])
    assert values(executor.run_many([plus(index) for index in range(20)])) == list(range(20))
    assert not hang.done()
    executor.close()
    with pytest.raises(RuntimeError, match="closed"):
        hang.result()


def test_no_more_workers_than_twice_the_slots(executor):
    hangs = [executor.submit([WAITS]) for _ in range(4)]
    short = Job("def f():\n    while True: pass", ((),), Limits(cpu_seconds=0.02, wall_seconds=60))
    waiting = executor.submit([short])
    while len(executor._workers) < 2:
        threading.Event().wait(0.01)
    assert not waiting.done() and len(executor._workers) == 2
    executor.close()
    assert waiting.cancelled() and all(hang.done() for hang in hangs)


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
