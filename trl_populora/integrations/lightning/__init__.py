"""Populations under `lightning.Trainer`: members are trained together, each on its own rows, and evolved by any
metric.

Only this subpackage imports lightning. docs/lightning.md explains it. The warm start of self-play uses it.
"""

try:
    import lightning as _lightning  # noqa: F401
except ImportError as error:
    raise ImportError(
        "trl_populora.integrations.lightning needs Lightning: pip install 'trl-populora[lightning]'."
    ) from error

from .completions import Example, Row, causal_lm_loss, collate, encode
from .evolution_callback import EvolutionCallback
from .member_loader import MemberLoader
from .population_module import PopulationModule
from .warm_start import warm_start


__all__ = [
    "EvolutionCallback",
    "Example",
    "MemberLoader",
    "PopulationModule",
    "Row",
    "causal_lm_loss",
    "collate",
    "encode",
    "warm_start",
]
