"""Evolution of LoRA adapters: low-rank algebra, mutation, crossover, selection, replacement and lineage.

Everything works on factors and plain data. How members are trained and where their parameters live is not known here.
"""

from .algebra import (
    SVD,
    cosine,
    delta_norm,
    effective_rank,
    factor_svd,
    inner,
    singular_values,
    thin_svd,
    weighted_sum,
)
from .lineage import EvolutionEvent, Lineage
from .operators import CROSSOVERS, MUTATIONS, OPERATORS, Operator, breed
from .replacement import EvolutionSettings, evolve, remake
from .selection import Candidate, Replacement, select


__all__ = [
    "CROSSOVERS",
    "MUTATIONS",
    "OPERATORS",
    "SVD",
    "Candidate",
    "EvolutionEvent",
    "EvolutionSettings",
    "Lineage",
    "Operator",
    "Replacement",
    "breed",
    "cosine",
    "delta_norm",
    "effective_rank",
    "evolve",
    "factor_svd",
    "inner",
    "remake",
    "select",
    "singular_values",
    "thin_svd",
    "weighted_sum",
]
