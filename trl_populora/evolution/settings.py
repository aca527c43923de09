"""`EvolutionSettings`: how a population evolves, checked when it is made."""

import copy
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from trl_populora.population.factors import Factor, Factors, not_finite
from trl_populora.settings import conform_plain, hints_of, suggest

from .islands import divide
from .operators import CROSSOVERS, MUTATIONS, Operator, breed, get_operator
from .selection import SELECTIONS


PATHS = (
    ("base_model.model.model.layers.0.self_attn.q_proj", "base_model.model.model.layers.1.mlp.down_proj"),
    ("base_model.model.transformer.h.0.attn.c_attn", "base_model.model.transformer.h.1.mlp.c_proj"),
)
"""Adapted matrices of the small adapters on which operators are tried: as in a Llama, and as in a GPT-2. An operator
that reads layers out of paths need know only one of these forms."""
_TRIED: dict[tuple[int, str], Operator] = {}
"""Operators that worked in this process, by what they are and by their parameters."""


@dataclass(frozen=True)
class EvolutionSettings:
    """How a population evolves.

    Args:
        interval (`int`, *optional*, defaults to `20`): Number of rounds between replacement steps, at least 1.
        fraction (`float`, *optional*, defaults to `0.25`):
            Share of each role that is replaced in one step, in (0, 0.5].
        elites (`int`, *optional*, defaults to `1`): Number of best members of each role that are never replaced.
        min_age (`int`, *optional*, defaults to `0`): Members younger than this (in rounds) are not replaced.
        max_age (`int`, *optional*):
            Members older than this (in rounds) are replaced first. The best `elites` are still never replaced.
        selection (`str`, *optional*, defaults to `"truncation"`):
            How parents are drawn. `"truncation"`: uniformly from the best members. `"tournament"`: each parent is the
            best of `tournament_size` random members that are not replaced.
        tournament_size (`int`, *optional*, defaults to `3`): Number of members in a tournament.
        operators (`tuple[str, ...]`, *optional*):
            Names of the enabled operators; `module:Name` for your own. One is drawn for each child, all equally
            likely. Default: all of the paper.
        operator_parameters (`dict[str, dict]`, *optional*):
            Parameters of operators to change, such as `{"gaussian": {"eps": 0.05}}`.
        mutate_learning_rate (`bool`, *optional*, defaults to `False`):
            Whether a child gets the learning rate of its first parent, times 0.8 or 1.25. If `False`, it gets that of
            the member that it replaces.
        mutate_temperature (`bool`, *optional*, defaults to `False`):
            Whether a child gets the sampling temperature of its first parent, times 0.8 or 1.25. It stays between half
            and twice the run's temperature. If `False`, it gets that of the member that it replaces.
        islands (`int`, *optional*, defaults to `1`):
            Number of islands: equal parts of each role. Members are selected, mated and replaced only within their
            island. Teachers and students of all islands still play each other.
        migration_interval (`int`, *optional*, defaults to `4`):
            Every so many evolution steps, there is a migration instead of a replacement: a copy of the best member of
            each island replaces the worst member of the next island.

    Raises:
        ValueError: If a value is out of range or a name is unknown. Every enabled operator is tried once on a small
            adapter, so that a wrong parameter is found here and not during a run.
    """

    interval: int = 20
    fraction: float = 0.25
    elites: int = 1
    min_age: int = 0
    max_age: int | None = None
    selection: str = "truncation"
    tournament_size: int = 3
    operators: tuple[str, ...] = (*MUTATIONS, *CROSSOVERS)
    operator_parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    mutate_learning_rate: bool = False
    mutate_temperature: bool = False
    islands: int = 1
    migration_interval: int = 4

    def __post_init__(self) -> None:
        for name, hint in hints_of(EvolutionSettings).items():
            value = getattr(self, name)
            value = value.item() if isinstance(value, np.generic) else value
            object.__setattr__(self, name, conform_plain(name, value, hint))
        names = (self.operators,) if isinstance(self.operators, str) else tuple(self.operators)
        object.__setattr__(self, "operators", names)
        if self.interval < 1:
            raise ValueError(f"interval is a number of rounds and must be at least 1, got {self.interval}.")
        if not 0 < self.fraction <= 0.5:
            raise ValueError(f"fraction must be above 0 and at most 0.5, got {self.fraction}.")
        if self.elites < 1:
            raise ValueError(f"elites must be at least 1 (the members that are never replaced), got {self.elites}.")
        if self.min_age < 0:
            raise ValueError(f"min_age is a number of rounds and must be at least 0, got {self.min_age}.")
        if self.max_age is not None and self.max_age < self.min_age:
            raise ValueError(f"max_age must not be below min_age, got {self.max_age} and {self.min_age}.")
        if self.tournament_size < 1:
            raise ValueError(f"tournament_size must be at least 1, got {self.tournament_size}.")
        if self.islands < 1 or self.migration_interval < 1:
            raise ValueError(
                f"islands and migration_interval must be at least 1, got {self.islands} and {self.migration_interval}."
            )
        if self.islands > 1 and self.migration_interval == 1:
            raise ValueError(
                f"migration_interval=1 with islands={self.islands}: every evolution step would be a migration, and no "
                "operator would be used. Choose at least 2."
            )
        if not self.operators or len(set(self.operators)) < len(self.operators):
            raise ValueError(f"operators must name at least one operator, and none twice, got {self.operators}.")
        _known("selection", self.selection, SELECTIONS)
        for name, parameters in self.operator_parameters.items():
            if not isinstance(parameters, Mapping):
                raise ValueError(f"operator_parameters[{name!r}]={parameters!r} must be a mapping of parameters.")
            for parameter in parameters:
                _known(f"parameter of {name!r}", parameter, get_operator(name).parameters)
        for name in dict.fromkeys((*self.operators, *self.operator_parameters)):
            operator = get_operator(name)
            trial = (id(operator), repr(self.parameters(name)))
            if trial not in _TRIED:  # a run makes its settings many times
                self._try(name)
                _TRIED[trial] = operator

    def parameters(self, operator: str) -> dict[str, Any]:
        """All parameters of an operator: its defaults, updated with `operator_parameters`."""
        return get_operator(operator).parameters | dict(self.operator_parameters.get(operator, {}))

    def places(self, members: int) -> int:
        """Number of members that one step replaces among these, if elites and ages allow it."""
        return max(1, int(self.fraction * members + 1e-9))

    def check_sizes(self, *sizes: int) -> None:
        """Raises `ValueError` if roles of these sizes cannot be divided into the islands, or are too small for the
        parents of an operator, or if elites leave nobody to replace."""
        operator = max(self.operators, key=lambda name: get_operator(name).num_parents)
        wanted = get_operator(operator).num_parents
        largest = max(sizes, default=0) // self.islands
        if 1 < self.elites >= largest > 1:
            raise ValueError(
                f"elites={self.elites} are never replaced, and at most {largest} members breed together, so nobody "
                f"would ever be replaced. Set elites to {largest - 1} or less."
            )
        for size in sizes:
            members = len(divide([""] * size, self.islands)["island_0"])
            replaced = min(self.places(members), members - self.elites)
            if replaced > 0 and wanted > (most := members - replaced + 1):
                raise ValueError(
                    f"Operator {operator!r} needs {wanted} parents, and a child has at most {most}: of {members} "
                    f"members that breed together, fraction={self.fraction} replaces {replaced}, and only the child's "
                    "own slot is a parent among those. Have more members, a smaller fraction, or leave it out."
                )

    def due(self, rounds: int) -> bool:
        """Whether the population evolves after this many rounds."""
        return rounds > 0 and rounds % self.interval == 0

    def try_on(self, paths: Sequence[str]) -> None:
        """Raises `ValueError` if a user's operator does not work for adapters of these matrices, which are known only
        with the model."""
        for name in self.operators:
            if not getattr(get_operator(name).function, "__module__", "").startswith("trl_populora."):
                self._breed(name, paths)

    def _try(self, name: str) -> None:
        """Raises `ValueError` if an operator works for none of the `PATHS`, with the reason for the first."""
        failures = []
        for paths in PATHS:
            try:
                return self._breed(name, paths)
            except ValueError as error:
                failures.append(error)
        raise failures[0]

    def _breed(self, name: str, paths: Sequence[str]) -> None:
        """Breeds small adapters. Raises `ValueError` if the operator fails, or breaks a rule."""
        try:
            self._check_children(name, paths)
        except Exception as error:  # of a user's operator
            told = error if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
            more = f" and {len(paths) - 2} more" if len(paths) > 2 else ""
            given = f" with {self.parameters(name)}" if self.parameters(name) else ""
            raise ValueError(
                f"Operator {name!r} fails{given}: {told} (It was tried on a small adapter of "
                f"rank 16, for {' and '.join(paths[:2])}{more}.)"
            ) from error

    def _check_children(self, name: str, paths: Sequence[str]) -> None:
        """Breeds twice from small factors, of which some are far smaller than others; once from new ones (B = 0)."""
        rng, scales = torch.Generator().manual_seed(0), torch.logspace(0, -6, 16)
        parents = [
            {
                path: Factor(torch.randn(16, 128, generator=rng), torch.randn(64, 16, generator=rng) * scales, 2.0)
                for path in paths
            }
            for _ in range(get_operator(name).num_parents)
        ]
        before = copy.deepcopy(parents)
        child, again = (breed(name, parents, seed=0, parameters=self.parameters(name)) for _ in range(2))
        if not all(_equal(one, other) for one, other in zip(before, parents, strict=True)):
            raise ValueError("it changes its parents in place; work on copies.")
        new = [{path: one._replace(B=torch.zeros_like(one.B)) for path, one in own.items()} for own in before]
        born = breed(name, new, seed=0, parameters=self.parameters(name))
        for broken, of in ((not_finite(child), ""), (not_finite(born), " of adapters that have not learned (B = 0)")):
            if broken:
                raise ValueError(f"the factors of a child{of} are not finite at {broken[0]}.")
        if not _equal(child, again):
            raise ValueError("the same seed gives another child; draw all random numbers from the generator.")


def _equal(one: Factors, other: Factors) -> bool:
    return all(torch.equal(X, Y) for path in one for X, Y in zip(one[path][:2], other[path][:2], strict=True))


def read_parameters(operator: str, texts: Iterable[str]) -> dict[str, Any]:
    """Parameters of an operator from a command line: texts such as `"p=0.5"` and `"space=factors"`.

    Raises:
        ValueError: If there is no such operator, or it refuses a parameter or value.
    """
    known = get_operator(operator).parameters
    parameters: dict[str, Any] = {}
    for text in texts:
        name, _, value = text.partition("=")
        try:
            number = value if isinstance(known.get(name), str) else float(value)
        except ValueError:
            raise ValueError(f"{text!r} must be NAME=NUMBER") from None
        whole = isinstance(number, float) and number.is_integer() and "." not in value
        parameters[name] = int(number) if whole else number
    EvolutionSettings(operators=(operator,), operator_parameters={operator: parameters})
    return parameters


def _known(what: str, name: str, known: Collection[str]) -> None:
    if name not in known:
        hint = suggest(name, known) if known else "It has none: a parameter is a keyword-only argument with a default."
        raise ValueError(f"Unknown {what}: {name!r}. {hint}")
