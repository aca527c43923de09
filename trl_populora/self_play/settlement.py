"""Results of a round: attempts, rewards of both roles, rows to learn from, and outcomes for the ratings."""

import random
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from ..tasks import INFRASTRUCTURE, Referee
from .evidence import Outcome
from .pairing import Pairing
from .records import Attempt, Proposal
from .requests import Request
from .rewards import RewardSettings, student_reward, teacher_reward
from .sampling import Completion
from .settings import RoundSettings


def judge(
    games: Sequence[Request],
    answers: Sequence[Completion],
    *,
    referee: Referee,
    rewards: RewardSettings,
    group_size: int,
) -> list[Attempt]:
    """Judges each answer. `group_size` answers of a student to one task share a group."""
    tasks = [game.task for game in games if game.task is not None]
    verdicts = referee.judge(tasks, [completion.text for completion in answers])
    attempts = []
    for i, (game, task, completion, verdict) in enumerate(zip(games, tasks, answers, verdicts, strict=True)):
        reward = student_reward(verdict.solved, well_formed=not verdict.refused, settings=rewards)
        attempts.append(
            Attempt(
                game.member,
                task,
                completion.text,
                group=i // group_size,
                solved=verdict.solved,
                refusal=verdict.refusal,
                opponent=game.opponent,
                reward=reward if game.learns and not verdict.spared else None,
                tokens=len(completion.ids),
                prompt_tokens=len(completion.prompt_ids),
                learned=game.learns,
                prompt=game.prompt,
            )
        )
    return attempts


def choose(
    attempts: Sequence[Attempt], students: Sequence[str], settings: RoundSettings, *, round: int
) -> list[Attempt]:
    """With `balance_rows`, draws P tasks of each student to learn from, independently of their results.

    A teacher writes P groups of G rows. So a student learns from equally many rows.
    """
    if not settings.balance_rows:
        return list(attempts)
    groups: dict[str, dict[int, None]] = {student: {} for student in students}
    for attempt in attempts:
        if attempt.learned:
            groups[attempt.member][attempt.group] = None
    chosen = set()
    for student, own_groups in groups.items():
        rng = random.Random(settings.seed_for(round, f"learn:{student}"))
        chosen.update(rng.sample(list(own_groups), settings.prompts_per_teacher))
    return [replace(one, learned=one.learned and one.group in chosen) for one in attempts]


def solved_by_slot(games: Sequence[Request], attempts: Sequence[Attempt]) -> dict[int, list[bool]]:
    """Number of a proposal -> whether each attempt at it solved it, without attempts on which the executor failed."""
    solved: dict[int, list[bool]] = defaultdict(list)
    for game, attempt in zip(games, attempts, strict=True):
        if game.slot is not None and attempt.refusal != INFRASTRUCTURE:
            solved[game.slot].append(attempt.solved)
    return solved


def solved_elsewhere(games: Sequence[Request], attempts: Sequence[Attempt], extra: Sequence[Attempt]) -> set[int]:
    """Numbers of proposals whose task was solved in this round by an attempt that was not at this proposal: at the
    same task by another teacher, at a task from the buffer, or by an extra attempt."""
    again = {one.task.id for one in extra if one.solved}
    solved: dict[str, set[int | None]] = defaultdict(set)
    for game, attempt in zip(games, attempts, strict=True):
        if attempt.solved:
            solved[attempt.task.id].add(game.slot)
    return {
        game.slot
        for game, one in zip(games, attempts, strict=True)
        if game.slot is not None and (one.task.id in again or solved[one.task.id] - {game.slot})
    }


def reward_teachers(
    proposals: Sequence[Proposal],
    solved: Mapping[int, list[bool]],
    helped: Collection[int],
    rewards: RewardSettings,
) -> tuple[Proposal, ...]:
    """Rewards members' proposals by the solve rate of the student that attempted them.

    `helped` has the numbers of proposals whose task an attempt outside this solve rate solved.
    """
    rewarded = []
    for i, proposal in enumerate(proposals):
        if proposal.refusal != INFRASTRUCTURE and (proposal.task is None or solved.get(i)):
            solve_rate = None if proposal.task is None else float(np.mean(solved[i]))
            reward = teacher_reward(solve_rate, solved_elsewhere=i in helped, settings=rewards)
            proposal = replace(proposal, reward=reward, solve_rate=solve_rate)
        rewarded.append(proposal)
    return tuple(rewarded)


def outcomes(
    proposals: Sequence[Proposal], pairings: Sequence[Pairing], solved: Mapping[int, list[bool]], *, stake: int
) -> Iterator[Outcome]:
    """Outcomes for the ratings. Crossed pairings are not rated, and fill-ins are not games.

    An invalid proposal forfeits `stake` attempts.
    """
    for pairing in pairings:
        for slot in () if pairing.crossed else pairing.slots:
            proposal, wins = proposals[slot], solved.get(slot, [])
            about = {"type": proposal.type, "prompt": proposal.group}
            if proposal.task is not None:
                yield Outcome(pairing.teacher, pairing.student, len(wins), sum(wins), **about)
            elif proposal.refusal != INFRASTRUCTURE:
                yield Outcome(pairing.teacher, pairing.student, stake, 0, **about, forfeit=True)
