"""Evolution of LoRA adapters: low-rank algebra, mutation, crossover, selection, the replacement step, lineage.

Everything works on factors and plain data, and does not depend on how members are trained or stored. Called directly,
a replacement step is `offspring = ask(population, ratings, rng)` and `events = tell(population, ratings, offspring)`.
"""

from trl_populora.population.adapters import read_adapter, write_adapter

from ..run_files.lineage import EvolutionEvent, Lineage
from .factors import (
    Spectrum,
    cosine,
    delta_norm,
    effective_rank,
    inner,
    spectra,
)
from .hall_of_fame import Champion, HallOfFame
from .islands import divide, migrate
from .operators import CROSSOVERS, MUTATIONS, OPERATORS, Operator, breed, get_operator
from .recombination import recombine
from .replacement import NotFiniteError, Offspring, ask, evolve, remake, tell
from .replaying import replay
from .selection import Candidate, Replacement, select
from .settings import EvolutionSettings, read_parameters


__all__ = [
    "CROSSOVERS",
    "MUTATIONS",
    "OPERATORS",
    "Candidate",
    "Champion",
    "EvolutionEvent",
    "EvolutionSettings",
    "HallOfFame",
    "Lineage",
    "NotFiniteError",
    "Offspring",
    "Operator",
    "Replacement",
    "Spectrum",
    "ask",
    "breed",
    "cosine",
    "delta_norm",
    "divide",
    "effective_rank",
    "evolve",
    "get_operator",
    "inner",
    "migrate",
    "read_adapter",
    "read_parameters",
    "recombine",
    "remake",
    "replay",
    "select",
    "spectra",
    "tell",
    "write_adapter",
]
