"""Matches tasks with students: a round's pairings, the students' tasks, and extra attempts at unsolved tasks."""

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ..tasks import Task, TaskBuffer, TaskType
from .guests import Crossing
from .pairing import Pairing, assign_prompts, pair
from .ratings import Ratings
from .records import Attempt, Proposal
from .requests import Request, solve_request
from .settings import RoundSettings


def pair_up(ratings: Ratings, settings: RoundSettings, *, round: int, crossing: float) -> list[Pairing]:
    """The round's pairings, some crossed. A teacher's prompts are divided among its students."""
    rng = np.random.default_rng(settings.seed_for(round, "pair"))
    pairs = pair(ratings, method=settings.pairing, rng=rng, floor=settings.pairing_floor)
    return assign_prompts(
        pairs,
        ratings.teachers,
        prompts=settings.prompts_per_teacher,
        completions=settings.num_generations,
        crossing=crossing,
        rng=random.Random(settings.seed_for(round, "deal")),
    )


class Matchmaker:
    """Pairs members, and gives students their tasks.

    Args:
        task_types (`Mapping[str, TaskType]`): Task types. buffer ([`TaskBuffer`]): Stored tasks.
        ratings ([`Ratings`]): Members and their ratings. settings ([`RoundSettings`]): Settings of a round.
        crossing ([`Crossing`]): The part of guests in the round.
        waiting (`Sequence[Task]`): Tasks of earlier rounds that nobody has solved, oldest first.
        round (`int`): Number of the round.
    """

    def __init__(
        self,
        task_types: Mapping[str, TaskType],
        buffer: TaskBuffer,
        ratings: Ratings,
        settings: RoundSettings,
        *,
        crossing: Crossing,
        waiting: Sequence[Task],
        round: int,
    ) -> None:
        self.task_types, self.buffer, self.settings = task_types, buffer, settings
        self.students, self.crossing, self.round = ratings.students, crossing, round
        self.pairings = pair_up(ratings, settings, round=round, crossing=crossing.probability(settings))
        self.crossed = [slot for pairing in self.pairings if pairing.crossed for slot in pairing.slots]
        playable = {task.id for name in {task.type for task in waiting} for task in buffer.in_play(name)}
        # Without those that the buffer has given up.
        self.open = [task for task in waiting if task.id in playable or task not in buffer]

    def with_guests(self, requests: Sequence[Request]) -> list[Request]:
        """The requests of teachers, and those of a guest."""
        return [*requests, *self.crossing.requests(requests, self.crossed)]

    def games(self, proposals: Sequence[Proposal]) -> Iterator[Request]:
        """Requests for G attempts of every student at each of its tasks (new ones and fill-ins), then those of a
        guest.

        For a crossed proposal, the guest's proposal (at the end of the list) replaces the teacher's.
        """
        own = len(proposals) - len(self.crossed)
        instead = {slot: own + k for k, slot in enumerate(self.crossed)}
        slots: dict[str, list[int]] = {student: [] for student in self.students}
        for pairing in self.pairings:
            slots[pairing.student] += [instead.get(slot, slot) for slot in pairing.slots]
        retry = list(self.open)
        for student, own in slots.items():
            for game in self._games_of(student, own, proposals, retry):
                yield from [game] * self.settings.num_generations
        yield from self.crossing.games(proposals, self.crossed, self.task_types, self.settings.num_generations)

    def extra_games(
        self, proposals: Sequence[Proposal], games: Sequence[Request], attempts: Sequence[Attempt]
    ) -> list[Request]:
        """Requests for attempts at tasks that nobody has solved yet, given in turn to students that have not tried
        them.

        They only show whether a hard task is possible. Nobody learns from them, so the number of rows to learn from
        does not change.
        """
        n = self.settings.extra_attempts
        tried, solved = defaultdict(set), set()
        for game, attempt in zip(games, attempts, strict=True):
            tried[attempt.task.id].add(game.player)
            if attempt.solved:
                solved.add(attempt.task.id)
        tasks = [*self.open, *(proposal.task for proposal in proposals if proposal.learned and proposal.valid)]
        requests: list[Request] = []
        for i, task in enumerate({task.id: task for task in tasks if task.id not in solved}.values()):
            students = [name for name in self.students if name not in tried[task.id]] or self.students
            request = solve_request("", self.task_types[task.type], task, learns=False)
            turn = (self.round + i) * n
            requests += [request._replace(player=students[(turn + k) % len(students)]) for k in range(n)]
        return requests

    def _games_of(
        self, student: str, slots: list[int], proposals: Sequence[Proposal], retry: list[Task]
    ) -> Iterator[Request]:
        """A student's tasks. Places of invalid proposals are filled first with tasks of `retry` (and removed from it),
        then from the buffer."""
        wanted: dict[str, int] = defaultdict(int)
        for i in slots:
            wanted[proposals[i].type] += proposals[i].task is None
        rng = random.Random(self.settings.seed_for(self.round, f"fill:{student}"))
        taken = {task.id for i in slots if (task := proposals[i].task) is not None}
        fill = {}
        for name, n in wanted.items():
            again = [task for task in retry if task.type == name and task.id not in taken][:n]
            retry[:] = [task for task in retry if task not in again]
            others = self.buffer.fill(name, n - len(again), rng, exclude=taken | {task.id for task in again})
            fill[name] = others + again
        for i in slots:
            task, opponent = proposals[i].task, proposals[i].member
            if task is None:
                task, opponent = fill[proposals[i].type].pop(), None
            yield solve_request(student, self.task_types[task.type], task, opponent=opponent, slot=i)
