"""Islands: parts of a role that evolve apart, and migration between them. Decides only; copying is the caller's."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from .selection import Candidate, Replacement, ranking


if TYPE_CHECKING:
    from .settings import EvolutionSettings


def divide(names: Sequence[str], islands: int) -> dict[str, list[str]]:
    """Divides the members of one role into islands of equal size, neighbouring slots together.

    Args:
        names (`Sequence[str]`): Members in the order of slots.
        islands (`int`): How many; a role of one member, which never evolves, is always one.

    Returns:
        `dict[str, list[str]]`: Name of each island -> its members, in the order of the ring.

    Raises:
        ValueError: If the islands would differ in size or hold fewer than two members, of whom none could breed.
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
    """Sends a copy of each island's best to the next island, in place of its worst.

    Args:
        islands (`Mapping[str, Sequence[Candidate]]`):
            Members of one role on each island, in the order of the ring: each sends to the next, the last to the
            first. With ratings of their own, islands' fitnesses are not comparable, and are never compared.
        settings ([`EvolutionSettings`]): `elites` and `min_age` say who keeps a slot.

    Returns:
        `list[Replacement]`: The slot and its migrant as only parent, for each target in the order of sources; none
        where no slot is free, or for a single island. All are decided on the islands as given: a migrant does not
        travel on.

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
