"""The evolution operators by name.

An operator is a pure function `(parents, rng, *, strength) -> Factors`. Users add one by adding it to `OPERATORS`.
docs/operators.md has a section for each operator.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from trl_populora.population.factors import Factors

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
"""All operators by name. One of your own can be chosen in settings once it is added here."""


def breed(
    operator: str,
    parents: Sequence[Factors],
    *,
    seed: int,
    parameters: Mapping[str, Any] | None = None,
) -> Factors:
    """Makes a child, reproducibly: the same arguments give the same child.

    Args:
        operator (`str`): Key of `OPERATORS`.
        parents (`Sequence[Factors]`): Best first. They are only read.
        seed (`int`): Seeds every random draw.
        parameters (`Mapping[str, Any]`, *optional*): Values that replace the operator's defaults.
    """
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        return OPERATORS[operator].function(parents, rng, **(parameters or {}))
