"""One round of self-play: propose, verify, match, solve, reward.

A round asks a sampler for completions and an executor for executions, and returns records. It knows no trainer, no
engine and no tensors, and it draws every random number from (seed, round): a resumed run replays it exactly.
"""

import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ..executor import Execution, Job, Status
from ..tasks import INFRASTRUCTURE, Refusal, Task, TaskBuffer, TaskType, judge_answers
from .guests import Guest, Guests
from .pairing import Pairing, deal, pair
from .ratings import Ratings
from .records import Attempt, Proposal, RoundRecord, tally
from .rewards import student_reward, teacher_reward
from .sampling import Completion, Message, Sampler
from .settings import RoundSettings


class Row(NamedTuple):
    """One completion to learn from. Groups of `num_generations` rows are contiguous.

    Attributes:
        player (`str`): Who wrote it. role (`str`): `"teacher"` or `"student"`. type (`str`): Task type.
        prompt (`list[Message]`): Chat messages it answers. completion ([`Completion`]): Text and tokens.
        reward (`float` or `None`): `None` if the executor failed: the row then teaches nothing.
    """

    player: str
    role: str
    type: str
    prompt: list[Message]
    completion: Completion
    reward: float | None


class PlayedRound(NamedTuple):
    """A round's facts, the rows to learn from (teachers first), and the wall-clock seconds of its phases."""

    record: RoundRecord
    rows: list[Row]
    seconds: dict[str, float]


class _Ask(NamedTuple):
    player: str
    type: TaskType
    prompt: list[Message]
    references: Sequence[Task] = ()
    task: Task | None = None
    opponent: str | None = None
    slot: int | None = None
    guest: Guest | None = None

    @property
    def name(self) -> str:
        return self.guest.name if self.guest else self.player


class SelfPlay:
    """Plays rounds between teachers and students.

    Args:
        task_types (`Mapping[str, TaskType]`): Task types in play, by id; they take turns.
        run_many (`Callable[[Sequence[Job]], list[Execution]]`): Runs programs, order kept.
        buffer ([`TaskBuffer`]): Verified tasks; must hold at least one task of every type in play.
        ratings ([`Ratings`]): Ratings of teachers and students, updated by every round.
        settings ([`RoundSettings`]): Shape of a round.

    Raises:
        ValueError: If the buffer holds no task of some type.
    """

    def __init__(
        self,
        *,
        task_types: Mapping[str, TaskType],
        run_many: Callable[[Sequence[Job]], list[Execution]],
        buffer: TaskBuffer,
        ratings: Ratings,
        settings: RoundSettings,
    ):
        self.task_types, self.run_many, self.buffer = dict(task_types), run_many, buffer
        self.ratings, self.settings = ratings, settings
        for name in self.task_types:
            if not buffer.tasks(name):
                raise ValueError(f"The buffer holds no {name} task: seed it, so that empty slots can be filled.")

    def play(self, sampler: Sampler, *, round: int, step: int, guests: Guests | None = None) -> PlayedRound:
        """Play one round, update the ratings and add the new tasks to the buffer.

        With `balance_rows`, students learn from P of their tasks each; the other attempts count for everything else.

        With guests, some pairings are crossed (`guest_probability`): the guest student attempts what the teacher
        proposed there, and the student gets what the guest teacher wrote to the same prompts. Members' rows are as
        many as ever and nobody learns from a guest's; games with guests are recorded, not rated.
        """
        G = self.settings.num_generations
        pairings = self._pair(round, crossing=guests is not None)
        crossed = [slot for pairing in pairings if pairing.crossed for slot in pairing.slots]
        clock = _Clock()
        with clock("propose"):
            asks = [ask for ask in self._proposal_asks(round) for _ in range(G)]
            own = len(asks)
            asks += [asks[i]._replace(player=guests.teacher.player, slot=i, guest=guests.teacher) for i in crossed]
            written = self._sample(sampler, asks, self.settings.seed_for(round, "propose"))
        with clock("verify"):
            proposals = self._verify(asks, written, step)
        with clock("match"):
            games = [game for game in self._match(proposals, pairings, crossed, round) for _ in range(G)]
            learning = len(games)
            valid = [i for i in crossed if proposals[i].task is not None]
            games += [game for i in valid for game in [self._guest_game(proposals[i], i, guests.student)] * G]
        with clock("solve"):
            answers = self._sample(sampler, games, self.settings.seed_for(round, "solve"))
        with clock("judge"):
            attempts = self._choose(self._judge(games, answers), learning, round)
        proposals = self._reward_teachers(proposals, games, attempts, own)
        matches = tally(self._rated(attempts[:learning]))
        self.ratings.update(matches)
        for proposal in proposals[:own]:
            if proposal.task is not None:
                self.buffer.add(proposal.task)
        record = RoundRecord(
            round=round,
            step=step,
            proposals=proposals[:own],
            attempts=attempts[:learning],
            matches=matches,
            guest_proposals=proposals[own:],
            guest_attempts=attempts[learning:],
        )
        wrote = zip(asks[:own], written[:own], record.proposals, strict=True)
        solved = zip(games[:learning], answers[:learning], record.attempts, strict=True)
        rows = [
            Row(ask.player, role, ask.type.id, ask.prompt, completion, item.reward)
            for role, group in (("teacher", wrote), ("student", solved))
            for ask, completion, item in group
            if item.learned
        ]
        return PlayedRound(record, rows, clock.seconds)

    # Phases ----------------------------------------------------------------------------------------------------

    def _proposal_asks(self, round: int) -> Iterator[_Ask]:
        """One ask per teacher and prompt. Types take turns: each teacher sees each type equally often over time."""
        types = list(self.task_types.values())
        P, K = self.settings.prompts_per_teacher, self.settings.num_references
        for t, teacher in enumerate(self.ratings.teachers):
            for p in range(P):
                rng = random.Random(self.settings.seed_for(round, f"ask:{teacher}:{p}"))
                task_type = types[(round * P + p + t) % len(types)]
                references = self.buffer.references(task_type.id, max(K, task_type.min_references), rng)
                yield _Ask(teacher, task_type, task_type.propose_prompt(references, rng), references)

    def _sample(self, sampler: Sampler, asks: Sequence[_Ask], seed: int) -> list[Completion]:
        written = sampler([ask.prompt for ask in asks], [ask.player for ask in asks], seed=seed)
        if len(written) != len(asks):
            raise ValueError(f"The sampler returned {len(written)} completions for {len(asks)} prompts.")
        return written

    def _verify(self, asks: Sequence[_Ask], written: Sequence[Completion], step: int) -> tuple[Proposal, ...]:
        G = self.settings.num_generations
        drafts = [ask.type.parse_proposal(c.text, ask.references) for ask, c in zip(asks, written, strict=True)]
        jobs = {
            i: asks[i].type.proposal_job(draft) for i, draft in enumerate(drafts) if not isinstance(draft, Refusal)
        }
        executions = dict(zip(jobs, self.run_many(list(jobs.values())), strict=True))
        proposals = []
        for i, (ask, completion, draft) in enumerate(zip(asks, written, drafts, strict=True)):
            outcome = draft
            if i in executions and executions[i].status is Status.INFRA_ERROR:
                outcome = INFRASTRUCTURE
            elif i in executions:
                outcome = ask.type.finish_proposal(draft, executions[i], author=ask.name, step=step)
            kind = "refusal" if isinstance(outcome, Refusal) else "task"
            proposals.append(
                Proposal(
                    ask.name,
                    ask.type.id,
                    completion.text,
                    group=(i if ask.slot is None else ask.slot) // G,
                    tokens=len(completion.ids),
                    prompt_tokens=len(completion.prompt_ids),
                    learned=ask.guest is None,
                    **{kind: outcome},
                )
            )
        return tuple(proposals)

    def _pair(self, round: int, *, crossing: bool) -> list[Pairing]:
        """The round's pairings. A teacher's proposals are dealt out among its students."""
        settings, rng = self.settings, np.random.default_rng(self.settings.seed_for(round, "pair"))
        pairs = pair(self.ratings, method=settings.pairing, rng=rng, floor=settings.pairing_floor)
        return deal(
            pairs,
            self.ratings.teachers,
            proposals=settings.prompts_per_teacher * settings.num_generations,
            crossing=settings.guest_probability if crossing else 0.0,
            rng=random.Random(settings.seed_for(round, "cross")),
        )

    def _match(
        self, proposals: Sequence[Proposal], pairings: Sequence[Pairing], crossed: Sequence[int], round: int
    ) -> list[_Ask]:
        """Give every student its tasks: what was proposed to it, and buffered tasks where that was invalid."""
        own = len(proposals) - len(crossed)
        written = {slot: own + k for k, slot in enumerate(crossed)}  # by the guest, to the same prompt
        slots: dict[str, list[int]] = {student: [] for student in self.ratings.students}
        for pairing in pairings:
            slots[pairing.student] += [written[slot] if pairing.crossed else slot for slot in pairing.slots]
        return [game for student, indices in slots.items() for game in self._games(student, indices, proposals, round)]

    def _guest_game(self, proposal: Proposal, slot: int, guest: Guest) -> _Ask:
        task_type = self.task_types[proposal.type]
        prompt = task_type.solve_prompt(proposal.task)
        return _Ask(guest.player, task_type, prompt, (), proposal.task, proposal.member, slot, guest)

    def _games(self, student: str, slots: list[int], proposals: Sequence[Proposal], round: int) -> Iterator[_Ask]:
        wanted = defaultdict(int)
        for i in slots:
            wanted[proposals[i].type] += proposals[i].task is None
        rng = random.Random(self.settings.seed_for(round, f"fill:{student}"))
        taken = {proposals[i].task.id for i in slots if proposals[i].task is not None}
        fill = {name: self.buffer.fill(name, n, rng, exclude=taken) for name, n in wanted.items()}
        for i in slots:
            proposal = proposals[i]
            task, opponent = proposal.task, proposal.member
            if task is None:
                task, opponent = fill[proposal.type].pop(), None
            task_type = self.task_types[task.type]
            yield _Ask(student, task_type, task_type.solve_prompt(task), task=task, opponent=opponent, slot=i)

    def _judge(self, games: Sequence[_Ask], answers: Sequence[Completion]) -> tuple[Attempt, ...]:
        G, rewards = self.settings.num_generations, self.settings.rewards
        verdicts = judge_answers(
            [game.type for game in games],
            [game.task for game in games],
            [completion.text for completion in answers],
            self.run_many,
        )
        attempts = []
        for i, (game, completion, verdict) in enumerate(zip(games, answers, verdicts, strict=True)):
            reward = student_reward(verdict.solved, well_formed=not verdict.refused, settings=rewards)
            attempts.append(
                Attempt(
                    game.name,
                    game.task,
                    completion.text,
                    group=i // G,
                    solved=verdict.solved,
                    refusal=verdict.refusal,
                    opponent=game.opponent,
                    reward=None if verdict.spared or game.guest else reward,
                    tokens=len(completion.ids),
                    prompt_tokens=len(completion.prompt_ids),
                    learned=game.guest is None,
                )
            )
        return tuple(attempts)

    def _choose(self, attempts: Sequence[Attempt], own: int, round: int) -> tuple[Attempt, ...]:
        """With `balance_rows`, P tasks of each student to learn from, drawn without a look at what came of them.

        A teacher writes P groups of G rows; a student then learns from as many. The first `own` attempts are those of
        members, in whole groups.
        """
        if not self.settings.balance_rows:
            return tuple(attempts)
        groups: dict[str, dict[int, None]] = {student: {} for student in self.ratings.students}
        for attempt in attempts[:own]:
            groups[attempt.member][attempt.group] = None
        chosen = set()
        for student, own_groups in groups.items():
            rng = random.Random(self.settings.seed_for(round, f"learn:{student}"))
            chosen.update(rng.sample(list(own_groups), self.settings.prompts_per_teacher))
        return tuple(replace(one, learned=one.learned and one.group in chosen) for one in attempts)

    def _rated(self, attempts: Sequence[Attempt]) -> list[Attempt]:
        """Attempts that count as games of their members: guests have no ratings."""
        rated = {None, *self.ratings.teachers}
        return [one for one in attempts if one.refusal != INFRASTRUCTURE and one.opponent in rated]

    def _reward_teachers(
        self, proposals: Sequence[Proposal], games: Sequence[_Ask], attempts: Sequence[Attempt], own: int
    ) -> tuple[Proposal, ...]:
        """Reward the members' proposals, the first `own`, by the solve rate of the student each was given to."""
        outcomes = defaultdict(list)
        for game, attempt in zip(games, attempts, strict=True):
            if attempt.refusal != INFRASTRUCTURE:
                outcomes[game.slot].append(attempt.solved)
        rewarded = []
        for i, proposal in enumerate(proposals[:own]):
            if proposal.refusal == INFRASTRUCTURE or (proposal.task is not None and not outcomes[i]):
                rewarded.append(proposal)
                continue
            solve_rate = None if proposal.task is None else float(np.mean(outcomes[i]))
            reward = teacher_reward(solve_rate, settings=self.settings.rewards)
            rewarded.append(replace(proposal, reward=reward))
        return (*rewarded, *proposals[own:])


class _Clock:
    def __init__(self):
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[phase] = time.perf_counter() - start
