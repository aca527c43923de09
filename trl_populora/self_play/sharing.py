"""Fitness sharing: a task earns less, the more it resembles the other tasks of its round.

Goldberg and Richardson (1987) divide the fitness of an individual by its niche count, the sum of its similarities to
all. So a population spreads over several niches, and none becomes too crowded to be worth it. Here the individuals are
the tasks that the teachers of a round propose. The paper does not have it: our choice.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np
from scipy.sparse import csr_array

from ..tasks import TaskType
from .records import Proposal


def share(
    proposals: Sequence[Proposal], task_types: Mapping[str, TaskType], *, exponent: float
) -> tuple[Proposal, ...]:
    """Divides each positive reward of a valid task by the task's niche count among the valid tasks of its type, to the
    power of `exponent`. The sum of these rewards stays as it was.

    Args:
        proposals (`Sequence[Proposal]`): All proposals of the members in a round, with rewards.
        task_types (`Mapping[str, TaskType]`): Task types by id; they say what the parts of a task are.
        exponent (`float`): Strength; 0 changes nothing.
    """
    if not exponent:
        return tuple(proposals)
    shared = list(proposals)
    for name, task_type in task_types.items():
        parts = {i: task_type.parts(one.task) for i, one in enumerate(proposals) if one.task and one.task.type == name}
        counts = niche_counts(list(parts.values()))
        rewards = np.array([max(proposals[i].reward or 0.0, 0.0) for i in parts])
        for i, reward in zip(parts, divide(rewards, counts, exponent).tolist(), strict=True):
            if reward > 0:
                shared[i] = replace(proposals[i], reward=reward)
    return tuple(shared)


def niche_counts(parts: Sequence[frozenset[str]]) -> np.ndarray:
    """Sum of the similarities of each task to all tasks, itself included ([`similarities`], weighed).

    Args:
        parts (`Sequence[frozenset[str]]` of length N): Parts of each task.

    Returns:
        `np.ndarray` of shape `(N,)`: From 1 (nothing in common with others) to N (all alike).
    """
    return similarities(parts, weighed=True).sum(axis=1)


def similarities(parts: Sequence[frozenset[str]], *, weighed: bool) -> np.ndarray:
    """Jaccard index of every two tasks: the parts that both have, divided by the parts that at least one has.

    Args:
        parts (`Sequence[frozenset[str]]` of length N): Parts of each task.
        weighed (`bool`): Whether a part that n of the N tasks have counts log(N / n), instead of 1 (our choice). So
            parts that nearly all have hardly count, and of tasks that share all but one part each, none is similar
            to another.

    Returns:
        `np.ndarray` of shape `(N, N)`: From 0 to 1. It is 1 for two tasks without parts of any weight.
    """
    tasks = Counter(chain.from_iterable(parts))
    names = {name: column for column, name in enumerate(sorted(tasks))}
    rows = [sorted(names[name] for name in own) for own in parts]  # sums in one order, the same in every process
    columns = np.fromiter(chain.from_iterable(rows), dtype=np.int32)
    counts = np.array([tasks[name] for name in names], dtype=float)
    weights = np.log(len(parts) / counts) if weighed else np.ones(len(names))
    counted, has = (
        csr_array((data, columns, np.cumsum([0, *map(len, rows)])), shape=(len(parts), len(names)))
        for data in (weights[columns], np.ones(len(columns)))
    )
    # Most parts are of a few tasks only: all of them in a full matrix may need gigabytes.
    often = counts > len(parts) / 4
    both = counted[:, often].toarray() @ has[:, often].toarray().T
    both += (counted[:, ~often] @ has[:, ~often].T).toarray()
    sizes = counted.sum(axis=1)
    either = sizes[:, None] + sizes - both
    return np.divide(both, either, out=np.ones_like(both), where=either > 1e-9)


def divide(rewards: np.ndarray, counts: np.ndarray, exponent: float) -> np.ndarray:
    """Rewards, shape `(N,)`, none negative, divided by `counts ** exponent` and multiplied so that their sum stays."""
    divided, paid = np.zeros_like(rewards), rewards > 0
    if paid.any():
        divided[paid] = rewards[paid] * (counts[paid] / counts[paid].min()) ** -exponent  # of one at least, not 0
        divided *= rewards.sum() / divided.sum()
    return divided
