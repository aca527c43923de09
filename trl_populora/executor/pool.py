"""`Pool`: a queue of jobs, and the workers that take jobs from it in the order of arrival."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from queue import SimpleQueue

from .records import Execution, Job, Status
from .worker import Worker


class Batch:
    """Jobs of one call.

    Attributes:
        results (`list[Execution | None]`): In the order of the jobs; `None` for a job that was not run yet.
        left (`int`): Jobs without a result.
        error (`BaseException`, *optional*): An error after which no more results come.
        over (`threading.Lock`): Locked until the last result or an error has come.
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
    Jobs and their workers. Every method may be called from any thread, and a signal handler may raise anywhere in it.

    Args:
        workers (`list[Worker]`):
            Each runs one program at a time. Not started yet.
        counts (`dict[Status, int]`):
            Number of executions by status, which the pool updates.

    Attributes:
        held (`list[str]`):
            The measures that work, see `levels`.
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
        Starts the workers. If it raises an error, `close` ends those that were started.

        Raises:
            `SandboxError`, `ServerLost`: If the first worker cannot start a server.
        """
        self.held = self.workers[0].probe()
        for worker in self.workers:
            worker.start(lambda worker=worker: self._serve(worker))

    def put(self, batch: Batch) -> None:
        """Adds the jobs of a batch. After the pool is closed, they are not run."""
        for index in range(len(batch.jobs)):
            self._waiting.put((batch, index))

    def close(self) -> None:
        """Drops waiting jobs, kills running ones, and ends the workers."""
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
