"""Selection: which members are replaced, and which members are parents.

A pure function of plain data. `replacement` makes and writes the children.
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
    """Data about a member for selection.

    Attributes:
        name (`str`): Its slot.
        fitness (`float`): Higher is better.
        age (`int`): Rounds since its birth.
    """

    name: str
    fitness: float
    age: int = 0


@dataclass(frozen=True)
class Replacement:
    """A slot whose member is replaced by a child of `parents` (best first)."""

    slot: str
    parents: tuple[str, ...]


def ranking(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Candidates, best first. With equal fitness, the earlier one is better.

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

    The worst members are replaced, as in population based training (Jaderberg et al., 2017): floor(`fraction` * n)
    members, at least one. The parents of one child are different members. With `"truncation"`, they are drawn
    uniformly from the best members, as many of them as `fraction` gives, or at least `num_parents`. With
    `"tournament"`, each is the best of `tournament_size` random members that are not replaced; with 1, fitness has no
    influence. `min_age`, `max_age` and the rule for ties (see [`ranking`]) are our choice.

    Args:
        candidates (`Sequence[Candidate]`): All members of the role.
        settings ([`EvolutionSettings`]): Settings of the selection.
        rng (`random.Random`): Source of randomness.
        num_parents (`int` or `Mapping[str, int]`, *optional*, defaults to `1`):
            Number of parents of each child, or of the child for each slot.

    Returns:
        `list[Replacement]`: One per replaced member, worst first. There are fewer if fewer members may be replaced,
        and none for a role of one member. If there are too few other parents, as in a role of two, a replaced member
        is a parent of the child in its own slot. A child has fewer parents if there are still too few.

    Raises:
        ValueError: If a fitness is NaN.
    """
    ranked = ranking(candidates)
    if len(ranked) < 2:
        return []
    places = settings.places(len(ranked))
    eligible = [candidate for candidate in reversed(ranked[settings.elites :]) if candidate.age >= settings.min_age]
    if (max_age := settings.max_age) is not None:
        eligible.sort(key=lambda candidate: candidate.age <= max_age)  # stable: worst first in each half
    replaced = [candidate.name for candidate in eligible[:places]]

    rank = {candidate.name: index for index, candidate in enumerate(ranked)}
    survivors = [name for name in rank if name not in replaced]
    result = []
    for slot in replaced:
        wanted = num_parents if isinstance(num_parents, int) else num_parents[slot]
        breeders = survivors if wanted <= len(survivors) else [*survivors, slot]
        wanted = min(wanted, len(breeders))
        if settings.selection == "truncation":
            parents = rng.sample(breeders[: max(places, wanted)], wanted)
        else:
            parents = _tournaments(breeders, wanted, settings.tournament_size, rng)
        result.append(Replacement(slot, tuple(sorted(parents, key=rank.__getitem__))))
    return result


def _tournaments(breeders: Sequence[str], wanted: int, size: int, rng: random.Random) -> list[str]:
    """Winners of this number of tournaments, best first. A winner takes part in no later tournament."""
    left, winners = list(breeders), []
    for _ in range(wanted):
        contenders = rng.sample(range(len(left)), min(size, len(left)))
        winners.append(left.pop(min(contenders)))
    return winners
