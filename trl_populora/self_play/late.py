"""Late rewards: with `solvable_rounds`, a teacher gets its reward only when it is known whether anybody solves its
tasks.

This module stores the waiting rows of teachers and computes their rewards. `matching.py` decides who attempts what.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ..tasks import Refusal, Task, TaskType
from .records import Proposal
from .rewards import RewardSettings, teacher_reward
from .sampling import Completion, Message


class Row(NamedTuple):
    """One completion to learn from. Groups of `num_generations` rows are contiguous.

    Attributes:
        player (`str`): Player that wrote it. role (`str`): `"teacher"` or `"student"`. type (`str`): Task type.
        prompt (`list[Message]`): Chat messages that it answers. completion ([`Completion`]): Text and tokens.
        reward (`float` or `None`): `None` if the executor failed, or if it is not known yet. Such a row has no
            advantage. With `beta > 0` its KL penalty still acts, unless no row of its member has a reward.
    """

    player: str
    role: str
    type: str
    prompt: list[Message]
    completion: Completion
    reward: float | None


@dataclass(frozen=True)
class Waiting:
    """The teachers' rows of one round.

    Attributes:
        round (`int`): Number of the round. versions (`dict[str, int]`): Teacher -> its version then.
        rows (`tuple[Row, ...]`), proposals (`tuple[Proposal, ...]`): In the same order; rewards as known so far.
    """

    round: int
    versions: dict[str, int]
    rows: tuple[Row, ...]
    proposals: tuple[Proposal, ...]


class LateRewards:
    """Teachers' rows of the last rounds. Teachers learn from them `rounds` rounds after they were written.

    Args:
        rounds (`int`): Number of rounds that rows wait, H. With 0 they do not wait.
        rewards ([`RewardSettings`]): Rewards, for tasks that somebody solved later.
    """

    def __init__(self, rounds: int, rewards: RewardSettings) -> None:
        self.rounds, self.rewards = rounds, rewards
        self._waiting: list[Waiting] = []
        self._unpaid = teacher_reward(0.0, settings=rewards)

    def _is_open(self, proposal: Proposal) -> bool:
        """Whether nobody has solved its task so far."""
        return proposal.solve_rate == 0 and proposal.reward == self._unpaid

    @property
    def unsolved(self) -> list[Task]:
        """Tasks of earlier rounds that nobody has solved yet, oldest first, without duplicates."""
        waiting = (one for waiting in self._waiting for one in waiting.proposals)
        return list({one.task.id: one.task for one in waiting if one.task is not None and self._is_open(one)}.values())

    def note(self, solved: Collection[str]) -> None:
        """Updates the rewards of tasks that were solved since, given by id."""
        paid = teacher_reward(0.0, solved_elsewhere=True, settings=self.rewards)
        self._change(
            lambda one: replace(one, reward=paid) if one.task and one.task.id in solved and self._is_open(one) else one
        )

    def leave_out(self, reserved: Callable[[Task], bool]) -> None:
        """Takes the rewards from proposals of tasks that are reserved now: nobody learns from them any more."""
        self._change(
            lambda one: (
                replace(one, reward=None, learned=False) if one.task is not None and reserved(one.task) else one
            )
        )

    def _change(self, change: Callable[[Proposal], Proposal]) -> None:
        self._waiting = [replace(one, proposals=tuple(map(change, one.proposals))) for one in self._waiting]

    def exchange(
        self, round: int, rows: Sequence[Row], proposals: Sequence[Proposal], versions: Mapping[str, int]
    ) -> tuple[list[Row], tuple[Proposal, ...]]:
        """Stores a round's rows of teachers, and returns the rows that they learn from now.

        Args:
            round (`int`): The round that was played. rows, proposals: Its teachers' rows and their proposals.
            versions (`Mapping[str, int]`): Teacher -> current version. A new member does not learn from rows of the
                member that it replaced.

        Returns:
            `list[Row]` and `tuple[Proposal, ...]`: Rows of round `round - H` and their proposals with final rewards.
            If there are none (in the first H rounds, or after a change of the number of members, of prompts or of
            rows of a group), the rows that were passed, without rewards. So the number of rows is always the same.
            Proposals of a replaced member are not `learned`.
        """
        if not self.rounds:
            return list(rows), ()
        self._waiting.append(Waiting(round, dict(versions), tuple(rows), tuple(proposals)))
        due = [one for one in self._waiting if one.round == round - self.rounds]
        self._waiting = [one for one in self._waiting if one.round > round - self.rounds]
        if not due or _shape(due[0].rows, due[0].proposals) != _shape(rows, proposals):
            return [row._replace(reward=None) for row in rows], ()
        (due,) = due
        gone = {row.player for row in rows if due.versions.get(row.player) != versions.get(row.player)}
        settled = tuple(
            replace(one, reward=None, learned=False) if one.member in gone else one for one in due.proposals
        )
        return [row._replace(reward=one.reward) for row, one in zip(due.rows, settled, strict=True)], settled

    def state_dict(self) -> list[dict[str, Any]]:
        """The waiting rows as JSON-able data."""
        return [
            {
                "round": one.round,
                "versions": one.versions,
                "rows": [[*row[:4], list(row.completion), row.reward] for row in one.rows],
                "proposals": [_flat(proposal) for proposal in one.proposals],
            }
            for one in self._waiting
        ]

    def load_state_dict(self, state: Sequence[Mapping[str, Any]], task_types: Mapping[str, TaskType]) -> None:
        """Restores a `state_dict`, without rounds that no longer wait, because H may be smaller now.

        `task_types` are needed to read the tasks.
        """
        newest = max((one["round"] for one in state), default=0)
        self._waiting = [
            Waiting(
                one["round"],
                dict(one["versions"]),
                tuple(Row._make([*row[:4], Completion(*row[4]), row[5]]) for row in one["rows"]),
                tuple(_deep(proposal, task_types) for proposal in one["proposals"]),
            )
            for one in state
            if one["round"] > newest - self.rounds
        ]


def _shape(rows: Sequence[Row], proposals: Sequence[Proposal]) -> list[tuple[str, int]]:
    return [(row.player, one.group) for row, one in zip(rows, proposals, strict=True)]


def _flat(proposal: Proposal) -> dict[str, Any]:
    task, refusal = proposal.task, proposal.refusal
    return vars(proposal) | {
        "task": None if task is None else task.to_json(),
        "refusal": None if refusal is None else [refusal.reason, refusal.detail],
    }


def _deep(record: Mapping[str, Any], task_types: Mapping[str, TaskType]) -> Proposal:
    task, refusal = record["task"], record["refusal"]
    objects = {
        "task": None if task is None else task_types[task["type"]].read_task(task),
        "refusal": None if refusal is None else Refusal(*refusal),
    }
    return Proposal(**{**record, **objects})
