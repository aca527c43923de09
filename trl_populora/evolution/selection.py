"""Selection: who is replaced, and by whose child.

A pure function of plain data; how the child is made and written is in `replacement`.
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from .settings import EvolutionSettings

SELECTIONS = ("truncation", "tournament")


@dataclass(frozen=True)
class Candidate:
    """What selection knows of a member.

    Attributes:
        name (`str`): Its slot.
        fitness (`float`): Higher is better.
        age (`int`): Rounds since it came into being.
    """

    name: str
    fitness: float
    age: int = 0


@dataclass(frozen=True)
class Replacement:
    """A slot whose member makes room for a child of `parents`, best first."""

    slot: str
    parents: tuple[str, ...]


def ranking(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Best first; equal fitness ranks in the given order, earlier is better.

    Raises:
        ValueError: If a fitness is NaN.
    """
    for candidate in candidates:
        if math.isnan(candidate.fitness):
            raise ValueError(f"The fitness of {candidate.name!r} is NaN; its rating is broken. Nothing was replaced.")
    return sorted(candidates, key=lambda candidate: -candidate.fitness)  # stable: ties keep their order


def select(
    candidates: Sequence[Candidate],
    settings: "EvolutionSettings",
    *,
    rng: random.Random,
    num_parents: int | Mapping[str, int] = 1,
) -> list[Replacement]:
    """Selection within one role.

    Who is replaced is always decided by truncation, as in population based training (Jaderberg et al., 2017):
    floor(`fraction` * n) places, at least one. Parents are drawn without repetition for one child. `"truncation"`:
    evenly from as many of the best survivors as there are places, or from the `num_parents` best where that is more.
    `"tournament"`: each is the best of `tournament_size` random survivors; 1 draws without regard to fitness.
    `min_age`, `max_age` and the tie rule (see [`ranking`]) are our choice.

    Args:
        candidates (`Sequence[Candidate]`): All members of the role.
        settings ([`EvolutionSettings`]): How many are replaced, who is kept, how parents are drawn.
        rng (`random.Random`): Draws the parents.
        num_parents (`int` or `Mapping[str, int]`, *optional*, defaults to `1`):
            Parents of each child, or of the child for each slot.

    Returns:
        `list[Replacement]`: Worst first, one per place; fewer where fewer members may be replaced, none for a role of
        one member. Only where survivors are fewer than parents, as in a role of two, does a replaced member breed.

    Raises:
        ValueError: If a fitness is NaN.
    """
    ranked = ranking(candidates)
    if len(ranked) < 2:
        return []
    places = max(1, int(settings.fraction * len(ranked) + 1e-9))
    eligible = [candidate for candidate in reversed(ranked[settings.elites :]) if candidate.age >= settings.min_age]
    if (max_age := settings.max_age) is not None:
        eligible.sort(key=lambda candidate: candidate.age <= max_age)  # stable: worst first in each half
    replaced = [candidate.name for candidate in eligible[:places]]

    rank = {candidate.name: index for index, candidate in enumerate(ranked)}
    survivors = [name for name in rank if name not in replaced]
    result = []
    for slot in replaced:
        wanted = num_parents if isinstance(num_parents, int) else num_parents[slot]
        breeders = survivors if wanted <= len(survivors) else [*survivors, *(n for n in rank if n in replaced)]
        wanted = min(wanted, len(breeders))
        if settings.selection == "truncation":
            parents = rng.sample(breeders[: max(places, wanted)], wanted)
        else:
            parents = _tournaments(breeders, wanted, settings.tournament_size, rng)
        result.append(Replacement(slot, tuple(sorted(parents, key=rank.__getitem__))))
    return result


def _tournaments(breeders: Sequence[str], wanted: int, size: int, rng: random.Random) -> list[str]:
    """Winners of so many tournaments among breeders, best first; a winner leaves the lists."""
    left, winners = list(breeders), []
    for _ in range(wanted):
        contenders = rng.sample(range(len(left)), min(size, len(left)))
        winners.append(left.pop(min(contenders)))
    return winners
