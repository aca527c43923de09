"""Selection: who is replaced, and by whose child.

A pure function of plain data; how the child is made and written is in `replacement`.
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


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
    *,
    rng: random.Random,
    num_parents: int | Mapping[str, int] = 1,
    fraction: float = 0.25,
    elites: int = 1,
    min_age: int = 0,
    max_age: int | None = None,
    selection: str = "truncation",
    tournament_size: int = 3,
) -> list[Replacement]:
    """Selection within one role.

    Args:
        candidates (`Sequence[Candidate]`): All members of the role.
        rng (`random.Random`): Draws the parents.
        num_parents (`int` or `Mapping[str, int]`, *optional*, defaults to `1`):
            Parents of each child, or of the child for each slot.
        fraction (`float`, *optional*, defaults to `0.25`):
            Share of members replaced, in (0, 0.5]: floor(fraction * n) places, at least one.
        elites (`int`, *optional*, defaults to `1`): So many of the best are never replaced, whatever their age.
        min_age (`int`, *optional*, defaults to `0`): Members younger than this, in rounds, are not replaced.
        max_age (`int`, *optional*): Members older than this, in rounds, come first when places are given out.
        selection (`str`, *optional*, defaults to `"truncation"`):
            How parents are drawn, without repetition for one child. `"truncation"`: evenly from as many of the best
            survivors as there are places, or from the `num_parents` best where that is more. `"tournament"`: each is
            the best of `tournament_size` random survivors.
        tournament_size (`int`, *optional*, defaults to `3`): 1 draws parents without regard to fitness.

    Returns:
        `list[Replacement]`: Worst first, one per place; fewer where fewer members may be replaced, none for a role of
        one member. Only where survivors are fewer than parents, as in a role of two, does a replaced member breed.

    Raises:
        ValueError: If a fitness is NaN, or an argument is out of range.

    Who is replaced is always decided by truncation, as in population based training (Jaderberg et al., 2017);
    `min_age`, `max_age` and the tie rule (see [`ranking`]) are our choice.
    """
    if not 0 < fraction <= 0.5:
        raise ValueError(f"fraction lies in (0, 0.5]: the replaced and the parents must differ; got {fraction}.")
    if elites < 1:
        raise ValueError(f"elites counts the members that are never replaced and is at least 1, got {elites}.")
    if selection not in SELECTIONS:
        raise ValueError(f"selection is one of {SELECTIONS}, got {selection!r}.")
    if tournament_size < 1:
        raise ValueError(f"tournament_size is at least 1, got {tournament_size}.")
    ranked = ranking(candidates)
    if len(ranked) < 2:
        return []

    places = max(1, int(fraction * len(ranked) + 1e-9))
    eligible = [candidate for candidate in reversed(ranked[elites:]) if candidate.age >= min_age]
    if max_age is not None:
        eligible.sort(key=lambda candidate: candidate.age <= max_age)  # stable: the worst first within each half
    replaced = [candidate.name for candidate in eligible[:places]]

    rank = {candidate.name: index for index, candidate in enumerate(ranked)}
    survivors = [name for name in rank if name not in replaced]
    result = []
    for slot in replaced:
        wanted = num_parents if isinstance(num_parents, int) else num_parents[slot]
        breeders = survivors if wanted <= len(survivors) else [*survivors, *(n for n in rank if n in replaced)]
        wanted = min(wanted, len(breeders))
        if selection == "truncation":
            parents = rng.sample(breeders[: max(places, wanted)], wanted)
        else:
            parents = _tournaments(breeders, wanted, tournament_size, rng)
        result.append(Replacement(slot, tuple(sorted(parents, key=rank.__getitem__))))
    return result


def _tournaments(breeders: Sequence[str], wanted: int, size: int, rng: random.Random) -> list[str]:
    """Winners of so many tournaments among breeders, best first; a winner leaves the lists."""
    left, winners = list(breeders), []
    for _ in range(wanted):
        contenders = rng.sample(range(len(left)), min(size, len(left)))
        winners.append(left.pop(min(contenders)))
    return winners
