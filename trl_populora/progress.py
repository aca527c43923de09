"""`Progress`: how far the work of the moment is. Those who work write it, and whoever watches reads it when it likes.

Nobody is called and nothing is drawn here: where nobody watches, progress costs a few additions. A run has one such
object, which its sampler holds.
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
        total (`float`): How much there is to do, as far as that is known. done (`float`): How much of it is done; a
            half-written row is half a row.
        started (`float`): When the phase began, by `time.monotonic`. first (`float`): What had been done before.
        watched (`bool`): Whether anybody reads this. What takes time to count is counted only then.

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
        """A phase begins. Without a `total`, those who do the work say by `expect` how much there is."""
        self._fixed, self._count = total is not None, None
        self._done = self.first = done
        self.name, self.total, self.unit = name, total or 0.0, unit
        self.started = time.monotonic()

    def expect(self, count: float, unit: str) -> None:
        """So much more work is known of, unless the whole was known from the beginning."""
        if not self._fixed:
            self.total, self.unit = self.total + count, unit

    def advance(self, count: float = 1.0) -> None:
        """So much more is done."""
        self._done += count

    def reach(self, done: float) -> None:
        """So much is done by now."""
        self._done, self._count = done, None

    def follow(self, count: Callable[[], float]) -> None:
        """Until the next `reach`, `count` tells whoever asks how much is done."""
        self._count = count

    def end(self) -> None:
        """Nothing is being done."""
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
    """`executor.run_many`, with the programs that have run counted in `progress`."""

    def run(jobs: Sequence[Any]) -> list[Any]:
        before, ran = progress.done, sum(executor.counts.values())
        progress.expect(len(jobs), "programs")
        progress.follow(lambda: before + sum(executor.counts.values()) - ran)
        try:
            return executor.run_many(jobs)
        finally:
            progress.reach(before + len(jobs))

    return run
