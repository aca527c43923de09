"""Recombination: members of a role move to the mean of their updates, and go on learning from there.

It is the global intermediate recombination of evolution strategies (Beyer and Schwefel, 2002), in the space of
updates: what members learned alike stays, and the noise of their gradients is averaged. Averaging the weights of
workers that train apart from time to time (local SGD) is the same idea. The paper does not have it: our choice.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

import torch

from trl_populora.population import Factors, Population
from trl_populora.population.factors import not_finite

from .factors import Spectrum, spectra
from .gauge import compose
from .inheritance import storage
from .islands import divide
from .replacement import NotFiniteError


@torch.no_grad()
def recombine(
    population: Population,
    *,
    roles: Collection[str] = ("teacher", "student"),
    islands: int = 1,
    without: Collection[str] = (),
) -> tuple[str, ...]:
    """Gives every member of a role the mean update of the role, in place.

    A member's version, age, rating and optimizer moments stay. It writes the mean in its own frame of A (`compose`),
    so that the moments still fit; only at the first mean of founders with different A do the factors change much. If
    the mean has more directions than the rank, the strongest stay.

    Args:
        population (`Population`): Members and their factors.
        roles (`Collection[str]`, *optional*): Roles that recombine; members of others stay as they are.
        islands (`int`, *optional*, defaults to 1): Number of equal parts of each role that have means of their own.
        without (`Collection[str]`, *optional*): Members that take no part: they do not count and do not change.

    Returns:
        `tuple[str, ...]`: Members that were changed. One member alone never changes.

    Raises:
        ValueError: If a member or a mean is not finite ([`NotFiniteError`]), or a role cannot be divided into the
            islands. Nothing is then changed.
    """
    own = [[name for name in names if name not in without] for names in _groups(population, roles, islands)]
    groups = [names for names in own if len(names) > 1]
    mixed = [means([population.factors(name) for name in names]) for names in groups]
    for names, factors in zip(groups, mixed, strict=True):
        for mean in factors:
            if paths := not_finite(mean):
                raise NotFiniteError(f"the mean of {', '.join(names)} is not finite at {paths[0]}.")
    for names, factors in zip(groups, mixed, strict=True):
        for name, mean in zip(names, factors, strict=True):
            population.write(name, mean)
    return tuple(name for names in groups for name in names)


def means(parents: Sequence[Factors]) -> list[Factors]:
    """The mean of the parents' updates as factors, once in the frame and rank of each parent.

    Raises:
        ValueError: If a factor holds a value that is not finite.
    """
    mixed = spectra(parents, [1 / len(parents)] * len(parents))
    return [_in_frame(parents, mixed, place) for place in range(len(parents))]


def _in_frame(parents: Sequence[Factors], mixed: Mapping[str, Spectrum], place: int) -> Factors:
    """The update of these spectra in the frame of one of the parents on which they act."""
    order = [place, *(other for other in range(len(parents)) if other != place)]
    child = storage(parents[place])
    for path, (left, s, right, G_A) in mixed.items():
        terms = [parent[path] for parent in parents]
        blocks = torch.arange(len(G_A)).split([len(factor.A) for factor in terms])
        index = torch.cat([blocks[k] for k in order])
        led = Spectrum(left[index], s, right[:, index], G_A[index][:, index])
        compose([terms[k] for k in order], led, out=child[path], seed=0)
    return child


def _groups(population: Population, roles: Collection[str], islands: int) -> Iterator[list[str]]:
    """Members that share a mean: those of a role and an island."""
    present = dict.fromkeys(population[name].role for name in population.names())
    for role in (role for role in present if role in roles):
        yield from divide(population.names(role), islands).values()
