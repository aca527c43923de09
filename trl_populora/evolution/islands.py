"""Islands: parts of a role that evolve separately, and migration between them. This module decides; the caller
copies."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from .selection import Candidate, Replacement, ranking


if TYPE_CHECKING:
    from .settings import EvolutionSettings


def divide(names: Sequence[str], islands: int) -> dict[str, list[str]]:
    """Divides the members of one role into islands of equal size, with neighbouring slots together.

    Args:
        names (`Sequence[str]`): Members in the order of slots.
        islands (`int`): Number of islands. A role of one member, which never evolves, is always one island.

    Returns:
        `dict[str, list[str]]`: Name of each island -> its members, in the order of the ring.

    Raises:
        ValueError: If the islands would differ in size, or have fewer than two members.
    """
    if islands < 1:
        raise ValueError(f"islands counts the parts of a role and is at least 1, got {islands}.")
    if len(names) < 2 or islands == 1:
        return {"island_0": list(names)}
    size, rest = divmod(len(names), islands)
    if rest or size < 2:
        fitting = [k for k in range(1, len(names) // 2 + 1) if len(names) % k == 0]
        raise ValueError(
            f"islands={islands} does not divide {len(names)} members of a role into equal islands of at least two; "
            f"choose one of {fitting}."
        )
    return {f"island_{k}": list(names[k * size : (k + 1) * size]) for k in range(islands)}


def migrate(islands: Mapping[str, Sequence[Candidate]], settings: "EvolutionSettings") -> list[Replacement]:
    """A copy of the best member of each island replaces the worst member of the next island.

    Args:
        islands (`Mapping[str, Sequence[Candidate]]`):
            Members of one role on each island, in the order of the ring: each island sends to the next, and the last
            to the first. Fitness values of different islands are never compared.
        settings ([`EvolutionSettings`]): `elites` and `min_age` protect members from replacement.

    Returns:
        `list[Replacement]`: For each island that receives a member, the slot and the migrant as its only parent. There
        is none if no slot is free, or for a single island. All decisions use the islands before migration, so a
        migrant does not move on in the same step.

    Raises:
        ValueError: If a fitness is NaN.
    """
    ranked = {name: ranking(candidates) for name, candidates in islands.items()}
    names = list(ranked)
    if len(names) < 2:
        return []
    result = []
    for source, target in zip(names, names[1:] + names[:1]):
        free = [candidate for candidate in ranked[target][settings.elites :] if candidate.age >= settings.min_age]
        if free:
            result.append(Replacement(free[-1].name, (ranked[source][0].name,)))
    return result
