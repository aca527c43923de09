"""`Pool`: batches of jobs in the order of their arrival, and the workers that take from them."""

from __future__ import annotations

import logging
import threading
import weakref
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from .records import Execution, Job, Status
from .worker import Worker


_log = logging.getLogger(__name__)


class Batch:
    """Jobs handed in together, and the future of their executions."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.jobs = tuple(jobs)  # the caller may change its own list
        self.future: Future[list[Execution]] = Future()
        self.results: list[Execution | None] = [None] * len(self.jobs)
        self.taken = 0
        self.finished = 0
        self.over = False
        self.pool: Pool | None = None
        known = weakref.ref(self)  # which refers to its future, whose callbacks live as long
        self.future.add_done_callback(lambda future: _cancelled(future, known()))


class Pool:
    """
    Every method may be called from any thread.

    Args:
        size (`int`):
            Workers, and so programs that run at the same time.
        make_worker (`Callable[[], Worker]`):
            Makes a worker.
        counts (`dict[Status, int]`):
            Where to count executions by status.

    Attributes:
        held (`list[str]`):
            The measures that hold, see `levels`.
    """

    def __init__(self, size: int, make_worker: Callable[[], Worker], counts: dict[Status, int]) -> None:
        self.workers: list[Worker] = []
        self._counts = counts
        # Entered as a lock, never as a condition: `with` then takes and gives it back without a place in between where
        # a signal handler could raise and leave it taken.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._make_worker = make_worker
        self._size = size
        self._batches: deque[Batch] = deque()  # with jobs that nobody has taken
        self._closed = False
        self.held: list[str] = []

    def start(self) -> None:
        """
        Start the workers. Whatever it raises, `close` ends those that were started.

        Raises:
            `RuntimeError`, `ServerLost`: if the first worker cannot start a server.
        """
        self.workers += [self._make_worker() for _ in range(self._size)]  # `close` knows them from now on
        self.held = self.workers[0].probe()
        for worker in self.workers:
            worker.start(lambda worker=worker: self._serve(worker))

    def put(self, batch: Batch) -> bool:
        """Add a batch of at least one job; whether the pool takes it, which it does unless it was closed."""
        with self._lock:
            if self._closed:
                return False
            batch.pool = self
            self._batches.append(batch)
            self._changed.notify(len(batch.jobs))
        return True

    def close(self) -> None:
        """Cancel what waits, kill what runs, end the workers."""
        with self._lock:
            self._closed = True
            waiting = list(self._batches)
            self._changed.notify_all()
        for batch in waiting:
            batch.future.cancel()
        for worker in self.workers:
            worker.close()

    def has_thread(self) -> bool:
        """Whether the caller is one of the workers' threads."""
        return any(worker.is_current_thread() for worker in self.workers)

    # What a worker's thread does -------------------------------------------------------------------------------

    def _serve(self, worker: Worker) -> None:
        while (taken := self._take()) is not None:
            batch, index = taken
            try:
                try:
                    execution = worker.run(batch.jobs[index])
                except BaseException as error:
                    self._fail(batch, error)
                else:
                    self._finish(batch, index, execution)
            except BaseException:  # such as SystemExit: no callback of a caller may end a worker
                _log.exception("A callback of an executor's future failed.")

    def _take(self) -> tuple[Batch, int] | None:
        """Wait for a job; its batch and its place there, or `None` once the pool is closed."""
        with self._lock:
            self._changed.wait_for(lambda: self._closed or self._batches)
            if self._closed:
                return None
            batch = self._batches[0]
            index = batch.taken
            batch.taken += 1
            if batch.taken == len(batch.jobs):
                self._batches.popleft()
            return batch, index

    def _finish(self, batch: Batch, index: int, execution: Execution) -> None:
        with self._lock:
            batch.results[index] = execution
            batch.finished += 1
            if batch.finished < len(batch.jobs) or not self.end(batch):
                return
        if batch.future.set_running_or_notify_cancel():
            batch.future.set_result(batch.results)  # pyright: ignore[reportArgumentType]

    def _fail(self, batch: Batch, error: BaseException) -> None:
        if self.end(batch) and batch.future.set_running_or_notify_cancel():
            batch.future.set_exception(error)

    def end(self, batch: Batch) -> bool:
        """Drop what nobody has taken of a batch; whether it was not over before."""
        with self._lock:
            if batch.over:
                return False
            batch.over = True
            if batch in self._batches:
                self._batches.remove(batch)
            for status, count in Counter(result.status for result in batch.results if result).items():
                self._counts[status] += count
            return True


def _cancelled(future: Future, batch: Batch | None) -> None:
    if batch is not None and batch.pool is not None and batch.pool.end(batch) and future.cancelled():
        future.set_running_or_notify_cancel()  # tells `concurrent.futures.wait`
