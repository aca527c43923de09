"""One round of self-play: propose, verify, match, solve, judge, settle.

A round uses a sampler for completions and an executor for executions, and returns records. It does not depend on a
trainer, an engine or tensors. It draws every random number from (seed, round), so that a resumed run repeats it
exactly.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Generic, NamedTuple, TypeVar

from ..progress import Progress
from ..tasks import INFRASTRUCTURE, Referee, Run, TaskBuffer, TaskType
from .guests import NOBODY, Crossing
from .late import LateRewards, Row
from .lengths import TokenLimits
from .matching import Matchmaker
from .pairing import Pairing, check_prompts
from .ratings import Ratings, tally
from .records import Attempt, Proposal, RoundRecord
from .requests import Request, draw, proposal_requests
from .sampling import Completion, SampleFunc
from .settings import RoundSettings
from .settlement import choose, judge, outcomes, reward_teachers, solved_by_slot, solved_elsewhere
from .sharing import share
from .verification import verify


Item = TypeVar("Item", Proposal, Attempt)


class PlayedRound(NamedTuple):
    """Record of a round, the rows to learn from (teachers first), and the wall-clock seconds of its phases."""

    record: RoundRecord
    rows: list[Row]
    seconds: dict[str, float]


class SelfPlay:
    """Plays rounds between teachers and students.

    Args:
        task_types (`Mapping[str, TaskType]`): Task types by id. They take turns.
        run_many (`Run`): Runs programs and returns results in their order.
        buffer ([`TaskBuffer`]): Verified tasks; must hold at least one task of every type in play.
        ratings ([`Ratings`]): Ratings of teachers and students, updated by every round.
        settings ([`RoundSettings`]): Settings of a round.
        lengths ([`TokenLimits`], *optional*): What must fit into how many tokens; no limits if unset.
        progress ([`Progress`], *optional*): Where to say which phase has begun.

    Attributes:
        late ([`LateRewards`]): Rows of teachers that wait for their rewards; part of a run's state.

    Raises:
        ValueError: If the buffer holds no task of some type, a limit leaves no room for a prompt, or the
            prompts of a teacher cannot be divided among its students.
    """

    def __init__(
        self,
        *,
        task_types: Mapping[str, TaskType],
        run_many: Run,
        buffer: TaskBuffer,
        ratings: Ratings,
        settings: RoundSettings,
        lengths: TokenLimits | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.progress = progress or Progress()
        self.task_types, self.run_many, self.buffer = dict(task_types), run_many, buffer
        self.ratings, self.settings, self.lengths = ratings, settings, lengths
        self.late = LateRewards(settings.solvable_rounds, settings.rewards)
        check_prompts(len(ratings.teachers), len(ratings.students), settings.prompts_per_teacher)
        for name in self.task_types:
            if not buffer.tasks(name):
                raise ValueError(f"The buffer holds no {name} task: seed it, so that empty slots can be filled.")
        if lengths is not None:
            lengths.check(self.task_types, buffer)

    def play(
        self,
        sampler: SampleFunc,
        *,
        round: int,
        step: int,
        crossing: Crossing = NOBODY,
        versions: Mapping[str, int] | None = None,
    ) -> PlayedRound:
        """Play one round, update the ratings and add the new tasks to the buffer.

        With `balance_rows`, each student learns from P of its tasks. Its other attempts still count for rewards,
        ratings and records.

        With `solvable_rounds`, teachers learn from the rows of an earlier round ([`LateRewards`]). `versions` has the
        current version of each teacher.
        """
        settings, G, clock = self.settings, self.settings.num_generations, _Clock(self.progress)
        referee = Referee(self.task_types, self.run_many)
        stock = (self.task_types, self.buffer)
        matchmaker = Matchmaker(
            *stock, self.ratings, settings, crossing=crossing, waiting=self.late.unsolved, round=round
        )
        with clock("propose"):
            shape = {"round": round, "settings": settings, "lengths": self.lengths}
            requests = matchmaker.with_guests([*proposal_requests(self.ratings.teachers, *stock, **shape)])
            written = draw(sampler, requests, settings.seed_for(round, "propose"))
        with clock("verify"):
            rules = {"buffer": self.buffer, "lengths": self.lengths, "group_size": G, "step": step}
            proposals = verify(requests, written, referee=referee, **rules)
        with clock("match"):
            games = list(matchmaker.games(proposals))
        with clock("solve"):
            answers = draw(sampler, games, settings.seed_for(round, "solve"))
        with clock("judge"):
            attempts = judge(games, answers, referee=referee, rewards=settings.rewards, group_size=G)
            attempts = choose(attempts, self.ratings.students, settings, round=round)
        extra: list[Attempt] = []
        if settings.extra_attempts:
            with clock("extra"):
                extra = self._try(sampler, matchmaker.extra_games(proposals, games, attempts), referee, round)
        wrote, answered = _Phase(requests, written, proposals), _Phase(games, answers, attempts)
        record = RoundRecord(round, step, extra_attempts=tuple(extra))
        record = self._settle(record, wrote, answered, matchmaker.pairings)
        learned = answered.rows("student", record.attempts)
        taught, late = self.late.exchange(
            round, wrote.rows("teacher", record.proposals), record.proposals, versions or {}
        )
        if self.late.rounds:
            waiting = tuple(replace(one, learned=False) for one in record.proposals)
            record = replace(record, proposals=waiting, late_proposals=late)
        return PlayedRound(record, taught + learned, clock.seconds)

    def _settle(
        self, record: RoundRecord, wrote: "_Phase[Proposal]", answered: "_Phase[Attempt]", pairings: Sequence[Pairing]
    ) -> RoundRecord:
        """Reward teachers, update ratings, buffer and waiting rewards, and complete the record."""
        proposals, attempts, own = wrote.items, answered.items, wrote.own
        tried = [one for one in (*attempts, *record.extra_attempts) if one.refusal != INFRASTRUCTURE]
        self.late.note({one.task.id for one in tried if one.solved})
        solved = solved_by_slot(answered.requests, attempts)
        helped = solved_elsewhere(answered.requests, attempts, record.extra_attempts)
        rewarded = reward_teachers(proposals[:own], solved, helped, self.settings.rewards)
        rewarded = share(rewarded, self.task_types, exponent=self.settings.rewards.sharing)
        results = list(outcomes(proposals, pairings, solved, stake=self.settings.num_generations))
        self.ratings.update(results)
        for proposal in rewarded:
            if proposal.task is not None:
                self.buffer.add(proposal.task)
        for one in tried:
            self.buffer.count(one.task, solved=one.solved)
        return replace(
            record,
            proposals=rewarded,
            attempts=tuple(attempts[: answered.own]),
            matches=tally(results),
            guest_proposals=tuple(proposals[own:]),
            guest_attempts=tuple(attempts[answered.own :]),
        )

    def _try(self, sampler: SampleFunc, games: Sequence[Request], referee: Referee, round: int) -> list[Attempt]:
        """Extra attempts."""
        if not games:
            return []
        answers = draw(sampler, games, self.settings.seed_for(round, "extra"))
        size = self.settings.extra_attempts
        return judge(games, answers, referee=referee, rewards=self.settings.rewards, group_size=size)


class _Phase(NamedTuple, Generic[Item]):
    """The requests of a phase, their completions, and the resulting proposals or attempts."""

    requests: Sequence[Request]
    written: Sequence[Completion]
    items: Sequence[Item]

    @property
    def own(self) -> int:
        """Number of requests to members, who may learn from them. They come before those to guests."""
        return sum(request.learns for request in self.requests)

    def rows(self, role: str, settled: Sequence[Item]) -> list[Row]:
        """The rows of one role to learn from, in the order of their prompts."""
        return [
            Row(request.player, role, request.type.id, request.prompt, completion, item.reward)
            for request, completion, item in zip(self.requests, self.written, settled)
            if item.learned
        ]


class _Clock:
    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        start = time.perf_counter()
        self.progress.begin(phase)
        try:
            yield
        finally:
            self.seconds[phase] = time.perf_counter() - start
