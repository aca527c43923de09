"""`Observer`: the state of diagnostics between rounds, in one object that checkpoints store.

It makes a `RoundSummary` from each round. It does not print or write. The trainer passes the summary on.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ..tasks import Features, Task, features_of
from .coverage import CoverageArchive
from .dynamics import summarize_round
from .matched import MatchedGames
from .summary import RoundSummary


logger = logging.getLogger(__name__)

if TYPE_CHECKING:
    from ..population import Population
    from ..self_play.ratings import Ratings
    from ..self_play.records import RoundRecord
    from ..tasks import TaskType


class Observer:
    """Summarizes rounds. Between rounds it keeps the coverage archive, the matched games and the executor's last
    counts.

    Complexity and coverage use `TaskType.features`. Tasks without features are not counted. If no type has features,
    there are no such numbers. Each space of features has its own archive, and their cells are counted together.

    Args:
        task_types (`Mapping[str, TaskType]`): Types in play, by id.
        prompts_per_teacher (`int`, *optional*, defaults to 1): Proposal prompts of a teacher in a round. It determines
            the rotation of the types.

    Example:
        ```python
        >>> observer = Observer(make_task_types())
        >>> summary = observer.observe(played.record, ratings=ratings, population=population, seconds=played.seconds)
        ```
    """

    def __init__(self, task_types: Mapping[str, TaskType], *, prompts_per_teacher: int = 1) -> None:
        self.task_types = dict(task_types)
        self.measured = any(features_of(one, one.simplest()) is not None for one in self.task_types.values())
        self.archives: dict[str, CoverageArchive] = {}
        self.matched = MatchedGames(rotation=math.ceil(len(task_types) / prompts_per_teacher))
        self._filled: list[int] = []
        self._warned: set[str] = set()
        self._counts: Counter[str] = Counter()

    def observe(
        self,
        record: RoundRecord,
        *,
        ratings: Ratings,
        population: Population,
        counts: Mapping[str, int] | None = None,
        grad_norms: Mapping[str, float] | None = None,
        **facts: Any,
    ) -> RoundSummary:
        """Sum up one round.

        Args:
            record ([`RoundRecord`]): What happened.
            ratings ([`Ratings`]): Ratings after the round.
            population ([`Population`]): Members as they played.
            counts (`Mapping[str, int]`, *optional*): Status -> executions that ended with it, since the run started.
            grad_norms (`Mapping[str, float]`, *optional*): Member -> gradient norm before clipping.
            facts (`Any`): Additional fields of [`RoundSummary`], such as `tasks` and `seconds`.
        """
        tasks_of = [one.task for one in record.proposals if one.task is not None]
        found = [(task, self._features(task)) for task in tasks_of]
        measured = [(task, features) for task, features in found if features is not None]
        for task, features in measured:
            archive = self.archives.setdefault(features.space, CoverageArchive())
            archive.add(features.point, author=task.author, step=record.step)
        if self.measured:
            self._filled.append(sum(archive.filled for archive in self.archives.values()))
        before, self._counts = self._counts, Counter(counts)
        return summarize_round(
            record,
            ratings=ratings,
            members=population.values(),
            adapter_of=population.adapter_of,
            statuses=dict(self._counts - before),  # those with new executions
            complexity=_means(features.measures for _, features in measured),
            coverage=self._coverage() if self.measured else {},
            coverage_history=self._filled,
            matched=self.matched,
            grad_norms=grad_norms,
            **facts,
        )

    def _features(self, task: Task) -> Features | None:
        """A task without features that can be used is not measured: a diagnostic ends no run."""
        try:
            return features_of(self.task_types[task.type], task)
        except Exception as error:  # of a user's type
            if task.type not in self._warned:
                self._warned.add(task.type)
                logger.warning(f"Tasks without features: {type(error).__name__}: {error}. They count in no measure.")
            return None

    def state_dict(self) -> dict:
        """State that a resumed run needs, as data for JSON."""
        return {
            "archives": {space: archive.state_dict() for space, archive in self.archives.items()},
            "filled": list(self._filled),
            "matched": self.matched.state_dict(),
        }

    def load_state_dict(self, state: Mapping, *, counts: Mapping[str, int] | None = None) -> None:
        """Restores the state. `counts` are the executor's so far, if it has any: they belong to no later round."""
        self._counts = Counter(counts)
        self.archives = {space: CoverageArchive() for space in state["archives"]}
        for space, archive in self.archives.items():
            archive.load_state_dict(state["archives"][space])
        self._filled = list(state["filled"])
        self.matched.load_state_dict(state["matched"])

    def _coverage(self) -> dict[str, int]:
        before = self._filled[-2] if len(self._filled) > 1 else 0
        filled, authors = self._filled[-1], Counter()
        for archive in self.archives.values():
            authors.update(archive.filled_by_author)
        by_author = {f"filled/{author}": cells for author, cells in sorted(authors.items())}
        return {"filled": filled, "new": filled - before, **by_author}


def _means(rows: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Mean of every measure over the tasks that have it."""
    values: dict[str, list[float]] = {}
    for row in rows:
        for name, value in row.items():
            values.setdefault(name, []).append(value)
    return {name: sum(own) / len(own) for name, own in values.items()}
