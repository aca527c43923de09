"""Matched games over time: which students solve which teachers' tasks, by type, and which pairs are disengaged.

A *matched* attempt is a game between two members: a student's attempt at a valid task that a teacher of the population
proposed to it. Fill-ins (tasks from the buffer), games with champions of the past, and rows on which the executor
failed are not matched. This module keeps plain counts over a window of rounds, which checkpoints store.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from ..tasks import is_spared


if TYPE_CHECKING:
    from ..self_play.records import Attempt, RoundRecord


WINDOW = 10
"""Number of newest rounds in which a pair met (or a member, or anybody played) that are used. Our choice."""
AGE = 50
"""Older rounds are not used, because the members have learned since. Our choice: in a population of 8 + 8 with random
pairs, a pair meets 6 times in this number of rounds."""
PATIENCE = 5
"""Minimum number of such rounds for disengagement. Our choice."""
MIN_TASKS = 20
"""Minimum number of tasks for disengagement. Our choice: if four of five tasks are always solved, all of 20 tasks are
solved in 1 % of cases."""

Scope = tuple[str | None, str | None]
"""(teacher, student); `None` stands for all of them."""
EVERYBODY: Scope = (None, None)


class Tally(NamedTuple):
    """Counts of matched games: different tasks, attempts, and attempts that solved their task."""

    tasks: int = 0
    attempts: int = 0
    solved: int = 0

    def __add__(self, other: Tally) -> Tally:  # type: ignore[override]
        return Tally(*(a + b for a, b in zip(self, other)))


def matched_attempts(record: RoundRecord, teachers: Collection[str]) -> list[Attempt]:
    """The round's games between members: attempts at a teacher's own valid task that were judged."""
    return [one for one in record.attempts if one.opponent in teachers and not is_spared(one.refusal)]


class MatchedGames:
    """The matched games of the last rounds, for every pair, member and type.

    Args:
        rotation (`int`, *optional*, defaults to 1): Number of rounds in which every task type has its turn: ceil(types
            / prompts per teacher).

    Attributes:
        round (`int`): Newest round.
        since (`int`): First round in which the current members played together: 0, or the one after a replacement.

    Games of a replaced member are forgotten. Every number is about the current members.
    """

    def __init__(self, *, rotation: int = 1) -> None:
        if rotation < 1:
            raise ValueError(f"rotation={rotation} must be at least 1")
        self.rotation = rotation
        self.round, self.since = -1, 0
        self._versions: dict[str, int] = {}
        self._rounds: dict[tuple[str, str], deque[tuple[int, dict[str, Tally]]]] = {}  # of each pair

    def update(self, record: RoundRecord, *, teachers: Collection[str], versions: Mapping[str, int]) -> None:
        """Take in a round.

        Args:
            record ([`RoundRecord`]): What happened.
            teachers (`Collection[str]`): Players that propose.
            versions (`Mapping[str, int]`): Player -> version of the member that acted for it.
        """
        if record.round <= self.round:  # another run, from the start
            self._rounds, self._versions, self.since = {}, {}, record.round
        if self._versions and self._versions != versions:
            self.since = record.round
        same = {name for name, version in versions.items() if self._versions.get(name, version) == version}
        self._rounds = {pair: rounds for pair, rounds in self._rounds.items() if same.issuperset(pair)}
        self._versions, self.round = dict(versions), record.round
        found: dict[tuple[str, str], dict[str, tuple[set[int], list[bool]]]] = {}
        for one in matched_attempts(record, teachers):
            groups, solved = found.setdefault((one.opponent or "", one.member), {}).setdefault(
                one.task.type, (set(), [])
            )
            groups.add(one.group)
            solved.append(one.solved)
        for pair, types in found.items():
            tallies = {name: Tally(len(groups), len(won), sum(won)) for name, (groups, won) in types.items()}
            self._rounds.setdefault(pair, self._window()).append((record.round, tallies))

    def by_type(self, teacher: str | None = None, student: str | None = None) -> dict[str, Tally]:
        """Task type -> games of the newest round. `None` stands for all teachers, or all students."""
        rounds = self._played((teacher, student))
        return dict(sorted(rounds[-1][1].items())) if rounds and rounds[-1][0] == self.round else {}

    def newest(self, teacher: str | None = None, student: str | None = None) -> Tally:
        """Games of the newest round, all types together."""
        return sum(self.by_type(teacher, student).values(), Tally())

    def window(self, teacher: str | None = None, student: str | None = None) -> Tally:
        """Games of the last `WINDOW` rounds in which these members met, within the last `AGE` rounds."""
        return sum((tally for _, types in self._last((teacher, student)) for tally in types.values()), Tally())

    def solve_rate(self, teacher: str | None = None, student: str | None = None) -> float | None:
        """Mean over task types of each type's newest solve rate within one rotation of the types.

        Types differ in difficulty. If they take turns (fewer prompts per teacher than types), the solve rate of a
        round changes with the turn. This mean does not. A type without a matched game in the rotation is not used;
        `None` if there is no game.
        """
        newest: dict[str, Tally] = {}
        for number, types in self._played((teacher, student)):
            if number > self.round - self.rotation:
                newest |= types
        rates = [tally.solved / tally.attempts for tally in newest.values()]
        return sum(rates) / len(rates) if rates else None

    def disengaged(self, teacher: str | None = None, student: str | None = None) -> int | None:
        """1 if every attempt in the window solved its task, 0 if none did, `None` otherwise or if there are too few
        games.

        It needs `PATIENCE` rounds in which these members met, and `MIN_TASKS` tasks.
        """
        total = self.window(teacher, student)
        if len(self._last((teacher, student))) < PATIENCE or total.tasks < MIN_TASKS:
            return None
        return {0: 0, total.attempts: 1}.get(total.solved)

    def alarms(self, teachers: Sequence[str], students: Sequence[str]) -> list[str]:
        """Alarms about disengagement, only the widest case: a pair is not named if its teacher or student is named.

        A member is named if it met more than one opponent. The text does not change as long as the case lasts.
        """
        pairs = [pair for pair in product(teachers, students) if self._last(pair)]
        opponents = Counter(name for pair in pairs for name in pair)
        scopes = [EVERYBODY]
        scopes += [(name, None) for name in teachers if opponents[name] > 1]
        scopes += [(None, name) for name in students if opponents[name] > 1]
        scopes += pairs
        alarms, found = [], {}
        for teacher, student in scopes:
            extreme = self.disengaged(teacher, student)
            wider = product({teacher, None}, {student, None})
            if extreme is None or extreme in [found.get(scope) for scope in wider]:
                continue
            found[teacher, student] = extreme
            alarms.append(alarm_text(extreme, teacher, student))
        return alarms

    def state_dict(self) -> dict:
        """What a resumed run needs, as JSON-able data."""
        rounds = [
            [*pair, [[number, {name: list(tally) for name, tally in types.items()}] for number, types in window]]
            for pair, window in self._rounds.items()
        ]
        return {"round": self.round, "since": self.since, "versions": dict(self._versions), "rounds": rounds}

    def load_state_dict(self, state: Mapping) -> None:
        """Take over a `state_dict`."""
        self.round, self.since = state["round"], state["since"]
        self._versions, self._rounds = dict(state["versions"]), {}
        for teacher, student, rounds in state["rounds"]:
            window = self._rounds[teacher, student] = self._window()
            for number, types in rounds:
                window.append((number, {name: Tally(*counts) for name, counts in types.items()}))

    def _window(self) -> deque:
        return deque(maxlen=max(WINDOW, self.rotation))

    def _played(self, scope: Scope) -> list[tuple[int, dict[str, Tally]]]:
        """Round and games by type, oldest first: the sum over all pairs of the scope that are still the same members.

        The newest rounds of a scope are complete, because they are among the newest of each pair that met in them.
        """
        teacher, student = scope
        if teacher is not None and student is not None:  # of such scopes there are many
            return list(self._rounds.get((teacher, student), ()))
        rounds: dict[int, dict[str, Tally]] = {}
        for (own_teacher, own_student), window in self._rounds.items():
            if teacher in (None, own_teacher) and student in (None, own_student):
                for number, types in window:
                    own = rounds.setdefault(number, {})
                    own |= {name: own.get(name, Tally()) + tally for name, tally in types.items()}
        return sorted(rounds.items(), key=lambda one: one[0])

    def _last(self, scope: Scope) -> list[tuple[int, dict[str, Tally]]]:
        return [one for one in self._played(scope) if one[0] > self.round - AGE][-WINDOW:]


def alarm_text(extreme: int, teacher: str | None, student: str | None) -> str:
    """The alarm of games that were all won (`extreme` is 1) or all lost (0) by the students.

    Args:
        extreme (`int`): Share of the attempts that solved their task.
        teacher, student (`str`, *optional*): Members of the games; all of the role if `None`.
    """
    who, whose = student or "the students", teacher or "the teachers"
    if extreme:
        return f"disengaged: {who} solved every task of {whose} on every attempt; {whose} cannot learn from {who}"
    return f"disengaged: {who} solved no task of {whose} on any attempt; {who} cannot learn from {whose}"
