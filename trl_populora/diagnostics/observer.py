"""`Observer`: what diagnostics has to remember from round to round, in one place that goes into a checkpoint.

It turns each round into a `RoundSummary`. It neither prints nor writes; the trainer hands the summary on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from .complexity import mean_complexity
from .coverage import CoverageArchive
from .dynamics import RoundSummary, summarize_round


if TYPE_CHECKING:
    from ..population import Population
    from ..self_play.ratings import Ratings
    from ..self_play.records import RoundRecord


class Observer:
    """Sums up rounds, keeping the coverage archive and the executor's last counts between them.

    Example:
        ```python
        >>> observer = Observer()
        >>> summary = observer.observe(played.record, ratings=ratings, population=population, seconds=played.seconds)
        ```
    """

    def __init__(self):
        self.archive = CoverageArchive()
        self._filled: list[int] = []
        self._counts: dict[str, int] = {}

    def observe(
        self,
        record: RoundRecord,
        *,
        ratings: Ratings,
        population: Population,
        counts: Mapping | None = None,
        tasks: Mapping[str, float] | None = None,
        events: Iterable[Mapping] = (),
        seconds: Mapping[str, float] | None = None,
        grad_norms: Mapping[str, float] | None = None,
    ) -> RoundSummary:
        """Sum up one round.

        Args:
            record ([`RoundRecord`]): What happened.
            ratings ([`Ratings`]): Ratings after the round.
            population ([`Population`]): Members as they played.
            counts (`Mapping[Status, int]`, *optional*): The executor's counts since it started, `Executor.counts`.
            tasks (`Mapping[str, float]`, *optional*): What [`task_metrics`] says of the round.
            events (`Iterable[Mapping]`, *optional*): Replacements made after the round.
            seconds (`Mapping[str, float]`, *optional*): Seconds of each phase.
            grad_norms (`Mapping[str, float]`, *optional*): Member -> gradient norm before clipping.
        """
        valid = [proposal.task for proposal in record.proposals if proposal.task is not None]
        for task in valid:
            self.archive.add(task.program, task.outputs, author=task.author, step=record.step)
        self._filled.append(self.archive.filled)
        return summarize_round(
            record,
            ratings=ratings,
            members=population.values(),
            adapter_of=population.adapter_of,
            statuses=self._new_counts(counts or {}),
            complexity=mean_complexity(task.program for task in valid),
            coverage=self._coverage(),
            coverage_history=self._filled,
            tasks=tasks,
            events=events,
            seconds=seconds,
            grad_norms=grad_norms,
        )

    def state_dict(self) -> dict:
        """What a resumed run needs, as JSON-able data. Executor counts start anew with the executor."""
        return {"archive": self.archive.state_dict(), "filled": list(self._filled)}

    def load_state_dict(self, state: Mapping) -> None:
        self.archive.load_state_dict(state["archive"])
        self._filled = list(state["filled"])
        self._counts = {}

    def _coverage(self) -> dict[str, int]:
        before = self._filled[-2] if len(self._filled) > 1 else 0
        authors = {f"filled/{author}": cells for author, cells in self.archive.filled_by_author.items()}
        return {"filled": self.archive.filled, "new": self.archive.filled - before, **authors}

    def _new_counts(self, counts: Mapping) -> dict[str, int]:
        now = {getattr(status, "value", status): int(n) for status, n in counts.items()}
        new = {name: n - self._counts.get(name, 0) for name, n in now.items()}
        self._counts = now
        return {name: n for name, n in new.items() if n > 0}
