"""`Observer`: what diagnostics has to remember from round to round, in one place that goes into a checkpoint.

It turns each round into a `RoundSummary`. It neither prints nor writes; the trainer hands the summary on.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from .complexity import mean_complexity
from .coverage import CoverageArchive
from .dynamics import RoundSummary, summarize_round
from .matched import MatchedGames


if TYPE_CHECKING:
    from ..population import Population
    from ..self_play.ratings import Ratings
    from ..self_play.records import RoundRecord
    from ..tasks import TaskType


class Observer:
    """Sums up rounds; keeps the coverage archive, the matched games and the executor's last counts between them.

    Complexity and coverage are of programs that teachers wrote themselves: a task of a type with
    `proposes_program = False` is built on another author's program and has no part in them. If no other type is in
    play, they have no numbers.

    Args:
        task_types (`Mapping[str, TaskType]`): Types in play, by id.
        prompts_per_teacher (`int`, *optional*, defaults to 1): Proposal prompts of a teacher in a round; says after
            how many rounds all types have had their turn.

    Example:
        ```python
        >>> observer = Observer(task_types())
        >>> summary = observer.observe(played.record, ratings=ratings, population=population, seconds=played.seconds)
        ```
    """

    def __init__(self, task_types: Mapping[str, TaskType], *, prompts_per_teacher: int = 1):
        self.own = frozenset(name for name, task_type in task_types.items() if task_type.proposes_program)
        self.archive = CoverageArchive()
        self.matched = MatchedGames(rotation=math.ceil(len(task_types) / prompts_per_teacher))
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
        own = [one.task for one in record.proposals if one.task is not None and one.type in self.own]
        for task in own:
            self.archive.add(task.program, task.outputs, author=task.author, step=record.step)
        if self.own:
            self._filled.append(self.archive.filled)
        return summarize_round(
            record,
            ratings=ratings,
            members=population.values(),
            adapter_of=population.adapter_of,
            statuses=self._new_counts(counts or {}),
            complexity=mean_complexity(task.program for task in own),
            coverage=self._coverage() if self.own else {},
            coverage_history=self._filled,
            matched=self.matched,
            tasks=tasks,
            events=events,
            seconds=seconds,
            grad_norms=grad_norms,
        )

    def state_dict(self) -> dict:
        """What a resumed run needs, as JSON-able data. Executor counts start anew with the executor."""
        return {
            "archive": self.archive.state_dict(),
            "filled": list(self._filled),
            "matched": self.matched.state_dict(),
        }

    def load_state_dict(self, state: Mapping) -> None:
        self.archive.load_state_dict(state["archive"])
        self._filled = list(state["filled"])
        self.matched.load_state_dict(state["matched"])
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
