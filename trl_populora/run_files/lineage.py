"""The lineage: a record of evolution, with one event per child, stored as JSON lines.

This module only records. `evolution` decides and acts.
"""

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .files import append_lines, read_lines, write_lines


RATINGS = ("rating_before", "rating_after")


@dataclass(frozen=True, kw_only=True)
class Birth:
    """How a child was made.

    Attributes:
        slot (`str`): Member that it replaces.
        operator (`str`): Operator that made it.
        parameters (`dict`): The operator's parameters and `"seed"`, the seed of all its random numbers.
        parents (`tuple[tuple[str, int], ...]`): Name and version of each parent, best first.
        fitness (`dict[str, float]`): Fitness of all members of the role when it was made; `-inf` if a member has
            diverged.
        learning_rate (`float`, *optional*): The child's learning rate, if it does not keep that of the slot.
        temperature (`float`, *optional*): Its sampling temperature as a multiple of the run's, if it does not
            keep that of the slot.
        kind (`str`): `"replacement"`, `"migration"` for a copy from another island, `"join"` for a copy that joined
            at a resume, or `"import"` for a founder with an initial adapter. The parent of an import is its folder or
            Hub repository.
    """

    slot: str
    operator: str
    parameters: dict[str, Any]
    parents: tuple[tuple[str, int], ...]
    fitness: dict[str, float]
    learning_rate: float | None = None
    temperature: float | None = None
    kind: str = "replacement"


@dataclass(frozen=True, kw_only=True)
class EvolutionEvent(Birth):
    """One replacement. Together with the parents' factors, it is enough to make the child again.

    Attributes:
        step (`int`): Training step.
        role (`str`): Role of the slot.
        version (`int`): Version of the child in the slot; the replaced member had the one before.
        rating_before (`tuple[float, float]`): mu and sigma of the replaced member.
        rating_after (`tuple[float, float]`): mu and sigma that the child starts with.
    """

    step: int
    role: str
    version: int
    rating_before: tuple[float, float]
    rating_after: tuple[float, float]

    def to_json(self) -> dict[str, Any]:
        """The event as JSON values: a line of `lineage.jsonl`. `None` is the fitness of a member that has diverged,
        because JSON has no infinity."""
        record = asdict(self) | {key: tuple(map(_finite, getattr(self, key))) for key in RATINGS}
        return record | {"fitness": {name: _finite(value) for name, value in self.fitness.items()}}

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "EvolutionEvent":
        """Inverse of `to_json`."""
        parents = tuple((name, version) for name, version in record["parents"])
        ratings = {key: tuple(map(_number, record[key])) for key in RATINGS}
        fitness = {name: _number(value) for name, value in record["fitness"].items()}
        return cls(**{**record, **ratings, "fitness": fitness, "parents": parents})


class Lineage:
    """All events of a run in order, also stored in a file of JSON lines.

    Reading never writes: only [`Lineage.extend`] touches the file.

    Args:
        path (`str`, *optional*):
            File to read (if it exists) and to append to. Without it, the lineage is only in memory.

    Raises:
        ValueError: If a line cannot be read. An incomplete last line is ignored: a killed process may leave one, or a
            running process may still write it.
    """

    def __init__(self, path: str | os.PathLike | None = None) -> None:
        self.path = path
        self.events: list[EvolutionEvent] = []
        self._stale = False  # whether the file may hold other lines than the events, such as a torn one
        if path is not None and os.path.exists(path):
            self.events, self._stale = read_lines(path, EvolutionEvent.from_json), True

    def __iter__(self) -> Iterator[EvolutionEvent]:
        return iter(self.events)

    def __len__(self) -> int:
        return len(self.events)

    def extend(self, events: Sequence[EvolutionEvent]) -> None:
        """Adds events, in the file too, if there is one."""
        self.events += events
        if self.path is None:
            return
        stale, self._stale = self._stale, True
        if stale:
            write_lines(self.path, (one.to_json() for one in self.events))
        else:
            append_lines(self.path, (one.to_json() for one in events))
        self._stale = False  # not if that failed

    def founders(self, name: str, version: int | None = None) -> set[str]:
        """Founders (first ancestors) of a member: by default of the current member of slot `name`."""
        births = {(event.slot, event.version): event for event in self.events}
        open_ends = [(name, self._latest().get(name, 0) if version is None else version)]
        seen, found = set(open_ends), set()
        while open_ends:
            individual = open_ends.pop()
            if individual not in births:
                found.add(individual[0])
                continue
            ancestors = [parent for parent in births[individual].parents if parent not in seen]
            seen.update(ancestors)
            open_ends.extend(ancestors)
        return found

    def family_tree(self, names: Sequence[str] = ()) -> str:
        """The family tree as indented text: each child is below its first parent, and current members are marked with
        `*`.

        Args:
            names (`Sequence[str]`, *optional*): Slots of the current members; all slots if unset. They are listed
                first, including those without an event.
        """
        children: dict[tuple[str, int], list[EvolutionEvent]] = {}
        first = {event.slot: event.kind for event in reversed(self.events)}
        joined = {slot for slot, kind in first.items() if kind == "join"}  # no founder was in their slots
        seen = dict.fromkeys((name, 0) for name in names if name not in joined)
        for event in self.events:
            children.setdefault(event.parents[0], []).append(event)
            seen.update(dict.fromkeys([*event.parents, *[(event.slot, 0)] * (event.slot not in joined)]))
        latest = self._latest()
        foreign = {name for event in self.events if event.kind == "import" for name, _ in event.parents}
        lines = []
        born = {(event.slot, event.version) for event in self.events}
        founders = [one for one in seen if one not in born and (one[1] == 0 or one[0] in foreign)]
        stack = [(one, "from elsewhere" if one[0] in foreign else "founder", 0) for one in reversed(founders)]
        while stack:
            (name, version), story, depth = stack.pop()
            lives = name not in foreign and latest.get(name, 0) == version and (not names or name in names)
            mark = " *" if lives else ""
            lines.append(f"{'  ' * depth}{name}@{version}{mark}  {story}")
            for event in reversed(children.get((name, version), [])):
                stack.append(((event.slot, event.version), _story(event), depth + 1))
        return "\n".join(lines)

    def _latest(self) -> dict[str, int]:
        return {event.slot: event.version for event in self.events}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _number(value: float | None) -> float:
    return -math.inf if value is None else value


def _story(event: EvolutionEvent) -> str:
    others = ", ".join(f"{name}@{version}" for name, version in event.parents[1:])
    made = event.kind if event.kind in ("import", "join") else event.operator
    return f"step {event.step}, {made}" + (f" with {others}" if others else "")
