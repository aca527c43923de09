"""One round of self-play: propose, verify, match, solve, reward.

A round asks a sampler for completions and an executor for executions, and returns records. It knows no trainer, no
engine and no tensors, and it draws every random number from (seed, round): a resumed run replays it exactly.
"""

import random
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ..executor import Execution, Job, Status
from ..tasks import INFRASTRUCTURE, Draft, Refusal, Task, TaskBuffer, TaskType, draft_key, judge_answers
from .evidence import Outcome
from .guests import Guest, Guests
from .late import LateRewards, Row
from .lengths import TokenLimits
from .pairing import Pairing, check_deal, deal, pair, scheduled_type
from .ratings import Ratings, tally
from .records import Attempt, Proposal, RoundRecord
from .rewards import student_reward, teacher_reward
from .sampling import Completion, Message, SampleFunc
from .settings import RoundSettings


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
    extra: bool = False

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
        lengths ([`TokenLimits`], *optional*): What must fit into how many tokens; no limits if unset.

    Attributes:
        late ([`LateRewards`]): Rows of teachers that wait for their rewards; part of a run's state.

    Raises:
        ValueError: If the buffer holds no task of some type, a limit leaves no room for a prompt, or whole prompts
            cannot be dealt evenly.
    """

    def __init__(
        self,
        *,
        task_types: Mapping[str, TaskType],
        run_many: Callable[[Sequence[Job]], list[Execution]],
        buffer: TaskBuffer,
        ratings: Ratings,
        settings: RoundSettings,
        lengths: TokenLimits | None = None,
    ):
        self.task_types, self.run_many, self.buffer = dict(task_types), run_many, buffer
        self.ratings, self.settings, self.lengths = ratings, settings, lengths
        self.late = LateRewards(settings.solvable_rounds, settings.rewards)
        check_deal(len(ratings.teachers), len(ratings.students), settings.prompts_per_teacher)
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
        guests: Guests | None = None,
        versions: Mapping[str, int] | None = None,
    ) -> PlayedRound:
        """Play one round, update the ratings and add the new tasks to the buffer.

        With `balance_rows`, students learn from P of their tasks each; the other attempts count for everything else.

        With guests, some pairings are crossed (`guest_probability`): the guest student attempts what the teacher
        proposed there, and the student gets what the guest teacher wrote to the same prompts. Members' rows are as
        many as ever and nobody learns from a guest's; games with guests are recorded, not rated.

        With `solvable_rounds` the teachers' rows are those of an earlier round, as [`LateRewards`] hands them out;
        `versions` tells which occupant of each teacher's slot plays.
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
        extra = ()
        if self.settings.extra_attempts:
            with clock("extra"):
                extra = self._extra_attempts(sampler, proposals[:own], games, attempts, round)
        tried = [one for one in (*attempts, *extra) if one.refusal != INFRASTRUCTURE]
        solvable = {one.task.id for one in tried if one.solved}
        self.late.note(solvable)
        solved = self._solved(games, attempts)
        proposals = self._reward_teachers(proposals, solved, solvable, own)
        outcomes = list(self._outcomes(proposals, pairings, solved))
        self.ratings.update(outcomes)
        for proposal in proposals[:own]:
            if proposal.task is not None:
                self.buffer.add(proposal.task)
        for one in tried:
            self.buffer.count(one.task, solved=one.solved)
        record = RoundRecord(
            round=round,
            step=step,
            proposals=proposals[:own],
            attempts=attempts[:learning],
            matches=tally(outcomes),
            guest_proposals=proposals[own:],
            guest_attempts=attempts[learning:],
            extra_attempts=extra,
        )
        wrote = zip(asks[:own], written[:own], record.proposals, strict=True)
        answered = zip(games[:learning], answers[:learning], record.attempts, strict=True)
        taught, learned = (
            [
                Row(ask.player, role, ask.type.id, ask.prompt, text, item.reward)
                for ask, text, item in group
                if item.learned
            ]
            for role, group in (("teacher", wrote), ("student", answered))
        )
        taught, late = self.late.exchange(round, taught, record.proposals, versions or {})
        if self.late.rounds:
            waiting = tuple(replace(one, learned=False) for one in record.proposals)
            record = replace(record, proposals=waiting, late_proposals=late)
        return PlayedRound(record, taught + learned, clock.seconds)

    # Phases ----------------------------------------------------------------------------------------------------

    def _proposal_asks(self, round: int) -> Iterator[_Ask]:
        """One ask per teacher and prompt, by the schedule of types that all teachers share."""
        types = list(self.task_types)
        P, K = self.settings.prompts_per_teacher, self.settings.num_references
        for teacher in self.ratings.teachers:
            for p in range(P):
                rng = random.Random(self.settings.seed_for(round, f"ask:{teacher}:{p}"))
                task_type = self.task_types[scheduled_type(types, round=round, prompt=p, prompts_per_teacher=P)]
                references = self.buffer.references(task_type.id, max(K, task_type.min_references), rng)
                if self.lengths is None:
                    prompt = task_type.propose_prompt(references, rng)
                else:
                    prompt, references = self.lengths.fit(task_type, references, self.buffer, rng)
                yield _Ask(teacher, task_type, prompt, references)

    def _sample(self, sampler: SampleFunc, asks: Sequence[_Ask], seed: int) -> list[Completion]:
        written = sampler([ask.prompt for ask in asks], [ask.player for ask in asks], seed=seed)
        if len(written) != len(asks):
            raise ValueError(f"The sampler returned {len(written)} completions for {len(asks)} prompts.")
        return written

    def _verify(self, asks: Sequence[_Ask], written: Sequence[Completion], step: int) -> tuple[Proposal, ...]:
        G = self.settings.num_generations
        drafts = [ask.type.parse_proposal(c.text, ask.references) for ask, c in zip(asks, written, strict=True)]
        drafts, first = self._refuse_duplicates(asks, drafts)
        jobs = {
            i: asks[i].type.proposal_job(draft) for i, draft in enumerate(drafts) if not isinstance(draft, Refusal)
        }
        executions = dict(zip(jobs, self.run_many(list(jobs.values())), strict=True))
        proposals = []
        for i, (ask, completion, draft) in enumerate(zip(asks, written, drafts, strict=True)):
            outcome = draft
            if first.get(i, i) in executions and executions[first.get(i, i)].status is Status.INFRA_ERROR:
                outcome = INFRASTRUCTURE
            elif i in executions:
                outcome = ask.type.finish_proposal(draft, executions[i], author=ask.name, step=step)
                if self.lengths is not None and isinstance(outcome, Task):
                    outcome = self.lengths.refuse(ask.type, outcome) or outcome
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

    def _refuse_duplicates(
        self, asks: Sequence[_Ask], drafts: Sequence[Draft | Refusal]
    ) -> tuple[list[Draft | Refusal], dict[int, int]]:
        """Refuse what the buffer knows and what a teacher writes twice in a round. Champions may repeat themselves.

        Also returns, for each of these drafts, the number of the first like it: if that is spared, so is its copy.
        """
        first: dict[tuple[str, str], int] = {}
        checked, like = [], {}
        for i, (ask, draft) in enumerate(zip(asks, drafts, strict=True)):
            if isinstance(draft, Draft) and not ask.guest:
                key = draft_key(draft)
                like[i] = first.setdefault((ask.player, key), i)
                if self.buffer.knows(key) or like[i] < i:
                    draft = Refusal("duplicate", "the task exists already, up to names and layout of the program")
            checked.append(draft)
        return checked, like

    def _pair(self, round: int, *, crossing: bool) -> list[Pairing]:
        """The round's pairings. A teacher's prompts are dealt out among its students."""
        settings, rng = self.settings, np.random.default_rng(self.settings.seed_for(round, "pair"))
        pairs = pair(self.ratings, method=settings.pairing, rng=rng, floor=settings.pairing_floor)
        return deal(
            pairs,
            self.ratings.teachers,
            prompts=settings.prompts_per_teacher,
            completions=settings.num_generations,
            crossing=settings.guest_probability if crossing else 0.0,
            rng=random.Random(settings.seed_for(round, "deal")),
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
        retry = self._open_tasks()
        return [
            game
            for student, indices in slots.items()
            for game in self._games(student, indices, proposals, round, retry)
        ]

    def _open_tasks(self) -> list[Task]:
        """Waiting tasks that nobody has solved, without those that the buffer has given up."""
        waiting = self.late.unsolved
        playable = {task.id for name in {task.type for task in waiting} for task in self.buffer.in_play(name)}
        return [task for task in waiting if task.id in playable or task not in self.buffer]

    def _guest_game(self, proposal: Proposal, slot: int, guest: Guest) -> _Ask:
        task_type = self.task_types[proposal.type]
        prompt = task_type.solve_prompt(proposal.task)
        return _Ask(guest.player, task_type, prompt, (), proposal.task, proposal.member, slot, guest)

    def _games(
        self, student: str, slots: list[int], proposals: Sequence[Proposal], round: int, retry: list[Task]
    ) -> Iterator[_Ask]:
        """A student's tasks. Empty slots take tasks of `retry` first, and out of it, then others of the buffer."""
        wanted = defaultdict(int)
        for i in slots:
            wanted[proposals[i].type] += proposals[i].task is None
        rng = random.Random(self.settings.seed_for(round, f"fill:{student}"))
        taken = {proposals[i].task.id for i in slots if proposals[i].task is not None}
        fill = {}
        for name, n in wanted.items():
            again = [task for task in retry if task.type == name and task.id not in taken][:n]
            retry[:] = [task for task in retry if task not in again]
            others = self.buffer.fill(name, n - len(again), rng, exclude=taken | {task.id for task in again})
            fill[name] = others + again
        for i in slots:
            proposal = proposals[i]
            task, opponent = proposal.task, proposal.member
            if task is None:
                task, opponent = fill[proposal.type].pop(), None
            task_type = self.task_types[task.type]
            yield _Ask(student, task_type, task_type.solve_prompt(task), task=task, opponent=opponent, slot=i)

    def _extra_attempts(
        self,
        sampler: SampleFunc,
        proposals: Sequence[Proposal],
        games: Sequence[_Ask],
        attempts: Sequence[Attempt],
        round: int,
    ) -> tuple[Attempt, ...]:
        """Attempts at tasks that nobody has solved yet, dealt in turn to the students that have not tried them.

        They only tell a hard task from an impossible one: members' rows stay as many, and nobody learns from these.
        """
        n = self.settings.extra_attempts
        tried, solved = defaultdict(set), set()
        for game, attempt in zip(games, attempts, strict=True):
            tried[game.task.id].add(game.player)
            if attempt.solved:
                solved.add(game.task.id)
        tasks = [*self._open_tasks(), *(proposal.task for proposal in proposals if proposal.task is not None)]
        asks = []
        for i, task in enumerate({task.id: task for task in tasks if task.id not in solved}.values()):
            students = [name for name in self.ratings.students if name not in tried[task.id]] or self.ratings.students
            task_type = self.task_types[task.type]
            ask = _Ask("", task_type, task_type.solve_prompt(task), task=task, extra=True)
            turn = (round + i) * n
            asks += [ask._replace(player=students[(turn + k) % len(students)]) for k in range(n)]
        if not asks:
            return ()
        return self._judge(asks, self._sample(sampler, asks, self.settings.seed_for(round, "extra")), size=n)

    def _judge(
        self, games: Sequence[_Ask], answers: Sequence[Completion], size: int | None = None
    ) -> tuple[Attempt, ...]:
        G, rewards = size or self.settings.num_generations, self.settings.rewards
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
                    reward=None if verdict.spared or game.guest or game.extra else reward,
                    tokens=len(completion.ids),
                    prompt_tokens=len(completion.prompt_ids),
                    learned=game.guest is None and not game.extra,
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

    @staticmethod
    def _solved(games: Sequence[_Ask], attempts: Sequence[Attempt]) -> dict[int, list[bool]]:
        """Slot -> outcome of every attempt there at which the executor did not fail."""
        solved = defaultdict(list)
        for game, attempt in zip(games, attempts, strict=True):
            if attempt.refusal != INFRASTRUCTURE:
                solved[game.slot].append(attempt.solved)
        return solved

    def _outcomes(
        self, proposals: Sequence[Proposal], pairings: Sequence[Pairing], solved: Mapping[int, list[bool]]
    ) -> Iterator[Outcome]:
        """What members' ratings go by: guests have none, and filled-in tasks are no games."""
        for pairing in pairings:
            for slot in () if pairing.crossed else pairing.slots:
                proposal, wins = proposals[slot], solved.get(slot, [])
                about = {"type": proposal.type, "prompt": proposal.group}
                if proposal.task is not None:
                    yield Outcome(pairing.teacher, pairing.student, len(wins), sum(wins), **about)
                elif proposal.refusal != INFRASTRUCTURE:
                    stake = self.settings.num_generations
                    yield Outcome(pairing.teacher, pairing.student, stake, 0, **about, forfeit=True)

    def _reward_teachers(
        self, proposals: Sequence[Proposal], solved: Mapping[int, list[bool]], solvable: Collection[str], own: int
    ) -> tuple[Proposal, ...]:
        """Reward the members' proposals, the first `own`, by the solve rate of the student each was given to.

        `solvable` holds the ids of tasks that somebody solved in this round.
        """
        rewarded = []
        for i, proposal in enumerate(proposals[:own]):
            if proposal.refusal == INFRASTRUCTURE or (proposal.task is not None and not solved.get(i)):
                rewarded.append(proposal)
                continue
            solve_rate = None if proposal.task is None else float(np.mean(solved[i]))
            elsewhere = proposal.task is not None and proposal.task.id in solvable
            reward = teacher_reward(solve_rate, solved_elsewhere=elsewhere, settings=self.settings.rewards)
            rewarded.append(replace(proposal, reward=reward, solve_rate=solve_rate))
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
