"""TRL's side of the house: configuration, the trainer, per-member optimisation, evolution as a callback.

Only this room touches TRL's private methods; `tests/training/test_trl_contract.py` watches each of them.
"""

from .config import PopulationSelfPlayConfig
from .trainer import PopulationSelfPlayTrainer


__all__ = ["PopulationSelfPlayConfig", "PopulationSelfPlayTrainer"]
