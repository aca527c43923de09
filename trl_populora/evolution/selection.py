"""Truncation selection: who is replaced, and by whose child.

A pure function of plain data; how the child is made and written is in `replacement`.
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Candidate:
    """What selection knows of a member.

    Attributes:
        name (`str`): Its slot.
        fitness (`float`): Higher is better.
        age (`int`): Steps since it came into being.
    """

    name: str
    fitness: float
    age: int = 0


@dataclass(frozen=True)
class Replacement:
    """A slot whose member makes room for a child of `parents`, best first."""

    slot: str
    parents: tuple[str, ...]


def select(
    candidates: Sequence[Candidate],
    *,
    rng: random.Random,
    num_parents: int | Mapping[str, int] = 1,
    fraction: float = 0.25,
    min_age: int = 0,
    max_age: int | None = None,
) -> list[Replacement]:
    """Truncation selection within one role.

    Args:
        candidates (`Sequence[Candidate]`): All members of the role.
        rng (`random.Random`): Draws the parents.
        num_parents (`int` or `Mapping[str, int]`, *optional*, defaults to `1`):
            Parents of each child, or of the child for each slot.
        fraction (`float`, *optional*, defaults to `0.25`):
            Share of members replaced, in (0, 0.5]: floor(fraction * n) places, at least one.
        min_age (`int`, *optional*, defaults to `0`): Members younger than this, in steps, are not replaced.
        max_age (`int`, *optional*): Members older than this, in steps, come first when places are given out.

    Returns:
        `list[Replacement]`: Worst first, one per place; fewer where fewer members may be replaced, none for a role of
        one member. Parents are drawn without repetition from as many of the best survivors as there are places, or
        from the `num_parents` best where that is more. Only in a role of two does this reach the replaced member.

    Raises:
        ValueError: If a fitness is NaN, or an argument is out of range.

    The best member is never replaced (elitism), whatever its age. Equal fitness ranks in the order of `candidates`,
    earlier is better. Truncation selection as in population based training (Jaderberg et al., 2017); `min_age`,
    `max_age` and the tie rule are our choice.
    """
    if not 0 < fraction <= 0.5:
        raise ValueError(f"fraction lies in (0, 0.5]: the replaced and the parents must differ; got {fraction}.")
    for candidate in candidates:
        if math.isnan(candidate.fitness):
            raise ValueError(f"The fitness of {candidate.name!r} is NaN; its rating is broken. Nothing was replaced.")
    if len(candidates) < 2:
        return []

    ranked = sorted(candidates, key=lambda candidate: -candidate.fitness)  # stable: ties keep their order
    places = max(1, int(fraction * len(ranked) + 1e-9))
    eligible = [candidate for candidate in reversed(ranked[1:]) if candidate.age >= min_age]
    if max_age is not None:
        eligible.sort(key=lambda candidate: candidate.age <= max_age)  # stable: the worst first within each half
    replaced = [candidate.name for candidate in eligible[:places]]

    rank = {candidate.name: index for index, candidate in enumerate(ranked)}
    survivors = [name for name in rank if name not in replaced]
    breeders = survivors + [name for name in rank if name in replaced]
    result = []
    for slot in replaced:
        wanted = num_parents if isinstance(num_parents, int) else num_parents[slot]
        pool = breeders[: max(places, wanted)]
        parents = rng.sample(pool, min(wanted, len(pool)))
        result.append(Replacement(slot, tuple(sorted(parents, key=rank.__getitem__))))
    return result
