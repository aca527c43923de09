"""Fitness sharing: a task earns less, the more it resembles the other tasks of its round.

Goldberg and Richardson (1987) divide the fitness of an individual by its niche count, the sum of its similarities to
all. So a population spreads over several niches, and none becomes too crowded to be worth it. Here the individuals are
the tasks that the teachers of a round propose. The paper does not have it: our choice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ..tasks import TaskType
from .records import Proposal


def share(
    proposals: Sequence[Proposal], task_types: Mapping[str, TaskType], *, exponent: float
) -> tuple[Proposal, ...]:
    """Multiplies each positive reward of a valid task by the task's share among the valid tasks of its type.

    Args:
        proposals (`Sequence[Proposal]`): All proposals of the members in a round, with rewards.
        task_types (`Mapping[str, TaskType]`): Task types by id; they say what the parts of a task are.
        exponent (`float`): Strength, as in [`shares`]; 0 changes nothing.
    """
    if not exponent:
        return tuple(proposals)
    shared = list(proposals)
    for name, task_type in task_types.items():
        parts = {i: task_type.parts(one.task) for i, one in enumerate(proposals) if one.task and one.task.type == name}
        for i, factor in zip(parts, shares(niche_counts(list(parts.values())), exponent).tolist(), strict=True):
            if (reward := proposals[i].reward) is not None and reward > 0:
                shared[i] = replace(proposals[i], reward=reward * factor)
    return tuple(shared)


def niche_counts(parts: Sequence[frozenset[str]]) -> np.ndarray:
    """Sum of the similarities of each task to all tasks, itself included.

    The similarity of two tasks is the number of parts that both have, divided by the number that at least one has (the
    Jaccard index). Parts that all tasks have do not count, and two tasks without other parts have a similarity of 1.

    Args:
        parts (`Sequence[frozenset[str]]` of length N): Parts of each task.

    Returns:
        `np.ndarray` of shape `(N,)`: From 1 (nothing in common with others) to N (all alike).
    """
    names = {name: column for column, name in enumerate(sorted(frozenset().union(*parts)))}
    has = np.zeros((len(parts), len(names)))
    for row, own in enumerate(parts):
        has[row, [names[name] for name in own]] = 1
    has = has[:, ~has.all(axis=0)]
    both, sizes = has @ has.T, has.sum(axis=1)
    either = sizes[:, None] + sizes - both
    return np.divide(both, either, out=np.ones_like(both), where=either > 0).sum(axis=1)


def shares(counts: np.ndarray, exponent: float) -> np.ndarray:
    """Factors of rewards, `count ** -exponent`, divided by their mean, so that the mean factor is 1. Shape `(N,)`."""
    factors = counts**-exponent
    return factors / factors.mean() if len(factors) else factors
