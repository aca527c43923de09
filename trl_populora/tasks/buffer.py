"""The stock of verified tasks, kept per type: references for proposers, and fill-ins where a proposal was invalid.

When a type is full, its oldest task leaves; the newest are always kept. Not here: making or judging tasks, and who
plays whom (`self_play`).
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any

from trl_populora.tasks.task import Task


# Whose programs a proposer of a type is shown: its own type's, except that code_f builds on programs of the others.
REFERENCE_TYPES = {"code_f": ("code_o", "code_i")}


class TaskBuffer:
    """
    Tasks by type, without duplicates, in order of arrival.

    Args:
        capacity (`int`, *optional*, defaults to `16384`):
            Tasks kept per type.
        tasks (`Iterable[Task]`, *optional*):
            First tasks, such as those of [`seed_tasks`].
        reference_types (`Mapping[str, Sequence[str]]`, *optional*):
            Types whose tasks serve as references for proposals of a type that is not its own reference. Default:
            `code_f` draws on `code_o` and `code_i`.
    """

    def __init__(
        self,
        capacity: int = 16384,
        tasks: Iterable[Task] = (),
        *,
        reference_types: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, got {capacity}")
        self.capacity = capacity
        self._reference_types = dict(REFERENCE_TYPES if reference_types is None else reference_types)
        self._tasks: dict[str, OrderedDict[str, Task]] = {}
        for task in tasks:
            self.add(task)

    def __len__(self) -> int:
        return sum(len(kept) for kept in self._tasks.values())

    def __contains__(self, task: Task) -> bool:
        return task.id in self._tasks.get(task.type, ())

    def tasks(self, type: str) -> list[Task]:
        """The tasks of a type, oldest first."""
        return list(self._tasks.get(type, OrderedDict()).values())

    def add(self, task: Task) -> bool:
        """Adds a task unless one with the same content is there. A full type loses its oldest task."""
        if task in self:
            return False
        kept = self._tasks.setdefault(task.type, OrderedDict())
        kept[task.id] = task
        if len(kept) > self.capacity:
            kept.popitem(last=False)
        return True

    def fill(self, type: str, n: int, rng: random.Random, *, exclude: Collection[str] = ()) -> list[Task]:
        """
        Tasks for the slots that an invalid proposal left empty: exactly `n`, whatever the stock.

        The tasks of the newest step come first, in random order; then the others, uniformly without replacement; and
        when all are used up, uniformly with replacement.

        Args:
            type (`str`):
                Task type.
            n (`int`):
                Number of tasks.
            rng (`random.Random`):
                Source of randomness.
            exclude (`Collection[str]`, *optional*):
                Ids to avoid as long as there are others.

        Raises:
            `ValueError`: if there is no task of this type at all.
        """
        stock = self.tasks(type)
        if n <= 0:
            return []
        if not stock:
            raise ValueError(f"the buffer holds no {type} task to fill {n} slots with; start it from seed_tasks")
        avoided = set(exclude)
        stock = [task for task in stock if task.id not in avoided] or stock
        newest = list(takewhile(lambda task: task.step == stock[-1].step, reversed(stock)))
        chosen = rng.sample(newest, min(n, len(newest)))
        rest = stock[: len(stock) - len(newest)]
        chosen += rng.sample(rest, min(n - len(chosen), len(rest)))
        return chosen + rng.choices(stock, k=n - len(chosen))

    def references(self, type: str, k: int, rng: random.Random) -> list[Task]:
        """
        Up to `k` different tasks, drawn uniformly, to show to a proposer of `type`. Empty if there are none.
        """
        types = self._reference_types.get(type, (type,))
        stock = [task for name in types for task in self.tasks(name)] or self.tasks(type)
        return rng.sample(stock, min(k, len(stock)))

    def state_dict(self) -> dict[str, Any]:
        """All tasks as JSON-able records, in order of arrival."""
        return {"tasks": [task.to_json() for kept in self._tasks.values() for task in kept.values()]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Replaces the contents. With a smaller capacity than at saving, the newest tasks of each type remain."""
        self._tasks = {}
        for record in state["tasks"]:
            self.add(Task.from_json(record))
