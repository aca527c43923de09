"""TRL's side of the house: configuration, the trainer, the sources of its rows, evolution as a callback.

Only this room touches TRL's private methods; `tests/training/test_trl_contract.py` watches each of them.
"""

from .config import PopulationSelfPlayConfig
from .row_source import RowSource
from .trainer import PopulationSelfPlayTrainer


__all__ = ["PopulationSelfPlayConfig", "PopulationSelfPlayTrainer", "RowSource"]
