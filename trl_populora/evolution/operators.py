"""The evolution operators by name.

An operator is a pure function `(parents, rng, *, strength) -> Factors`. Users name one of their own as `module:Name`.
docs/operators.md has a section for each operator.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from trl_populora.named import named
from trl_populora.population.factors import Factor, Factors
from trl_populora.settings import suggest

from .crossover import average, dare, extrapolative, layerwise, svd_subspace
from .mutation import clone, component_masking, gaussian, layer_gaussian, neftune, svd_structured


@dataclass(frozen=True)
class Operator:
    """One way to make a child.

    Attributes:
        function (`Callable`): `(parents, rng, **parameters) -> Factors`, parents best first.
        num_parents (`int`): Number of parents that it needs.
    """

    function: Callable[..., Factors]
    num_parents: int

    def __post_init__(self) -> None:
        if type(self.num_parents) is not int or self.num_parents < 1:
            raise ValueError(f"num_parents={self.num_parents!r} must be a whole number of at least 1.")

    @property
    def parameters(self) -> dict[str, Any]:
        """Names and defaults of its parameters."""
        return dict(getattr(self.function, "__kwdefaults__", None) or {})


MUTATIONS: dict[str, Operator] = {
    "svd_structured": Operator(svd_structured, 1),
    "layer_gaussian": Operator(layer_gaussian, 1),
    "component_masking": Operator(component_masking, 1),
    "gaussian": Operator(gaussian, 1),
    "neftune": Operator(neftune, 1),
}
CROSSOVERS: dict[str, Operator] = {
    "dare": Operator(dare, 2),
    "layerwise": Operator(layerwise, 2),
    "svd_subspace": Operator(svd_subspace, 2),
    "extrapolative": Operator(extrapolative, 2),
}
OPERATORS: dict[str, Operator] = {
    **MUTATIONS,
    **CROSSOVERS,
    "average": Operator(average, 2),
    "clone": Operator(clone, 1),
}
"""The operators of the package by name. One that a script adds here can be named as well."""


def get_operator(name: str) -> Operator:
    """An operator by its name: a key of `OPERATORS`, or `module:Name` of an [`Operator`] of your own.

    Raises:
        ValueError: If there is none, or it is no [`Operator`].
    """
    if name in OPERATORS:
        found = OPERATORS[name]
    elif ":" in name:
        found = named(name, label=f"operator {name!r}")
    else:
        raise ValueError(
            f"Unknown operator: {name!r}. {suggest(name, OPERATORS)} One of your own is named 'module:Name'."
        )
    if not isinstance(found, Operator):
        raise ValueError(f"Operator {name!r} is {found!r}. Make it one: Operator(function, num_parents=1).")
    return found


def breed(
    operator: str,
    parents: Sequence[Factors],
    *,
    seed: int,
    parameters: Mapping[str, Any] | None = None,
) -> Factors:
    """Makes a child, reproducibly: the same arguments give the same child.

    Args:
        operator (`str`): Name of an operator ([`get_operator`]).
        parents (`Sequence[Factors]`): Best first. They are only read, and the child shares no memory with them.
        seed (`int`): Seeds every random draw.
        parameters (`Mapping[str, Any]`, *optional*): Values that replace the operator's defaults.

    Raises:
        ValueError: If the operator is unknown, there are too few parents or the seed is out of range, or if its child
            has another form than its first parent.
    """
    found = get_operator(operator)
    if not -(2**63) <= seed < 2**64:
        raise ValueError(f"seed={seed} is out of range: it must be from -2**63 to 2**64 - 1.")
    rng = torch.Generator().manual_seed(seed)
    if len(parents) < found.num_parents:
        raise ValueError(f"Operator {operator!r} needs {found.num_parents} parents, got {len(parents)}.")
    with torch.no_grad():
        child = found.function(parents, rng, **(parameters or {}))
    if problem := _other_form(child, parents[0]):
        raise ValueError(f"The child of operator {operator!r} {problem}")
    taken = {_memory(X) for parent in parents for A, B, _ in parent.values() for X in (A, B)}

    def own(X: torch.Tensor) -> torch.Tensor:
        return X.detach().clone() if _memory(X) in taken else X

    return {path: factor._replace(A=own(factor.A), B=own(factor.B)) for path, factor in child.items()}


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _other_form(child: Any, parent: Factors) -> str:
    """What is wrong with the form of a user's child; empty if nothing is."""
    whole = isinstance(child, Mapping) and child.keys() == parent.keys()
    if not whole or not all(isinstance(factor, Factor) for factor in child.values()):
        return f"must be one Factor for each matrix of its parents, got {child!r:.200}."
    for path, factor in parent.items():
        if _form(child[path]) != _form(factor):
            told = f"{_form(child[path])} at {path}, and not {_form(factor)}"
            return f"has other shapes, dtypes or another scaling than its parents: {told}."
    return ""


def _form(factor: Factor) -> tuple:
    return tuple(factor.A.shape), tuple(factor.B.shape), factor.A.dtype, factor.B.dtype, factor.scaling
