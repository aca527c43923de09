"""The buffer: verified tasks per type. They are references for teachers, and fill-ins for invalid proposals.

When a type is full, its oldest task is removed. A proposed task that was attempted often and never solved leaves play:
it is neither shown nor attempted again, but it is still known as a duplicate.
"""

from __future__ import annotations

import random
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable, Mapping
from itertools import takewhile
from typing import Any, NamedTuple

from trl_populora.tasks.base import TaskType
from trl_populora.tasks.task import Task


class Tries(NamedTuple):
    """Number of attempts at a task by all players, and number of those that solved it."""

    attempts: int = 0
    solved: int = 0


class TaskBuffer:
    """
    Tasks by type, without duplicates, in order of arrival.

    Args:
        types (`Mapping[str, TaskType]`):
            Task types by id.
        capacity (`int`, *optional*, defaults to `16384`):
            Tasks kept per type.
        tasks (`Iterable[Task]`, *optional*):
            Tasks for the start, such as those of [`TaskType.seeds`].
        max_unsolved_tries (`int`, *optional*, defaults to `0`):
            After this number of attempts without a solution, a proposed task leaves play, if its type has other tasks.
            Seed tasks are solvable and stay. 0 keeps all tasks in play.
        reserved (`Collection[str]`, *optional*):
            Keys of tasks that are never added, such as those of exams.
    """

    def __init__(
        self,
        types: Mapping[str, TaskType],
        capacity: int = 16384,
        tasks: Iterable[Task] = (),
        *,
        max_unsolved_tries: int = 0,
        reserved: Collection[str] = (),
    ) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, got {capacity}")
        if max_unsolved_tries < 0:
            raise ValueError(f"max_unsolved_tries must be 0 (keep all) or more, got {max_unsolved_tries}")
        self.types, self.capacity, self.max_unsolved_tries = dict(types), capacity, max_unsolved_tries
        self.reserved = frozenset(reserved)
        self._tasks: dict[str, OrderedDict[str, Task]] = {}
        self._tries: dict[str, Tries] = {}  # id -> attempts
        self._given_up: set[str] = set()  # ids of tasks that are not in play
        self._keys: dict[str, str] = {}  # id -> key
        self._known: Counter[str] = Counter()  # key -> tasks that share it
        self._no_reference: set[tuple[str, str]] = set()  # type and id of tasks that its prompts do not show
        for task in tasks:
            self.add(task)

    def __len__(self) -> int:
        return sum(len(kept) for kept in self._tasks.values())

    def __contains__(self, task: Task) -> bool:
        return task.id in self._tasks.get(task.type, ())

    def tasks(self, type: str) -> list[Task]:
        """The tasks of a type, oldest first."""
        return list(self._tasks.get(type, OrderedDict()).values())

    def in_play(self, type: str) -> list[Task]:
        """The tasks of a type in play, oldest first. If none is in play, all of them."""
        stock = self.tasks(type)
        return [task for task in stock if task.id not in self._given_up] or stock

    def add(self, task: Task) -> bool:
        """Adds a task, unless it is reserved or already in the buffer; returns whether it was added.

        If the type is full, its oldest task is removed and forgotten.
        """
        return self._add(task, self._type(task.type).key(task.payload))

    def reserves(self, task: Task) -> bool:
        """Whether the task shows a question of an exam ([`TaskType.shown_keys`])."""
        return any(key in self.reserved for key in self._type(task.type).shown_keys(task.payload))

    def knows(self, key: str) -> bool:
        """Whether a task with this [`TaskType.key`] is in the buffer, in play or not."""
        return key in self._known

    def shortest(self, type: str, n: int) -> list[Task]:
        """The `n` smallest tasks in play, by [`TaskType.size`], that can be references of `type`."""
        return sorted(self._sources(type), key=lambda task: (self.types[task.type].size(task), task.id))[:n]

    def count(self, task: Task, *, solved: bool) -> None:
        """Counts one attempt at a task, if the task is in the buffer."""
        if task in self:
            before = self.tries(task)
            self._set_tries(task, Tries(before.attempts + 1, before.solved + solved))

    def proposed(self) -> list[Task]:
        """The tasks that members wrote."""
        return [task for kept in self._tasks.values() for task in kept.values() if not is_seed(task)]

    @property
    def given_up(self) -> int:
        """Number of tasks that are not in play."""
        return len(self._given_up)

    def tries(self, task: Task) -> Tries:
        """Attempts at a task so far."""
        return self._tries.get(task.id, Tries())

    def fill(self, type: str, n: int, rng: random.Random, *, exclude: Collection[str] = ()) -> list[Task]:
        """
        Fill-ins that replace invalid proposals: exactly `n` tasks, even if the buffer has fewer.

        First come the tasks of the newest step, in random order, without seed tasks if there are others; then the
        others, drawn uniformly without replacement; and when all are used, drawn uniformly with replacement.

        Args:
            type (`str`):
                Task type.
            n (`int`):
                Number of tasks.
            rng (`random.Random`):
                Source of randomness.
            exclude (`Collection[str]`, *optional*):
                Ids to avoid if there are other tasks.

        Raises:
            `ValueError`: if there is no task of this type at all.
        """
        stock = self.in_play(type)
        if n <= 0:
            return []
        if not stock:
            raise ValueError(f"the buffer holds no {type} task to fill {n} slots with; seed it first")
        avoided = set(exclude)
        stock = [task for task in stock if task.id not in avoided] or stock
        last = (stock[-1].step, is_seed(stock[-1]))  # seed tasks are of step 0, as the first proposals
        newest = list(takewhile(lambda task: (task.step, is_seed(task)) == last, reversed(stock)))
        chosen = rng.sample(newest, min(n, len(newest)))
        rest = stock[: len(stock) - len(newest)]
        chosen += rng.sample(rest, min(n - len(chosen), len(rest)))
        return chosen + rng.choices(stock, k=n - len(chosen))

    def references(self, type: str, k: int, rng: random.Random) -> list[Task]:
        """
        Up to `k` different tasks, drawn uniformly, as references for a proposal of `type`. Empty if there are none.
        """
        stock = self._sources(type)
        return rng.sample(stock, min(k, len(stock)))

    def state_dict(self) -> dict[str, Any]:
        """All tasks as data for JSON in order of arrival, each with its key and its attempts."""
        tasks = [task for kept in self._tasks.values() for task in kept.values()]
        return {
            "tasks": [task.to_json() for task in tasks],
            "keys": [self._keys[task.id] for task in tasks],
            "tries": [list(self.tries(task)) for task in tasks],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> int:
        """Replaces the contents, and returns how many tasks were left out because they are reserved now.

        With a smaller capacity than at saving, the newest tasks of each type remain.

        Raises:
            ValueError: If all tasks of a type are reserved now.
        """
        self._tasks, self._tries, self._keys, self._known = {}, {}, {}, Counter()
        self._given_up, self._no_reference = set(), set()
        reserved: Counter[str] = Counter()  # by type
        for record, key, tries in zip(state["tasks"], state["keys"], state["tries"], strict=True):
            task = self._type(record["type"]).read_task(record)
            if not self._add(task, key):
                reserved[task.type] += 1
            elif any(tries):
                self._set_tries(task, Tries(*tries))
        if gone := [name for name in reserved if not self._tasks.get(name)]:
            raise ValueError(
                f"all {reserved[gone[0]]} {gone[0]} tasks of the checkpoint show questions of exams of this run. Name "
                "fewer exams, or begin a new run."
            )
        return reserved.total()

    def _type(self, name: str) -> TaskType:
        if name not in self.types:
            raise ValueError(f"a buffer of {list(self.types)} cannot hold a {name} task: give it that type")
        return self.types[name]

    def _sources(self, type: str) -> list[Task]:
        types = self.types[type].reference_types or (type,)
        stock = [task for name in types for task in self.in_play(name)] or self.in_play(type)
        return [task for task in stock if (type, task.id) not in self._no_reference] or stock

    def _add(self, task: Task, key: str) -> bool:
        if task in self or self.reserves(task):
            return False
        kept = self._tasks.setdefault(task.type, OrderedDict())
        kept[task.id] = task
        self._keys[task.id] = key
        self._known[key] += 1
        for name, one in self.types.items():
            shown = one.reference_keys(task) if task.type in (*one.reference_types, name) else ()
            if not self.reserved.isdisjoint(shown):
                self._no_reference.add((name, task.id))
        if len(kept) > self.capacity:
            _, oldest = kept.popitem(last=False)
            self._tries.pop(oldest.id, None)
            self._given_up.discard(oldest.id)
            self._no_reference -= {(name, oldest.id) for name in self.types}
            key = self._keys.pop(oldest.id)
            self._known[key] -= 1
            if not self._known[key]:
                del self._known[key]
        return True

    def _set_tries(self, task: Task, tries: Tries) -> None:
        self._tries[task.id] = tries
        most = self.max_unsolved_tries
        if most and tries.attempts >= most and not tries.solved and not is_seed(task):
            self._given_up.add(task.id)
        else:
            self._given_up.discard(task.id)


def is_seed(task: Task) -> bool:
    """Whether a task is a seed task, and not written by a member."""
    return task.author.partition(":")[0] == "seed"
