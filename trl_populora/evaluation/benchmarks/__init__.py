"""Public benchmarks, one record each, and finding them by name."""

from .benchmark import Benchmark, Window, chat
from .registry import BUILT_IN, benchmark


__all__ = ["BUILT_IN", "Benchmark", "Window", "benchmark", "chat"]
