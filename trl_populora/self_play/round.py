"""One round of self-play: propose, verify, match, solve, reward.

A round asks a sampler for completions and an executor for executions, and returns records. It knows no trainer, no
engine and no tensors, and it draws every random number from (seed, round): a resumed run replays it exactly.
"""

import random
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from ..executor import Execution, Job, Status
from ..tasks import Refusal, Task, TaskBuffer, TaskType
from .pairing import pair
from .ratings import Ratings
from .records import Attempt, Proposal, RoundRecord, tally
from .rewards import RewardSettings, student_reward, teacher_reward
from .sampling import Completion, Message, Sampler


INFRASTRUCTURE = Refusal(
    "infra_error", "the executor failed, not the program; the row is neither rewarded nor punished"
)


@dataclass(frozen=True)
class RoundSettings:
    """Shape of a round.

    Args:
        prompts_per_teacher (`int`, *optional*, defaults to `1`): Proposal prompts per teacher, P.
        num_generations (`int`, *optional*, defaults to `8`): Completions per prompt and attempts per task, G.
        num_references (`int`, *optional*, defaults to `6`): Reference tasks shown to a proposer, K.
        pairing (`str`, *optional*, defaults to `"variance"`): Method of [`pair`].
        pairing_floor (`float`, *optional*, defaults to `0.1`): Uniform share in the pairing.
        rewards ([`RewardSettings`], *optional*): What outcomes are worth.
        seed (`int`, *optional*, defaults to `0`): Seed of everything random in a round.
    """

    prompts_per_teacher: int = 1
    num_generations: int = 8
    num_references: int = 6
    pairing: str = "variance"
    pairing_floor: float = 0.1
    rewards: RewardSettings = field(default_factory=RewardSettings)
    seed: int = 0


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

    def play(self, sampler: Sampler, *, round: int, step: int) -> PlayedRound:
        """Play one round, update the ratings and add the new tasks to the buffer."""
        G = self.settings.num_generations
        clock = _Clock()
        with clock("propose"):
            asks = [ask for ask in self._proposal_asks(round) for _ in range(G)]
            written = self._sample(sampler, asks, self._seed(round, "propose"))
        with clock("verify"):
            proposals = self._verify(asks, written, step)
        with clock("match"):
            games = [game for game in self._match(proposals, round) for _ in range(G)]
        with clock("solve"):
            answers = self._sample(sampler, games, self._seed(round, "solve"))
        with clock("judge"):
            attempts = self._judge(games, answers)
        proposals = self._reward_teachers(proposals, games, attempts)
        matches = tally(attempt for attempt in attempts if attempt.refusal != INFRASTRUCTURE)
        self.ratings.update(matches)
        for proposal in proposals:
            if proposal.task is not None:
                self.buffer.add(proposal.task)
        record = RoundRecord(round=round, step=step, proposals=proposals, attempts=attempts, matches=matches)
        rows = [
            Row(ask.player, role, ask.type.id, ask.prompt, completion, item.reward)
            for role, group in (("teacher", (asks, written, proposals)), ("student", (games, answers, attempts)))
            for ask, completion, item in zip(*group, strict=True)
        ]
        return PlayedRound(record, rows, clock.seconds)

    # Phases ----------------------------------------------------------------------------------------------------

    def _proposal_asks(self, round: int) -> Iterator[_Ask]:
        """One ask per teacher and prompt. Types take turns: each teacher sees each type equally often over time."""
        types = list(self.task_types.values())
        P, K = self.settings.prompts_per_teacher, self.settings.num_references
        for t, teacher in enumerate(self.ratings.teachers):
            for p in range(P):
                rng = random.Random(self._seed(round, f"ask:{teacher}:{p}"))
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
                outcome = ask.type.finish_proposal(draft, executions[i], author=ask.player, step=step)
            kind = "refusal" if isinstance(outcome, Refusal) else "task"
            proposals.append(
                Proposal(
                    ask.player,
                    ask.type.id,
                    completion.text,
                    group=i // G,
                    tokens=len(completion.ids),
                    **{kind: outcome},
                )
            )
        return tuple(proposals)

    def _match(self, proposals: Sequence[Proposal], round: int) -> list[_Ask]:
        """Give every student its tasks: its partners' valid proposals, and buffered tasks where one was invalid."""
        rng = np.random.default_rng(self._seed(round, "pair"))
        pairs = pair(self.ratings, method=self.settings.pairing, rng=rng, floor=self.settings.pairing_floor)
        own = {
            teacher: [i for i, p in enumerate(proposals) if p.member == teacher] for teacher in self.ratings.teachers
        }
        partners = {teacher: [s for t, s in pairs if t == teacher] for teacher in self.ratings.teachers}
        slots: dict[str, list[int]] = {student: [] for student in self.ratings.students}
        for teacher, students in partners.items():
            for j, student in enumerate(students):
                slots[student] += own[teacher][j :: len(students)]
        return [game for student, indices in slots.items() for game in self._games(student, indices, proposals, round)]

    def _games(self, student: str, slots: list[int], proposals: Sequence[Proposal], round: int) -> Iterator[_Ask]:
        wanted = defaultdict(int)
        for i in slots:
            wanted[proposals[i].type] += proposals[i].task is None
        rng = random.Random(self._seed(round, f"fill:{student}"))
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
        read = [game.type.parse_answer(game.task, c.text) for game, c in zip(games, answers, strict=True)]
        jobs = {
            i: job
            for i, (game, answer) in enumerate(zip(games, read, strict=True))
            if not isinstance(answer, Refusal) and (job := game.type.answer_job(game.task, answer)) is not None
        }
        executions = dict(zip(jobs, self.run_many(list(jobs.values())), strict=True))
        attempts = []
        for i, (game, completion, answer) in enumerate(zip(games, answers, read, strict=True)):
            execution = executions.get(i)
            refusal = answer if isinstance(answer, Refusal) else None
            if execution is not None and execution.status is Status.INFRA_ERROR:
                refusal = INFRASTRUCTURE
            solved = refusal is None and game.type.judge(game.task, answer, execution)
            reward = student_reward(solved, well_formed=refusal is None, settings=rewards)
            attempts.append(
                Attempt(
                    game.player,
                    game.task,
                    completion.text,
                    group=i // G,
                    solved=solved,
                    refusal=refusal,
                    opponent=game.opponent,
                    reward=None if refusal == INFRASTRUCTURE else reward,
                    tokens=len(completion.ids),
                )
            )
        return tuple(attempts)

    def _reward_teachers(
        self, proposals: Sequence[Proposal], games: Sequence[_Ask], attempts: Sequence[Attempt]
    ) -> tuple[Proposal, ...]:
        """Reward each proposal by the solve rate of the student it was given to."""
        outcomes = defaultdict(list)
        for game, attempt in zip(games, attempts, strict=True):
            if attempt.refusal != INFRASTRUCTURE:
                outcomes[game.slot].append(attempt.solved)
        rewarded = []
        for i, proposal in enumerate(proposals):
            if proposal.refusal == INFRASTRUCTURE or (proposal.task is not None and not outcomes[i]):
                rewarded.append(proposal)
                continue
            solve_rate = None if proposal.task is None else float(np.mean(outcomes[i]))
            reward = teacher_reward(solve_rate, settings=self.settings.rewards)
            rewarded.append(replace(proposal, reward=reward))
        return tuple(rewarded)

    def _seed(self, round: int, purpose: str) -> int:
        return zlib.crc32(f"{self.settings.seed}:{round}:{purpose}".encode())


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
