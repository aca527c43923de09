"""TRL PopuLoRA: populations of teacher and student LoRA adapters that train each other by self-play.

The public names below are imported on first use, so that `import trl_populora` is fast and needs no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any


if TYPE_CHECKING:
    from .evolution import OPERATORS
    from .executor import Executor, Limits
    from .generation import Sampler
    from .population import Member, Population
    from .self_play import Rating, Ratings
    from .tasks import Task, TaskType, make_task_types
    from .training import PopulationSelfPlayConfig, PopulationSelfPlayTrainer, RowSource

__version__ = "0.1.0"

_ROOMS = {
    "OPERATORS": "evolution",
    "Sampler": "generation",
    **dict.fromkeys(("Executor", "Limits"), "executor"),
    **dict.fromkeys(("Member", "Population"), "population"),
    **dict.fromkeys(("Rating", "Ratings"), "self_play"),
    **dict.fromkeys(("Task", "TaskType", "make_task_types"), "tasks"),
    **dict.fromkeys(("PopulationSelfPlayConfig", "PopulationSelfPlayTrainer", "RowSource"), "training"),
}

__all__ = [
    "OPERATORS",
    "Executor",
    "Limits",
    "Member",
    "Population",
    "PopulationSelfPlayConfig",
    "PopulationSelfPlayTrainer",
    "Rating",
    "Ratings",
    "RowSource",
    "Sampler",
    "Task",
    "TaskType",
    "__version__",
    "make_task_types",
]


def __getattr__(name: str) -> Any:
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_ROOMS[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
