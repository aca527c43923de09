"""`Progress`: how much of the current work is done. The code that works updates it. A view reads it at any time.

It calls nothing and draws nothing, so it costs only a few additions if there is no view. A run has one such object,
which its sampler holds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any


if TYPE_CHECKING:
    from .executor import Executor


class Progress:
    """A phase of work, and how much of it is done.

    Attributes:
        name (`str`): What is being done; empty between phases. unit (`str`): What is counted.
        total (`float`): Amount of work that is known so far. done (`float`): Amount that is done. A row of which half
            is written counts as half a row.
        started (`float`): When the phase began, by `time.monotonic`. first (`float`): Amount that was done before the
            phase began.

    Example:
        ```python
        >>> progress = Progress()
        >>> progress.begin("solve")
        >>> progress.expect(64, "rows")
        >>> progress.advance(16)
        >>> progress.seconds_left()  # three times the seconds so far
        ```
    """

    def __init__(self) -> None:
        self.end()

    def begin(self, name: str, total: float | None = None, unit: str = "", *, done: float = 0.0) -> None:
        """Begins a phase. Without a `total`, the code that does the work adds to it by `expect`."""
        self._fixed, self._count = total is not None, None
        self._done = self.first = done
        self.name, self.total, self.unit = name, total or 0.0, unit
        self.started = time.monotonic()

    def expect(self, count: float, unit: str) -> None:
        """Adds to the total amount of work. Does nothing if `begin` was given a `total`."""
        if not self._fixed:
            self.total, self.unit = self.total + count, unit

    def advance(self, count: float = 1.0) -> None:
        """Adds to the amount that is done."""
        self._done += count

    def reach(self, done: float) -> None:
        """Sets the amount that is done."""
        self._done, self._count = done, None

    def follow(self, count: Callable[[], float]) -> None:
        """Until the next `reach`, `done` is the result of `count`."""
        self._count = count

    def end(self) -> None:
        """Ends the phase."""
        self.begin("")

    @property
    def done(self) -> float:
        count = self._count
        return self._done if count is None else count()

    def seconds_left(self) -> float | None:
        """Seconds until the end of the phase at its present speed; `None` if that is not known."""
        done, elapsed = self.done, time.monotonic() - self.started
        if done <= self.first or self.total <= 0:
            return None
        return elapsed / (done - self.first) * max(self.total - done, 0.0)


def watched_jobs(executor: Executor, progress: Progress) -> Callable[[Sequence[Any]], list[Any]]:
    """`executor.run_many` that also counts finished programs in `progress`."""

    def run(jobs: Sequence[Any]) -> list[Any]:
        before, ran = progress.done, sum(executor.counts.values())
        progress.expect(len(jobs), "programs")
        progress.follow(lambda: before + sum(executor.counts.values()) - ran)
        try:
            return executor.run_many(jobs)
        finally:
            progress.reach(before + len(jobs))

    return run
