"""`EvolutionSettings`: how a population evolves, checked when it is made."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

import torch

from trl_populora.population.factors import Factor

from .islands import divide
from .operators import CROSSOVERS, MUTATIONS, OPERATORS, breed
from .selection import SELECTIONS


@dataclass(frozen=True)
class EvolutionSettings:
    """How a population evolves.

    Args:
        interval (`int`, *optional*, defaults to `20`): Rounds between events, at least 1.
        fraction (`float`, *optional*, defaults to `0.25`): Share of each role that is replaced, in (0, 0.5].
        elites (`int`, *optional*, defaults to `1`): So many of the best of each role are never replaced.
        min_age (`int`, *optional*, defaults to `0`): Members younger than this, in rounds, are not replaced.
        max_age (`int`, *optional*): Members older than this, in rounds, are replaced first (never the elite).
        selection (`str`, *optional*, defaults to `"truncation"`): How parents are drawn: that, or `"tournament"`.
        tournament_size (`int`, *optional*, defaults to `3`): Survivors of whom the best becomes a parent.
        operators (`tuple[str, ...]`, *optional*): Enabled operators, equally likely; all of the paper by default.
        operator_parameters (`dict[str, dict]`, *optional*):
            Parameters that differ from an operator's defaults, such as `{"gaussian": {"eps": 0.05}}`.
        mutate_learning_rate (`bool`, *optional*, defaults to `False`):
            A child takes the learning rate of its first parent times 0.8 or 1.25; otherwise the slot keeps its own.
        mutate_temperature (`bool`, *optional*, defaults to `False`):
            A child takes the sampling temperature of its first parent times 0.8 or 1.25, within half and twice the
            run's; otherwise the slot keeps its own.
        islands (`int`, *optional*, defaults to `1`):
            Parts of each role, by slot, inside which members are replaced and mate.
        migration_interval (`int`, *optional*, defaults to `4`):
            Every so many evolution steps nobody breeds: each island sends a copy of its best to the next.

    Raises:
        ValueError: If a value is out of range or a name is unknown. Every enabled operator is tried once on a toy
            adapter, so that a parameter it refuses is refused here and not in the middle of a run.
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
        object.__setattr__(self, "operators", tuple(self.operators))
        if self.interval < 1:
            raise ValueError(f"interval counts rounds and is at least 1, got {self.interval}.")
        if not 0 < self.fraction <= 0.5:
            raise ValueError(f"fraction lies in (0, 0.5], got {self.fraction}.")
        if self.elites < 1:
            raise ValueError(f"elites counts members that are never replaced and is at least 1, got {self.elites}.")
        if self.min_age < 0:
            raise ValueError(f"min_age counts rounds and is at least 0, got {self.min_age}.")
        if self.max_age is not None and self.max_age < self.min_age:
            raise ValueError(f"max_age must not be below min_age, got {self.max_age} and {self.min_age}.")
        if self.tournament_size < 1:
            raise ValueError(f"tournament_size is at least 1, got {self.tournament_size}.")
        if self.islands < 1 or self.migration_interval < 1:
            raise ValueError(
                f"islands and migration_interval are at least 1, got {self.islands} and {self.migration_interval}."
            )
        if not self.operators or len(set(self.operators)) < len(self.operators):
            raise ValueError(f"operators names at least one operator and none twice, got {self.operators}.")
        _known("selection", self.selection, SELECTIONS)
        for name in (*self.operators, *self.operator_parameters):
            _known("operator", name, OPERATORS)
        for name, parameters in self.operator_parameters.items():
            if not isinstance(parameters, Mapping):
                raise ValueError(f"operator_parameters[{name!r}]={parameters!r} must be a mapping of parameters.")
            for parameter in parameters:
                _known(f"parameter of {name!r}", parameter, OPERATORS[name].parameters)
        for name in self.operator_parameters:  # with its defaults every operator works
            self._try(name)

    def parameters(self, operator: str) -> dict[str, Any]:
        """All parameters of an operator: its defaults and what replaces them."""
        return OPERATORS[operator].parameters | dict(self.operator_parameters.get(operator, {}))

    def check_sizes(self, *sizes: int) -> None:
        """Raises `ValueError` if roles of these sizes cannot be divided into the islands."""
        for size in sizes:
            divide([""] * size, self.islands)

    def due(self, rounds: int) -> bool:
        """Whether the population evolves after this many rounds."""
        return rounds > 0 and rounds % self.interval == 0

    def _try(self, name: str) -> None:
        toy = {"toy": Factor(torch.ones(2, 2), torch.ones(2, 2), 1.0)}
        try:
            child = breed(name, [toy] * OPERATORS[name].num_parents, seed=0, parameters=self.parameters(name))
            if not all(torch.isfinite(X).all() for X in child["toy"][:2]):
                raise ValueError("the child's factors are not finite.")
        except (ValueError, TypeError) as error:
            raise ValueError(f"Operator {name!r} refuses {self.parameters(name)}: {error}") from error


def read_parameters(operator: str, texts: Iterable[str]) -> dict[str, Any]:
    """Parameters of an operator from a command line: texts such as `"p=0.5"` and `"space=factors"`.

    Raises:
        ValueError: If there is no such operator, or it refuses a parameter or value.
    """
    known = OPERATORS[operator].parameters if operator in OPERATORS else {}
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
        close = get_close_matches(name, known, n=1)
        hint = f"Did you mean {close[0]!r}?" if close else f"Choose from {list(known)}."
        raise ValueError(f"Unknown {what}: {name!r}. {hint}")
