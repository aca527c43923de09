"""`Pool`: jobs in the order of their arrival, and the workers that take from them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from queue import SimpleQueue

from .records import Execution, Job, Status
from .worker import Worker


class Batch:
    """Jobs handed in together.

    Attributes:
        results (`list[Execution | None]`): In the order of the jobs, as far as they were run.
        left (`int`): Jobs without a result.
        error (`BaseException`, *optional*): Why there will be no more results.
        over (`threading.Lock`): Taken until the last result or an error is there.
    """

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.jobs = tuple(jobs)  # the caller may change its own list
        self.results: list[Execution | None] = [None] * len(self.jobs)
        self.left = len(self.jobs)
        self.error: BaseException | None = None
        self.over = threading.Lock()
        self.over.acquire()


class Pool:
    """
    Every method may be called from any thread, and a signal handler may raise at any place in it.

    Args:
        workers (`list[Worker]`):
            Run one program each at a time; not started yet.
        counts (`dict[Status, int]`):
            Where to count executions by status.

    Attributes:
        held (`list[str]`):
            The measures that hold, see `levels`.
    """

    def __init__(self, workers: list[Worker], counts: dict[Status, int]) -> None:
        self.workers = workers
        self.held: list[str] = []
        self.closed = False
        self._counts = counts
        self._waiting: SimpleQueue[tuple[Batch, int] | None] = SimpleQueue()
        self._finishing = threading.Lock()  # for workers' threads only: no signal handler runs there

    def start(self) -> None:
        """
        Start the workers. Whatever it raises, `close` ends those that were started.

        Raises:
            `RuntimeError`, `ServerLost`: if the first worker cannot start a server.
        """
        self.held = self.workers[0].probe()
        for worker in self.workers:
            worker.start(lambda worker=worker: self._serve(worker))

    def put(self, batch: Batch) -> None:
        """Add the jobs of a batch; once the pool is closed nobody runs them."""
        for index in range(len(batch.jobs)):
            self._waiting.put((batch, index))

    def close(self) -> None:
        """Leave what waits, kill what runs, end the workers."""
        self.closed = True
        for _ in self.workers:
            self._waiting.put(None)  # wakes one
        for worker in self.workers:
            worker.close()

    def _serve(self, worker: Worker) -> None:
        while (taken := self._waiting.get()) is not None and not self.closed:
            batch, index = taken
            if batch.error is not None:
                continue
            try:
                execution = worker.run(batch.jobs[index])
            except BaseException as error:
                with self._finishing:
                    if batch.error is None:
                        batch.error = error
                        batch.over.release()
                continue
            with self._finishing:
                self._counts[execution.status] += 1
                batch.results[index] = execution
                batch.left -= 1
                if not batch.left:
                    batch.over.release()
