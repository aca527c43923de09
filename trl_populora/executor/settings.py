"""`ExecutorSettings`: all settings of an executor in one record, as in recipes and run files."""

from __future__ import annotations

from dataclasses import dataclass, fields

from .executor import Executor
from .records import Limits


@dataclass(frozen=True)
class ExecutorSettings(Limits):
    """The fields of [`Limits`], and how many programs run at the same time.

    Args:
        workers (`int`, *optional*): Number of programs that run at the same time, at least 1. Default: all cores.
        accept_unsafe (`bool`, *optional*, defaults to `False`):
            Whether to run programs even if no system-call filter is available. Programs that a model wrote then run
            without isolation.

    Raises:
        ValueError: If a value is out of range.
    """

    workers: int | None = None
    accept_unsafe: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.workers is not None and self.workers < 1:
            raise ValueError(f"workers={self.workers} must be at least 1, or unset for all cores.")

    def make(self, cores: int | None = None) -> Executor:
        """The executor.

        Args:
            cores (`int`, *optional*): Workers if `workers` is unset; the cores of this process by default.
        """
        limits = Limits(**{field.name: getattr(self, field.name) for field in fields(Limits)})
        return Executor(self.workers or cores, limits, accept_unsafe=self.accept_unsafe)
