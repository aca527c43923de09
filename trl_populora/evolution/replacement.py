"""The replacement step of population based training: select, vary, replace in place. In one call, or with ask and
tell.

Works with any objects that have the few methods of `Population` and `Ratings` that it calls.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol

import torch

from trl_populora.population import Factors, Population
from trl_populora.population.factors import Factor, check_fit, not_finite
from trl_populora.population.member import check_range

from ..run_files.lineage import Birth, EvolutionEvent
from .inheritance import draw_seed
from .islands import divide, migrate
from .operators import breed, get_operator
from .selection import Candidate, Replacement, select
from .settings import EvolutionSettings


FACTORS = (0.8, 1.25)  # of a mutated learning rate or temperature
TEMPERATURES = (0.5, 2.0)  # bounds, relative to the run's


class NotFiniteError(ValueError):
    """A child, or a parent of one, has weights that are not finite. Nobody is replaced."""


class _Ratings(Protocol):
    def fitness(self, name: str) -> float: ...
    def __getitem__(self, name: str) -> Any: ...
    def inherit(self, child: str, parents: Any, *, begin: bool = True) -> Any: ...


@dataclass(frozen=True, kw_only=True)
class Offspring(Birth):
    """A child that may replace a member.

    Attributes:
        factors (`Factors`): Its weights.

    Raises:
        ValueError: If its learning rate or temperature is out of range.
    """

    factors: Factors

    def __post_init__(self) -> None:
        check_range(self.slot, self.learning_rate, self.temperature)


def ask(
    population: Population,
    ratings: _Ratings,
    rng: torch.Generator,
    *,
    settings: EvolutionSettings | None = None,
    step: int = 0,
    steps_per_round: int = 1,
    number: int = 1,
) -> list[Offspring]:
    """Chooses the members to replace in each role, and makes the children. Nothing is written.

    Args:
        population (`Population`): Members and their factors.
        ratings (`Ratings`): Fitness of the members.
        rng (`torch.Generator`): CPU generator; the same state gives the same decisions and children on every rank.
        settings (`EvolutionSettings`, *optional*): Settings of selection and operators.
        step (`int`, *optional*, defaults to `0`): Training step, for ages.
        steps_per_round (`int`, *optional*, defaults to `1`): Training steps of one round, because ages are in rounds.
        number (`int`, *optional*, defaults to `1`):
            Number of this evolution step, from 1. With islands, every `migration_interval`-th step is a migration.

    Returns:
        `list[Offspring]`: Children in the order of roles and islands, with the child for the worst member first. Empty
        if nobody may be replaced. A role of one member never changes. Pass all or some of them to [`tell`].

    Raises:
        NotFiniteError: If a parent or a child has weights that are not finite.
        ValueError: If a fitness is NaN, or a role cannot be divided into the islands.
    """
    settings = settings or EvolutionSettings()
    by_role: dict[str, list[str]] = {}
    for name in population.names():
        by_role.setdefault(population[name].role, []).append(name)
    offspring = []
    for members in by_role.values():
        if len(members) < 2:
            continue
        fitness = {name: ratings.fitness(name) for name in members}
        islands = {
            island: [
                Candidate(name, fitness[name], (step - population[name].born_step) // steps_per_round)
                for name in names
            ]
            for island, names in divide(members, settings.islands).items()
        }
        if len(islands) > 1 and number % settings.migration_interval == 0:
            for migrant in migrate(islands, settings):
                offspring.append(_breed(population, migrant, "clone", settings, seed=0, fitness=fitness, moves=True))
        else:
            for candidates in islands.values():
                offspring += _ask_island(population, candidates, rng, settings, fitness)
    return offspring


def tell(
    population: Population,
    ratings: _Ratings,
    offspring: Sequence[Offspring],
    *,
    step: int = 0,
    begin: bool = True,
) -> list[EvolutionEvent]:
    """Puts children into their slots: writes their weights in place, increases the version, and sets their rating.

    The optimizer moments of the slot belong to the replaced member. The caller must drop them.

    Args:
        population (`Population`): Population that gets the children.
        ratings (`Ratings`): A child gets the mean mu of its parents, and at least half the prior's sigma.
        offspring (`Sequence[Offspring]`): Children from [`ask`], or your own.
        step (`int`, *optional*, defaults to `0`): Training step, for the record.
        begin (`bool`, *optional*, defaults to `True`): Whether ratings start a new interval, for all members.

    Returns:
        `list[EvolutionEvent]`: One per child, for a `Lineage`.

    Raises:
        ValueError: If two children have the same slot, or a parent has been replaced meanwhile, or another child would
            replace it: the lineage would then be wrong. If a child has no parents, is not finite or does not fit its
            slot. Nothing is then written.
    """
    slots = [child.slot for child in offspring]
    if len(set(slots)) < len(slots):
        raise ValueError(f"Two children want one slot: {sorted(slots)}. Tell at most one for each.")
    for child in offspring:
        if not child.parents:
            raise ValueError(f"The child for {child.slot!r} has no parents: it inherits the rating of at least one.")
        for name, version in child.parents:
            if name in slots and name != child.slot:
                raise ValueError(f"{name!r} is a parent of the child for {child.slot!r} and makes room itself.")
            if population[name].version != version:
                raise ValueError(
                    f"The child for {child.slot!r} descends from {name}@{version}, but {name} is at version "
                    f"{population[name].version} by now. Ask again."
                )
    before = {child.slot: ratings[child.slot] for child in offspring}  # a birth widens every member's rating
    for child in offspring:
        check_fit(child.slot, child.factors, population.factors(child.slot))
    for child in offspring:
        _write(population, ratings, child, step, begin)
    return [
        EvolutionEvent(
            **{field.name: getattr(child, field.name) for field in fields(Birth)},
            step=step,
            role=population[child.slot].role,
            version=population[child.slot].version,
            rating_before=(before[child.slot].mu, before[child.slot].sigma),
            rating_after=(ratings[child.slot].mu, ratings[child.slot].sigma),  # all births move teachers' ratings
        )
        for child in offspring
    ]


def evolve(
    population: Population,
    ratings: _Ratings,
    *,
    settings: EvolutionSettings,
    step: int,
    rng: torch.Generator,
    steps_per_round: int = 1,
    number: int = 1,
) -> list[EvolutionEvent]:
    """Replaces the worst members of each role by children of the best, in place: [`ask`], then [`tell`].

    All children are made before any is written, so that none descends from a sibling of the same event.
    """
    offspring = ask(
        population, ratings, rng, settings=settings, step=step, steps_per_round=steps_per_round, number=number
    )
    return tell(population, ratings, offspring, step=step)


def remake(event: EvolutionEvent, parents: Sequence[Factors]) -> Factors:
    """Makes the child of an event again from the factors that its parents had at that time."""
    parameters = dict(event.parameters)
    seed = parameters.pop("seed")
    return breed(event.operator, parents, seed=seed, parameters=parameters)


def _ask_island(
    population: Population,
    candidates: Sequence[Candidate],
    rng: torch.Generator,
    settings: EvolutionSettings,
    fitness: dict[str, float],
) -> list[Offspring]:
    chance = random.Random(draw_seed(rng))
    operator_for = {candidate.name: chance.choice(settings.operators) for candidate in candidates}
    replacements = select(
        candidates,
        settings,
        rng=chance,
        num_parents={name: get_operator(operator).num_parents for name, operator in operator_for.items()},
    )
    return [
        _breed(population, replacement, operator_for[replacement.slot], settings, seed=draw_seed(rng), fitness=fitness)
        for replacement in replacements
    ]


def _breed(
    population: Population,
    replacement: Replacement,
    operator: str,
    settings: EvolutionSettings,
    *,
    seed: int,
    fitness: dict[str, float],
    moves: bool = False,
) -> Offspring:
    """A child, or an unchanged migrant, with its learning rate and temperature if those mutate."""
    parents, parameters = replacement.parents, settings.parameters(operator)
    factors = {name: population.factors(name) for name in parents}
    for name, own in factors.items():
        if paths := not_finite(own):
            raise NotFiniteError(f"{name}, a parent of the child for {replacement.slot}, is not finite at {paths[0]}.")
    copies = [{path: Factor(A.clone(), B.clone(), s) for path, (A, B, s) in own.items()} for own in factors.values()]
    child = breed(operator, copies, seed=seed, parameters=parameters)  # of a user's: it may change its parents
    if paths := not_finite(child):
        raise NotFiniteError(f"The child of {', '.join(parents)} by {operator!r} is not finite at {paths[0]}.")
    first, learning_rate, temperature = population[parents[0]], None, None
    if settings.mutate_learning_rate:
        learning_rate = first.learning_rate * (1.0 if moves else random.Random(seed).choice(FACTORS))
    if settings.mutate_temperature:
        mutated = first.temperature * (1.0 if moves else random.Random(f"temperature:{seed}").choice(FACTORS))
        temperature = min(max(mutated, TEMPERATURES[0]), TEMPERATURES[1])
    return Offspring(
        slot=replacement.slot,
        operator=operator,
        parameters=parameters | {"seed": seed},
        parents=tuple((parent, population[parent].version) for parent in parents),
        factors=child,
        fitness=fitness,
        learning_rate=learning_rate,
        temperature=temperature,
        kind="migration" if moves else "replacement",
    )


def _write(population: Population, ratings: _Ratings, child: Offspring, step: int, begin: bool) -> None:
    """Puts a child into its slot."""
    parents = [name for name, _ in child.parents]
    population.replace(
        child.slot,
        child.factors,
        operator=child.operator,
        parents=parents,
        step=step,
        learning_rate=child.learning_rate,
        temperature=child.temperature,
    )
    ratings.inherit(child.slot, parents, begin=begin)
