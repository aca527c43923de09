"""Numbers about the tasks of a round: how many are unsolved, what teachers earn with them, how many repeat others.

Pure functions from records to numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ..self_play.sharing import similarities


if TYPE_CHECKING:
    from ..self_play.records import Proposal, RoundRecord
    from ..tasks import TaskBuffer, TaskType


TASK_METRICS = ("unsolved", "unsolved_reward", "never_solved", "given_up", "duplicates", "similarity", "extra_rows")


def task_metrics(record: RoundRecord, buffer: TaskBuffer, types: Mapping[str, TaskType]) -> dict[str, float]:
    """Numbers about the round's tasks. Shares are in [0, 1]. A share without any cases has no key.

    Args:
        record ([`RoundRecord`]): What happened.
        buffer ([`TaskBuffer`]): The buffer after the round.
        types (`Mapping[str, TaskType]`): Task types by id.

    Returns:
        `dict[str, float]`:
            - `unsolved`: share of valid, played proposals that their student never solved (s = 0).
            - `unsolved_reward`: share of teachers' positive rewards that such proposals earned, of those that teachers
              learn from in this round. No key in the first H rounds of `solvable_rounds`.
            - `never_solved`: share of the proposed tasks in the buffer, among those tried, that nobody ever solved.
            - `given_up`: proposed tasks in the buffer that left play.
            - `duplicates`: share of proposals refused because the task exists already.
            - `similarity`: mean Jaccard index of the parts of two valid proposals of one type, over all pairs.
            - `extra_rows`: attempts that nobody learns from (`solvable_attempts`).
    """
    paid = record.settled_proposals
    played = [one for one in record.proposals if one.valid and one.solve_rate is not None]
    tries = [buffer.tries(task) for task in buffer.proposed()]
    duplicates = [one for one in record.proposals if one.refusal is not None and one.refusal.reason == "duplicate"]
    shares = {
        "unsolved": (len([one for one in played if one.solve_rate == 0]), len(played)),
        "unsolved_reward": (_earned(one for one in paid if one.solve_rate == 0), _earned(paid)),
        "never_solved": (
            len([one for one in tries if one.attempts and not one.solved]),
            len([one for one in tries if one.attempts]),
        ),
        "duplicates": (len(duplicates), len(record.proposals)),
        "similarity": _similarity(record.proposals, types),
    }
    counts = {"given_up": float(buffer.given_up), "extra_rows": float(len(record.extra_attempts))}
    values = counts | {name: part / whole for name, (part, whole) in shares.items() if whole}
    return {name: values[name] for name in TASK_METRICS if name in values}


def _earned(proposals: Iterable[Proposal]) -> float:
    return sum(max(one.reward or 0.0, 0.0) for one in proposals if one.valid)


def _similarity(proposals: Iterable[Proposal], types: Mapping[str, TaskType]) -> tuple[float, int]:
    """Sum of the similarities of ordered pairs of different proposals, and the number of pairs."""
    tasks = [one.task for one in proposals if one.task is not None]
    alike, pairs = 0.0, 0
    for name, task_type in types.items():
        parts = [task_type.parts(task) for task in tasks if task.type == name]
        alike += float(similarities(parts, weighed=False).sum()) - len(parts)
        pairs += len(parts) * (len(parts) - 1)
    return alike, pairs
