"""The part that depends on TRL: configuration, the trainer, the sources of its rows, evolution as a callback.

Only this subpackage uses private methods of TRL; `tests/training/test_trl_contract.py` checks each of them. Its public
names are imported on first use, so that its checks of settings need not import TRL.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any


if TYPE_CHECKING:
    from .config import PopulationSelfPlayConfig
    from .row_source import RowSource
    from .trainer import PopulationSelfPlayTrainer

__all__ = ["PopulationSelfPlayConfig", "PopulationSelfPlayTrainer", "RowSource"]

_MODULES = {
    "PopulationSelfPlayConfig": "config",
    "PopulationSelfPlayTrainer": "trainer",
    "RowSource": "row_source",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_MODULES[name]}", __name__), name)
