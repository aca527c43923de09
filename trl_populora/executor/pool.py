"""`Pool`: batches of jobs in the order of their arrival, and the workers that take from them."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from .records import Execution, Job, Status
from .worker import Worker


_log = logging.getLogger(__name__)


@dataclass
class Statistics:
    """What an executor has done so far.

    Args:
        counts (`dict[Status, int]`):
            Executions by status.
        busy_seconds (`float`):
            Wall seconds during which there was a job to run.
    """

    counts: dict[Status, int] = field(default_factory=lambda: dict.fromkeys(Status, 0))
    busy_seconds: float = 0.0


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
    At most `slots` programs run at once. A worker whose program is slow, because it loops or waits, lends its slot to
    another worker meanwhile; so there are up to twice as many workers, the second half started when first needed.
    Every method may be called from any thread.

    Args:
        slots (`int`):
            Programs that run at the same time.
        make_worker (`Callable[[], Worker]`):
            Makes a worker.
        statistics (`Statistics`):
            Where to count.

    Attributes:
        held (`list[str]`):
            The measures that hold, see `levels`.
    """

    def __init__(self, slots: int, make_worker: Callable[[], Worker], statistics: Statistics) -> None:
        self.workers: list[Worker] = []
        self.statistics = statistics
        # Entered as a lock, never as a condition: `with` then takes and gives it back without a place in between where
        # a signal handler could raise and leave it taken.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._make_worker = make_worker
        self._slots = slots
        self._most_workers = 2 * slots
        self._idle = 0
        self._batches: deque[Batch] = deque()  # with jobs that nobody has taken
        self._open = 0  # batches that are not over
        self._busy_since = 0.0
        self._closed = False
        self.held: list[str] = []

    def start(self) -> None:
        """
        Start the workers. Whatever it raises, `close` ends those that were started.

        Raises:
            `RuntimeError`, `ServerLost`: if the first worker cannot start a server.
        """
        self.workers += [self._make_worker() for _ in range(self._slots)]  # `close` knows them from now on
        self.held = self.workers[0].probe()
        for worker in self.workers:
            self._start(worker)

    def put(self, batch: Batch) -> bool:
        """Add a batch of at least one job; whether the pool takes it, which it does unless it was closed."""
        with self._lock:
            if self._closed:
                return False
            if not self._open:
                self._busy_since = time.monotonic()
            self._open += 1
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
            lent = False

            def lend() -> None:
                nonlocal lent
                if not lent:
                    lent = True
                    self._lend_slot()

            try:
                try:
                    execution = worker.run(batch.jobs[index], when_slow=lend)
                except BaseException as error:
                    self._fail(batch, error)
                else:
                    self._finish(batch, index, execution)
            except BaseException:  # such as SystemExit: no callback of a caller may end a worker
                _log.exception("A callback of an executor's future failed.")
            finally:
                if not lent:
                    with self._lock:
                        self._slots += 1  # this thread takes it again if there is a job: no one to notify

    def _take(self) -> tuple[Batch, int] | None:
        """Wait for a job and a slot; the job's batch and its place there, or `None` once the pool is closed."""
        with self._lock:
            self._idle += 1
            self._changed.wait_for(lambda: self._closed or self._batches and self._slots)
            self._idle -= 1
            if self._closed:
                return None
            batch = self._batches[0]
            index = batch.taken
            batch.taken += 1
            if batch.taken == len(batch.jobs):
                self._batches.popleft()
            self._slots -= 1
            return batch, index

    def _lend_slot(self) -> None:
        with self._lock:
            self._slots += 1
            if self._idle:
                self._changed.notify()
            elif self._batches and len(self.workers) < self._most_workers and not self._closed:
                worker = self._make_worker()
                self.workers.append(worker)
                try:
                    self._start(worker)
                except RuntimeError:  # no more threads: then the others wait for this program
                    self.workers.remove(worker)

    def _start(self, worker: Worker) -> None:
        worker.start(lambda: self._serve(worker))

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
            self._open -= 1
            if not self._open:
                self.statistics.busy_seconds += time.monotonic() - self._busy_since
            for status, count in Counter(result.status for result in batch.results if result).items():
                self.statistics.counts[status] += count
            return True


def _cancelled(future: Future, batch: Batch | None) -> None:
    if batch is not None and batch.pool is not None and batch.pool.end(batch) and future.cancelled():
        future.set_running_or_notify_cancel()  # tells `concurrent.futures.wait`
