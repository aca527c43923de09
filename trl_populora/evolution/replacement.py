"""The replacement step of population based training: select, vary, replace in place.

Works on anything with the few methods of `Population` and `Ratings` that it calls; training lives elsewhere.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Protocol

import torch

from trl_populora.population.factors import Factor, Factors

from .lineage import EvolutionEvent
from .operators import CROSSOVERS, MUTATIONS, OPERATORS, breed
from .selection import Candidate, Replacement, select


LEARNING_RATE_FACTORS = (0.8, 1.25)


class _Population(Protocol):
    def names(self, role: str | None = None) -> list[str]: ...
    def __getitem__(self, name: str) -> Any: ...
    def factors(self, name: str) -> Factors: ...
    def replace(
        self,
        name: str,
        factors: Factors,
        *,
        operator: str,
        parents: Any,
        step: int,
        learning_rate: float | None = None,
    ) -> Any: ...


class _Ratings(Protocol):
    def fitness(self, name: str) -> float: ...
    def __getitem__(self, name: str) -> Any: ...
    def inherit(self, child: str, parents: Any) -> Any: ...


@dataclass(frozen=True)
class EvolutionSettings:
    """How a population evolves.

    Args:
        interval (`int`, *optional*, defaults to `20`): Training steps between events, at least 1.
        fraction (`float`, *optional*, defaults to `0.25`): Share of each role that is replaced, in (0, 0.5].
        min_age (`int`, *optional*, defaults to `0`): Members younger than this, in steps, are not replaced.
        max_age (`int`, *optional*): Members older than this, in steps, are replaced first (never the best).
        operators (`tuple[str, ...]`, *optional*): Enabled operators, equally likely; all nine by default.
        operator_parameters (`dict[str, dict]`, *optional*):
            Parameters that differ from an operator's defaults, such as `{"gaussian": {"eps": 0.05}}`.
        mutate_learning_rate (`bool`, *optional*, defaults to `False`):
            A child takes the learning rate of its first parent times 0.8 or 1.25; otherwise the slot keeps its own.

    Raises:
        ValueError: If a value is out of range or a name is unknown. Every enabled operator is tried once on a toy
            adapter, so that a parameter it refuses is refused here and not in the middle of a run.
    """

    interval: int = 20
    fraction: float = 0.25
    min_age: int = 0
    max_age: int | None = None
    operators: tuple[str, ...] = (*MUTATIONS, *CROSSOVERS)
    operator_parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    mutate_learning_rate: bool = False

    def __post_init__(self):
        object.__setattr__(self, "operators", tuple(self.operators))
        if self.interval < 1:
            raise ValueError(f"interval counts training steps and is at least 1, got {self.interval}.")
        if not 0 < self.fraction <= 0.5:
            raise ValueError(f"fraction lies in (0, 0.5], got {self.fraction}.")
        if self.min_age < 0:
            raise ValueError(f"min_age counts training steps and is at least 0, got {self.min_age}.")
        if self.max_age is not None and self.max_age < self.min_age:
            raise ValueError(f"max_age must not be below min_age, got {self.max_age} and {self.min_age}.")
        if not self.operators or len(set(self.operators)) < len(self.operators):
            raise ValueError(f"operators names at least one operator and none twice, got {self.operators}.")
        for name in (*self.operators, *self.operator_parameters):
            _known("operator", name, OPERATORS)
        for name, parameters in self.operator_parameters.items():
            for parameter in parameters:
                _known(f"parameter of {name!r}", parameter, OPERATORS[name].parameters)
        for name in dict.fromkeys((*self.operators, *self.operator_parameters)):
            toy = {"toy": Factor(torch.ones(2, 2), torch.ones(2, 2), 1.0)}
            try:
                child = breed(name, [toy] * OPERATORS[name].num_parents, seed=0, parameters=self.parameters(name))
                if not all(torch.isfinite(X).all() for X in child["toy"][:2]):
                    raise ValueError("the child's factors are not finite.")
            except (ValueError, TypeError) as error:
                raise ValueError(f"Operator {name!r} refuses {self.parameters(name)}: {error}") from error

    def parameters(self, operator: str) -> dict[str, Any]:
        """All parameters of an operator: its defaults and what replaces them."""
        return OPERATORS[operator].parameters | dict(self.operator_parameters.get(operator, {}))

    def due(self, step: int) -> bool:
        """Whether the population evolves after this many training steps."""
        return step > 0 and step % self.interval == 0


def evolve(
    population: _Population,
    ratings: _Ratings,
    *,
    settings: EvolutionSettings,
    step: int,
    rng: torch.Generator,
) -> list[EvolutionEvent]:
    """Replaces the worst members of each role by children of the best, in place.

    Args:
        population (`Population`): Gives members and factors, takes the children.
        ratings (`Ratings`): Gives fitness; a child gets its rating from its parents'.
        settings (`EvolutionSettings`): Who is replaced, and how children are made.
        step (`int`): Training step, for ages and the record.
        rng (`torch.Generator`): CPU generator; the same state gives the same decisions and children on every rank.

    Returns:
        `list[EvolutionEvent]`: One per child, in the order of roles, worst member first; empty if nobody could be
        replaced. A role of one member never changes.

    All children of a role are made before any is written, so that none descends from a sibling of the same event.
    """
    roles = dict.fromkeys(population[name].role for name in population.names())
    return [event for role in roles for event in _evolve_role(population, ratings, role, settings, step, rng)]


def remake(event: EvolutionEvent, parents: list[Factors], *, recipient: Factors | None = None) -> Factors:
    """Makes the child of an event again from its parents' factors as they were (and the slot's, see `breed`)."""
    parameters = dict(event.parameters)
    seed = parameters.pop("seed")
    return breed(event.operator, parents, seed=seed, parameters=parameters, recipient=recipient)


def _evolve_role(
    population: _Population,
    ratings: _Ratings,
    role: str,
    settings: EvolutionSettings,
    step: int,
    rng: torch.Generator,
) -> list[EvolutionEvent]:
    names = population.names(role)
    if len(names) < 2:
        return []
    chance = random.Random(_draw_seed(rng))
    operator_for = {name: chance.choice(settings.operators) for name in names}
    fitness = {name: ratings.fitness(name) for name in names}
    replacements = select(
        [Candidate(name, fitness[name], step - population[name].born_step) for name in names],
        rng=chance,
        num_parents={name: OPERATORS[operator].num_parents for name, operator in operator_for.items()},
        fraction=settings.fraction,
        min_age=settings.min_age,
        max_age=settings.max_age,
    )
    children = []
    for replacement in replacements:
        operator, seed = operator_for[replacement.slot], _draw_seed(rng)
        child = breed(
            operator,
            [population.factors(parent) for parent in replacement.parents],
            seed=seed,
            parameters=settings.parameters(operator),
            recipient=population.factors(replacement.slot),
        )
        children.append((replacement, operator, seed, child))
    return [_write(population, ratings, *child, fitness=fitness, settings=settings, step=step) for child in children]


def _write(
    population: _Population,
    ratings: _Ratings,
    replacement: Replacement,
    operator: str,
    seed: int,
    child: Factors,
    *,
    fitness: dict[str, float],
    settings: EvolutionSettings,
    step: int,
) -> EvolutionEvent:
    """Puts a child into its slot and tells what happened."""
    slot, parents = replacement.slot, replacement.parents
    versions = tuple((parent, population[parent].version) for parent in parents)
    learning_rate = None
    if settings.mutate_learning_rate:
        learning_rate = population[parents[0]].learning_rate * random.Random(seed).choice(LEARNING_RATE_FACTORS)
    before = ratings[slot]
    member = population.replace(
        slot, child, operator=operator, parents=parents, step=step, learning_rate=learning_rate
    )
    ratings.inherit(slot, parents)
    after = ratings[slot]
    return EvolutionEvent(
        step=step,
        slot=slot,
        role=member.role,
        operator=operator,
        parameters={**settings.parameters(operator), "seed": seed},
        parents=versions,
        version=member.version,
        fitness=fitness,
        rating_before=(before.mu, before.sigma),
        rating_after=(after.mu, after.sigma),
        learning_rate=learning_rate,
    )


def _draw_seed(rng: torch.Generator) -> int:
    return int(torch.randint(2**48, (), generator=rng))


def _known(what: str, name: str, known: Mapping[str, Any]) -> None:
    if name not in known:
        close = get_close_matches(name, known, n=1)
        hint = f"Did you mean {close[0]!r}?" if close else f"Choose from {list(known)}."
        raise ValueError(f"Unknown {what}: {name!r}. {hint}")
